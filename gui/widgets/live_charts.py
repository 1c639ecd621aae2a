"""What pages of live charts have in common: the newest reading, span, pause, which cards with which views."""

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QSettings, Signal

from backend.curves import Curve, Stretch
from backend.desk.types import Reading
from backend.events import HostSample, RunState, Sample, Verdict
from backend.hardware import GpuSnapshot
from gui.bridge import Bridge
from gui.widgets.card import Moment
from gui.widgets.card_grid import CardGrid
from gui.widgets.chart_card import ChartCard
from gui.widgets.span_bar import DEFAULT_SPAN_S, SPANS_S, SpanBar
from gui.widgets.stored import stored_int


class NewestReading:
    """What the newest reading of a bridge says, as cards want it.

    Attributes:
        host: the machine, None before the first reading.
        sample: the engine, None while none is read.
        gpus: the GPUs, None while nothing is known of them.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.host: HostSample | None = None
        self.sample: Sample | None = None
        self.gpus: GpuSnapshot | None = bridge.gpus
        self._verdict: Verdict | None = None
        self._interval_s = 1.0
        if bridge.reading is not None:  # the next one may be a minute away
            self.take(bridge.reading)

    def take(self, reading: Reading) -> None:
        """Take note of a reading."""
        engine = reading.engine
        over_s = engine.interval_s if engine is not None else None
        if over_s is None and self.host is not None and reading.host.t > self.host.t:
            over_s = reading.host.t - self.host.t
        self._interval_s = over_s or self._interval_s
        self.host, self.gpus, self._verdict = reading.host, reading.gpus, reading.verdict
        self.sample = engine if engine is not None and engine.state is not RunState.STOPPED else None

    def moment(self, span_s: float) -> Moment | None:
        """Return what a card needs to draw the last `span_s` seconds; None before the first reading."""
        if self.host is None:
            return None
        return Moment(
            now=self.host.t,
            span_s=span_s,
            read=self._read,
            around=self._around,
            read_each=self._bridge.run_readings,
            state=self._bridge.run.state,
            sample=self.sample,
            host=self.host,
            interval_s=self._interval_s,
            gpus=self.gpus,
            verdict=self._verdict,
            memory_utilisation=self._bridge.run.memory_utilisation,
            marks=tuple(self._bridge.marks),
        )

    def _read(self, name: str, seconds: float, until: float) -> Curve:
        return self._bridge.history.last(name, seconds=seconds, until=until)

    def _around(self, name: str, t: float, seconds: float, until: float) -> Stretch | None:
        return self._bridge.history.stretch(name, t, seconds=seconds, until=until)


class LiveCharts(QObject):
    """Connects the bar over the cards with the cards, and draws them.

    Attributes:
        span_s: seconds that are shown.
        held: what is drawn while paused, None while not.

    Signals:
        span_changed: another span is shown.
        shown_changed: other cards, or another view of one, are shown.
    """

    span_changed = Signal()
    shown_changed = Signal()

    def __init__(
        self,
        name: str,
        store: QSettings,
        bar: SpanBar,
        grid: CardGrid,
        *,
        now: Callable[[], Moment | None],
        hold: Callable[[Moment], Moment] = lambda moment: moment,
    ) -> None:
        """Restore what was chosen earlier.

        Args:
            name: of the page, under which choices are kept in `store`.
            store: the settings of the window.
            bar: where a person chooses.
            grid: the cards.
            now: gives the moment to draw, None before the first reading.
            hold: makes a moment last that is looked at longer than its readings are kept.
        """
        super().__init__(grid)
        self._name, self._store, self._bar, self._grid = name, store, bar, grid
        self._now, self._hold = now, hold
        self.held: Moment | None = None
        stored = stored_int(store, f"{name}/span_s")
        self.span_s = float(stored if stored in SPANS_S else DEFAULT_SPAN_S)
        bar.span_chosen.connect(self._on_span_chosen)
        bar.paused.connect(self._on_paused)
        bar.cards_chosen.connect(grid.choose)
        grid.order_changed.connect(self._on_order_changed)
        self._restore()

    @property
    def is_seen(self) -> bool:
        """Whether anybody can see the cards' page."""
        page = self._grid.parentWidget()
        return page is not None and page.isVisible() and not page.window().isMinimized()

    def draw(self) -> None:
        """Have the cards drawn, each in a turn of its own, if they are seen and not held."""
        if self.held is None and self.is_seen and (moment := self._now()) is not None:
            self._grid.redraw(moment)

    def draw_again(self) -> None:
        """Draw what is to be seen after the page was hidden, held or not."""
        self.draw()
        if self.held is not None:
            self._grid.redraw(self.held)

    def _on_span_chosen(self, span_s: int) -> None:
        self.span_s = float(span_s)
        self._keep("span_s", span_s)
        self.span_changed.emit()
        if self.held is not None:
            self.held = replace(self.held, span_s=self.span_s)
            self._grid.redraw(self.held)
        self._grid.point_at(None)
        self.draw()

    def _on_paused(self, paused: bool) -> None:
        moment = self._now() if paused else None
        self.held = self._hold(moment) if moment is not None else None
        self.draw()

    def _on_order_changed(self) -> None:
        grid = self._grid
        self._bar.show_cards([key for key in grid.order if key not in grid.left_out], grid.shown)
        self._keep("cards", ",".join(grid.order))
        self._keep("cards_hidden", ",".join(sorted(set(grid.order) - grid.shown)))
        self.shown_changed.emit()

    def _on_view_chosen(self, index: int) -> None:
        card = self.sender()
        assert isinstance(card, ChartCard)
        self._keep(f"view/{card.key}", index)  # -1, which is no view, where the card chooses
        self.shown_changed.emit()

    def _keep(self, key: str, value: object) -> None:
        self._store.setValue(f"{self._name}/{key}", value)

    def _restore(self) -> None:
        self._bar.show_span(round(self.span_s))
        order = str(self._store.value(f"{self._name}/cards", "")).split(",")
        hidden = str(self._store.value(f"{self._name}/cards_hidden", "")).split(",")
        self._grid.choose(order, [key for key in self._grid.cards if key not in hidden])
        for card in self._grid.cards.values():
            if isinstance(card, ChartCard):
                if (view := stored_int(self._store, f"{self._name}/view/{card.key}")) is not None:
                    card.choose_view(view)
                card.view_chosen.connect(self._on_view_chosen)
