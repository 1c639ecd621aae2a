"""Cards of one figure of several GPUs: a line for each, which follows the GPUs there are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from backend.hardware import THROTTLED, GpuInfo, GpuSnapshot, Why, gpu_series
from gui.theme import DARK
from gui.widgets import figures, gpu_words
from gui.widgets.card import Moment
from gui.widgets.card_parts import Headline, LegendEntry, Source
from gui.widgets.chart_card import CardView, ChartCard, Series
from gui.widgets.chart_level import Level
from gui.widgets.run_cards import NOT_RECORDED

Pick = Callable[[Moment], tuple[GpuInfo, ...]]
"""Says of which GPUs a card tells."""
NVML = Source("NVML", "From the NVIDIA driver", of_gpus=True)
GPM = Source("measured \N{MIDDLE DOT} GPM", "Measured by the GPU's own performance counters (NVML GPM)", of_gpus=True)
_N_COLOURS = len(DARK.series)


class Combine(StrEnum):
    """What one figure stands for several GPUs."""

    MEAN = "mean"
    SUM = "sum"
    HIGHEST = "highest"
    LOWEST = "lowest"


@dataclass(frozen=True, slots=True)
class GpuFigure:
    """One view of a card: a figure of GPU_FIGURES.

    Attributes:
        name: the figure.
        label: the button that chooses it; `tip` explains it.
        unit: stands after the value; "%" has no words between.
        words: what it is, in words; `several` is what stands there for several GPUs, "" for the same.
        factor: turns its unit into that of the plot.
        text: says a value of the plot.
        combine: what stands for several GPUs.
        limit, least_limit: of the value axis; `axis_unit` stands at its upper end.
        level: a value that counts for each of these GPUs.
        of: what the value is a part of, right after what it is; `more` is what else the headline says.
        throttled: mark the stretches in which a GPU was throttled.
    """

    name: str
    label: str
    tip: str
    unit: str
    words: str
    several: str = ""
    factor: float = 1.0
    text: Callable[[float | None], str] = figures.rate
    combine: Combine = Combine.MEAN
    source: Source = NVML
    limit: float | None = None
    least_limit: float = 1.0
    axis_unit: str = ""
    level: Callable[[Moment, Sequence[GpuInfo]], Level | None] = lambda _moment, _gpus: None
    of: Callable[[Moment, Sequence[GpuInfo]], str] = lambda _moment, _gpus: ""
    more: Callable[[Moment, Sequence[GpuInfo]], str] = lambda _moment, _gpus: ""
    throttled: bool = False


def percent(value: float | None) -> str:
    """Return a value of a plot in percent: "62 %"."""
    return figures.percent(None if value is None else value / 100)


def line(gpu: GpuInfo, snapshot: GpuSnapshot, figure: GpuFigure, *, alone: bool) -> Series:
    """Return the line of a GPU; those of one colour are told apart by dashes."""
    number = next(n for n, each in enumerate(snapshot.gpus) if each.uuid == gpu.uuid)
    return Series(
        gpu_series(gpu.uuid, figure.name),
        gpu_words.label(gpu, snapshot.gpus),
        number % _N_COLOURS,
        lambda _moment: figure.factor,
        figure.text,
        fill=alone,
        dashed=number >= _N_COLOURS and not alone,
    )


def counted(gpus: Sequence[GpuInfo]) -> tuple[GpuInfo, ...]:
    """Return the GPUs to add up: slices are part of the GPU they are cut from, where that is there too."""
    here = {gpu.uuid for gpu in gpus}
    return tuple(gpu for gpu in gpus if gpu.parent_uuid not in here)


def headline(moment: Moment, figure: GpuFigure, gpus: Sequence[GpuInfo]) -> Headline:
    """Say the value that stands for the GPUs that tell one, or why there is none."""
    told = counted(gpus)
    known = {
        gpu: value * figure.factor
        for gpu in told
        if (value := moment.value(gpu_series(gpu.uuid, figure.name))) is not None
    }
    if not known:
        short = gpu_words.trouble_short(moment.gpus, moment.now) if moment.gpus is not None else ""
        return Headline(figures.UNKNOWN, unknown_words(moment, figure.name, gpus), short)
    assert moment.gpus is not None
    values = list(known.values())
    match figure.combine:
        case Combine.MEAN:
            value, how = sum(values) / len(values), f", mean of {len(known)} GPUs"
        case Combine.SUM:
            value, how = sum(values), f", {len(known)} GPUs together"
        case Combine.HIGHEST | Combine.LOWEST:
            extreme = (max if figure.combine is Combine.HIGHEST else min)(known, key=lambda gpu: known[gpu])
            value, how = known[extreme], f", {figure.combine} on {gpu_words.label(extreme, moment.gpus.gpus)}"
    only = ""
    if len(known) == 1:  # where others tell nothing it must be said which one does
        how = only = f", {gpu_words.label(next(iter(known)), moment.gpus.gpus)}" if len(told) > 1 else ""
    what = figure.several if figure.several and len(known) > 1 else figure.words
    what = f"{what}{figure.of(moment, tuple(known))}"
    more = figure.more(moment, tuple(known))
    unit = "" if figure.unit == "%" else figure.unit
    return Headline(figure.text(value), _after(unit, f"{what}{how}{more}"), _after(unit, f"{what}{only}{more}"))


def _after(unit: str, words: str) -> str:
    return f"{unit}{'' if words.startswith(',') else ' '}{words}".strip()


def unknown_words(moment: Moment, figure: str, gpus: Sequence[GpuInfo]) -> str:
    """Say why a figure is unknown of all of these GPUs."""
    if moment.past is not None:
        return NOT_RECORDED
    snapshot = moment.gpus
    if snapshot is None or not gpus:
        return gpu_words.absent_words(snapshot) or "No GPU is chosen."
    if words := gpu_words.trouble_words(snapshot, moment.now):
        return words
    reasons = [gpu_words.why_words(figure, gpu_words.reading_of(snapshot, gpu.uuid)) for gpu in gpus]
    return reasons[0] if len(set(reasons)) == 1 else f"{gpu_words.label(gpus[0], snapshot.gpus)}: {reasons[0]}"


def shorter(entries: Sequence[LegendEntry]) -> tuple[Sequence[LegendEntry], ...]:
    """Return the legend of many GPUs in fewer words: only their numbers, then only the least and the greatest."""
    if len(entries) < 3:
        return ()
    numbers = [
        LegendEntry(entry.label.removeprefix("GPU "), entry.value, entry.colour, dashed=entry.dashed)
        for entry in entries
    ]
    known = [(entry.amount, entry.value) for entry in entries if entry.amount is not None]
    if not known:
        return (numbers, [])
    ends = [LegendEntry("lowest", min(known)[1]), LegendEntry("highest", max(known)[1])]
    return (numbers, ends, ends[1:])


def view(figure: GpuFigure, gpus: Sequence[GpuInfo], snapshot: GpuSnapshot | None) -> CardView:
    """Return the view of a figure of these GPUs."""
    one = len(gpus) == 1
    return CardView(
        label=figure.label,
        tip=figure.tip,
        source=figure.source,
        series=tuple(line(gpu, snapshot, figure, alone=one) for gpu in gpus) if snapshot is not None else (),
        figure=lambda moment: headline(moment, figure, gpus),
        limit=figure.limit,
        least_limit=figure.least_limit,
        unit=figure.axis_unit,
        level=lambda moment: figure.level(moment, gpus),
        bands=(lambda moment: throttled(moment, gpus)) if figure.throttled else (lambda _moment: ()),
        short=shorter,
    )


def throttled(moment: Moment, gpus: Sequence[GpuInfo]) -> tuple[tuple[float, float], ...]:
    """Return the stretches in which any of these GPUs was throttled, as seconds before the right end."""
    found: list[tuple[float, float]] = []
    for gpu in gpus:
        times, values = moment.read(gpu_series(gpu.uuid, THROTTLED), moment.span_s, moment.now)
        is_on = np.concatenate([[False], values > 0, [False]])
        starts, ends = np.flatnonzero(~is_on[:-1] & is_on[1:]), np.flatnonzero(is_on[:-1] & ~is_on[1:])
        found += [
            (float(times[start] - moment.now), float(times[end - 1] - moment.now))
            for start, end in zip(starts, ends, strict=True)
        ]
    return tuple(sorted(found))


class GpuLinesCard(ChartCard):
    """A card whose lines are those of the GPUs that `pick` names, made anew only when those are others.

    A GPU that cannot tell a figure has no line; where none can, words say why.
    """

    def __init__(
        self,
        key: str,
        title: str,
        chosen: Sequence[GpuFigure | CardView],
        pick: Pick,
        *,
        needs_engine: bool = False,
    ) -> None:
        """Show these views, of which those of other things than GPUs stay as they are."""
        self._chosen = tuple(chosen)
        self._pick = pick
        self._told: list[tuple[GpuInfo, ...]] = []
        views = [view(each, (), None) if isinstance(each, GpuFigure) else each for each in chosen]
        super().__init__(key, title, views, needs_engine=needs_engine)

    def series_of(self, gpus: Sequence[GpuInfo]) -> tuple[str, ...]:
        """Return every series of these GPUs that it can show, and those of other things."""
        own = [each.name for each in self._chosen if isinstance(each, GpuFigure)]
        others = [series.name for each in self._chosen if isinstance(each, CardView) for series in each.series]
        return (*(gpu_series(gpu.uuid, name) for gpu in gpus for name in own), *others)

    def show_moment(self, moment: Moment) -> None:
        """Follow the GPUs, then draw."""
        self._follow(moment)
        super().show_moment(moment)

    def _follow(self, moment: Moment) -> None:
        picked = self._pick(moment)
        told = [
            _telling(moment.gpus, each.name, picked) if isinstance(each, GpuFigure) else () for each in self._chosen
        ]
        if told != self._told:  # also when someone enters another peak
            self._told = told
            self.replace_views(
                [
                    view(each, gpus, moment.gpus) if isinstance(each, GpuFigure) else each
                    for each, gpus in zip(self._chosen, told, strict=True)
                ]
            )


def _telling(snapshot: GpuSnapshot | None, figure: str, gpus: Sequence[GpuInfo]) -> tuple[GpuInfo, ...]:
    """Return the GPUs that can tell a figure, or all where none can."""
    able = tuple(
        gpu
        for gpu in gpus
        if (read := gpu_words.reading_of(snapshot, gpu.uuid)) is None or read.why.get(figure) is not Why.NOT_SUPPORTED
    )
    return able or tuple(gpus)
