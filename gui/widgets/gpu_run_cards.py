"""The two cards of the run page that tell of GPUs: who holds their memory, and the memory bandwidth by its source."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PySide6.QtCore import QPoint, QSize, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QBoxLayout, QMenu, QPushButton

from backend.curves import EACH_S
from backend.hardware import GpuInfo, GpuReading, Why, gpu_series
from gui.theme import NOTE_PX, icon, text_font, theme
from gui.widgets import figures, gpu_words, memory_bar
from gui.widgets.card import Card, Moment
from gui.widgets.card_parts import Headline, LegendEntry, Source
from gui.widgets.chart_card import CardView, Series
from gui.widgets.chart_level import Level
from gui.widgets.gpu_cards import BANDWIDTH, MEMORY, peak_level
from gui.widgets.gpu_lines import GpuLinesCard
from gui.widgets.memory_bar import BarRow, MemoryBars, Shares, shares
from gui.widgets.run_cards import all_cards, engine_words
from gui.widgets.verdict_line import VerdictLine

_BARS = 0
_ARROW_PX = 10
ESTIMATED_SERIES = "estimated_bytes_per_s"
_MEASURED, _ESTIMATE, _IMPLIED = range(3)
_BAR_FIGURES = (
    "memory_total_bytes",
    "memory_used_bytes",
    "memory_reserved_bytes",
    "memory_free_bytes",
    "engine_bytes",
    "other_bytes",
)
_BY_OWNER = Source(
    "NVML \N{MIDDLE DOT} by owner",
    "From the NVIDIA driver, and matched to the processes of the engine",
    of_gpus=True,
)
_ESTIMATED = Source(
    "engine estimate", "The engine's own estimate of the bytes that one GPU reads and writes, from its counters"
)
_IMPLIED_SOURCE = Source(
    "implied", "Bytes that one step must read on one GPU, from the model's files, x steps per second of the engine"
)
# What an estimate is drawn as, so that no two sources look alike.
_COLOURS = {_ESTIMATE: 3, _IMPLIED: 2}


def _profile_level(moment: Moment, gpus: Sequence[GpuInfo]) -> Level | None:
    """Return the limit of the profile in GiB, where it is the same on these GPUs."""
    size = gpu_words.common([gpu_words.total_bytes(gpu, gpu_words.reading_of(moment.gpus, gpu.uuid)) for gpu in gpus])
    if size is None:
        return None
    if moment.memory_utilisation is None:
        return Level(size / figures.GIB, f"total {figures.gib(size)}")
    return Level(moment.memory_utilisation * size / figures.GIB, f"profile limit {moment.memory_utilisation:.4g}")


def live_cards(positions: Callable[[], Sequence[str]], profiling: Callable[[], bool]) -> tuple[Card, ...]:
    """Make the cards of the run page in their usual order: those of every engine, and two of its GPUs amid them.

    Args:
        positions: names the series of acceptance by position.
        profiling: tells whether the settings allow to measure the GPUs' bandwidth.
    """
    cards = list(all_cards(positions))
    after = next(number for number, card in enumerate(cards, start=1) if card.key == "positions")
    return (*cards[:after], GpuMemoryCard(), BandwidthCard(profiling), *cards[after:])


class GpuMemoryCard(GpuLinesCard):
    """A bar for each GPU, split into who holds its memory; in a second view what is in use over time."""

    KEY = "gpu_memory"

    def __init__(self) -> None:
        self.bars = MemoryBars()
        bars = CardView("Now", "who holds the memory of each GPU", _BY_OWNER, (), _fullest_words)
        over_time = replace(MEMORY, label="Over time", tip="memory in use over time", level=_profile_level)
        super().__init__(self.KEY, "GPU memory", [bars, over_time], lambda moment: gpu_words.of_engine(moment.gpus))
        self._charts.addWidget(self.bars)

    def show_moment(self, moment: Moment) -> None:
        """Show the bars, which need no curves, or draw the plot."""
        if self.view_index != _BARS:
            super().show_moment(moment)
            return
        self._charts.setCurrentWidget(self.bars)
        self._follow(moment)
        self._say_source(_BY_OWNER, moment)
        words = gpu_words.absent_words(moment.gpus)
        self._show_message(words)
        if not words:
            self.figure.show_figure(*_fullest_words(moment))
        self.show_cursor(moment)

    def show_cursor(self, moment: Moment) -> None:
        """Show the bars of the read-out's time, or the newest."""
        if self.view_index != _BARS:
            super().show_cursor(moment)
            return
        snapshot = moment.gpus
        gpus = gpu_words.holders(snapshot)
        self._show_source(moment, [gpu_series(gpu.uuid, "memory_used_bytes") for gpu in gpus])
        if self.message.text() or snapshot is None:
            return
        rows = []
        of_engine = gpu_words.of_engine(snapshot)
        fullest: Shares | None = None
        for gpu in gpus:
            reading = gpu_words.reading_of(snapshot, gpu.uuid)
            if self.cursor_at is not None:
                reading = _reading_at(moment, gpu, self.cursor_at)
            split = shares(gpu, reading)
            name = gpu_words.label(gpu, snapshot.gpus)
            unknown = why = ""
            if not split.parts and self.cursor_at is not None:
                unknown = why = "not read then"
            elif not split.parts:
                unknown, why = (say("memory_used_bytes", reading) for say in (gpu_words.short_why, gpu_words.why_words))
            tip = f"{name}, {gpu.name}: {why or gpu_words.used_words(gpu, reading)}\n{split.words}"
            rows.append(BarRow(name, split, tip, unknown, is_limited=gpu in of_engine and not unknown))
            if gpu in of_engine and split.parts and (fullest is None or _used(split) > _used(fullest)):
                fullest = split
        is_old = self.cursor_at is None and bool(gpu_words.trouble_words(snapshot, moment.now))
        self.bars.show_rows(rows, moment.memory_utilisation, is_old=is_old)
        parts = fullest.parts if fullest is not None else ()
        entries = [
            LegendEntry(part.name, figures.number(size / figures.GIB, 1), paint=memory_bar.swatch(part))
            for part, size in parts
        ]
        names = [replace(entry, value="") for entry in entries]
        if is_old:
            entries = names  # no figure of earlier is said to be one of now
        self.legend.show_entries(entries, "In GiB, on the fullest GPU of the engine", [names])


