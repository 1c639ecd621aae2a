"""A line of text, such as a path, that is shortened in its middle where there is no room for it."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.theme import code_font, theme


class ElidedLabel(QWidget):
    """Muted code text; the whole of it stands in the tooltip."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.text = text
        self._font = code_font()
        self._metrics = QFontMetrics(self._font)
        self.setAccessibleName(text)
        self.setToolTip(text)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        """As wide as the text."""
        return QSize(self._metrics.horizontalAdvance(self.text) + 2, self._metrics.height() + 2)

    def minimumSizeHint(self) -> QSize:
        """Room for some of it."""
        return QSize(80, self._metrics.height() + 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint what fits, beginning and end."""
        painter = QPainter(self)
        painter.setFont(self._font)
        painter.setPen(QColor(theme.tokens.muted))
        shown = self._metrics.elidedText(self.text, Qt.TextElideMode.ElideMiddle, self.width())
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
