"""Lines over a stretch of time, drawn with pyqtgraph: fixed time axis, steady upper limit, gaps, a read-out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QObject, QPointF, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QMouseEvent, QPen
from PySide6.QtWidgets import QToolTip, QVBoxLayout, QWidget

from backend.curves import Floats
from gui.theme import NOTE_PX, mix, text_font, theme
from gui.widgets.chart_curve import ChartCurve
from gui.widgets.chart_level import ChartLevel, Level
from gui.widgets.chart_marks import SYMBOL_PX, ChartMarks, MarkGroup, Placed
from gui.widgets.thinning import thinned
from gui.widgets.time_axis import TimeMarks, time_marks

_AXIS_WIDTH = 44
_AXIS_HEIGHT = 20
# The upper limit falls only when the highest value has been well below it, so that it does not jitter.
_FALL_BELOW = 0.5
# Readings are drawn one by one up to about one for each pixel. What is more is drawn as extremes, which jump up and
# down and so cost more for each point: fewer of them keep a long span as cheap as a short one.
_LEAST_POINTS = 320
_THINNED_SHARE = 0.6
_INSIDE = 0.9999
_PALER = 0.62  # how much of its colour a line of the other run keeps

Curves = Mapping[str, tuple[Floats, Floats]]
"""For each line x (seconds before the right end, ascending, <= 0) and values, NaN for a gap."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: `colour` counts the theme's series colours; `fill` draws a soft area under it.

    `dashed` tells lines of one colour apart.
    """

    name: str
    colour: int
    fill: bool = False
    dashed: bool = False


def nice_limit(highest: float) -> float:
    """Return the least of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 x 10^n that is no less than `highest`, > 0."""
    power = 10.0 ** math.floor(math.log10(highest))
    return next(
        factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * power >= highest * (1 - 1e-9)
    )


def value_marks(limit: float, n_most: int = 5) -> list[float]:
    """Return round values from 0 to `limit` for an axis, at most `n_most` steps."""
    power = 10.0 ** math.floor(math.log10(limit))
    for step in (factor * power for factor in (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5)):
        if limit / step <= n_most + 1e-9 and abs(limit / step - round(limit / step)) < 1e-9:
            return [step * count for count in range(round(limit / step) + 1)]
    return [0.0, limit]


class Chart(QWidget):
    """A plot whose x is seconds before its right end, so that nothing but the lines moves when time goes on.

    Signals:
        pointed(float | None): the pointer is at that x, or has left the plot.
    """

    pointed = Signal(object)

    def __init__(
        self,
        lines: Sequence[Line],
        *,
        limit: float | None = None,
        least_limit: float = 1.0,
        most_limit: float = math.inf,
        unit: str = "",
        parent: QWidget | None = None,
    ) -> None:
        """Make all items once.

        Args:
            lines: the first one is drawn on top, areas below all.
            limit: fixed upper end of the value axis; None follows the values.
            least_limit: lowest upper end when it follows.
            most_limit: highest upper end when it follows.
            unit: stands at the upper end of the value axis.
            parent: the owner.
        """
        super().__init__(parent)
        self._lines = tuple(lines)
        self._fixed_limit = limit
        self._least_limit, self._most_limit = least_limit, most_limit
        self._unit = f" {unit}" if unit else ""
        self.limit = limit or least_limit
        self.span_s = 300.0
        self.axis: TimeMarks = ()
        self.drawn: dict[str, tuple[Floats, Floats]] = {}
        self.drawn_other: dict[str, tuple[Floats, Floats]] = {}
        self._view = pg.PlotWidget(self, enableMenu=False)
        self._view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._view.setFrameShape(self._view.Shape.NoFrame)
        self._plot = self._view.getPlotItem()
        self._plot.hideButtons()
        self._plot.setMouseEnabled(False, False)
        self._plot.setContentsMargins(0, SYMBOL_PX + 1, 16, 0)  # over the plot stand the symbols of the marks
        box = self._plot.getViewBox()
        box.setDefaultPadding(0)
        box.disableAutoRange()
        # Nothing is drawn outside but half of the lines and dots that stand at the very edge.
        box.setFlag(box.GraphicsItemFlag.ItemClipsChildrenToShape, False)
        box.sigRangeChangedManually.disconnect()  # nothing here is moved by hand
        for side, size in (("left", _AXIS_WIDTH), ("bottom", _AXIS_HEIGHT)):
            axis = self._plot.getAxis(side)
            axis.setStyle(tickFont=text_font(NOTE_PX), tickLength=0, autoExpandTextSpace=False, tickTextOffset=6)
            axis.setWidth(size) if side == "left" else axis.setHeight(size)
            axis.setCacheMode(axis.CacheMode.DeviceCoordinateCache)  # it seldom changes, and text is dear to paint
        # Room beside the axis for the outermost labels, which would be left out.
        self._plot.getAxis("bottom").setStyle(hideOverlappingLabels=_AXIS_WIDTH)
        self._items: dict[str, ChartCurve] = {}
        self._dots: dict[str, pg.PlotDataItem] = {}
        self._other_items: dict[str, ChartCurve] = {}  # made when a second run is laid over the first
        self._other_dots: dict[str, pg.PlotDataItem] = {}
        areas, strokes = [line for line in lines if line.fill], [line for line in lines if not line.fill]
        for line in (*areas, *reversed(strokes)):  # no area hides a line
            self._items[line.name], self._dots[line.name] = self._add_line()
        self._marks = ChartMarks(box)
        self._level = ChartLevel(box)
        self._cursor = pg.InfiniteLine(angle=90, movable=False)
        self._cursor.hide()
        self._plot.addItem(self._cursor, ignoreBounds=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._view)
        self._view.viewport().setMouseTracking(True)
        self._view.viewport().installEventFilter(self)
        theme.changed.connect(self._on_theme_changed)
        self._on_theme_changed()
        self.set_span(self.span_s)
        self._set_limit(self.limit)

    @property
    def cursor_at(self) -> float | None:
        """Where the read-out's line stands, None when it is hidden."""
        return float(self._cursor.value()) if self._cursor.isVisible() else None

    @property
    def marks(self) -> tuple[str, ...]:
        """Labels of the time axis, newest first."""
        return tuple(label for _, label in self.axis)

    @property
    def mark_groups(self) -> tuple[MarkGroup, ...]:
        """The marks of what happened, as they are drawn."""
        return self._marks.groups

    @property
    def plot_width(self) -> int:
        """Pixels from the oldest to the newest moment."""
        return int(self._plot.getViewBox().width())

    def set_span(self, span_s: float, axis: TimeMarks | None = None) -> None:
        """Show a stretch of `span_s` seconds, by default the last ones; the lines follow with the next `draw`.

        Args:
            span_s: length of the stretch.
            axis: labels of the time axis, None for those of a stretch that ends now.
        """
        axis = time_marks(span_s) if axis is None else axis
        if span_s != self.span_s or not self.axis:
            self.span_s = span_s
            self._plot.setXRange(-span_s, 0, padding=0)
        if axis != self.axis:
            self.axis = axis
            # A mark exactly at the end is left out where rounding puts it outside.
            self._plot.getAxis("bottom").setTicks([[(at * _INSIDE, label) for at, label in axis]])

    def show_marks(self, marks: Sequence[Placed]) -> None:
        """Mark what happened within the span."""
        if self._marks.show_marks(marks, self.span_s):
            self.setAccessibleDescription(". ".join(group.words for group in self.mark_groups))

    @property
    def level(self) -> Level | None:
        """The value that a dashed line is drawn at."""
        return self._level.level

    @property
    def bands(self) -> tuple[tuple[float, float], ...]:
        """The stretches along the top, in pixels from the left end."""
        return self._level.bands

    def show_level(self, level: Level | None) -> None:
        """Draw a dashed line at a value; the axis reaches up to it with the next `draw`."""
        self._level.show_level(level, self.limit)

    def show_bands(self, stretches: Sequence[tuple[float, float]]) -> None:
        """Mark stretches of time along the top, as seconds before the right end (begin < end <= 0)."""
        self._level.show_bands(stretches, self.span_s)

    def mark_near(self, x: float) -> MarkGroup | None:
        """Return the marks that are drawn near `x`."""
        return self._marks.near(x)

    def draw(self, curves: Curves, other: Curves | None = None, *, anew: bool = False) -> None:
        """Show these lines, and paler those of another run.

        Args:
            curves: a curve for each line.
            other: the same of a second run; None without one.
            anew: these are of another run than before, so the value axis has nothing to be steady for.
        """
        if anew and self._fixed_limit is None:
            self.limit = 0.0
        if other and not self._other_items:
            self._make_other()
        curves = self._inside(curves)
        most = max(self._view.width(), _LEAST_POINTS)
        for line in self._lines:
            if line.fill and line.name in curves:  # nothing under extremes that jump up and down, or over another run
                fill_level = 0 if curves[line.name][0].size <= most and not other else None
                if self._items[line.name].opts["fillLevel"] != fill_level:
                    self._items[line.name].setFillLevel(fill_level)
        self.drawn = self._fill(self._items, self._dots, curves)
        if other or self.drawn_other:
            shown = self._inside(other) if other else dict.fromkeys(self._other_items, (_NOTHING, _NOTHING))
            drawn = self._fill(self._other_items, self._other_dots, shown)
            self.drawn_other = drawn if other else {}
        if self._fixed_limit is None:
            level = self.level.value if self.level is not None else 0.0
            self._follow(max(_highest(self.drawn), _highest(self.drawn_other), level))

    def _inside(self, curves: Curves) -> dict[str, tuple[Floats, Floats]]:
        """Leave out what is before the span: a bucket of the history in which it begins is there whole."""
        firsts = {name: int(np.searchsorted(x, -self.span_s)) for name, (x, _) in curves.items()}
        return {name: (x[firsts[name] :], y[firsts[name] :]) for name, (x, y) in curves.items()}

    def _fill(
        self, items: Mapping[str, ChartCurve], dots: Mapping[str, pg.PlotDataItem], curves: Curves
    ) -> dict[str, tuple[Floats, Floats]]:
        """Hand curves to their items, thinned to what the plot can show; return what they got."""
        most = max(self._view.width(), _LEAST_POINTS)
        few = round(most * _THINNED_SHARE)
        drawn = {name: (x, y) if x.size <= most else thinned(x, y, few) for name, (x, y) in curves.items()}
        for name, (x, y) in drawn.items():
            items[name].show_values(x, y)
            alone = _alone(y)
            if alone.any() or dots[name].xData is not None:
                dots[name].setData(x[alone], y[alone])
        return drawn

    def _make_other(self) -> None:
        """Make the items of a second run; they lie behind those of the first."""
        for line in self._lines:
            self._other_items[line.name], self._other_dots[line.name] = made = self._add_line()
            for item in made:
                item.setZValue(-1)
        self._on_theme_changed()

    def _add_line(self) -> tuple[ChartCurve, pg.PlotDataItem]:
        """Make what shows a line, and its dots: a value between two gaps has no neighbour to draw a line to."""
        curve = ChartCurve()
        self._plot.addItem(curve, ignoreBounds=True)
        return curve, self._plot.plot(pen=None)

    def value_at(self, name: str, x: float, *, other: bool = False) -> float | None:
        """Return what a line, or that of the other run, shows at `x`: its nearest point, unless a gap or far away."""
        times, values = (self.drawn_other if other else self.drawn).get(name, (_NOTHING, _NOTHING))
        if not times.size:
            return None
        after = int(np.searchsorted(times, x))
        near = min({max(after - 1, 0), min(after, times.size - 1)}, key=lambda index: abs(times[index] - x))
        far_s = max(2.5, self.span_s / 100)
        found = float(values[near])
        return found if math.isfinite(found) and abs(times[near] - x) <= far_s else None

    def set_cursor(self, x: float | None) -> None:
        """Show the line of the read-out at `x`, or hide it."""
        if x is None:
            self._cursor.hide()
        else:
            self._cursor.setValue(x)
            self._cursor.show()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the pointer over the plot."""
        if event.type() == QEvent.Type.MouseMove and isinstance(event, QMouseEvent):
            self._point_at(event.position())
        elif event.type() == QEvent.Type.Leave:
            self.pointed.emit(None)
        elif event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            self._tell_mark(event)
            return True
        elif event.type() == QEvent.Type.Wheel:
            event.ignore()  # the page scrolls
            return True
        return super().eventFilter(watched, event)

    def _point_at(self, position: QPointF) -> None:
        scene = self._view.mapToScene(position.toPoint())
        box = self._plot.getViewBox()
        inside = box.sceneBoundingRect().contains(scene)
        self.pointed.emit(float(box.mapSceneToView(scene).x()) if inside else None)

    def _tell_mark(self, event: QHelpEvent) -> None:
        """Say in a tooltip what happened where the pointer is."""
        scene = self._view.mapToScene(event.pos())
        group = self.mark_near(float(self._plot.getViewBox().mapSceneToView(scene).x()))
        QToolTip.showText(event.globalPos(), group.words if group is not None else "", self)

    def _follow(self, highest: float) -> None:
        """Raise the upper limit at once, lower it only when there is much room."""
        wanted = min(max(nice_limit(highest * 1.05) if highest > 0 else 0.0, self._least_limit), self._most_limit)
        if wanted > self.limit or (wanted < self.limit and highest < self.limit * _FALL_BELOW):
            self._set_limit(wanted)

    def _set_limit(self, limit: float) -> None:
        self.limit = limit
        self._level.show_level(self.level, limit)
        self._plot.setYRange(0, limit, padding=0)
        marks = value_marks(limit)
        labels = [f"{mark:,.10g}{self._unit if mark == marks[-1] else ''}" for mark in marks]
        self._plot.getAxis("left").setTicks(
            [[(mark * _INSIDE, label) for mark, label in zip(marks, labels, strict=True)]]
        )

    def _on_theme_changed(self) -> None:
        tokens = theme.tokens
        self._view.setBackground(tokens.surface)
        for side in ("left", "bottom"):
            axis = self._plot.getAxis(side)
            axis.setPen(pg.mkPen(tokens.line, width=1))
            axis.setTextPen(pg.mkPen(tokens.muted))
        for line in self._lines:
            colour = tokens.series[line.colour % len(tokens.series)]
            self._paint(self._items[line.name], self._dots[line.name], _pen(line, colour), colour)
            if line.fill:
                item = self._items[line.name]
                item.setFillLevel(0)
                item.setBrush(pg.mkBrush(QColor(mix(tokens.surface, colour, 0.16))))
            if line.name in self._other_items:
                pale = mix(tokens.surface, colour, _PALER)
                pen = pg.mkPen(pale, width=1, dash=(4, 3))
                self._paint(self._other_items[line.name], self._other_dots[line.name], pen, pale)
        self._cursor.setPen(pg.mkPen(tokens.muted, width=1))

    @staticmethod
    def _paint(item: ChartCurve, dots: pg.PlotDataItem, pen: QPen, colour: str) -> None:
        item.setPen(pen)
        dots.setPen(None)
        dots.setSymbol("o")
        dots.setSymbolSize(4)
        dots.setSymbolPen(None)
        dots.setSymbolBrush(QColor(colour))


_NOTHING = np.empty(0)


def _pen(line: Line, colour: str) -> QPen:
    pen: QPen = pg.mkPen(colour, width=1, dash=(6, 3) if line.dashed else None)
    return pen


def _highest(curves: Curves) -> float:
    """Return the highest value of all curves, 0 where there is none above."""
    return max((float(np.nanmax(y)) for _, y in curves.values() if np.isfinite(y).any()), default=0.0)


def _alone(values: Floats) -> npt.NDArray[np.bool_]:
    """Mark the values that have a gap, or nothing, on both sides."""
    known = np.isfinite(values)
    alone = known.copy()
    alone[1:] &= ~known[:-1]
    alone[:-1] &= ~known[1:]
    return alone
