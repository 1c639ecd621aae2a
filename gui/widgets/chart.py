"""Lines over a stretch of time, drawn with pyqtgraph: fixed time axis, steady upper limit, gaps, a read-out."""

import math
from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QObject, QPointF, Qt, Signal
from PySide6.QtGui import QHelpEvent, QMouseEvent
from PySide6.QtWidgets import QToolTip, QVBoxLayout, QWidget

from backend.curves import Floats
from gui.theme import NOTE_PX, text_font, theme
from gui.widgets.chart_level import ChartLevel, Level
from gui.widgets.chart_lines import ChartLines, Curves, Line
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
_RIGHT_PX = 16  # for half of the newest label


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
            lines: as for `set_lines`.
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
        self._view = pg.GraphicsView(self)
        self._view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        # Not a PlotItem: its menus, buttons and axes on four sides take longer to make than all the rest.
        plot = pg.GraphicsLayout()
        plot.setContentsMargins(0, SYMBOL_PX + 2, _RIGHT_PX, 0)  # over the plot stand the symbols of the marks
        plot.setSpacing(0)
        self._view.setCentralItem(plot)
        self._box = box = pg.ViewBox(enableMouse=False, enableMenu=False, defaultPadding=0)
        box.disableAutoRange()
        # Nothing is drawn outside but the marks, and half of the lines and dots that stand at the very edge.
        box.setFlag(box.GraphicsItemFlag.ItemClipsChildrenToShape, False)
        plot.addItem(box, 0, 1)
        self._axes = {side: pg.AxisItem(side, linkView=box) for side in ("left", "bottom")}
        self._axes["left"].setWidth(_AXIS_WIDTH)
        self._axes["bottom"].setHeight(_AXIS_HEIGHT)
        for axis, row, column in ((self._axes["left"], 0, 0), (self._axes["bottom"], 1, 1)):
            axis.setStyle(tickFont=text_font(NOTE_PX), tickLength=0, autoExpandTextSpace=False, tickTextOffset=6)
            axis.setCacheMode(axis.CacheMode.DeviceCoordinateCache)  # it seldom changes, and text is dear to paint
            plot.addItem(axis, row, column)
        # Room beside the axis for the outermost labels, which would be left out.
        self._axes["bottom"].setStyle(hideOverlappingLabels=_AXIS_WIDTH)
        self._painted = ChartLines(box)
        self._marks = ChartMarks(box)
        self._level = ChartLevel(box)
        self._cursor = pg.InfiniteLine(angle=90, movable=False)
        self._cursor.hide()
        box.addItem(self._cursor, ignoreBounds=True)
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
        return int(self._box.width())

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that can be drawn."""
        return self._lines

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Draw other lines with the next `draw`; the first one is drawn on top, areas below all."""
        self._lines, self.drawn, self.drawn_other = tuple(lines), {}, {}

    def set_span(self, span_s: float, axis: TimeMarks | None = None) -> None:
        """Show a stretch of `span_s` seconds, by default the last ones; the lines follow with the next `draw`.

        Args:
            span_s: length of the stretch.
            axis: labels of the time axis, None for those of a stretch that ends now.
        """
        axis = time_marks(span_s) if axis is None else axis
        if span_s != self.span_s or not self.axis:
            self.span_s = span_s
            self._box.setXRange(-span_s, 0, padding=0)
        if axis != self.axis:
            self.axis = axis
            # A mark exactly at the end is left out where rounding puts it outside.
            self._axes["bottom"].setTicks([[(at * _INSIDE, label) for at, label in axis]])

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
            curves: by the name of the line; one that is not there has nothing to show.
            other: the same of a second run; None without one.
            anew: these are of another run than before, so the value axis has nothing to be steady for.
        """
        if anew and self._fixed_limit is None:
            self.limit = 0.0
        curves = self._inside(curves)
        most = max(self._view.width(), _LEAST_POINTS)
        # No area under extremes that jump up and down, or over another run.
        thin = {name for name, (x, _) in curves.items() if x.size <= most} if not other else set()
        self.drawn = _thinned(curves, most)
        self.drawn_other = _thinned(self._inside(other), most) if other else {}
        if self._fixed_limit is None:
            level = self.level.value if self.level is not None else 0.0
            self._follow(max(_highest(self.drawn), _highest(self.drawn_other), level))
        self._painted.show_lines(
            self._lines,
            self.drawn,
            self.drawn_other,
            filled=frozenset(line.name for line in self._lines if line.fill and line.name in thin),
            span_s=self.span_s,
            limit=self.limit,
        )

    def _inside(self, curves: Curves) -> dict[str, tuple[Floats, Floats]]:
        """Leave out what is before the span: a bucket of the history in which it begins is there whole."""
        firsts = {name: int(np.searchsorted(x, -self.span_s)) for name, (x, _) in curves.items()}
        return {name: (x[firsts[name] :], y[firsts[name] :]) for name, (x, y) in curves.items()}

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
        inside = self._box.sceneBoundingRect().contains(scene)
        self.pointed.emit(float(self._box.mapSceneToView(scene).x()) if inside else None)

    def _tell_mark(self, event: QHelpEvent) -> None:
        """Say in a tooltip what happened where the pointer is."""
        scene = self._view.mapToScene(event.pos())
        group = self.mark_near(float(self._box.mapSceneToView(scene).x()))
        QToolTip.showText(event.globalPos(), group.words if group is not None else "", self)

    def _follow(self, highest: float) -> None:
        """Raise the upper limit at once, lower it only when there is much room."""
        wanted = min(max(nice_limit(highest * 1.05) if highest > 0 else 0.0, self._least_limit), self._most_limit)
        if wanted > self.limit or (wanted < self.limit and highest < self.limit * _FALL_BELOW):
            self._set_limit(wanted)

    def _set_limit(self, limit: float) -> None:
        self.limit = limit
        self._level.show_level(self.level, limit)
        self._box.setYRange(0, limit, padding=0)
        marks = value_marks(limit)
        labels = [f"{mark:,.10g}{self._unit if mark == marks[-1] else ''}" for mark in marks]
        self._axes["left"].setTicks([[(mark * _INSIDE, label) for mark, label in zip(marks, labels, strict=True)]])

    def _on_theme_changed(self) -> None:
        tokens = theme.tokens
        self._view.setBackground(tokens.surface)
        for axis in self._axes.values():
            axis.setPen(pg.mkPen(tokens.line, width=1))
            axis.setTextPen(pg.mkPen(tokens.muted))
        self._cursor.setPen(pg.mkPen(tokens.muted, width=1))


def _thinned(curves: Curves, most: int) -> dict[str, tuple[Floats, Floats]]:
    """Return curves of no more points than a plot can show."""
    few = round(most * _THINNED_SHARE)
    return {name: (x, y) if x.size <= most else thinned(x, y, few) for name, (x, y) in curves.items()}


def _highest(curves: Curves) -> float:
    """Return the highest value of all curves, 0 where there is none above."""
    return max((float(np.fmax.reduce(y, initial=0.0)) for _, y in curves.values()), default=0.0)
