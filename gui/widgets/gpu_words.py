"""What is said about GPUs: their names, why a figure is unknown, how they stand, and how they are connected."""

from collections.abc import Sequence

from backend.hardware import GpuInfo, GpuLink, GpuReading, GpuSnapshot, PeakSource, Why
from gui.widgets import figures

GIGA = 1e9
_UUID_CHARACTERS = 8

# What stands after "does not tell" and "is not read"; for figures of which people may not know what they are.
_NAMES = {
    "memory_total_bytes": "its memory",
    "memory_used_bytes": "the memory in use",
    "engine_bytes": "which process holds its memory",
    "busy_ratio": "how long it is busy",
    "memory_busy_ratio": "how long its memory is busy",
    "dram_ratio": "its memory bandwidth",
    "dram_bytes_per_s": "its memory bandwidth",
    "sm_ratio": "the activity of its multiprocessors",
    "tensor_ratio": "the activity of its tensor units",
    "memory_clock_mhz": "its memory clock",
    "sm_clock_mhz": "its clock",
    "performance_state": "its P-state",
    "power_w": "its power",
    "energy_j": "its energy",
    "temperature_c": "its temperature",
    "memory_temperature_c": "the temperature of its memory",
    "pcie_rx_bytes_per_s": "its PCIe traffic",
    "pcie_tx_bytes_per_s": "its PCIe traffic",
    "nvlink_rx_bytes_per_s": "its NVLink traffic",
    "nvlink_tx_bytes_per_s": "its NVLink traffic",
    "throttle": "whether it is throttled",
    "processes": "which processes hold its memory",
}
_ACTIVITY = ("sm_ratio", "tensor_ratio")
_BANDWIDTH = ("dram_ratio", "dram_bytes_per_s")
PATHS = {
    "NVLink": "a direct NVLink connection, the fastest",
    "PIX": "one PCIe switch between them",
    "PXB": "several PCIe switches between them",
    "PHB": "the PCIe host bridge of the processor between them",
    "NODE": "several host bridges of one processor between them",
    "SYS": "the link between two processors, the slowest",
}
_PEAKS = {
    PeakSource.FORMULA: "memory clock x bus width",
    PeakSource.TABLE: "the table of known GPUs",
    PeakSource.USER: "entered by hand",
}


def label(gpu: GpuInfo, gpus: Sequence[GpuInfo]) -> str:
    """Return "GPU 0", or "MIG 0:1" for the second slice of GPU 0."""
    if not gpu.parent_uuid:
        return f"GPU {gpu.index}"
    parent = next((each for each in gpus if each.uuid == gpu.parent_uuid), None)
    slices = [each.uuid for each in gpus if each.parent_uuid == gpu.parent_uuid]
    return f"MIG {parent.index if parent else '?'}:{slices.index(gpu.uuid) if gpu.uuid in slices else '?'}"


def short_uuid(uuid: str) -> str:
    """Return the first characters of a UUID: "GPU-1a2b3c4d"."""
    kind, _, rest = uuid.partition("-")
    return f"{kind}-{rest[:_UUID_CHARACTERS]}" if rest else uuid[:_UUID_CHARACTERS]


def reading_of(snapshot: GpuSnapshot | None, uuid: str) -> GpuReading | None:
    """Return what a GPU showed, None if it is not in the snapshot."""
    return next((each for each in snapshot.readings if each.uuid == uuid), None) if snapshot else None


def holders(snapshot: GpuSnapshot | None) -> tuple[GpuInfo, ...]:
    """Return what a process can hold memory of: whole GPUs, and slices in place of the GPU they are cut from."""
    if snapshot is None:
        return ()
    cut = {each.parent_uuid for each in snapshot.gpus if each.parent_uuid}
    return tuple(each for each in snapshot.gpus if each.uuid not in cut)


def of_engine(snapshot: GpuSnapshot | None) -> tuple[GpuInfo, ...]:
    """Return the GPUs of which the engine holds memory; all of them where nobody knows, or it holds none."""
    found = holders(snapshot)
    used = tuple(each for each in found if _is_of_engine(reading_of(snapshot, each.uuid)))
    return used or found


