"""How a page exports what its cards show: readings by the backend, a picture by the window."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget

from backend.errors import UserError
from gui.bridge import Bridge
from gui.widgets import grid_picture
from gui.widgets.card_grid import CardGrid
from gui.widgets.notice_bar import NoticeBar
from gui.widgets.slices import Slices


class Exporter(QObject):
    """Writes one file after the other off the main thread, and says in a notice what became of it."""

    def __init__(self, bridge: Bridge, notice: NoticeBar, parent: QWidget) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._notice = notice
        self._slices = Slices(self)

    @property
    def is_drawing(self) -> bool:
        """Whether a picture is being drawn."""
        return not self._slices.is_idle

    def readings(self, path: Path, work: Coroutine[Any, Any, None]) -> None:
        """Have the backend write readings into a file."""
        self._write(path, work)

    def picture(self, path: Path, grid: CardGrid, title: str, over: Sequence[QWidget] = ()) -> None:
        """Draw the cards of a grid, as `grid_picture.steps`, and write them into a file."""
        take: Callable[[QImage], None] = partial(self._on_drawn, path)
        self._slices.add(grid, grid_picture.steps(grid, title, over, take))

    def _on_drawn(self, path: Path, image: QImage) -> None:
        self._write(path, _save(image, path))

    def _write(self, path: Path, work: Coroutine[Any, Any, None]) -> None:
        self._bridge.call(self, work, done=lambda _: self._on_written(path), failed=self._on_failed)

    def _on_written(self, path: Path) -> None:
        self._notice.show_notice(f"Exported to {path}.")

    def _on_failed(self, error: UserError) -> None:
        self._notice.show_notice(str(error), tone="bad")


async def _save(image: QImage, path: Path) -> None:
    await asyncio.to_thread(grid_picture.save, image, path)
