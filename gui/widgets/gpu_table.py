"""Every GPU at a glance: a row each, with slices below the GPU they are cut from, and a row for all together."""

from collections.abc import Sequence

from backend.hardware import GpuInfo, GpuReading, GpuSnapshot
from gui.widgets import figures, gpu_words
from gui.widgets.cell_rows import Cell, Column, Row
from gui.widgets.cell_table import CellTable
from gui.widgets.memory_bar import PARTS, Part, Shares, shares

ALL = "all"
"""Key of the row of all GPUs together."""
MOST_ROWS = 10
_COLUMNS = (
    (Column("GPU", "Number in the order of the PCI bus, as nvidia-smi has it"), 66),
    (Column("Name"), 150),
    (Column("UUID", "What the program and vLLM know it by"), 104),
    (
        Column(
            "Memory", "This engine, others, reserved, free; the figures are what is in use, without what is reserved"
        ),
        280,
    ),
    (Column("Busy", "Share of time in which a kernel ran"), 54),
    (Column("Power", "The mean of the last second, and the limit"), 118),
    (Column("Temp.", "Temperature of the GPU"), 58),
    (Column("Clock", "P-state, where 0 is the fastest, and clock of the multiprocessors"), 106),
    (Column("State", "Whether something holds the clocks down, and what"), 136),
)
_UUID_COLUMN, _NAME_COLUMN = 2, 1
_TROUBLE = {True: "old figures", False: "not read"}  # by whether there are figures of earlier


class GpuTable(CellTable):
    """The GPUs of a snapshot; the row that is chosen says which of them are shown in detail."""

    def __init__(self) -> None:
        super().__init__("GPUs", _COLUMNS, dispensable=(_UUID_COLUMN, _NAME_COLUMN), selectable=True)

    def show_snapshot(self, snapshot: GpuSnapshot, now: float) -> None:
        """Show what the GPUs showed; `now` is the Unix time that old figures are measured by."""
        rows = []
        whole = [gpu for gpu in snapshot.gpus if not gpu.parent_uuid]
        if len(whole) > 1:
            rows.append(_all_row(whole, snapshot, now))
        for gpu in whole:
            rows.append(_row(gpu, snapshot, now))
            rows += [_row(each, snapshot, now) for each in snapshot.gpus if each.parent_uuid == gpu.uuid]
        known = {row.key for row in rows}
        rows += [_row(gpu, snapshot, now) for gpu in snapshot.gpus if gpu.uuid not in known]  # whose parent is unseen
        was_empty = not self.rows.rows
        self.show_rows(rows)
        if rows and (was_empty or not self.chosen_key):
            self.choose(rows[0].key)

    def picked(self, snapshot: GpuSnapshot | None) -> tuple[GpuInfo, ...]:
        """Return the GPUs that the chosen row stands for; those of a GPU that is cut are its slices too."""
        if snapshot is None:
            return ()
        key = self.chosen_key
        found = tuple(gpu for gpu in snapshot.gpus if key in (gpu.uuid, gpu.parent_uuid))
        return found or snapshot.gpus


def _row(gpu: GpuInfo, snapshot: GpuSnapshot, now: float) -> Row:
    reading = gpu_words.reading_of(snapshot, gpu.uuid)
    state, tone = gpu_words.state(gpu, reading)
    trouble = gpu_words.trouble_words(snapshot, now)
    if trouble:
        state, tone = _TROUBLE[snapshot.stale], "warn"
    is_faint = bool(trouble) or reading is None or reading.lost
    faint = "muted" if is_faint else ""
    indent = "   " if gpu.parent_uuid else ""

    def cell(text: str, figure: str, picture: object = None) -> Cell:
        why = gpu_words.why_words(figure, reading) if text == figures.UNKNOWN else ""
        return Cell(text, trouble or why, "muted" if text == figures.UNKNOWN else faint, picture)

    label = gpu_words.label(gpu, snapshot.gpus)
    details = f"{gpu.name}\n{gpu.uuid}\n{gpu.pci_bus_id}".strip()
    split = shares(gpu, reading)
    used = gpu_words.used_words(gpu, reading)
    memory = used.partition(", shared")[0] if split.parts else figures.UNKNOWN
    memory_cell = (
        Cell(memory, "\n".join(filter(None, (used, split.words, trouble))), faint, split)
        if split.parts
        else cell(memory, "memory_used_bytes", Shares(0.0))
    )
    read = reading or GpuReading(gpu.uuid, snapshot.t)
    temperature = (
        f"{figures.number(read.temperature_c)} \N{DEGREE SIGN}C" if read.temperature_c is not None else figures.UNKNOWN
    )
    return Row(
        gpu.uuid,
        (
            Cell(f"{indent}{label}", details, faint),
            Cell(f"{indent}{_short(gpu.name)}", details, faint or "muted"),
            Cell(gpu_words.short_uuid(gpu.uuid), gpu.uuid, "muted"),
            memory_cell,
            cell(figures.percent(read.busy_ratio), "busy_ratio"),
            cell(gpu_words.power_words(gpu, reading), "power_w"),
            cell(temperature, "temperature_c"),
            cell(gpu_words.clock_words(reading), "sm_clock_mhz"),
            Cell(
                state,
                trouble or (gpu_words.why_words("throttle", reading) if state == figures.UNKNOWN else state),
                tone,
            ),
        ),
    )