def _is_of_engine(reading: GpuReading | None) -> bool:
    """Whether the engine holds memory there, also where nobody tells how much."""
    if reading is None:
        return False
    if reading.engine_bytes is not None:
        return reading.engine_bytes > 0
    return any(process.is_engine for process in reading.processes or ())


def why_words(figure: str, reading: GpuReading | None) -> str:
    """Say why a figure is unknown, in a sentence."""
    what = _NAMES.get(figure, "this")
    if reading is None:
        return "Nothing was read of this GPU yet."
    if reading.lost:
        return "This GPU has fallen off the bus. Restart the machine if it does not come back."
    match reading.why.get(figure):
        case Why.NOT_SUPPORTED if figure in _BANDWIDTH:
            return (
                "This GPU does not measure its bandwidth (GPM needs Hopper or newer). "
                "The Run page shows what the steps of the engine imply."
            )
        case Why.NOT_SUPPORTED if figure in _ACTIVITY:
            return f"This GPU does not tell {what} (GPM needs Hopper or newer)."
        case Why.NOT_SUPPORTED:
            return f"This GPU does not tell {what}."
        case Why.NO_PERMISSION:
            return f"The driver does not let this user read {what}. Its administrator can allow it."
        case Why.LOST:
            return "This GPU has fallen off the bus. Restart the machine if it does not come back."
        case Why.NOT_READ:
            return f"Nobody reads {what} now: that is done only while its chart is shown, and Settings can turn it off."
        case Why.NOT_YET:
            return "Waiting for the second reading"
        case Why.ASLEEP:
            return "This GPU sleeps to save power; reading it would wake it."
        case Why.HIDDEN:
            return "In this container nobody can tell whose processes hold the memory."
        case Why.ERROR:
            return f"The driver failed to tell {what}. It is asked again."
    return f"Nobody tells {what}."


def short_why(figure: str, reading: GpuReading | None) -> str:
    """Say why a figure is unknown in two or three words: "lost", "not supported"."""
    if reading is None:
        return "not read yet"
    return Why.LOST.value if reading.lost else reading.why.get(figure, "not known")


def trouble_words(snapshot: GpuSnapshot, now: float) -> str:
    """Say why the figures are old, and how old at Unix time `now`, or why there are none; "" when all is well."""
    if not snapshot.stale:
        return snapshot.problem
    why = snapshot.problem or "The driver does not answer."
    return f"{why} The last figures are {_age(snapshot, now)} old."


def trouble_short(snapshot: GpuSnapshot, now: float) -> str:
    """Say the same in two to five words."""
    if not snapshot.stale:
        return "not read" if snapshot.problem else ""
    return f"the last are {_age(snapshot, now)} old"


def _age(snapshot: GpuSnapshot, now: float) -> str:
    """Return how old the newest reading is: a snapshot that is old has the time at which it was asked for."""
    newest = max((read.t for read in snapshot.readings if not read.lost), default=snapshot.t)
    return figures.elapsed(max(now - newest, 1.0))


def absent_words(snapshot: GpuSnapshot | None) -> str:
    """Say why there is no GPU to show; "" when there is one."""
    if snapshot is None:
        return "Waiting for the first reading of the GPUs"
    if snapshot.gpus:
        return ""
    return snapshot.problem or "There is no NVIDIA GPU in this machine."


def throttle_words(reading: GpuReading) -> str:
    """Say what holds the clocks down: "power cap", "not throttled", or a dash."""
    if reading.throttle is None:
        return figures.UNKNOWN
    return ", ".join(reading.throttle) or "not throttled"


def state(gpu: GpuInfo, reading: GpuReading | None) -> tuple[str, str]:
    """Return how a GPU stands in words, and their tone: "bad", "warn" or "muted"."""
    if reading is None:
        return "not read yet", "muted"
    if reading.lost:
        return "lost: fell off the bus", "bad"
    if Why.ASLEEP in reading.why.values():
        return "sleeps to save power", "muted"
    if reading.throttle:
        return f"throttled: {', '.join(reading.throttle)}", "warn"
    if gpu.mig_enabled:
        return "cut into MIG slices", "muted"
    if gpu.unified_memory:
        return "memory shared with system", "muted"
    if reading.throttle is None:
        return figures.UNKNOWN, "muted"
    return "not throttled", "muted"


