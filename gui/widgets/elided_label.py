"""A line of muted text that is shortened where there is no room for it; the whole of it stands in the tooltip."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.theme import code_font, theme


class ElidedLabel(QWidget):
    """By default code, such as a path, shortened in its middle.

    Attributes:
        text: all of it.
    """

    def __init__(
        self,
        text: str,
        parent: QWidget | None = None,
        *,
        font: QFont | None = None,
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideMiddle,
    ) -> None:
        super().__init__(parent)
        self._font = font or code_font()
        self._metrics = QFontMetrics(self._font)
        self._mode = mode
        self.text = text
        self.show_text(text)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def show_text(self, text: str) -> None:
        """Show another text."""
        self.text = text
        self.setAccessibleName(text)
        self.setToolTip(text)
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """As wide as the text."""
        return QSize(self._metrics.horizontalAdvance(self.text) + 2, self._metrics.height() + 2)

    def minimumSizeHint(self) -> QSize:
        """Room for some of it."""
        return QSize(min(80, self.sizeHint().width()), self._metrics.height() + 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint what fits."""
        painter = QPainter(self)
        painter.setFont(self._font)
        painter.setPen(QColor(theme.tokens.muted))
        shown = self._metrics.elidedText(self.text, self._mode, self.width())
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