def _all_row(gpus: Sequence[GpuInfo], snapshot: GpuSnapshot, now: float) -> Row:
    """All whole GPUs together: sums, the mean of how busy they are, the highest temperature, the lowest clock."""
    readings = [read for gpu in gpus if (read := gpu_words.reading_of(snapshot, gpu.uuid)) is not None]
    split = _summed([shares(gpu, gpu_words.reading_of(snapshot, gpu.uuid)) for gpu in gpus])
    used = _known([read.memory_used_bytes for read in readings])
    busy, power = _known([read.busy_ratio for read in readings]), _known([read.power_w for read in readings])
    # Only the limits of those whose power is known: the sums would not belong together otherwise.
    known_power = {read.uuid for read in readings if read.power_w is not None}
    limits = [gpu.power_limit_w for gpu in gpus if gpu.uuid in known_power]
    heat, clock = _known([read.temperature_c for read in readings]), _known([read.sm_clock_mhz for read in readings])
    n_lost, n_held = sum(read.lost for read in readings), sum(bool(read.throttle) for read in readings)
    state, tone = "not throttled", "muted"
    if n_lost:
        state, tone = f"{n_lost} lost", "bad"
    elif n_held:
        state, tone = f"{n_held} throttled", "warn"
    elif all(read.throttle is None for read in readings):
        state, tone = figures.UNKNOWN, "muted"
    trouble = gpu_words.trouble_words(snapshot, now)
    if trouble:
        state, tone = _TROUBLE[snapshot.stale], "warn"
    faint = "muted" if trouble else ""
    total = figures.gib(split.total_bytes) if split.total_bytes else figures.UNKNOWN
    watts = f"{figures.number(sum(power))}" if power else ""
    known_limits = [limit for limit in limits if limit is not None]
    of_limits = f" of {figures.number(sum(known_limits))}" if len(known_limits) == len(limits) else ""
    names = {gpu.name for gpu in gpus}
    name = f"{len(gpus)} \N{MULTIPLICATION SIGN} {_short(names.pop())}" if len(names) == 1 else f"{len(gpus)} GPUs"

    def cell(text: str, tip: str, known: Sequence[float], picture: object = None) -> Cell:
        part = f", of {len(known)} of {len(gpus)} GPUs" if 0 < len(known) < len(gpus) else ""
        return Cell(text or figures.UNKNOWN, f"{tip}{part}", faint if text else "muted", picture)

    memory = f"{figures.gib(sum(used)).removesuffix(' GiB')} of {total}" if used else ""
    return Row(
        ALL,
        (
            Cell("All", f"All {len(gpus)} GPUs together", faint),
            Cell(name, name, faint or "muted"),
            Cell("", ""),
            cell(memory, split.words, used, split if split.parts else Shares(0.0)),
            cell(figures.percent(sum(busy) / len(busy)) if busy else "", "Mean", busy),
            cell(f"{watts}{of_limits} W" if watts else "", "Together", power),
            cell(f"{figures.number(max(heat))} \N{DEGREE SIGN}C" if heat else "", "The hottest", heat),
            cell(f"{figures.number(min(clock))} MHz" if clock else "", "The slowest", clock),
            Cell(state, trouble or state, tone),
        ),
    )


def _short(name: str) -> str:
    """Leave out of a GPU's name what all have in common."""
    return name.removeprefix("NVIDIA ")


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _summed(splits: Sequence[Shares]) -> Shares:
    """Add the parts of several memories up, as far as they are known."""
    sizes: dict[Part, float] = {}
    for split in splits:
        for part, size in split.parts:
            sizes[part] = sizes.get(part, 0.0) + size
    total = sum(split.total_bytes for split in splits if split.parts)
    return Shares(total, tuple((part, sizes[part]) for part in PARTS if part in sizes))