def _used(split: Shares) -> float:
    return sum(size for part, size in split.parts if part is not memory_bar.FREE) / split.total_bytes


def _reading_at(moment: Moment, gpu: GpuInfo, x: float) -> GpuReading:
    """Return the memory of a GPU as it was `x` seconds before the right end (negative)."""
    found: dict[str, Any] = {name: moment.mean_at(gpu_series(gpu.uuid, name), x) for name in _BAR_FIGURES}
    return replace(GpuReading(gpu.uuid, moment.now + x), **found)


def _fullest_words(moment: Moment) -> Headline:
    """Say how much is used on the fullest GPU that the engine uses."""
    snapshot = moment.gpus
    gpus = gpu_words.of_engine(snapshot)
    if snapshot is None or not gpus:
        return Headline(figures.UNKNOWN, gpu_words.absent_words(snapshot))
    if words := gpu_words.trouble_words(snapshot, moment.now):
        return Headline(figures.UNKNOWN, words, gpu_words.trouble_short(snapshot, moment.now))
    known = [
        (read.memory_used_bytes, total, gpu, read)
        for gpu in gpus
        if (read := gpu_words.reading_of(snapshot, gpu.uuid)) is not None
        and read.memory_used_bytes is not None
        and (total := gpu_words.total_bytes(gpu, read))
    ]
    if not known:
        return Headline(
            figures.UNKNOWN, gpu_words.why_words("memory_used_bytes", gpu_words.reading_of(snapshot, gpus[0].uuid))
        )
    used, total, gpu, _ = max(known, key=lambda each: each[0] / each[1])
    of = f"of {figures.gib(total)}"
    where = f" on {gpu_words.label(gpu, snapshot.gpus)}, the fullest" if len(known) > 1 else " used"
    shared = ", shared with system" if gpu.unified_memory else ""
    return Headline(figures.number(used / figures.GIB, 1), f"{of}{where}{shared}", f"{of}{shared}")


# ---- bandwidth ---------------------------------------------------------------------------------------------------


