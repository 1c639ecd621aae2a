"""All GPUs of the machine through one start of NVML: finds them, reads them, and goes on when one is lost."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from backend.hardware import GPU_FIGURES, GpuInfo, GpuLink, GpuReading, GpuSnapshot, Why
from backend.telemetry.gpu_messages import SamplerOptions
from backend.telemetry.gpu_topology import read_links
from backend.telemetry.nvml_ask import GpuLostError, ask, known
from backend.telemetry.nvml_gpu import GpuReader, unread
from backend.telemetry.nvml_info import Slice, all_sleep, sleeps
from backend.telemetry.nvml_processes import ProcessReader, sees_host_pids

RESCAN_S = 30.0
_SLOW_S = 2.0

_WORDS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "NVIDIA's driver library (libnvidia-ml.so.1) is not installed. To see NVIDIA GPUs, install the driver; in a "
        "container, start that with access to the GPUs."
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "The NVIDIA driver is installed but not loaded. Load it (sudo modprobe nvidia) or restart the machine."
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "The NVIDIA driver was updated, but the old one still runs. Restart the machine or reload the driver."
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "You may not use the NVIDIA driver. Ask for the right to read and write /dev/nvidia*."
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "The NVIDIA driver is too old to be read. Update it to 525 or newer.",
    pynvml.NVML_ERROR_UNKNOWN: (
        "The NVIDIA driver answers with an unknown error. In a container, restart that, since it has lost its GPUs; "
        "otherwise restart the machine."
    ),
}
_WSL_LIBRARY = "NVIDIA's driver is not there. Install it in Windows, not in Linux, then restart WSL (wsl --shutdown)."
_NO_GPU = (
    "The NVIDIA driver shows no GPU. Look whether the GPU is seated and powered; in a container, start that with "
    "access to the GPUs."
)
_ALL_SLEEP = "The GPU sleeps to save power. It is read as soon as a program uses it."
_WSL_NOTE = "Windows shows Linux only some figures of a GPU: which process holds how much memory is not among them."
_CONTAINER_NOTE = "In a container the driver numbers processes as the host does, so what they are is not known here."


class NvmlSession:
    """Every GPU that this process has seen, by UUID."""

    def __init__(
        self,
        *,
        rescan_s: float = RESCAN_S,
        wake: bool = False,
        sysfs: Path = Path("/sys"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            rescan_s: how often to look for GPUs, or for a driver while there is none.
            wake: start NVML also when that wakes a GPU that sleeps.
            sysfs: where the kernel shows devices.
            clock: seconds that never go back.
        """
        self._rescan_s, self._wake, self._sysfs, self._clock = rescan_s, wake, sysfs, clock
        self._started = False
        self._problem = ""
        self._code = pynvml.NVML_SUCCESS
        self._due_s = -1e9  # when to start or to look for GPUs the next time
        self._n_ticks = 0
        self._readers: dict[str, GpuReader] = {}
        self._gpus: dict[str, GpuInfo] = {}
        self._links: tuple[GpuLink, ...] = ()
        self._versions: dict[str, Any] = {}
        is_wsl = "microsoft" in _kernel().lower()
        self._processes = ProcessReader(look_up=sees_host_pids())
        self._missing = _WSL_LIBRARY if is_wsl else _WORDS[pynvml.NVML_ERROR_LIBRARY_NOT_FOUND]
        self._note = _WSL_NOTE if is_wsl else "" if sees_host_pids() else _CONTAINER_NOTE

    @property
    def is_outdated(self) -> bool:
        """The library in this process is not that of the driver; only a new process can load another."""
        return bool(self._code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    def read(self, options: SamplerOptions, *, interval_s: float) -> GpuSnapshot:
        """Read all GPUs; a failure is words in the snapshot.

        Args:
            options: what to read.
            interval_s: time between two calls, which decides in which of them to read what changes slowly.
        """
        t, now_s = time.time(), self._clock()
        if not self._started and not self._start(now_s):
            return GpuSnapshot(t, problem=self._problem)
        if now_s >= self._due_s and not any(sleeps(reader.sleep_file) for reader in self._readers.values()):
            self._due_s = now_s + self._rescan_s
            self._scan()
        per_slow = max(1, round(_SLOW_S / interval_s))
        readings: dict[str, GpuReading] = {}
        for place, (uuid, reader) in enumerate(list(self._readers.items())):
            if uuid not in self._readers:  # a slice of one that has just been lost
                continue
            if sleeps(reader.sleep_file):
                reader.forget()
                readings[uuid] = unread(reader.info, t, Why.ASLEEP)
                continue
            # One after the other, so that no tick has to read the slow figures of all.
            slow = (self._n_ticks + place) % per_slow == 0
            try:
                readings[uuid] = reader.read(t, options, self._processes, slow=slow)
                self._gpus[uuid] = reader.info
            except GpuLostError:
                self._lose(uuid)
        self._n_ticks += 1
        gpus = tuple(self._gpus.values())
        told = tuple(readings[gpu.uuid] if gpu.uuid in self._readers else unread(gpu, t, Why.LOST) for gpu in gpus)
        return GpuSnapshot(
            t, problem=_problem(told), note=self._note, gpus=gpus, readings=told, links=self._links, **self._versions
        )

    def _start(self, now_s: float) -> bool:
        if not self._wake and all_sleep(self._sysfs):
            self._problem = _ALL_SLEEP
            return False
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._rescan_s
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._code = error.value
            is_missing = self._code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
            other = f"The NVIDIA driver does not answer ({error}). Restart the machine if that stays so."
            self._problem = self._missing if is_missing else _WORDS.get(self._code, other)
            return False
        self._started, self._code, self._due_s = True, pynvml.NVML_SUCCESS, now_s
        return True

    def _lose(self, uuid: str) -> None:
        """Never use the handle of a GPU again, nor those of its slices, which are gone with it."""
        for other, reader in list(self._readers.items()):
            if other == uuid or reader.info.parent_uuid == uuid:
                del self._readers[other]
                reader.close()

    def _scan(self) -> None:
        """Look which GPUs there are; one that is lost keeps its place, and comes back with a new handle."""
        self._versions = {
            "driver": known(_ask(pynvml.nvmlSystemGetDriverVersion)) or "",
            "nvml": known(_ask(pynvml.nvmlSystemGetNVMLVersion)) or "",
            "cuda": _cuda(known(_ask(pynvml.nvmlSystemGetCudaDriverVersion_v2))),
        }
        found: set[str] = set()
        all_answer = True
        for index in range(known(_ask(pynvml.nvmlDeviceGetCount)) or 0):
            uuid = self._find(_ask(pynvml.nvmlDeviceGetHandleByIndex, index), index=index)
            if uuid is None:
                all_answer = False
                continue
            found.add(uuid)
            found |= self._find_slices(self._readers[uuid])
        for uuid, reader in list(self._readers.items()):
            # While one GPU does not answer, it may be that of a handle that works: reading tells which is lost.
            if uuid not in found and (all_answer or reader.info.parent_uuid in found):
                self._lose(uuid)
        self._gpus |= {uuid: reader.info for uuid, reader in self._readers.items()}
        self._gpus = dict(sorted(self._gpus.items(), key=lambda item: (item[1].index, bool(item[1].parent_uuid))))
        self._readers = {uuid: self._readers[uuid] for uuid in self._gpus if uuid in self._readers}
        whole = {uuid: reader.handle for uuid, reader in self._readers.items() if reader.part is None}
        self._links = read_links(whole, self._links)
        self._processes.forget_names()

    def _find(self, handle: Any, *, index: int, part: Slice | None = None) -> str | None:
        """Take in what a handle leads to; returns its UUID, None if it does not answer."""
        uuid = handle if isinstance(handle, Why) else _ask(pynvml.nvmlDeviceGetUUID, handle)
        if isinstance(uuid, Why):
            return None
        reader = self._readers.get(uuid)
        try:
            if reader is None:
                reader = GpuReader(handle, uuid=uuid, index=index, part=part, sysfs=self._sysfs)
                self._readers[uuid] = reader
            else:
                reader.look_again(index)
        except GpuLostError:
            self._lose(uuid)
            return None
        return str(uuid)

    def _find_slices(self, reader: GpuReader) -> set[str]:
        if not reader.info.mig_enabled:
            return set()
        found = set()
        for place in range(known(_ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, reader.handle)) or 0):
            handle = _ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, reader.handle, place)
            if isinstance(handle, Why):
                continue  # fewer slices than there could be
            instance = known(_ask(pynvml.nvmlDeviceGetGpuInstanceId, handle))
            part = Slice(reader.info.uuid, reader.handle, instance)
            if (uuid := self._find(handle, index=reader.info.index, part=part)) is not None:
                found.add(uuid)
        return found


def _ask(call: Callable[..., Any], *args: Any) -> Any:
    """As `ask`, for calls that are made for all GPUs: what is lost is a reason like others."""
    try:
        return ask(call, *args)
    except GpuLostError:
        return Why.LOST


def _problem(readings: tuple[GpuReading, ...]) -> str:
    """Say what is wrong with all GPUs at once."""
    if not readings:
        return _NO_GPU
    if all(
        Why.ERROR in reading.why.values() and all(getattr(reading, name) is None for name in GPU_FIGURES)
        for reading in readings
    ):
        return _WORDS[pynvml.NVML_ERROR_UNKNOWN]
    return ""


def _cuda(number: int | None) -> tuple[int, int] | None:
    return None if number is None else (number // 1000, number % 1000 // 10)  # 13010 is 13.1


def _kernel() -> str:
    try:
        return Path("/proc/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
