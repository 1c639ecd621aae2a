"""Qt without a screen, the real look, and a check that no widget, timer or thread outlives its test."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui import theme
from tests.gui.panel import Panel, make_panel

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(scope="session")
def themed_app(qapp: QApplication) -> QApplication:
    """The one application, with fonts and style as a person sees them."""
    theme.prepare(qapp, "dark")
    return qapp


@pytest.fixture(autouse=True)
def no_qt_leaks(themed_app: QApplication) -> Iterator[None]:
    """Fail a test that leaves a top-level widget or a running timer behind."""
    before = {id(widget) for widget in themed_app.topLevelWidgets()}
    yield
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    gc.collect()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    widgets = [w for w in themed_app.topLevelWidgets() if id(w) not in before and w.isVisible()]
    timers = [
        timer
        for timer in gc.get_objects()
        if isinstance(timer, QTimer) and shiboken6.isValid(timer) and timer.isActive()
    ]
    assert not widgets, f"left open: {widgets}"
    assert not timers, f"left running: {[(timer, timer.parent()) for timer in timers]}"


@pytest.fixture
def panel(qtbot: QtBot, tmp_path: Path, no_leaks: None) -> Iterator[Panel]:
    """The whole window on a fake engine, closed at the end whatever the test did."""
    with make_panel(qtbot, tmp_path) as made:
        yield made
