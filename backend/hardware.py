"""Types for what the machine has: NVIDIA driver, GPUs, what they show at a moment, and the links between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML names it; keyed by `uuid` everywhere, memory in bytes."""

    uuid: str
    name: str
    memory_total_bytes: int | None
    memory_free_bytes: int | None


@dataclass(frozen=True, slots=True)
class NvidiaDriver:
    """The NVIDIA driver as NVML reports it.

    Attributes:
        version: driver version, for example "580.95.05".
        cuda: highest CUDA version that the driver supports, as (major, minor).
        gpus: the GPUs it shows; may be empty.
    """

    version: str
    cuda: tuple[int, int]
    gpus: tuple[Gpu, ...]


class Why(StrEnum):
    """Why a figure of a GPU is unknown."""

    NOT_SUPPORTED = "not supported"
    NO_PERMISSION = "no permission"
    LOST = "lost"
    ERROR = "error"
    NOT_READ = "not read"
    """Nobody asked for it: it costs something and is not shown."""
    NOT_YET = "not yet"
    """It is a rate, which takes one more reading: this was the first, or the counter began anew."""
    ASLEEP = "asleep"
    """The GPU saves power, and reading it would wake it."""
    HIDDEN = "hidden by the container"
    """The driver names processes as the host does, so that none can be told from another in here."""


