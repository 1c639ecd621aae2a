"""A run from its first to its last moment in one thin strip, with the stretch that the charts show; it can be moved."""

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from backend.curves import Curve
from backend.events import Mark
from gui.theme import mix, theme
from gui.widgets import figures
from gui.widgets.chart_lines import unbroken

_HEIGHT_PX = 34
_LEAST_PX = 6  # the stretch stays visible and can be taken hold of
_PAD = 4.0
_STEPS = 10


class TimeStrip(QWidget):
    """Paints the tokens/s of a whole run; the stretch is dragged, or moved with the arrow keys.

    Attributes:
        begin, end: Unix times of both ends of the strip.
        span_s: length of the stretch, `until` its end.

    Signals:
        moved(float): the stretch is to end at that Unix time.
    """

    moved = Signal(float)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.begin, self.end = 0.0, 1.0
        self.span_s, self.until = 1.0, 1.0
        self._curve = Curve(np.empty(0), np.empty(0))
        self._marks: tuple[Mark, ...] = ()
        self._grip: float | None = None  # seconds from the pointer to the end of the stretch while it is dragged
        self.setAccessibleName("Stretch of the run")
        self.setToolTip("The whole run; drag the stretch that the charts show, or use the arrow keys")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def can_move(self) -> bool:
        """Whether the stretch is shorter than the run."""
        return self.span_s < self.end - self.begin

    def show_run(self, begin: float, end: float, curve: Curve, marks: Sequence[Mark]) -> None:
        """Show another run, `end` > `begin`: its curve, and what happened in it."""
        self.begin, self.end = begin, end
        self._curve, self._marks = curve, tuple(marks)
        self.update()

    def show_stretch(self, span_s: float, until: float) -> None:
        """Show which stretch the charts show."""
        self.span_s, self.until = span_s, until
        first = figures.duration(round(until - span_s - self.begin))
        self.setAccessibleDescription(f"{figures.duration(round(span_s))} from {first} after the begin")
        self.setCursor(Qt.CursorShape.SizeHorCursor if self.can_move else Qt.CursorShape.ArrowCursor)
        self.update()

    def sizeHint(self) -> QSize:
        """As high as a line of buttons."""
        return QSize(240, _HEIGHT_PX)

    # ---- moving ----------------------------------------------------------------------------------------------

    def _move_to(self, until: float) -> None:
        until = min(max(until, self.begin + self.span_s), self.end)
        if self.can_move and until != self.until:
            self.moved.emit(until)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows move by a part of the stretch, Page Up and Page Down by all of it, Home and End to the ends."""
        step = self.span_s / _STEPS
        match event.key():
            case Qt.Key.Key_Left:
                self._move_to(self.until - step)
            case Qt.Key.Key_Right:
                self._move_to(self.until + step)
            case Qt.Key.Key_PageUp:
                self._move_to(self.until - self.span_s)
            case Qt.Key.Key_PageDown:
                self._move_to(self.until + self.span_s)
            case Qt.Key.Key_Home:
                self._move_to(self.begin)
            case Qt.Key.Key_End:
                self._move_to(self.end)
            case _:
                super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the stretch; beside it, bring its middle there first."""
        if event.button() != Qt.MouseButton.LeftButton or not self.can_move:
            return
        at = self._time(event.position().x())
        if not self.until - self.span_s <= at <= self.until:
            self._move_to(at + self.span_s / 2)
        self._grip = self.until - at

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Move what is held."""
        if self._grip is not None:
            self._move_to(self._time(event.position().x()) + self._grip)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Let go."""
        self._grip = None

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the frame of the focus."""
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Take the frame of the focus away."""
        super().focusOutEvent(event)
        self.update()

    # ---- painting --------------------------------------------------------------------------------------------

    def _time(self, x: float) -> float:
        return self.begin + (x - _PAD) / max(self.width() - 2 * _PAD, 1.0) * (self.end - self.begin)

    def _x(self, t: float) -> float:
        return _PAD + (t - self.begin) / (self.end - self.begin) * (self.width() - 2 * _PAD)

    def stretch_rect(self) -> QRectF:
        """Return where the stretch is painted."""
        left, right = self._x(self.until - self.span_s), self._x(self.until)
        if right - left < _LEAST_PX:
            left = min(left, self.width() - _PAD - _LEAST_PX)
            right = left + _LEAST_PX
        return QRectF(left, 1, right - left, self.height() - 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the curve as an area, what happened as lines, and the stretch as a frame."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tokens = theme.tokens
        ground = QRectF(0.5, 0.5, self.width() - 1, self.height() - 1)
        painter.setPen(QPen(QColor(tokens.accent if self.hasFocus() else tokens.line), 1))
        painter.setBrush(QColor(tokens.surface))
        painter.drawRoundedRect(ground, 6, 6)
        stretch = self.stretch_rect()
        if self.can_move:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(mix(tokens.surface, tokens.accent, 0.16)))
            painter.drawRoundedRect(stretch, 4, 4)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(mix(tokens.surface, tokens.accent, 0.5)))
        for area in self._areas():
            painter.drawPolygon(area)
        painter.setPen(QPen(QColor(mix(tokens.surface, tokens.muted, 0.7)), 1, Qt.PenStyle.DotLine))
        for mark in self._marks:
            if self.begin <= mark.t <= self.end:
                painter.drawLine(QPointF(self._x(mark.t), 3), QPointF(self._x(mark.t), self.height() - 3))
        if self.can_move:
            painter.setPen(QPen(QColor(tokens.accent), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(stretch.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)

    def _areas(self) -> list[QPolygonF]:
        """Return the curve in steps of a few pixels, each as high as the highest value there; a gap is none."""
        times, values = self._curve
        known = np.isfinite(values)
        if not known.any():
            return []
        n_bars = max(self.width() // 3, 1)
        places = ((times[known] - self.begin) / (self.end - self.begin) * n_bars).astype(int)
        highest = np.zeros(n_bars)
        np.maximum.at(highest, np.clip(places, 0, n_bars - 1), values[known])
        most = float(highest.max()) or 1.0
        base, high, wide = self.height() - 4.0, self.height() - 10.0, (self.width() - 2 * _PAD) / n_bars
        areas = []
        for part in unbroken(np.where(highest > 0, highest, np.nan)):
            steps = [(base - highest[number] / most * high, number) for number in range(part.start, part.stop)]
            points = [QPointF(_PAD + (number + side) * wide, top) for top, number in steps for side in (0, 1)]
            ends = (QPointF(points[-1].x(), base), QPointF(points[0].x(), base))
            areas.append(QPolygonF([*points, *ends]))
        return areas
