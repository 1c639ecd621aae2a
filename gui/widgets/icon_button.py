"""A quiet button with a symbol and no text."""

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QToolButton, QWidget

from gui.theme import icon, theme


class IconButton(QToolButton):
    """Shows a symbol of assets/symbols in the muted colour, and has a name for those who cannot see it."""

    def __init__(self, symbol: str, name: str, parent: QWidget | None = None, *, size_px: int = 16) -> None:
        super().__init__(parent)
        self._symbol, self._size_px = symbol, size_px
        self.setProperty("kind", "quiet")
        self.setAccessibleName(name)
        self.setToolTip(name)
        self.setIconSize(QSize(size_px, size_px))
        theme.changed.connect(self._paint)
        self._paint()

    def _paint(self) -> None:
        self.setIcon(icon(self._symbol, theme.tokens.muted, size_px=self._size_px))
