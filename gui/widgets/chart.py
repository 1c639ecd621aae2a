"""Lines over the last stretch of time, drawn with pyqtgraph: fixed time axis, steady upper limit, gaps, a read-out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QObject, QPointF, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from backend.curves import Floats
from gui.theme import NOTE_PX, mix, text_font, theme

# Seconds between two marks of the time axis, for spans up to the one beside it.
_TIME_STEPS = ((90, 15), (600, 60), (3600, 600), (14_400, 1800), (43_200, 3600), (math.inf, 14_400))
_TIME_UNITS = ((90, 1, "s"), (3600, 60, "min"), (math.inf, 3600, "h"))
_AXIS_WIDTH = 44
_AXIS_HEIGHT = 20
# The upper limit falls only when the highest value has been well below it, so that it does not jitter.
_FALL_BELOW = 0.5
# Readings are drawn one by one up to about one for each pixel. What is more is drawn as extremes, which jump up and
# down and so cost more for each point: fewer of them keep a long span as cheap as a short one.
_LEAST_POINTS = 320
_THINNED_SHARE = 0.6
_INSIDE = 0.9999


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: `colour` counts the theme's series colours; `fill` draws a soft area under it."""

    name: str
    colour: int
    fill: bool = False


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


def time_marks(span_s: float, *, n_most: int = 6) -> list[tuple[float, str]]:
    """Return (seconds before now, as a negative number; its label) for a span; the unit stands at the first one."""
    step = next(step for longest, step in _TIME_STEPS if span_s <= longest)
    while span_s / step > n_most:
        step *= 2
    unit_s, unit = next((size, unit) for longest, size, unit in _TIME_UNITS if span_s <= longest)
    marks = [(0.0, "now")]
    for count in range(1, int(span_s // step) + 1):
        marks.append((-float(count * step), f"\N{MINUS SIGN}{count * step / unit_s:g}"))
    at, label = marks[-1]
    marks[-1] = (at, f"{label} {unit}")
    return marks


def thinned(x: Floats, y: Floats, most: int) -> tuple[Floats, Floats]:
    """Return at most about `most` points: of each group of neighbours the least and the greatest, where they stand."""
    if x.size <= most:
        return x, y
    size = 2 * math.ceil(x.size / most)
    n_groups = math.ceil(x.size / size)
    missing = n_groups * size - x.size
    xs = np.pad(x, (0, missing), mode="edge").reshape(n_groups, size)
    ys = np.pad(y, (0, missing), constant_values=np.nan).reshape(n_groups, size)
    least = np.argmin(np.where(np.isnan(ys), np.inf, ys), axis=1)
    greatest = np.argmax(np.where(np.isnan(ys), -np.inf, ys), axis=1)
    picked = np.sort(np.column_stack([least, greatest]), axis=1)
    return np.take_along_axis(xs, picked, axis=1).ravel(), np.take_along_axis(ys, picked, axis=1).ravel()


class Chart(QWidget):
    """A plot whose x is seconds before now, so that nothing but the lines moves when time goes on.

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
        self.drawn: dict[str, tuple[Floats, Floats]] = {}
        self._view = pg.PlotWidget(self, enableMenu=False)
        self._view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._view.setFrameShape(self._view.Shape.NoFrame)
        self._plot = self._view.getPlotItem()
        self._plot.hideButtons()
        self._plot.setMouseEnabled(False, False)
        self._plot.setContentsMargins(0, 8, 16, 0)
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
        self._items = {}
        self._dots = {}
        areas, strokes = [line for line in lines if line.fill], [line for line in lines if not line.fill]
        for line in (*areas, *reversed(strokes)):  # no area hides a line
            self._items[line.name] = self._plot.plot(connect="finite")
            # A value between two gaps has no neighbour to draw a line to.
            self._dots[line.name] = self._plot.plot(pen=None)
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
        return tuple(label for _, label in time_marks(self.span_s))

    @property
    def plot_width(self) -> int:
        """Pixels from the oldest to the newest moment."""
        return int(self._plot.getViewBox().width())

    def set_span(self, span_s: float) -> None:
        """Show the last `span_s` seconds; the lines follow with the next `draw`."""
        self.span_s = span_s
        self._plot.setXRange(-span_s, 0, padding=0)
        # A mark exactly at the end is left out where rounding puts it outside.
        self._plot.getAxis("bottom").setTicks([[(at * _INSIDE, label) for at, label in time_marks(span_s)]])

    def draw(self, curves: Mapping[str, tuple[Floats, Floats]]) -> None:
        """Show these lines: for each name x (seconds before now, ascending, <= 0) and values, NaN for a gap."""
        highest = 0.0
        most = max(self._view.width(), _LEAST_POINTS)
        few = round(most * _THINNED_SHARE)
        # A bucket of the history in which the span begins is there whole.
        curves = {name: (x[x >= -self.span_s], y[x >= -self.span_s]) for name, (x, y) in curves.items()}
        self.drawn = {name: (x, y) if x.size <= most else thinned(x, y, few) for name, (x, y) in curves.items()}
        for line in self._lines:
            if line.fill and line.name in curves:  # under extremes that jump up and down an area says nothing
                level = 0 if curves[line.name][0].size <= most else None
                if self._items[line.name].opts["fillLevel"] != level:
                    self._items[line.name].setFillLevel(level)
        for name, (x, y) in self.drawn.items():
            self._items[name].setData(x, y)
            alone = _alone(y)
            dots = self._dots[name]
            if alone.any() or dots.xData is not None:
                dots.setData(x[alone], y[alone])
            known = y[np.isfinite(y)]
            highest = max(highest, float(known.max())) if known.size else highest
        if self._fixed_limit is None:
            self._follow(highest)

    def value_at(self, name: str, x: float) -> float | None:
        """Return what a line shows at `x`: its nearest point, unless that is a gap or far away."""
        times, values = self.drawn.get(name, (np.empty(0), np.empty(0)))
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
        elif event.type() == QEvent.Type.Wheel:
            event.ignore()  # the page scrolls
            return True
        return super().eventFilter(watched, event)

    def _point_at(self, position: QPointF) -> None:
        scene = self._view.mapToScene(position.toPoint())
        box = self._plot.getViewBox()
        inside = box.sceneBoundingRect().contains(scene)
        self.pointed.emit(float(box.mapSceneToView(scene).x()) if inside else None)

    def _follow(self, highest: float) -> None:
        """Raise the upper limit at once, lower it only when there is much room."""
        wanted = min(max(nice_limit(highest * 1.05) if highest > 0 else 0.0, self._least_limit), self._most_limit)
        if wanted > self.limit or (wanted < self.limit and highest < self.limit * _FALL_BELOW):
            self._set_limit(wanted)

    def _set_limit(self, limit: float) -> None:
        self.limit = limit
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
            item = self._items[line.name]
            item.setPen(pg.mkPen(colour, width=1))
            if line.fill:
                item.setFillLevel(0)
                item.setFillBrush(pg.mkBrush(QColor(mix(tokens.surface, colour, 0.16))))
            dots = self._dots[line.name]
            dots.setSymbol("o")
            dots.setSymbolSize(4)
            dots.setSymbolPen(None)
            dots.setSymbolBrush(QColor(colour))
        self._cursor.setPen(pg.mkPen(tokens.muted, width=1))


def _alone(values: Floats) -> npt.NDArray[np.bool_]:
    """Mark the values that have a gap, or nothing, on both sides."""
    known = np.isfinite(values)
    alone = known.copy()
    alone[1:] &= ~known[:-1]
    alone[:-1] &= ~known[1:]
    return alone
