"""What tests of pages need: a store for choices, and someone who holds the page."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

ShowPage = Callable[[QWidget, int, int], None]


@pytest.fixture
def store(tmp_path: Path) -> QSettings:
    return QSettings(str(tmp_path / "window.ini"), QSettings.Format.IniFormat)


@pytest.fixture
def show_page(qtbot: QtBot) -> ShowPage:
    """Shows a page in a size; it is held until the test ends, else it would be collected while it is on screen."""
    held: list[QWidget] = []

    def show(page: QWidget, width: int, height: int) -> None:
        held.append(page)
        qtbot.addWidget(page)
        page.resize(width, height)
        page.show()

    return show
