"""Grabs a window in both themes, into small files."""

from pathlib import Path

import numpy as np
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from gui import theme
from gui.main_window import MainWindow

_WIDTH, _HEIGHT = 1440, 900
_N_COLOURS, _N_COMMON = 256, 128
_SMALLEST = 0  # what Qt calls the quality of a PNG is how little it is compressed


class Camera:
    """Takes pictures of a window into a folder; their names end with the theme and `suffix`."""

    def __init__(self, window: MainWindow, folder: Path, suffix: str = "", *, every_size: bool = False) -> None:
        self.window = window
        self._folder = folder
        self._suffix = suffix
        self._every_size = every_size and not suffix

    def both(self, name: str) -> None:
        """Grab the window in both themes."""
        for choice in ("light", "dark"):
            theme.theme.apply(choice)
            QTest.qWait(500)
            self.one(f"{name}-{choice}", self.window)

    def one(self, name: str, widget: QWidget) -> None:
        """Grab something as it is now."""
        save(widget.grab().toImage(), self._folder / f"{name}{self._suffix}.png")

    def resized(self, name: str, width: int, height: int) -> None:
        """Grab the window in another size, if such pictures are wanted."""
        if not self._every_size:
            return
        self.window.resize(width, height)
        QTest.qWait(1500)
        self.both(f"{name}-{width}x{height}")
        self.window.resize(_WIDTH, _HEIGHT)
        QTest.qWait(500)


def save(image: QImage, file: Path) -> None:
    """Write a PNG of 256 colours, a third as large: those that are seen most, and those that stand out most."""
    image = image.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(image.constBits(), np.uint32).reshape(image.height(), image.bytesPerLine() // 4)
    found, places, counts = np.unique(pixels, return_inverse=True, return_counts=True)
    parts = np.stack([found >> 16 & 255, found >> 8 & 255, found & 255], axis=1).astype(float)
    chosen = list(np.argsort(-counts)[:_N_COMMON])
    far = np.min(((parts[:, None] - parts[chosen]) ** 2).sum(axis=2), axis=1)
    while len(chosen) < min(_N_COLOURS, len(found)):
        chosen.append(int(np.argmax(far)))
        far = np.minimum(far, ((parts - parts[chosen[-1]]) ** 2).sum(axis=1))
    nearest = np.argmin(((parts[:, None] - parts[chosen]) ** 2).sum(axis=2), axis=1).astype(np.uint8)
    indexed = np.ascontiguousarray(nearest[places].reshape(pixels.shape))
    small = QImage(indexed.data, image.width(), image.height(), pixels.shape[1], QImage.Format.Format_Indexed8)
    small.setColorTable([int(colour) | 0xFF000000 for colour in found[chosen]])
    if not small.save(str(file), quality=_SMALLEST):
        raise OSError(f"{file} cannot be written")
