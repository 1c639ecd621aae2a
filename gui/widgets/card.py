"""What every card of charts has: frame, title, source, current value, legend, and words in place of a plot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QSizePolicy,
    QStackedLayout,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from backend.curves import Curve, Readings, Stretch
from backend.events import HostSample, Mark, RunState, Sample, Verdict
from backend.hardware import GPU_SIGN, GpuSnapshot
from gui.theme import RADIUS_PX, icon, theme
from gui.widgets import figures, pooled_acceptance
from gui.widgets.card_parts import FigureLine, Legend, Source, SourceLine
from gui.widgets.past_curves import MEAN_WORDS, PastCurves
from gui.widgets.pooled_acceptance import Drafts

Read = Callable[[str, float, float], Curve]
"""Gives a series: (name, seconds, until) -> its curve."""
ReadEach = Callable[[Sequence[str], float, float], Readings]
"""Gives readings: (names, seconds, until) -> those of the run that is shown."""
Around = Callable[[str, float, float, float], Stretch | None]
"""Gives a series at a time: (name, t, seconds, until) -> what is known there of its curve, None without a value."""
LEAST_WIDTH = 272
LEAST_HEIGHT = 224
_ICON_PX = 14
_LEGEND_ROW_HEIGHT = 28
# The button at the right end has room of its own around its symbol, which stands in line with all else.
_BUTTON_ROOM = 6
_CURSOR_STEPS = 60
_NEWEST_S = 2.5


@dataclass(frozen=True, slots=True)
class Past:
    """How to read a run of the past.

    Attributes:
        curves: its readings.
        end: Unix time of the last moment that is shown of it.
        origin: Unix time that its time axis counts from.
        event: what happened then: "the start" or "READY".
    """

    curves: PastCurves
    end: float
    origin: float
    event: str = "the start"


@dataclass(frozen=True, slots=True)
class Moment:
    """What a card needs in order to draw itself: a run as it is now, or a stretch of a run of the past.

    Attributes:
        now: Unix time of the right end of every plot: that of the newest reading, or where the stretch ends.
        span_s: seconds shown.
        read: where curves come from, and `read_each` the readings of this run.
        around: what a curve knows at a time; None where it is made of nothing but readings.
        state: state of the run.
        sample: newest reading of the engine, None while none is read.
        host: newest reading of the machine.
        interval_s: seconds between readings.
        gpus: newest snapshot of the GPUs, None while there is none.
        verdict: what holds the engine back, None while nothing runs.
        memory_utilisation: part of each GPU that the profile lets the engine take, 0..1.
        marks: what happened, for the time axis.
        past: set for a run of the past, which has neither state nor newest reading.
        other: the same stretch of a second run of the past that is laid over this one.
    """

    now: float
    span_s: float
    read: Read
    read_each: ReadEach
    state: RunState = RunState.STOPPED
    sample: Sample | None = None
    host: HostSample | None = None
    interval_s: float = 1.0
    gpus: GpuSnapshot | None = None
    verdict: Verdict | None = None
    memory_utilisation: float | None = None
    marks: Sequence[Mark] = ()
    past: Past | None = None
    other: "Moment | None" = None
    around: Around | None = None

    def value(self, name: str) -> float | None:
        """Return the value that stands for a series: the newest one, of a run of the past the mean over the span."""
        return self.newest(name) if self.past is None else self.past.curves.mean(name, self.span_s, self.now)

    def newest(self, name: str) -> float | None:
        """Return the newest value of a series, None if it is unknown."""
        if GPU_SIGN in name:
            return self._newest_of_gpu(*name.split(GPU_SIGN, 1))
        for reading in (self.sample, self.host):
            if hasattr(reading, name):
                value = getattr(reading, name)
                return None if value is None else float(value)
        curve = self.read(name, _NEWEST_S, self.now)  # one that the history works out
        known = self.sample is not None and curve.values.size > 0 and np.isfinite(curve.values[-1])
        return float(curve.values[-1]) if known else None

    def _newest_of_gpu(self, uuid: str, figure: str) -> float | None:
        """Return a figure of a GPU, None if it is unknown or old."""
        if self.gpus is None or self.gpus.stale:
            return None
        found = next((getattr(each, figure) for each in self.gpus.readings if each.uuid == uuid), None)
        return None if found is None else float(found)

    def drafts(self, seconds: float, positions: Sequence[str] = ()) -> Drafts:
        """Return what became of the drafts of this run within the last `seconds`, at these positions too.

        Of a run of the past it is always the whole span.
        """
        if self.past is not None:
            return self.past.curves.drafts(self.span_s, self.now, positions)
        return pooled_acceptance.pooled(
            self.read_each((*pooled_acceptance.NAMES, *positions), seconds, self.now), self.now
        )

    def last_known(self, name: str) -> tuple[float, float] | None:
        """Return time and value of the newest known value within the span."""
        times, values = self.read(name, self.span_s, self.now)
        known = np.flatnonzero(np.isfinite(values))
        return (float(times[known[-1]]), float(values[known[-1]])) if known.size else None

    def at(self, name: str, x: float) -> Stretch | None:
        """Return what is known of a series `x` seconds before the right end (negative), None in a gap.

        That is a reading, or in a long span what some seconds had in common. Of these the mean stands for all: the
        extremes of several series belong to different moments, and do not add up.
        """
        t = self.now + x
        found: Stretch | None = None
        if self.around is not None:
            found = self.around(name, t, self.span_s, self.now)
        else:
            times, values = self.read(name, self.span_s, self.now)
            near = int(np.argmin(np.abs(times - t))) if times.size else 0
            if times.size and np.isfinite(values[near]):
                then, value = float(times[near]), float(values[near])
                found = Stretch(then, then, value, value, value)
        far_s = max(_NEWEST_S, self.span_s / 100)
        return found if found is not None and found.begin - far_s <= t <= found.end + far_s else None

    def mean_at(self, name: str, x: float) -> float | None:
        """Return the value that stands for a series there."""
        found = self.at(name, x)
        return None if found is None else found.mean

    def placed_marks(self) -> list[tuple[float, Mark]]:
        """Return the marks within the span, each with its seconds before the right end as a negative number."""
        placed = [(mark.t - self.now, mark) for mark in self.marks]
        if self.other is not None:
            placed += [(mark.t - self.other.now, mark) for mark in self.other.marks]
        return [(x, mark) for x, mark in placed if -self.span_s <= x <= 0]

    def when(self, x: float) -> str:
        """Return in words when it was, `x` seconds before the right end (negative)."""
        if self.past is None:
            return figures.ago(-x)
        since_s = self.now + x - self.past.origin
        words = f"{figures.duration(abs(round(since_s)))} {'after' if since_s >= 0 else 'before'} {self.past.event}"
        return words if self.other is not None else f"{figures.clock(self.now + x)}, {words}"


class _Words(QLabel):
    """A label whose height does not follow from its width: the grid would make all cards higher for it, and scroll."""

    def hasHeightForWidth(self) -> bool:
        """It takes the room of the plot."""
        return False


class Card(QFrame):
    """Frame, title, source, figure and legend; a kind of card adds what is drawn.

    Attributes:
        key: name in the settings.
        title: what it shows.
        needs_engine: whether it has nothing to show without one.

    Signals:
        pointed(float | None): the read-out is wanted at that many seconds before the right end (negative), or not
            at all.
        enlarge_asked(bool): show this card alone, or all again.
    """

    pointed = Signal(object)
    enlarge_asked = Signal(bool)

    def __init__(
        self, key: str, title: str, body: QWidget, parent: QWidget | None = None, *, needs_engine: bool = True
    ) -> None:
        super().__init__(parent)
        self.key, self.title = key, title
        self.cursor_at: float | None = None
        self.moment: Moment | None = None
        self.n_redraws = 0
        self.needs_engine = needs_engine
        self._source_words = self._source_tip = ""
        self.setProperty("card", True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(title)
        self.setAccessibleDescription("Left and Right show the values at an earlier time, Escape the newest.")
        self.setMinimumSize(LEAST_WIDTH, LEAST_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)  # all cards are equally wide
        heading = QLabel(title, self)
        heading.setProperty("role", "title")
        self.source = SourceLine(self)
        self._enlarge = QToolButton(self)
        self._enlarge.setProperty("kind", "quiet")
        self._enlarge.setIconSize(QSize(_ICON_PX, _ICON_PX))
        self._enlarge.setCheckable(True)
        self._enlarge.clicked.connect(self.enlarge_asked)
        self.figure = FigureLine(self)
        self.legend = Legend(self)
        self.message = _Words(self)
        self.message.setProperty("role", "muted")
        self.message.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.message.setWordWrap(True)
        self.message.setContentsMargins(12, 0, 12, 24)

        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(heading)
        top.addWidget(self.source, 1)
        top.addWidget(self._enlarge)
        self._legend_row = QHBoxLayout()
        self._legend_row.setSpacing(4)
        self._legend_row.addWidget(self.legend, 1)
        legend_row = QWidget(self)
        legend_row.setFixedHeight(_LEGEND_ROW_HEIGHT)
        legend_row.setLayout(self._legend_row)
        self._legend_row.setContentsMargins(0, 0, _BUTTON_ROOM, 0)
        self._body = QStackedLayout()
        body.setParent(self)  # a stacked layout shows its first widget at once, and that must be no window
        self._body.addWidget(body)
        self._body.addWidget(self.message)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 8, 14 - _BUTTON_ROOM, 8)
        layout.setSpacing(0)
        layout.addLayout(top)
        layout.addWidget(self.figure)
        layout.addWidget(legend_row)
        layout.addSpacing(4)
        layout.addLayout(self._body, 1)
        theme.changed.connect(self._on_theme_changed)
        self.set_enlarged(False)

    @property
    def last_control(self) -> QWidget:
        """The last of its controls in the tab order."""
        return self._enlarge

    def set_enlarged(self, enlarged: bool) -> None:
        """Let the button say what it does now."""
        self._enlarge.setChecked(enlarged)
        name = "Show all cards" if enlarged else f"Enlarge {self.title}"
        self._enlarge.setAccessibleName(name)
        self._enlarge.setToolTip(f"{name} (Esc)" if enlarged else name)
        self._on_theme_changed()

    def redraw(self, moment: Moment) -> None:
        """Show this moment; the one place where a card changes with time."""
        self.moment = moment
        self.n_redraws += 1
        self.show_moment(moment)

    def set_cursor(self, x: float | None) -> None:
        """Show the values at `x` seconds before now (negative), or the newest."""
        self.cursor_at = x
        if self.moment is not None:
            self.show_cursor(self.moment)

    def show_moment(self, moment: Moment) -> None:
        """Draw everything."""
        raise NotImplementedError

    def show_cursor(self, moment: Moment) -> None:
        """Draw the read-out, or take it away."""
        raise NotImplementedError

    def _say_source(self, source: Source, moment: Moment) -> None:
        """Name where the values come from; how long a reading is stands in the tooltip, since it changes always."""
        self._source_words = source.word
        if moment.past is not None:
            self._source_words = f"mean, {source.word}"
            self._source_tip = f"{source.sentence}. {MEAN_WORDS}"
        elif source.of_gpus and moment.gpus is not None:
            self._source_tip = f"{source.sentence}. Read every {moment.gpus.interval_s:.3g} s."
        else:
            interval_s = figures.number(moment.interval_s, 1)
            self._source_tip = f"{source.sentence}. The newest reading tells of {interval_s} s."

    def _show_message(self, words: str) -> None:
        """Show words instead of the plot; "" shows the plot."""
        if words:
            self.figure.show_figure("", "")
            self.legend.show_entries(())
        if words != self.message.text():
            self.message.setText(words)
        if self._body.currentIndex() != int(bool(words)):
            self._body.setCurrentIndex(int(bool(words)))

    def _show_source(self, moment: Moment, names: Sequence[str], happened: str = "") -> None:
        """Say where the values come from, or from when those of the series `names` are and what happened then."""
        if self.cursor_at is None:
            self.source.show_text(self._source_words, tip=self._source_tip)
            return
        when = moment.when(self.cursor_at)
        found = next((each for name in names if (each := moment.at(name, self.cursor_at)) is not None), None)
        if found is not None and found.end > found.begin:
            when = f"{when}, mean of {figures.span(found.end - found.begin)}"
        self.source.show_text(f"{happened} \N{MIDDLE DOT} {when}" if happened else when, marked=True)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the read-out; Escape takes it away."""
        span_s = self.moment.span_s if self.moment is not None else 300.0
        interval_s = self.moment.interval_s if self.moment is not None else 1.0
        step = max(span_s / _CURSOR_STEPS, interval_s)
        at = self.cursor_at
        match event.key():
            case Qt.Key.Key_Left:
                at = 0.0 if at is None else at - step
            case Qt.Key.Key_Right:
                at = 0.0 if at is None else at + step
            case Qt.Key.Key_Home:
                at = -span_s
            case Qt.Key.Key_End:
                at = 0.0
            case Qt.Key.Key_Escape if at is not None:
                self.pointed.emit(None)
                return
            case _:
                super().keyPressEvent(event)
                return
        self.pointed.emit(min(max(at, -span_s), 0.0))

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the frame of the focus."""
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Take the frame of the focus and the read-out away."""
        super().focusOutEvent(event)
        self.pointed.emit(None)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the frame, in the accent's colour while it has the focus."""
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(theme.tokens.accent), 1))
            area = self.rect().toRectF().adjusted(0.5, 0.5, -0.5, -0.5)
            painter.drawRoundedRect(area, RADIUS_PX, RADIUS_PX)

    def _on_theme_changed(self) -> None:
        name = "shrink" if self._enlarge.isChecked() else "enlarge"
        self._enlarge.setIcon(icon(name, theme.tokens.muted, size_px=_ICON_PX))
