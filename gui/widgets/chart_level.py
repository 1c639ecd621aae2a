"""What a chart shows beside its lines: a dashed line at a value with its name, and stretches of time along the top."""

from collections.abc import Sequence
from typing import NamedTuple

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui.theme import NOTE_PX, text_font, theme

_BAND_PX = 4
_LEAST_BAND_PX = 3
_PAD_PX = 6


class Level(NamedTuple):
    """A value that counts, and what it is called: "peak 3,352 GB/s"."""

    value: float
    name: str


class ChartLevel(pg.GraphicsObject):  # type: ignore[misc]  # pyqtgraph has no types
    """Draws a level and bands into a view box, in its pixels; repaints only when the picture is another one."""

    def __init__(self, box: pg.ViewBox) -> None:
        super().__init__(box)
        self._box = box
        self._font = text_font(NOTE_PX)
        self._text = QFontMetricsF(self._font)
        self.level: Level | None = None
        self.bands: tuple[tuple[float, float], ...] = ()  # pixels from the left end
        self._limit = 1.0
        self.setZValue(-5)  # behind the lines, over the marks of what happened
        box.sigResized.connect(self._on_resized)
        theme.changed.connect(self.update)

    def show_level(self, level: Level | None, limit: float) -> None:
        """Show a level on an axis from 0 to `limit`."""
        if (level, limit) != (self.level, self._limit):
            self.level, self._limit = level, limit
            self.update()

    def show_bands(self, stretches: Sequence[tuple[float, float]], span_s: float) -> None:
        """Show stretches of time, as seconds before the right end (begin < end <= 0)."""
        wide = self._box.width()
        bands = tuple(
            (round((begin + span_s) / span_s * wide), round((end + span_s) / span_s * wide))
            for begin, end in stretches
            if end >= -span_s
        )
        if bands != self.bands:
            self.bands = bands
            self.update()

    def boundingRect(self) -> QRectF:
        """The view box."""
        return QRectF(0, 0, self._box.width(), self._box.height())

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Paint the bands, and the level with its name on the side where it has room."""
        tokens = theme.tokens
        wide, high = self._box.width(), self._box.height()
        for begin, end in self.bands:
            left = max(0.0, float(begin))
            painter.fillRect(QRectF(left, 0, max(end - left, _LEAST_BAND_PX), _BAND_PX), QColor(tokens.warn))
        if self.level is None or not 0 <= self.level.value <= self._limit:
            return
        y = high - self.level.value / self._limit * high
        pen = QPen(QColor(tokens.muted), 1, Qt.PenStyle.DashLine)
        pen.setCosmetic(True)
        painter.setPen(pen)
        painter.drawLine(QPointF(0, y), QPointF(wide, y))
        painter.setFont(self._font)
        below = y < self._text.height() + 2 + (_BAND_PX if self.bands else 0)
        top = y + 2 if below else y - self._text.height() - 2
        area = QRectF(_PAD_PX, top, wide - 2 * _PAD_PX, self._text.height())
        painter.drawText(area, Qt.AlignmentFlag.AlignLeft, self.level.name)

    def _on_resized(self) -> None:
        self.prepareGeometryChange()
        self.update()
