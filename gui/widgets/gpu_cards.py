"""The cards of the GPUs page: which figures of the GPUs they show, and what they say beside them."""

from collections.abc import Callable, Sequence

from backend.hardware import GpuInfo, gpu_series
from gui.widgets import figures, gpu_words
from gui.widgets.card import Card, Moment
from gui.widgets.card_parts import Headline, Source
from gui.widgets.chart_card import CardView, Series
from gui.widgets.chart_level import Level
from gui.widgets.gpu_lines import GPM, NVML, Combine, GpuFigure, GpuLinesCard, Pick, percent
from gui.widgets.run_cards import engine_words

_ENERGY = Source(
    "NVML and engine counters", "Energy of the engine's GPUs from NVML over tokens from the engine's counters"
)
_BUSY = Source(
    "NVML, time",
    "From the NVIDIA driver: the share of time in which something ran, however much of the GPU it used",
    of_gpus=True,
)


def peak_level(_moment: Moment, gpus: Sequence[GpuInfo]) -> Level | None:
    """Return the peak bandwidth that all of these GPUs have, in GB/s."""
    peak = gpu_words.common([gpu.peak_bytes_per_s for gpu in gpus])
    return None if peak is None else Level(peak / gpu_words.GIGA, f"peak {gpu_words.gigabytes(peak)} GB/s")


def peak_share(moment: Moment, gpus: Sequence[GpuInfo]) -> str:
    """Return ", 60 % of peak": the mean of each GPU's share of its own peak."""
    shares = [moment.value(gpu_series(gpu.uuid, "dram_ratio")) for gpu in gpus]
    known = [share for share in shares if share is not None]
    return f", {figures.percent(sum(known) / len(known))} of peak" if known else ""


def _memory_level(moment: Moment, gpus: Sequence[GpuInfo]) -> Level | None:
    size = gpu_words.common([gpu_words.total_bytes(gpu, gpu_words.reading_of(moment.gpus, gpu.uuid)) for gpu in gpus])
    return None if size is None else Level(size / figures.GIB, f"total {figures.gib(size)}")


def _of_total(moment: Moment, gpus: Sequence[GpuInfo]) -> str:
    sizes = [gpu_words.total_bytes(gpu, gpu_words.reading_of(moment.gpus, gpu.uuid)) for gpu in gpus]
    known = [size for size in sizes if size is not None]
    return f" of {figures.gib(sum(known))}" if known and len(known) == len(sizes) else ""


def _limit_level(_moment: Moment, gpus: Sequence[GpuInfo]) -> Level | None:
    limit = gpu_words.common([gpu.power_limit_w for gpu in gpus])
    return None if limit is None else Level(limit, f"limit {figures.number(limit)} W")


def _throttle(moment: Moment, gpus: Sequence[GpuInfo]) -> str:
    """Return which GPUs are throttled, and why if it is one."""
    if moment.gpus is None:
        return ""
    held = [gpu for gpu in gpus if (read := gpu_words.reading_of(moment.gpus, gpu.uuid)) and read.throttle]
    if not held:
        return ""
    reading = gpu_words.reading_of(moment.gpus, held[0].uuid)
    assert reading is not None
    why = f": {gpu_words.throttle_words(reading)}" if len(held) == 1 else ""
    return f", {len(held)} throttled{why}" if len(gpus) > 1 else f", throttled{why}"


def _traffic(kind: str, way: str) -> GpuFigure:
    rx = way == "rx"
    return GpuFigure(
        name=f"{kind.lower()}_{way}_bytes_per_s",
        label="In" if rx else "Out",
        tip=f"bytes {'into' if rx else 'out of'} the GPU over {kind}",
        unit="GB/s",
        words="in" if rx else "out",
        factor=1 / gpu_words.GIGA,
        combine=Combine.SUM,
        least_limit=0.1,
    )


MEMORY = GpuFigure(
    name="memory_used_bytes",
    label="Used",
    tip="memory in use, without what the driver keeps for itself",
    unit="GiB",
    words="used",
    factor=1 / figures.GIB,
    text=lambda value: figures.number(value, 1),
    combine=Combine.SUM,
    level=_memory_level,
    of=_of_total,
)
ENGINE_MEMORY = GpuFigure(
    name="engine_bytes",
    label="Engine",
    tip="memory that the engine holds",
    unit="GiB",
    words="held by this engine",
    factor=1 / figures.GIB,
    text=lambda value: figures.number(value, 1),
    combine=Combine.SUM,
    level=_memory_level,
)
BANDWIDTH = GpuFigure(
    name="dram_bytes_per_s",
    label="GB/s",
    tip="bytes read from and written to the GPU's memory per second",
    unit="GB/s",
    words="",
    several="per GPU",
    factor=1 / gpu_words.GIGA,
    source=GPM,
    least_limit=10.0,
    level=peak_level,
    more=peak_share,
)