class BandwidthCard(GpuLinesCard):
    """Memory bandwidth: measured, estimated by the engine, or implied; one source at a time, and it is written there.

    The best source that there is is shown until a person chooses another; choosing the best one again leaves it to
    the card.

    Attributes:
        wanted: the view that a person chose, None while the card chooses.
    """

    KEY = "bandwidth"

    def __init__(self, profiling: Callable[[], bool]) -> None:
        """Show bandwidth; `profiling` tells whether the settings allow to measure it."""
        self.wanted: int | None = None
        self._profiling = profiling
        measured = replace(BANDWIDTH, label="Measured", tip="what the GPUs' own counters measure (NVML GPM)")
        super().__init__(
            self.KEY,
            "Memory bandwidth",
            [measured, self._estimate(), self._implied()],
            lambda moment: gpu_words.of_engine(moment.gpus),
            needs_engine=True,
        )
        self._mark_source()
        theme.changed.connect(self._mark_source)
        self.verdict = VerdictLine(self)
        layout = self.layout()
        assert isinstance(layout, QBoxLayout)
        layout.insertWidget(2, self.verdict)

    @property
    def shows_measured(self) -> bool:
        """Whether it is what the GPUs are measured for."""
        return self.view_index == _MEASURED

    def _add_button(self, index: int, label: str, tip: str) -> None:
        """One button with a menu: three beside each other would leave the legend no room."""
        if index == 0:
            self.menu = QMenu(self)
            self.menu.triggered.connect(self._on_source_chosen)
            self.button = QPushButton(self)
            self.button.setProperty("kind", "chip")
            self.button.setFont(text_font(NOTE_PX))
            self.button.setIconSize(QSize(_ARROW_PX, _ARROW_PX))
            self.button.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # the arrow stands behind the word
            self.button.clicked.connect(self._on_button_clicked)
            self._legend_row.addWidget(self.button)
        action = self.menu.addAction(f"{label}: {tip}")
        action.setCheckable(True)
        action.setData(index)

    def _on_button_clicked(self) -> None:
        self.menu.popup(self.button.mapToGlobal(QPoint(0, self.button.height() + 4)))

    def _on_source_chosen(self, action: QAction) -> None:
        self.choose_view(action.data())

    def _mark_source(self) -> None:
        """Let button and menu say which source is shown."""
        view = self.views[self.view_index]
        self.button.setText(view.label)
        self.button.setIcon(icon("down", theme.tokens.muted, size_px=_ARROW_PX))
        self.button.setAccessibleName(f"Source of the bandwidth: {view.label}")
        self.button.setToolTip(f"{view.label}: {view.tip}. Press to choose another source.")
        for index, action in enumerate(self.menu.actions()):
            action.setChecked(index == self.view_index)

    def _show_view(self, index: int) -> None:
        """Show a source, and name it."""
        super()._show_view(index)
        self._mark_source()

    def choose_view(self, index: int) -> None:
        """Show a source because a person wants it."""
        if not 0 <= index < len(self.views):
            return
        best = self._best(self.moment) if self.moment is not None else None
        self.wanted = None if index == best else index
        self._mark_source()
        if index != self.view_index:
            self._show_view(index)
        self.view_chosen.emit(-1 if self.wanted is None else index)

    def show_moment(self, moment: Moment) -> None:
        """Show the source that is wanted, or the best one."""
        index = self._best(moment) if self.wanted is None else self.wanted
        if index != self.view_index:
            self.moment = None  # it is drawn once, below
            self._show_view(index)
            self.moment = moment
        self.verdict.show_verdict(moment.verdict)
        super().show_moment(moment)
        if index == _MEASURED and self.message.text() and not self._profiling() and moment.gpus and moment.gpus.gpus:
            self._show_message("Measuring is turned off. Turn it on under GPUs in Settings.")

    def _best(self, moment: Moment) -> int:
        if self._profiling() and any(self._measures(moment, gpu) for gpu in gpu_words.of_engine(moment.gpus)):
            return _MEASURED
        return _ESTIMATE if _has_values(moment, ESTIMATED_SERIES) else _IMPLIED

    @staticmethod
    def _measures(moment: Moment, gpu: GpuInfo) -> bool:
        reading = gpu_words.reading_of(moment.gpus, gpu.uuid)
        why = reading.why.get("dram_bytes_per_s") if reading is not None else None
        return gpu.measures_bandwidth and why not in (Why.NO_PERMISSION, Why.NOT_SUPPORTED)

    def _estimate(self) -> CardView:
        return _engine_view(
            _ESTIMATE,
            ESTIMATED_SERIES,
            "Estimate",
            "estimated",
            "what the engine estimates (--enable-mfu-metrics)",
            _ESTIMATED,
            "The engine estimates nothing. Add --enable-mfu-metrics to the profile's extra arguments.",
        )

    def _implied(self) -> CardView:
        return _engine_view(
            _IMPLIED,
            "implied_bytes_per_s",
            "Implied",
            "implied",
            "bytes that a step must read x steps per second",
            _IMPLIED_SOURCE,
            "How many bytes a step of this model reads is not known, so nothing is implied.",
        )


def _has_values(moment: Moment, name: str) -> bool:
    """Whether this run told a figure: what an earlier one told says nothing about it."""
    if moment.newest(name) is not None:
        return True
    if moment.past is not None:
        return bool(np.isfinite(moment.read(name, moment.span_s, moment.now).values).any())
    return bool(np.isfinite(moment.read_each((name,), EACH_S, moment.now).values).any())


def _engine_view(index: int, name: str, label: str, said: str, tip: str, source: Source, nothing: str) -> CardView:
    """Return the view of a figure that the engine tells, or that follows from what it tells, of one GPU."""

    def figure(moment: Moment) -> Headline:
        value = moment.value(name)
        if value is None:
            return Headline(figures.UNKNOWN, engine_words(moment) or nothing)
        gpus = gpu_words.of_engine(moment.gpus)
        per = " per GPU" if len(gpus) > 1 else ""
        peak = gpu_words.common([gpu.peak_bytes_per_s for gpu in gpus])
        share = f", {figures.percent(value / peak)} of peak" if peak else ""
        return Headline(gpu_words.gigabytes(value), f"GB/s {said}{per}{share}", f"GB/s{share}")

    return CardView(
        label=label,
        tip=tip,
        source=source,
        series=(
            Series(name, source.word, _COLOURS[index], lambda _moment: 1 / gpu_words.GIGA, figures.rate, fill=True),
        ),
        figure=figure,
        least_limit=1.0,
        level=lambda moment: peak_level(moment, gpu_words.of_engine(moment.gpus)),
    )
