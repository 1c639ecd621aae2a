"""Lets what a scroll area cuts at its lower edge fade out, so that no half line of text stands there."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from PySide6.QtWidgets import QScrollArea, QWidget

from gui.theme import theme

_FADE_PX, _SOLID_PX = 14, 20


class EdgeFade(QWidget):
    """Lies over the lower edge while there is more below; the mouse goes through it."""

    def __init__(self, area: QScrollArea, ground: str = "surface") -> None:
        """Cover the edge of `area`, which stands on this colour."""
        super().__init__(area)
        self._area = area
        self._ground = ground
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        area.viewport().installEventFilter(self)
        area.verticalScrollBar().valueChanged.connect(self._place)
        area.verticalScrollBar().rangeChanged.connect(self._place)
        theme.changed.connect(self.update)
        self._place()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay at the edge."""
        if event.type() == QEvent.Type.Resize:
            self._place()
        return super().eventFilter(watched, event)

    def _place(self) -> None:
        bar, seen = self._area.verticalScrollBar(), self._area.viewport().geometry()
        height = _FADE_PX + _SOLID_PX
        self.setGeometry(seen.left(), seen.bottom() + 1 - height, seen.width(), height)
        self.setVisible(bar.value() < bar.maximum())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint from nothing to the colour behind."""
        colour = QColor(getattr(theme.tokens, self._ground))
        clear = QColor(colour)
        clear.setAlpha(0)
        blend = QLinearGradient(0, 0, 0, _FADE_PX)
        blend.setColorAt(0, clear)
        blend.setColorAt(1, colour)
        painter = QPainter(self)
        painter.fillRect(self.rect(), blend)
