"""The lines of a chart, painted in one go: areas under them, strokes with their gaps, dots between two gaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from backend.curves import Floats
from gui.theme import mix, theme

Curves = Mapping[str, tuple[Floats, Floats]]
"""For each line x (seconds before the right end, ascending, <= 0) and values, NaN for a gap."""

_DOT_PX = 2.0
_MARGIN_PX = 3.0  # half of a line, or of a dot, may stand outside of the plot at its very edge
_AREA = 0.16  # how much an area has of its line's colour
_PALER = 0.62  # how much of its colour a line of the other run keeps
_DASHES, _OTHER_DASHES = (6.0, 3.0), (4.0, 3.0)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: `colour` counts the theme's series colours; `fill` draws a soft area under it.

    `dashed` tells lines of one colour apart.
    """

    name: str
    colour: int
    fill: bool = False
    dashed: bool = False


class Shape(NamedTuple):
    """What a curve looks like, in pixels: its strokes, and the dots of what would be too short for one."""

    strokes: tuple[QPolygonF, ...]
    dots: tuple[QPointF, ...]


class ChartLines(pg.GraphicsObject):  # type: ignore[misc]  # pyqtgraph has no types
    """Draws lines into a view box, in its pixels: one item for all, since each costs more than what it draws."""

    def __init__(self, box: pg.ViewBox) -> None:
        super().__init__(box)
        self._box = box
        self._lines: tuple[Line, ...] = ()
        self._curves: Curves = {}
        self._others: Curves = {}
        self._filled: frozenset[str] = frozenset()
        self._span_s = self._limit = 1.0
        self._shapes: dict[str, Shape] | None = None  # worked out when they are painted
        self._other_shapes: dict[str, Shape] = {}
        box.sigResized.connect(self._on_resized)
        theme.changed.connect(self.update)

    def show_lines(
        self,
        lines: Sequence[Line],
        curves: Curves,
        others: Curves,
        *,
        filled: frozenset[str],
        span_s: float,
        limit: float,
    ) -> None:
        """Show these lines.

        Args:
            lines: the first one is drawn on top.
            curves: a curve for each line.
            others: those of a second run, which lie paler and dashed behind all.
            filled: names of the lines with an area under them.
            span_s: seconds from the left end to the right.
            limit: value at the upper end, 0 is the lower one.
        """
        self._lines, self._curves, self._others, self._filled = tuple(lines), curves, others, filled
        self._span_s, self._limit, self._shapes = span_s, limit, None
        self.update()

    @property
    def filled(self) -> frozenset[str]:
        """Names of the lines with an area under them."""
        return self._filled

    def shape_of(self, name: str, *, other: bool = False) -> Shape:
        """Return what a line, or that of the second run, looks like now."""
        if self._shapes is None:
            self._shapes = {name: self._worked_out(*curve) for name, curve in self._curves.items()}
            self._other_shapes = {name: self._worked_out(*curve) for name, curve in self._others.items()}
        return (self._other_shapes if other else self._shapes).get(name, _NOTHING)

    def _worked_out(self, x: Floats, y: Floats) -> Shape:
        x_px = (x / self._span_s + 1) * self._box.width()
        y_px = (1 - y / self._limit) * self._box.height()
        strokes, dots = [], []
        for part in unbroken(y):
            xs, ys = x_px[part], y_px[part]
            if xs[-1] - xs[0] < 1 and np.ptp(ys) < 1:  # one value, or what was made of one by thinning
                dots.append(QPointF(xs[0], ys[0]))
            else:
                strokes.append(pg.functions.arrayToQPolygonF(xs, ys))
        return Shape(tuple(strokes), tuple(dots))

    def boundingRect(self) -> QRectF:
        """The view box, and a little beside it."""
        return QRectF(0, 0, self._box.width(), self._box.height()).adjusted(
            -_MARGIN_PX, -_MARGIN_PX, _MARGIN_PX, _MARGIN_PX
        )

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Paint the other run, over it the areas, and over these the lines."""
        painter.setClipRect(self.boundingRect(), Qt.ClipOperation.IntersectClip)
        for line in self._lines if self._others else ():
            self._paint_line(painter, self.shape_of(line.name, other=True), other_pen(line))
        for line in self._lines:
            if line.name in self._filled:
                self._paint_area(painter, self.shape_of(line.name), line)
        for line in reversed(self._lines):
            self._paint_line(painter, self.shape_of(line.name), pen(line))

    def _paint_area(self, painter: QPainter, shape: Shape, line: Line) -> None:
        base = self._box.height()
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(mix(theme.tokens.surface, _colour(line), _AREA)))
        for stroke in shape.strokes:
            area = QPolygonF(stroke)
            area.append(QPointF(stroke.last().x(), base))
            area.append(QPointF(stroke.first().x(), base))
            painter.drawPolygon(area)

    @staticmethod
    def _paint_line(painter: QPainter, shape: Shape, stroke_pen: QPen) -> None:
        painter.setPen(stroke_pen)
        for stroke in shape.strokes:
            painter.drawPolyline(stroke)
        if shape.dots:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(stroke_pen.color())
            for dot in shape.dots:
                painter.drawEllipse(dot, _DOT_PX, _DOT_PX)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)

    def _on_resized(self) -> None:
        self.prepareGeometryChange()
        self._shapes = None
        self.update()


def unbroken(values: Floats) -> list[slice]:
    """Return the stretches of values without a gap (NaN) among them."""
    known = np.isfinite(values)
    if known.all():
        return [slice(0, known.size)] if known.size else []
    edges = np.flatnonzero(np.diff(known, prepend=False, append=False))
    return [slice(begin, end) for begin, end in edges.reshape(-1, 2).tolist()]


def pen(line: Line) -> QPen:
    """Return what a line is drawn with."""
    return _pen(_colour(line), _DASHES if line.dashed else ())


def other_pen(line: Line) -> QPen:
    """Return what the line of a second run is drawn with."""
    return _pen(mix(theme.tokens.surface, _colour(line), _PALER), _OTHER_DASHES)


def _colour(line: Line) -> str:
    series = theme.tokens.series
    return series[line.colour % len(series)]


@lru_cache(maxsize=64)
def _pen(colour: str, dashes: tuple[float, ...]) -> QPen:
    made = QPen(QColor(colour), 1)
    made.setCosmetic(True)
    if dashes:
        made.setDashPattern(dashes)
    return made


_NOTHING = Shape((), ())