class PeakSource(StrEnum):
    """Where a GPU's peak memory bandwidth comes from."""

    FORMULA = "clock x bus width"
    TABLE = "table"
    USER = "entered"


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """What stays the same about one GPU, or about one MIG slice of it.

    Attributes:
        uuid: its name everywhere in the program.
        index: position in NVML's list, which is the PCI order of `nvidia-smi`; only for people to read.
        pci_bus_id: as NVML writes it, for example "00000000:17:00.0".
        memory_total_bytes: None where nobody tells.
        unified_memory: its memory is that of the host (GB10, Jetson).
        peak_bytes_per_s: highest memory bandwidth, None if unknown; `peak_source` says where it is from.
        measures_bandwidth: GPM works here, so the real DRAM bandwidth can be read.
        mig_enabled: it is cut into slices, which then stand in the list on their own.
        parent_uuid: the GPU that a MIG slice belongs to, "" for a whole GPU.
    """

    uuid: str
    name: str
    index: int
    pci_bus_id: str = ""
    memory_total_bytes: int | None = None
    unified_memory: bool = False
    compute_capability: tuple[int, int] | None = None
    memory_bus_bits: int | None = None
    max_memory_clock_mhz: int | None = None
    peak_bytes_per_s: float | None = None
    peak_source: PeakSource | None = None
    power_limit_w: float | None = None
    max_pcie_generation: int | None = None
    max_pcie_width: int | None = None
    nvlinks: int | None = None
    measures_bandwidth: bool = False
    mig_enabled: bool = False
    parent_uuid: str = ""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of a GPU, by the pid that the driver names (the host's, also in a container).

    Attributes:
        used_bytes: None where the driver does not tell (WSL).
        name: of the process, "" if it cannot be looked up.
        is_engine: it belongs to the engine that runs here.
    """

    pid: int
    used_bytes: int | None
    name: str = ""
    is_engine: bool = False


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What one GPU showed at one moment; a figure that is None has its reason in `why`.

    Attributes:
        uuid: which GPU.
        t: Unix time in seconds.
        lost: it has fallen off the bus; nothing else is known then.
        memory_used_bytes: allocated memory, without what the driver reserves for itself.
        memory_reserved_bytes: what the driver keeps.
        memory_free_bytes: total - reserved - used.
        engine_bytes: of `memory_used_bytes`, what the processes of our engine hold; `other_bytes` is the rest.
        busy_ratio: share of time in which some kernel ran, 0..1.
        memory_busy_ratio: share of time in which memory was read or written, 0..1. This is time, not bandwidth.
        dram_ratio: measured DRAM traffic over the peak, from GPM; a little above 1 happens.
        dram_bytes_per_s: `dram_ratio` x the GPU's peak.
        sm_ratio, tensor_ratio: activity of the multiprocessors and of their tensor units, from GPM, 0..1.
        memory_clock_mhz, sm_clock_mhz: as they are now.
        performance_state: P-state, 0 is the fastest.
        power_w: average over the last second. `energy_j` counts up since the driver was loaded.
        temperature_c, memory_temperature_c: degrees Celsius.
        throttle: why the clocks are held down now, in words; () when nothing does.
        pcie_rx_bytes_per_s: into the GPU, `tx` out of it; the same for all NVLinks together.
        pcie_generation, pcie_width: the link as it is now; it is slow while nothing runs.
        processes: who holds memory, None where that is not known.
        why: for each figure that is None, the reason.
    """

    uuid: str
    t: float
    lost: bool = False
    memory_total_bytes: float | None = None
    memory_used_bytes: float | None = None
    memory_reserved_bytes: float | None = None
    memory_free_bytes: float | None = None
    engine_bytes: float | None = None
    other_bytes: float | None = None
    busy_ratio: float | None = None
    memory_busy_ratio: float | None = None
    dram_ratio: float | None = None
    dram_bytes_per_s: float | None = None
    sm_ratio: float | None = None
    tensor_ratio: float | None = None
    memory_clock_mhz: float | None = None
    sm_clock_mhz: float | None = None
    performance_state: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    pcie_generation: float | None = None
    pcie_width: float | None = None
    throttle: tuple[str, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    why: Mapping[str, Why] = field(default_factory=dict)


GPU_FIGURES = tuple(
    each.name for each in fields(GpuReading) if each.name not in ("uuid", "t", "lost", "throttle", "processes", "why")
)
"""The figures of a GpuReading that are numbers: what a history keeps of each GPU."""

THROTTLED = "throttled"
"""What a history keeps besides GPU_FIGURES: 1 while something holds a GPU's clocks down, 0 while nothing does."""


GPU_SIGN = "/"
"""Stands between UUID and figure in the name of a series, and in no name of another series."""


def gpu_series(uuid: str, figure: str) -> str:
    """Return the name under which a history keeps a figure of GPU_FIGURES, or THROTTLED, of one GPU."""
    return f"{uuid}{GPU_SIGN}{figure}"


@dataclass(frozen=True, slots=True)
class GpuLink:
    """How two GPUs are connected.

    Attributes:
        first, second: their UUIDs.
        nvlink: peer access over NVLink works between the two, None if nobody tells.
        peer_access: one can read the other's memory over whatever connects them, None if nobody tells.
        path: the nearest common ancestor on PCIe: "PIX", "PXB", "PHB", "NODE", "SYS"; "" if unknown.
    """

    first: str
    second: str
    nvlink: bool | None = None
    peer_access: bool | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """All GPUs at one moment, as the sampler child told them.

    Attributes:
        t: Unix time in seconds.
        problem: why there are no figures, in words that say what to do; "" when there are.
        driver: version of the driver, "" if unknown; `nvml` that of the library.
        cuda: highest CUDA version of the driver as (major, minor).
        note: what all figures here lack, in words ("" for nothing): WSL tells less, a container names other pids.
        gpus: every GPU that was ever seen in this session, in NVML's order; `readings` has one for each.
        links: for each pair of GPUs.
        cost_s: seconds that the newest tick of the sampler took.
        interval_s: how long after this one the next snapshot comes; longer than asked for while ticks cost too much.
        stale: the figures are old: the sampler hangs or has died, and a new one is on its way.
    """

    t: float
    problem: str = ""
    driver: str = ""
    nvml: str = ""
    cuda: tuple[int, int] | None = None
    note: str = ""
    gpus: tuple[GpuInfo, ...] = ()
    readings: tuple[GpuReading, ...] = ()
    links: tuple[GpuLink, ...] = ()
    cost_s: float | None = None
    interval_s: float = 0.5
    stale: bool = False