def total_bytes(gpu: GpuInfo, reading: GpuReading | None) -> float | None:
    """Return the size of a GPU's memory."""
    read = reading.memory_total_bytes if reading is not None else None
    return read if read is not None else gpu.memory_total_bytes


def used_words(gpu: GpuInfo, reading: GpuReading | None) -> str:
    """Return "66.2 of 79.6 GiB"; of unified memory that it is shared."""
    used = figures.gib(reading.memory_used_bytes if reading is not None else None).removesuffix(" GiB")
    words = f"{used} of {figures.gib(total_bytes(gpu, reading))}"
    return f"{words}, shared with system" if gpu.unified_memory else words


def power_words(gpu: GpuInfo, reading: GpuReading | None) -> str:
    """Return "281 of 700 W"."""
    power = figures.number(reading.power_w if reading is not None else None)
    limit = f" of {figures.number(gpu.power_limit_w)}" if gpu.power_limit_w is not None else ""
    return f"{power}{limit} W" if power != figures.UNKNOWN else power


def clock_words(reading: GpuReading | None) -> str:
    """Return "P0, 1,980 MHz"."""
    if reading is None or reading.sm_clock_mhz is None:
        return figures.UNKNOWN
    p_state = f"P{reading.performance_state:.0f}, " if reading.performance_state is not None else ""
    return f"{p_state}{figures.number(reading.sm_clock_mhz)} MHz"


def gigabytes(bytes_per_s: float | None) -> str:
    """Return a bandwidth in GB/s, without the unit."""
    return figures.rate(None if bytes_per_s is None else bytes_per_s / GIGA)


def peak_words(gpu: GpuInfo) -> str:
    """Return a peak bandwidth with its source: "3,352 GB/s, from memory clock x bus width"."""
    if gpu.peak_bytes_per_s is None or gpu.peak_source is None:
        return "not known"
    entered = gpu.peak_source is PeakSource.USER
    return f"{gigabytes(gpu.peak_bytes_per_s)} GB/s, {'' if entered else 'from '}{_PEAKS[gpu.peak_source]}"


def common(values: Sequence[float | None]) -> float | None:
    """Return the one value that all have, None when they differ or one is unknown."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values) or max(known) > min(known) * 1.001:
        return None
    return known[0]


def between(link: GpuLink) -> str:
    """Return how two GPUs are connected, in a word of PATHS; "" if nobody tells."""
    return "NVLink" if link.nvlink else link.path


def links_words(links: Sequence[GpuLink]) -> str:
    """Say in a sentence what the connections mean for an engine that uses several GPUs."""
    if not links:
        return ""
    if all(link.nvlink for link in links):
        return "Every pair of GPUs is connected by NVLink: one model can be split over all of them."
    kinds = {between(link) for link in links}
    if "" in kinds:
        return "How some of the GPUs are connected is not known."
    slow = "SYS" in kinds
    mixed = "NVLink" in kinds
    if mixed:
        return "Only some pairs have NVLink: a model that is split should stay on GPUs that are connected by it."
    across = " Some pairs are on different processors, which is slowest." if slow else ""
    return f"The GPUs reach each other over PCIe only: splitting one model costs time at every layer.{across}"


def sampler_words(snapshot: GpuSnapshot) -> str:
    """Say what reading the GPUs costs: "read every 0.5 s, which takes 3 ms"."""
    every = f"read every {snapshot.interval_s:.3g} s"
    if snapshot.cost_s is None:
        return every
    milliseconds = round(snapshot.cost_s * 1000)  # a finer figure would change all the time
    return f"{every}, which takes {milliseconds:,} ms" if milliseconds else f"{every}, which takes less than 1 ms"


def driver_words(snapshot: GpuSnapshot) -> str:
    """Return "driver 580.95.05, CUDA 13.0"."""
    parts = [f"driver {snapshot.driver}"] if snapshot.driver else []
    parts += [f"CUDA {snapshot.cuda[0]}.{snapshot.cuda[1]}"] if snapshot.cuda else []
    return ", ".join(parts)
