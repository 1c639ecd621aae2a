"""Reads what stays the same about one GPU, or about one MIG slice of it, and how its memory is used."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pynvml

from backend.hardware import GpuInfo, Why
from backend.telemetry.gpu_peaks import peak_bandwidth
from backend.telemetry.nvml_ask import ask, known
from backend.telemetry.nvml_counters import read_fields, sensor
from backend.telemetry.nvml_gpm import supports_gpm

_SHARES_HOST_MEMORY = re.compile(r"\b(GB10|Thor|Orin|Xavier|Jetson|Tegra)\b")
_MOST_OF_IT = 0.9


@dataclass(frozen=True, slots=True)
class Slice:
    """Where a MIG slice is: the UUID and the handle of its GPU, and the number of its GPU instance."""

    uuid: str
    parent: Any
    instance: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a GPU in bytes; `reserved` is None from drivers before 510, which count it as used."""

    total: int
    used: int
    reserved: int | None
    free: int


def read_memory(handle: Any) -> Memory | Why:
    """Return the memory of a GPU, or why it is unknown.

    Raises:
        GpuLostError: the GPU is gone.
    """
    answer = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if answer is not Why.NOT_SUPPORTED:
        return answer if isinstance(answer, Why) else _sound(answer, answer.reserved)
    answer = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return answer if isinstance(answer, Why) else _sound(answer, None)


def _sound(memory: Any, reserved: int | None) -> Memory | Why:
    """Some drivers answer with nothing at all where memory is shared with the host."""
    if 0 < memory.total < 2**60 and memory.used <= memory.total:
        return Memory(memory.total, memory.used, reserved, memory.free)
    return Why.ERROR


def read_host_memory() -> Memory:
    """Return the memory of the host, for a GPU that shares it."""
    host = psutil.virtual_memory()
    return Memory(host.total, host.total - host.available, None, host.available)


def read_info(handle: Any, *, uuid: str, index: int, part: Slice | None) -> GpuInfo:
    """Return what stays the same.

    Args:
        handle: of the GPU or the slice.
        uuid: its UUID.
        index: its place in NVML's list; for a slice that of its GPU.
        part: for a MIG slice, where it is.

    Raises:
        GpuLostError: it is gone.
    """
    name = known(ask(pynvml.nvmlDeviceGetName, handle)) or "NVIDIA GPU"
    memory = known(read_memory(handle))
    total, unified = memory and memory.total, False
    if _SHARES_HOST_MEMORY.search(name):  # nothing else may be taken for it: a lost GPU tells no memory either
        host = psutil.virtual_memory().total
        if total is None or total >= _MOST_OF_IT * host:
            total, unified = host, True
    info = GpuInfo(
        uuid=uuid,
        name=name,
        index=index,
        memory_total_bytes=total,
        unified_memory=unified,
        measures_bandwidth=supports_gpm(handle if part is None else part.parent),
        parent_uuid="" if part is None else part.uuid,
    )
    return with_peak(info if part is not None else _of_whole(handle, info), None)


def _of_whole(handle: Any, info: GpuInfo) -> GpuInfo:
    pci = known(ask(pynvml.nvmlDeviceGetPciInfo, handle))
    count = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT
    nvlinks = known(sensor(read_fields(handle, ((count, 0),)).get(count)))
    generation = width = None
    if not info.unified_memory:  # a GPU within the processor shows a link that is not there
        generation = known(ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle))
        width = known(ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle))
    return replace(
        info,
        pci_bus_id="" if pci is None else str(pci.busId),
        compute_capability=known(ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)),
        memory_bus_bits=known(ask(pynvml.nvmlDeviceGetMemoryBusWidth, handle)),
        max_memory_clock_mhz=known(ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM)),
        max_pcie_generation=generation,
        max_pcie_width=width,
        nvlinks=None if nvlinks is None else int(nvlinks),
        mig_enabled=read_mig(handle),
    )


def read_mig(handle: Any) -> bool:
    """Return whether a GPU is cut into slices.

    Raises:
        GpuLostError: it is gone.
    """
    mode = known(ask(pynvml.nvmlDeviceGetMigMode, handle))
    return mode is not None and bool(mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def with_peak(info: GpuInfo, entered_bytes_per_s: float | None) -> GpuInfo:
    """Return the GPU with its highest memory bandwidth, of which `entered_bytes_per_s` is what a person says."""
    if info.parent_uuid and entered_bytes_per_s is None:  # nobody tells a slice's share of the memory's channels
        return replace(info, peak_bytes_per_s=None, peak_source=None)
    peak, source = peak_bandwidth(
        name=info.name,
        memory_total_bytes=info.memory_total_bytes,
        max_memory_clock_mhz=info.max_memory_clock_mhz,
        memory_bus_bits=info.memory_bus_bits,
        entered_bytes_per_s=entered_bytes_per_s,
    )
    return replace(info, peak_bytes_per_s=peak, peak_source=source)


def sleep_file(pci_bus_id: str, sysfs: Path) -> Path | None:
    """Return the file that says whether a GPU sleeps; None if it never does or nobody tells.

    Args:
        pci_bus_id: as NVML writes it, with eight digits of the domain where the kernel has four.
        sysfs: where the kernel shows devices, "/sys".
    """
    domain, colon, rest = pci_bus_id.lower().partition(":")
    if not colon:
        return None
    power = sysfs / "bus/pci/devices" / f"{int(domain, 16):04x}:{rest}" / "power"
    return power / "runtime_status" if _line(power / "control") == "auto" else None


def sleeps(file: Path | None) -> bool:
    """Whether a GPU with this `sleep_file` sleeps now."""
    return file is not None and _line(file) == "suspended"


def all_sleep(sysfs: Path) -> bool:
    """Whether the machine has NVIDIA GPUs and all sleep, so that NVML would have to wake one."""
    asleep = [
        sleeps(device / "power/runtime_status")
        for device in (sysfs / "bus/pci/devices").glob("*")
        if _line(device / "vendor") == "0x10de" and _line(device / "class").startswith("0x03")
    ]
    return bool(asleep) and all(asleep)


def _line(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
