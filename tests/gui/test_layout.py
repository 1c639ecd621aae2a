"""No text is cut on any page, at the smallest size that is promised and at a usual one."""

import contextlib
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QAbstractButton, QLabel, QWidget
from pytestqt.exceptions import TimeoutError as QtTimeoutError
from pytestqt.qtbot import QtBot

from backend.desk.gpus import GpuRoom
from backend.events import RunState
from gui.main_window import PAGES
from gui.panes.gpus import GpusPane
from tests.e2e.fake_environment import Traces
from tests.gui import gpu_scenes
from tests.gui.panel import Panel, make_panel

SLACK_PX = 1


def cut(window: QWidget) -> list[str]:
    """Labels and buttons on screen that are smaller than what they say needs."""
    found = []
    for label in window.findChildren(QLabel):
        if not label.isVisible() or not label.text():
            continue
        if label.wordWrap():
            if label.heightForWidth(label.width()) > label.height() + SLACK_PX:
                found.append(f"label {label.text()!r}: {label.heightForWidth(label.width())} in {label.height()}")
        elif label.sizeHint().width() > label.width() + SLACK_PX:
            found.append(f"label {label.text()!r}: {label.sizeHint().width()} in {label.width()}")
    found += [
        f"button {button.text()!r}: {button.minimumSizeHint().width()} in {button.width()}"
        for button in window.findChildren(QAbstractButton)
        if button.isVisible() and button.text() and button.minimumSizeHint().width() > button.width() + SLACK_PX
    ]
    return found


@pytest.mark.parametrize("size", [(1100, 700), (1440, 900)], ids=["1100x700", "1440x900"])
def test_nothing_is_cut(panel: Panel, size: tuple[int, int]) -> None:
    window = panel.window
    window.resize(*size)

    def look(what: str) -> None:
        with contextlib.suppress(QtTimeoutError):  # pages are built in slices, and nothing tells when they have settled
            panel.wait(lambda: not cut(window), limit_ms=15_000)
        assert (window.width(), window.height()) == size, f"{what}: the window wants to be larger"
        assert cut(window) == [], what

    look("idle")
    panel.start_and_wait()
    panel.ask("Hello there, how are you?")
    panel.wait(lambda: window.status.queue.text() == "0")
    for key, title in PAGES:
        window.show_page(key)
        panel.wait(window.page(key).isVisible)
        look(title)
    os.kill(Traces.of_listener(panel.port).session, signal.SIGKILL)
    panel.wait_for(RunState.FAILED)
    window.show_page("run")
    look("failed")


@pytest.mark.parametrize("size", [(1100, 700), (1440, 900)], ids=["1100x700", "1440x900"])
def test_nothing_is_cut_with_eight_gpus(
    qtbot: QtBot, tmp_path: Path, no_leaks: None, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    readings = [gpu_scenes.reading(0, n) for n in range(6)]
    readings.append(gpu_scenes.reading(0, 6, throttle=("power cap", "thermal limit")))
    readings.append(gpu_scenes.lost(0, 7))
    snapshot = gpu_scenes.snapshot(0, 8, readings=readings)
    monkeypatch.setattr(GpuRoom, "newest", lambda _room: replace(snapshot, t=time.time()))
    with make_panel(qtbot, tmp_path) as panel:
        window = panel.window
        window.resize(*size)
        panel.wait(lambda: len(window.status.gpus.bars) == 8)
        page = window.page("gpus")
        assert isinstance(page, GpusPane)
        for key, section in (("run", ""), ("gpus", "Charts"), ("gpus", "Processes"), ("gpus", "Hardware")):
            window.show_page(key)
            panel.wait(window.page(key).isVisible)
            for chip in page.sections.buttons():
                if chip.text() == section:
                    chip.click()
            with contextlib.suppress(QtTimeoutError):
                panel.wait(lambda: not cut(window), limit_ms=15_000)
            assert (window.width(), window.height()) == size, f"{key} {section}: the window wants to be larger"
            assert cut(window) == [], f"{key} {section}"
        strip = window.status.gpus
        assert strip.layout_for(strip.width())[0] == 8, "all of them fit"
