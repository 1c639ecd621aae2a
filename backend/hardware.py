"""Types for what the machine has: NVIDIA driver and GPUs."""

from dataclasses import dataclass


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
