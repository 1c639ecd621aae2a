"""The run page: live charts beside the chat, the start-up while there is one, and the cause after a failure."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from PySide6.QtCore import QSettings, QSize, Qt, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from backend.curves import EACH_S
from backend.desk.types import Reading, RunView
from backend.events import RunState
from backend.hardware import GpuSnapshot
from gui.bridge import Bridge
from gui.panes.exporting import Exporter
from gui.widgets import figures, pooled_acceptance, speculation_advice
from gui.widgets.card import Moment
from gui.widgets.card_grid import CardGrid
from gui.widgets.failure_view import FailureView
from gui.widgets.gpu_run_cards import ESTIMATED_SERIES, BandwidthCard, GpuMemoryCard, live_cards
from gui.widgets.live_charts import LiveCharts, NewestReading
from gui.widgets.notice_bar import NoticeBar
from gui.widgets.run_cards import PER_REQUEST
from gui.widgets.span_bar import SPANS_S, SpanBar
from gui.widgets.startup_timeline import StartupTimeline
from gui.widgets.stored import stored_int

_SPACING = 12
_CHAT_SHARE = 0.27
_CHAT_WIDTHS = (330, 560)
_STARTS = (RunState.PREFLIGHT, RunState.STARTING)


class RunPane(QWidget):
    """Shows what the engine does now.

    What a person chooses here is kept in the given settings under "run/".

    Signals:
        retry_requested: start the profile that failed once more.
        log_requested(int | None): show the log, at that line if one is known.
    """

    retry_requested = Signal()
    log_requested = Signal(object)

    def __init__(self, bridge: Bridge, store: QSettings, chat: QWidget | None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chat = chat
        self._bridge = bridge
        self._store = store
        self._run = RunView()
        self._newest = NewestReading(bridge)
        self._silent_since: float | None = None
        self._failed: tuple[str, float | None] | None = None  # which failure is shown

        cards = live_cards(self._positions, self._may_measure)
        self.bar = SpanBar([(card.key, card.title) for card in cards], self, store=store)
        self.grid = CardGrid(cards, self)
        self.startup = StartupTimeline(self)
        self.failure = FailureView(self)
        # Kind of notice -> its line, and what it was shown for, so that one that was closed stays closed.
        self.notices = {kind: NoticeBar(self) for kind in ("stall", "few", "export")}
        self._noticed: dict[str, object] = {}
        self.measured = QLabel(self)
        self.measured.setProperty("role", "note")
        self.measured.setWordWrap(True)
        self.measured.setToolTip("What this profile was measured to do before it was shipped")
        self.stack = QStackedWidget(self)
        for page in (self.grid, self.startup, self.failure):
            self.stack.addWidget(page)
        left = QWidget(self)
        column = QVBoxLayout(left)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(_SPACING)
        column.addWidget(self.bar)
        for notice in self.notices.values():
            column.addWidget(notice)
        column.addWidget(self.measured)
        column.addWidget(self.stack, 1)
        self._splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.setHandleWidth(_SPACING)
        self._splitter.addWidget(left)
        if chat is not None:
            self._splitter.addWidget(chat)
            self._splitter.setStretchFactor(0, 1)
            self._splitter.setStretchFactor(1, 0)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._splitter)

        self._splitter.splitterMoved.connect(self._on_splitter_moved)
        self._charts = LiveCharts("run", store, self.bar, self.grid, now=self._moment, hold=self._hold)
        self._charts.span_changed.connect(self._on_span_changed)
        self._charts.shown_changed.connect(self._tell_activity)
        assert self.bar.export is not None
        self.bar.export.asked.connect(self._on_export_asked)
        self.bar.export.chosen.connect(self._on_export)
        self._exporter = Exporter(bridge, self.notices["export"], self)
        self.failure.retry_requested.connect(self.retry_requested)
        self.failure.log_requested.connect(self.log_requested)
        self.startup.log_requested.connect(self._on_startup_log_requested)
        self.failure.dismissed.connect(self._on_failure_dismissed)
        bridge.run_changed.connect(self._on_run_changed)
        bridge.sampled.connect(self._on_sampled)
        self._show_gpus(bridge.gpus)
        self._on_run_changed(bridge.run)

    # ---- what comes from the backend -------------------------------------------------------------------------

    def _on_run_changed(self, view: RunView) -> None:
        before, self._run = self._run, view
        if before.run_id and view.run_id != before.run_id:
            self._newest.sample = None
        if view.state is not RunState.UNRESPONSIVE:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = time.time() - view.silent_s
        if view.state in _STARTS:
            self.startup.show_run(view, time.time())
        elif view.state is RunState.FAILED and (view.run_id, view.ended_at) == self._failed:
            pass  # still the failure that is shown: a selection in it stays
        elif view.state is RunState.FAILED:
            self._failed = (view.run_id, view.ended_at)
            self.failure.show_run(view)
        page = self.startup if view.state in _STARTS else self.failure if view.state is RunState.FAILED else self.grid
        self.stack.setCurrentWidget(page)
        self._show_idle()
        self._show_notices()
        self._show_figures()
        self._tell_activity()
        if view.state is not before.state:
            self._charts.draw()

    def _on_sampled(self, reading: Reading) -> None:
        self._newest.take(reading)
        self._show_gpus(reading.gpus)
        if self._run.state in _STARTS:  # its clock goes with that of the top bar
            self.startup.show_run(self._run, time.time())
        self._show_idle()
        self._show_notices()
        self._tell_activity()
        if self._charts.is_seen and self._charts.held is None:
            self._show_figures()
            self._charts.draw()

    @property
    def _shows_cards(self) -> bool:
        return self.stack.currentWidget() is self.grid

    # ---- drawing ---------------------------------------------------------------------------------------------

    def _moment(self) -> Moment | None:
        return self._newest.moment(self._charts.span_s)

    def _hold(self, moment: Moment) -> Moment:
        """Return a moment with the readings it rests on: those are not kept for long, and of another run soon."""
        names = (*pooled_acceptance.NAMES, *self._positions(), *PER_REQUEST, ESTIMATED_SERIES)
        return replace(moment, read_each=self._bridge.run_readings(names, EACH_S, moment.now).part)

    def _positions(self) -> Sequence[str]:
        return self._bridge.history.positions

    def _may_measure(self) -> bool:
        return self._bridge.desk.settings.gpu_profiling

    def _show_gpus(self, snapshot: GpuSnapshot | None) -> None:
        """Leave out the memory of GPUs on a machine without any."""
        has_gpus = snapshot is not None and bool(snapshot.gpus)
        self.grid.leave_out(frozenset() if has_gpus else frozenset({GpuMemoryCard.KEY}))

    def _tell_activity(self) -> None:
        """Have the GPUs measured while their bandwidth is shown."""
        card = self.grid.cards[BandwidthCard.KEY]
        assert isinstance(card, BandwidthCard)
        shown = self._charts.is_seen and self._shows_cards and self._run.is_live and card in self.grid.visible_cards
        self._bridge.want_activity("run", shown and card.shows_measured)

    def _show_idle(self) -> None:
        """Say once that there is no engine where nothing of an earlier one is to be seen either."""
        if self._run.is_live or self._charts.held is None:
            self.grid.set_idle(not self._run.is_live and not self._has_curves(self._charts.span_s))
        nothing_to_choose = self.grid.is_idle and not self._has_curves(max(SPANS_S))
        self.bar.setVisible(self._shows_cards and not nothing_to_choose)

    def _has_curves(self, span_s: float) -> bool:
        """Whether any engine was read within a span."""
        until = self._newest.host.t if self._newest.host is not None else None
        curve = self._bridge.history.last("requests_running", seconds=span_s, until=until)
        return bool(np.isfinite(curve.values).any())

    def _show_figures(self) -> None:
        """Say the figures of the moment, or what to do where there is no engine."""
        sample = self._newest.sample
        if not self._run.is_live:
            self.bar.show_figures("" if self.grid.is_idle else "Choose a profile above and press Start.")
        elif sample is None:
            self.bar.show_figures("")
        else:
            self.bar.show_figures(f"{figures.rate(sample.steps_per_s)} steps/s")

    # ---- notices ---------------------------------------------------------------------------------------------

    def _show_notices(self) -> None:
        run = self._run
        if run.state is RunState.UNRESPONSIVE:  # the views stop coming while nothing changes, so count on
            still_s = max(time.time() - (self._silent_since or time.time()), run.silent_s)
            words = (
                f"The engine has not moved for {figures.duration(round(still_s))}: log, counters and CPU are still. "
                "Wait, look at the log, or stop it."
            )
            self._notice("stall", ("now", run.run_id), words, tone="warn")
        elif run.state is RunState.READY and run.stalled_s is not None:
            words = f"The engine moves again; it stood still for {figures.duration(run.stalled_s)}."
            self._notice("stall", ("over", run.run_id, run.stalled_s), words)
        else:
            self._notice("stall", None, "")
        self._notice("few", run.run_id, self._few_words(), tone="warn")
        shows_measured = run.measured_note and run.is_live and self._shows_cards
        measured = f"Measured before: {run.measured_note}" if shows_measured else ""
        if measured != self.measured.text():
            self.measured.setText(measured)
        self.measured.setVisible(bool(measured))

    def _notice(self, kind: str, about: object, words: str, *, tone: str = "info") -> None:
        """Show, change or hide one notice; one that was closed comes back only when it is about something else."""
        bar = self.notices[kind]
        if not words:
            self._noticed.pop(kind, None)
            bar.clear()
        elif self._noticed.get(kind, _NEVER) != about or bar.text not in ("", words):
            self._noticed[kind] = about
            bar.show_notice(words, tone=tone)

    def _few_words(self) -> str:
        moment = self._moment()
        if self._run.state is not RunState.READY or self._newest.sample is None or moment is None:
            return ""
        return speculation_advice.few_accepted(moment.drafts(speculation_advice.WITHIN_S))

    # ---- what a person chooses -------------------------------------------------------------------------------

    def _on_span_changed(self) -> None:
        self._show_idle()
        self._show_figures()

    def _on_export_asked(self) -> None:
        assert self.bar.export is not None
        now = self._newest.host.t if self._newest.host is not None else time.time()
        self.bar.export.file_stem = f"{self._run.title or 'Specdeck'}, {figures.date_stamp(now)}"
        self.bar.export.allow_readings(bool(self._run.run_id), "There is no run yet: start an engine")

    def _on_export(self, kind: str, path: Path) -> None:
        """Export the span that is drawn, which stands still while it is paused."""
        shown = self._charts.held or self._moment()
        if shown is None:
            return
        begin = shown.now - shown.span_s
        if kind == "png":
            stretch = f"{figures.date(begin, shown.now)} \N{EN DASH} {figures.clock(shown.now)}"
            title = "  \N{MIDDLE DOT}  ".join(filter(None, (self._run.title, figures.span(shown.span_s), stretch)))
            self._exporter.picture(path, self.grid, title)
        else:
            data: Literal["csv", "json"] = "csv" if kind == "csv" else "json"
            self._exporter.readings(path, self._bridge.desk.history.export_live(path, data, begin, shown.now))

    def _on_startup_log_requested(self) -> None:
        self.log_requested.emit(None)

    def _on_failure_dismissed(self) -> None:
        self._bridge.call(self, self._bridge.desk.runs.dismiss())

    def _on_splitter_moved(self) -> None:
        self._store.setValue("run/chat_width", self._splitter.sizes()[1])

    # ---- size and sight --------------------------------------------------------------------------------------

    def sizeHint(self) -> QSize:
        """Return room for three columns and the chat."""
        return QSize(1330, 776)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the chat its share, or the width that a person gave it."""
        super().resizeEvent(event)
        if self._splitter.count() > 1:
            least, most = _CHAT_WIDTHS
            share = min(max(round(self.width() * _CHAT_SHARE), least), most)
            chat = min(stored_int(self._store, "run/chat_width") or share, self.width() // 2)
            self._splitter.setSizes([self.width() - chat - _SPACING, chat])

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._show_figures()
        self._tell_activity()
        self._charts.draw_again()

    def hideEvent(self, event: QHideEvent) -> None:
        """Have nothing measured that nobody sees."""
        super().hideEvent(event)
        self._bridge.want_activity("run", False)


_NEVER = object()
