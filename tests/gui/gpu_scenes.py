"""GPUs for tests and pictures of the window: snapshots and readings of an engine whose figures fit together."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.events import Bound, RunState, Sample, Speculation, Verdict
from backend.hardware import GpuInfo, GpuLink, GpuProcess, GpuReading, GpuSnapshot, PeakSource, Why

GIB = 1024**3
STARTED = 1_800_000_000.0
PEAK = 3352.3e9  # 2619 MHz x 2 x 5120 bit / 8
TOTAL = 79.65 * GIB
RESERVED = 0.62 * GIB
POSITIONS = (0.91, 0.84, 0.77, 0.71, 0.66)
ENGINE_PID = 4711


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine does on each of its GPUs: bytes that one step reads on one GPU, and steps per second."""

    bytes_per_step: float
    steps_per_s: float


# By number of GPUs: a model of 8 billion weights of two bytes, and one of 70 billion, split.
LOADS = {1: Load(16.06e9, 118.0), 2: Load(70.55e9, 26.0), 4: Load(35.28e9, 52.0), 8: Load(17.64e9, 97.0)}


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0f1e-4d2c-9b3a-5e6f7a8b9c0d"


def info(number: int = 0, **changes: object) -> GpuInfo:
    """A GPU that measures its bandwidth."""
    made = GpuInfo(
        uuid=uuid(number),
        name="NVIDIA H100 80GB HBM3",
        index=number,
        pci_bus_id=f"00000000:{0x17 + 0x10 * number:02X}:00.0",
        memory_total_bytes=round(TOTAL),
        compute_capability=(9, 0),
        memory_bus_bits=5120,
        max_memory_clock_mhz=2619,
        peak_bytes_per_s=PEAK,
        peak_source=PeakSource.FORMULA,
        power_limit_w=700.0,
        max_pcie_generation=5,
        max_pcie_width=16,
        nvlinks=18,
        measures_bandwidth=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def wave(second: float, number: int, period_s: float = 37.0) -> float:
    """Something between -1 and 1 that wanders about, another one on every GPU, and the same each time."""
    return 0.6 * _wandering(second, number, period_s / 3) + 0.4 * _wandering(second, number + 100, period_s / 17)


def _wandering(second: float, number: int, every_s: float) -> float:
    """Go from one value to the next in a soft line."""
    before = math.floor(second / every_s)
    first, then = (random.Random(f"{number} {every_s:.3f} {before + n}").uniform(-1, 1) for n in (0, 1))
    return first + (then - first) * (1 - math.cos(math.pi * (second / every_s - before))) / 2


def reading(second: float, number: int = 0, **changes: object) -> GpuReading:
    """A GPU with an engine at work: parts of its memory add up, bandwidth is the share of the peak."""
    dram = 0.60 + 0.03 * wave(second, number) + 0.004 * number
    engine, other = (70.2 - 0.1 * number) * GIB, 0.45 * GIB
    made = GpuReading(
        uuid=uuid(number),
        t=STARTED + second,
        memory_total_bytes=TOTAL,
        memory_used_bytes=engine + other,
        memory_reserved_bytes=RESERVED,
        memory_free_bytes=TOTAL - RESERVED - engine - other,
        engine_bytes=engine,
        other_bytes=other,
        busy_ratio=0.97 + 0.02 * wave(second, number, 20),
        memory_busy_ratio=0.71 + 0.05 * wave(second, number, 23),
        dram_ratio=dram,
        dram_bytes_per_s=dram * PEAK,
        sm_ratio=0.44 + 0.04 * wave(second, number, 29),
        tensor_ratio=0.12 + 0.02 * wave(second, number, 31),
        memory_clock_mhz=2619.0,
        sm_clock_mhz=1980.0 - 15 * round(2 + 2 * wave(second, number, 41)),
        performance_state=0.0,
        power_w=281.0 + 4 * number + 14 * wave(second, number, 19),
        energy_j=1e6 + 281.0 * second,
        temperature_c=58.0 + number % 4 + round(wave(second, number, 70)),
        memory_temperature_c=66.0 + number % 3,
        pcie_rx_bytes_per_s=0.21e9 + 0.05e9 * wave(second, number),
        pcie_tx_bytes_per_s=0.12e9 + 0.03e9 * wave(second, number),
        nvlink_rx_bytes_per_s=18.4e9 + 2e9 * wave(second, number),
        nvlink_tx_bytes_per_s=18.1e9 + 2e9 * wave(second, number),
        pcie_generation=5.0,
        pcie_width=16.0,
        throttle=(),
        processes=(
            GpuProcess(ENGINE_PID + number, round(engine), "VLLM::Worker", is_engine=True),
            GpuProcess(1337, round(other), "jupyter-lab"),
        ),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def without(made: GpuReading, why: Why, *names: str) -> GpuReading:
    """Take figures away, for a reason."""
    return replace(made, why={**made.why, **dict.fromkeys(names, why)}, **dict.fromkeys(names))  # type: ignore[arg-type]


def lost(second: float, number: int) -> GpuReading:
    """A GPU that has fallen off the bus."""
    return GpuReading(uuid(number), STARTED + second, lost=True)


def links(gpus: Sequence[GpuInfo], *, nvlink: bool = True, path: str = "SYS") -> tuple[GpuLink, ...]:
    """Every pair, connected in one way."""
    return tuple(
        GpuLink(first.uuid, second.uuid, nvlink=nvlink, peer_access=nvlink, path=path)
        for number, first in enumerate(gpus)
        for second in gpus[number + 1 :]
    )


def snapshot(
    second: float,
    n_gpus: int = 1,
    *,
    gpus: Sequence[GpuInfo] | None = None,
    readings: Sequence[GpuReading] | None = None,
    **changes: object,
) -> GpuSnapshot:
    """All GPUs at a second, by default such as `info` and `reading` make."""
    known = tuple(info(number) for number in range(n_gpus)) if gpus is None else tuple(gpus)
    found = tuple(reading(second, number) for number in range(n_gpus)) if readings is None else tuple(readings)
    made = GpuSnapshot(
        t=STARTED + second,
        driver="580.95.05",
        nvml="13.580.95.05",
        cuda=(13, 0),
        gpus=known,
        readings=found,
        links=links(known),
        cost_s=0.0032,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def old(made: GpuSnapshot, second: float, problem: str = "") -> GpuSnapshot:
    """The same when the sampler tells nothing any more: as of `second`, but with the readings of before."""
    return replace(made, t=STARTED + second, stale=True, problem=problem)


def no_gpus(second: float = 0.0) -> GpuSnapshot:
    """A machine without NVIDIA."""
    return GpuSnapshot(
        t=STARTED + second,
        problem="There is no NVIDIA driver on this machine (libnvidia-ml.so.1 is missing). Install one to see GPUs.",
    )


def sample(second: float, n_gpus: int = 1, **changes: object) -> Sample:
    """An engine at work: length = 1 + the sum over positions, tokens/s = steps/s x length, and so on."""
    load = LOADS[n_gpus]
    length = 1 + sum(POSITIONS)
    steps = load.steps_per_s * (1 + 0.03 * wave(second, 0, 47))
    tokens = steps * length
    power_w = sum(281.0 + 4 * number + 14 * wave(second, number, 19) for number in range(n_gpus))
    made = Sample(
        t=STARTED + second,
        interval_s=1.0,
        state=RunState.READY,
        generation_tokens_per_s=tokens,
        prompt_tokens_per_s=31.0 + 9 * wave(second, 5),
        acceptance_rate=sum(POSITIONS) / len(POSITIONS),
        mean_acceptance_length=length,
        acceptance_per_position=POSITIONS,
        drafts=steps,
        draft_tokens=steps * len(POSITIONS),
        ttft_count=2.0,
        ttft_p50_s=0.21,
        ttft_p95_s=0.34,
        itl_p50_s=1 / steps,
        itl_p95_s=1.12 / steps,
        kv_cache_usage_ratio=0.031 + 0.002 * wave(second, 2),
        requests_running=1.0,
        requests_waiting=0.0,
        steps_per_s=steps,
        implied_bytes_per_s=load.bytes_per_step * steps,
        joules_per_token=power_w / tokens,
        speculation=Speculation.COUNTING,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


BANDWIDTH_BOUND = Verdict(
    Bound.BANDWIDTH, "memory 60 % of peak (measured): a step waits for its weights, so more tokens a step pay."
)