def gpu_cards(pick: Pick, *, titled: Callable[[str], str] = str) -> tuple[Card, ...]:
    """Make the cards in their usual order; `pick` says of which GPUs they tell, `titled` makes titles of the usual."""

    def card(key: str, title: str, *chosen: GpuFigure | CardView) -> Card:
        return GpuLinesCard(key, titled(title), chosen, pick)

    share = GpuFigure(
        name="dram_ratio",
        label="Share",
        tip="memory bandwidth as a share of the peak",
        unit="%",
        words="of peak bandwidth",
        factor=100,
        text=percent,
        source=GPM,
        limit=100.0,
        axis_unit="%",
    )
    return (
        card("gpu_memory", "Memory", MEMORY, ENGINE_MEMORY),
        card("gpu_bandwidth", "Memory bandwidth", BANDWIDTH, share),
        card(
            "gpu_busy",
            "Busy time",
            _share("busy_ratio", "Busy", "share of time in which a kernel ran", "of the time a kernel ran", _BUSY),
        ),
        card(
            "gpu_activity",
            "SM and tensor activity",
            _share("sm_ratio", "SM", "activity of the multiprocessors", "SM activity", GPM),
            _share("tensor_ratio", "Tensor", "activity of the tensor units", "tensor activity", GPM),
        ),
        card(
            "gpu_memory_busy",
            "Memory busy time",
            _share(
                "memory_busy_ratio",
                "Busy",
                "share of time in which memory was read or written; it is time, not bandwidth",
                "of the time memory was in use",
                _BUSY,
            ),
        ),
        card("gpu_power", "Power and energy", _power(), energy_view()),
        card("gpu_temperature", "Temperature", _temperature("", "GPU"), _temperature("memory_", "Memory")),
        card("gpu_clocks", "Clocks", _clock("sm", "SM", throttled=True), _clock("memory", "Memory", throttled=False)),
        card("gpu_pcie", "PCIe traffic", _traffic("PCIe", "rx"), _traffic("PCIe", "tx")),
        card("gpu_nvlink", "NVLink traffic", _traffic("NVLink", "rx"), _traffic("NVLink", "tx")),
    )


def _share(name: str, label: str, tip: str, words: str, source: Source) -> GpuFigure:
    return GpuFigure(
        name=name,
        label=label,
        tip=tip,
        unit="%",
        words=words,
        factor=100,
        text=percent,
        source=source,
        limit=100.0,
        axis_unit="%",
    )


def _temperature(prefix: str, label: str) -> GpuFigure:
    return GpuFigure(
        name=f"{prefix}temperature_c",
        label=label,
        tip=f"temperature of the {'memory' if prefix else 'GPU'}",
        unit="\N{DEGREE SIGN}C",
        words="memory" if prefix else "",
        text=figures.number,
        combine=Combine.HIGHEST,
        source=NVML,
        least_limit=100.0,
    )


def _clock(which: str, label: str, *, throttled: bool) -> GpuFigure:
    return GpuFigure(
        name=f"{which}_clock_mhz",
        label=label,
        tip="clock of the multiprocessors; stretches with a mark on top are throttled" if throttled else "memory clock",
        unit="MHz",
        words="",
        text=figures.number,
        combine=Combine.LOWEST,
        source=NVML,
        least_limit=500.0,
        more=_throttle if throttled else lambda _moment, _gpus: "",
        throttled=throttled,
    )


def _power() -> GpuFigure:
    return GpuFigure(
        name="power_w",
        label="Power",
        tip="power, the mean of the last second",
        unit="W",
        words="",
        text=figures.number,
        combine=Combine.SUM,
        least_limit=50.0,
        level=_limit_level,
    )


def energy_view() -> CardView:
    """Return the view of joules per token: one figure for all GPUs of the engine."""

    def figure(moment: Moment) -> Headline:
        value = moment.value("joules_per_token")
        if value is None:
            words = engine_words(moment) or "No token was generated, or the GPUs do not tell their energy."
            return Headline(figures.UNKNOWN, words)
        return Headline(figures.rate(value), "J per token")

    return CardView(
        label="Per token",
        tip="energy of the engine's GPUs over the tokens it generated",
        source=_ENERGY,
        series=(Series("joules_per_token", "per token", 2, lambda _moment: 1.0, figures.rate, fill=True),),
        figure=figure,
        least_limit=0.1,
    )
