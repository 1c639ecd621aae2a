"""The run page: live charts beside the chat, the start-up while there is one, and the cause after a failure."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PySide6.QtCore import QSettings, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from backend.curves import EACH_S, Curve
from backend.desk.types import Reading, RunView
from backend.events import HostSample, RunState, Sample
from gui.bridge import Bridge
from gui.widgets import figures, pooled_acceptance, speculation_advice
from gui.widgets.card import Moment
from gui.widgets.card_grid import CardGrid
from gui.widgets.chart_card import ChartCard
from gui.widgets.failure_view import FailureView
from gui.widgets.notice_bar import NoticeBar
from gui.widgets.run_cards import PER_REQUEST, all_cards
from gui.widgets.span_bar import DEFAULT_SPAN_S, SPANS_S, SpanBar
from gui.widgets.startup_timeline import StartupTimeline

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
        self._host: HostSample | None = None
        self._sample: Sample | None = None
        self._interval_s = 1.0
        self._silent_since: float | None = None
        self._failed: tuple[str, float | None] | None = None  # which failure is shown
        self._held: Moment | None = None  # what is drawn while paused
        self._span_s = self._stored_span()

        cards = all_cards(self._positions)
        self.bar = SpanBar([(card.key, card.title) for card in cards], self)
        self.grid = CardGrid(cards, self)
        self.startup = StartupTimeline(self)
        self.failure = FailureView(self)
        # Kind of notice -> its line, and what it was shown for, so that one that was closed stays closed.
        self.notices = {kind: NoticeBar(self) for kind in ("stall", "few")}
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
        self.bar.span_chosen.connect(self._on_span_chosen)
        self.bar.paused.connect(self._on_paused)
        self.bar.cards_chosen.connect(self.grid.choose)
        self.grid.order_changed.connect(self._on_order_changed)
        self.failure.retry_requested.connect(self.retry_requested)
        self.failure.log_requested.connect(self.log_requested)
        self.startup.log_requested.connect(self._on_startup_log_requested)
        self.failure.dismissed.connect(self._on_failure_dismissed)
        bridge.run_changed.connect(self._on_run_changed)
        bridge.sampled.connect(self._on_sampled)
        self._restore()
        self._on_run_changed(bridge.run)

    # ---- what comes from the backend -------------------------------------------------------------------------

    def _on_run_changed(self, view: RunView) -> None:
        before, self._run = self._run, view
        if view.run_id != before.run_id:
            self._sample = None
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
        if view.state is not before.state:
            self._draw()

    def _on_sampled(self, reading: Reading) -> None:
        over_s = reading.engine.interval_s if reading.engine is not None else None
        if over_s is None and self._host is not None and reading.host.t > self._host.t:
            over_s = reading.host.t - self._host.t
        self._interval_s = over_s or self._interval_s
        self._host = reading.host
        engine = reading.engine
        self._sample = engine if engine is not None and engine.state is not RunState.STOPPED else None
        if self._run.state in _STARTS:  # its clock goes with that of the top bar
            self.startup.show_run(self._run, time.time())
        self._show_idle()
        self._show_notices()
        if self._is_seen() and self._held is None:
            self._show_figures()
            self._draw()

    @property
    def _shows_cards(self) -> bool:
        return self.stack.currentWidget() is self.grid

    # ---- drawing ---------------------------------------------------------------------------------------------

    def _is_seen(self) -> bool:
        return self.isVisible() and not self.window().isMinimized()

    def _draw(self) -> None:
        """Have the cards drawn, each in a turn of its own."""
        if self._is_seen() and self._held is None and self._host is not None:
            self.grid.redraw(self._moment(self._host))

    def _moment(self, host: HostSample) -> Moment:
        return Moment(
            now=host.t,
            span_s=self._span_s,
            read=self._read,
            read_each=self._bridge.run_readings,
            state=self._run.state,
            sample=self._sample,
            host=host,
            interval_s=self._interval_s,
        )

    def _read(self, name: str, seconds: float, until: float) -> Curve:
        return self._bridge.history.last(name, seconds=seconds, until=until)

    def _positions(self) -> Sequence[str]:
        return self._bridge.history.positions

    def _show_idle(self) -> None:
        """Say once that there is no engine where nothing of an earlier one is to be seen either."""
        if self._run.is_live or self._held is None:
            self.grid.set_idle(not self._run.is_live and not self._has_curves(self._span_s))
        nothing_to_choose = self.grid.is_idle and not self._has_curves(max(SPANS_S))
        self.bar.setVisible(self._shows_cards and not nothing_to_choose)

    def _has_curves(self, span_s: float) -> bool:
        """Whether any engine was read within a span."""
        until = self._host.t if self._host is not None else None
        curve = self._bridge.history.last("requests_running", seconds=span_s, until=until)
        return bool(np.isfinite(curve.values).any())

    def _show_figures(self) -> None:
        """Say the figures of the moment, or what to do where there is no engine."""
        sample = self._sample
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
        if self._run.state is not RunState.READY or self._sample is None or self._host is None:
            return ""
        return speculation_advice.few_accepted(self._moment(self._host).drafts(speculation_advice.WITHIN_S))

    # ---- what a person chooses -------------------------------------------------------------------------------

    def _on_span_chosen(self, span_s: int) -> None:
        self._span_s = span_s
        self._store.setValue("run/span_s", span_s)
        self._show_idle()
        self._show_figures()
        if self._held is not None:
            self._held = replace(self._held, span_s=float(span_s))
            self.grid.redraw(self._held)
        self.grid.point_at(None)
        self._draw()

    def _on_paused(self, paused: bool) -> None:
        self._held = self._hold(self._host) if paused and self._host is not None else None
        self._draw()

    def _hold(self, host: HostSample) -> Moment:
        """Return this moment with the readings it rests on: those are not kept for long, and of another run soon."""
        names = (*pooled_acceptance.NAMES, *self._positions(), *PER_REQUEST)
        return replace(self._moment(host), read_each=self._bridge.run_readings(names, EACH_S, host.t).part)

    def _on_order_changed(self) -> None:
        self.bar.show_cards(self.grid.order, self.grid.shown)
        self._store.setValue("run/cards", ",".join(self.grid.order))
        self._store.setValue("run/cards_hidden", ",".join(sorted(set(self.grid.order) - self.grid.shown)))

    def _on_view_chosen(self, index: int) -> None:
        card = self.sender()
        assert isinstance(card, ChartCard)
        self._store.setValue(f"run/view/{card.key}", index)

    def _on_startup_log_requested(self) -> None:
        self.log_requested.emit(None)

    def _on_failure_dismissed(self) -> None:
        self._bridge.call(self, self._bridge.desk.runs.dismiss())

    def _on_splitter_moved(self) -> None:
        self._store.setValue("run/chat_width", self._splitter.sizes()[1])

    def _stored_span(self) -> float:
        stored = self._stored_int("run/span_s")
        return float(stored if stored in SPANS_S else DEFAULT_SPAN_S)

    def _stored_int(self, key: str) -> int | None:
        text = str(self._store.value(key, ""))
        return int(text) if text.isdecimal() else None

    def _restore(self) -> None:
        self.bar.show_span(round(self._span_s))
        order = str(self._store.value("run/cards", "")).split(",")
        hidden = str(self._store.value("run/cards_hidden", "")).split(",")
        self.grid.choose(order, [key for key in self.grid.cards if key not in hidden])
        for card in self.grid.cards.values():
            if isinstance(card, ChartCard):
                card.choose_view(self._stored_int(f"run/view/{card.key}") or 0)
                card.view_chosen.connect(self._on_view_chosen)

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
            chat = min(self._stored_int("run/chat_width") or share, self.width() // 2)
            self._splitter.setSizes([self.width() - chat - _SPACING, chat])

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._show_figures()
        self._draw()
        if self._held is not None:
            self.grid.redraw(self._held)


_NEVER = object()
