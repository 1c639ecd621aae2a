"""A line at the lower edge of a scroll area while there is more below: what is cut there goes on."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QScrollArea, QWidget

from gui.theme import theme


class EdgeLine(QWidget):
    """Lies over the lowest pixels of the area; the mouse goes through it."""

    def __init__(self, area: QScrollArea) -> None:
        super().__init__(area)
        self._area = area
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
        self.setGeometry(seen.left(), seen.bottom(), seen.width(), 1)
        self.setVisible(bar.value() < bar.maximum())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the line."""
        QPainter(self).fillRect(self.rect(), QColor(theme.tokens.line))
