"""Grabs a window in both themes."""

from pathlib import Path

from PySide6.QtTest import QTest

from gui import theme
from gui.main_window import MainWindow


class Camera:
    """Takes pictures of a window into a folder; their names end with the theme and `suffix`."""

    def __init__(self, window: MainWindow, folder: Path, suffix: str = "") -> None:
        self.window = window
        self._folder = folder
        self._suffix = suffix

    def both(self, name: str) -> None:
        """Grab `name` in both themes."""
        for choice in ("light", "dark"):
            theme.theme.apply(choice)
            QTest.qWait(500)
            self.window.grab().save(str(self._folder / f"{name}-{choice}{self._suffix}.png"))
