"""Reads which processes hold memory of a GPU, and throws out what a driver of another version scrambled."""

import os
from typing import Any

import psutil
import pynvml

from backend.hardware import GpuProcess, Why
from backend.telemetry.nvml_ask import ask

_NO_PID = 0xFFFFFFFF
_HOST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


def sees_host_pids() -> bool:
    """Whether the pids that the driver names are those that we see: not in a container."""
    try:
        return os.readlink("/proc/self/ns/pid") == _HOST_NAMESPACE
    except OSError:
        return True


class ProcessReader:
    """Reads the process lists of all GPUs; looks up each process name once until `forget_names`."""

    def __init__(self, *, look_up: bool) -> None:
        """Start without names.

        Args:
            look_up: False where pids mean other processes than ours (`sees_host_pids`).
        """
        self._look_up = look_up
        self._names: dict[int, str] = {}

    def read(self, handle: Any, *, memory_total_bytes: int | None) -> tuple[GpuProcess, ...] | Why:
        """Return the processes of one GPU, those with most memory first, or why they are unknown.

        Raises:
            GpuLostError: the GPU is gone.
        """
        compute = _listed(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if isinstance(compute, Why):
            return compute
        used: dict[int, int | None] = {}
        for call in (pynvml.nvmlDeviceGetGraphicsRunningProcesses, pynvml.nvmlDeviceGetMPSComputeRunningProcesses):
            others = _listed(call, handle)
            if not isinstance(others, Why):
                compute += others
        for each in compute:
            pid, held = int(each.pid), each.usedGpuMemory
            if 0 < pid < _NO_PID and not (held is not None and memory_total_bytes and held > memory_total_bytes):
                # A process in two lists stands in both with all that it holds.
                used[pid] = max((each for each in (used.get(pid), held) if each is not None), default=None)
        return tuple(
            GpuProcess(pid, held, self._name(pid))
            for pid, held in sorted(used.items(), key=lambda item: (-(item[1] or 0), item[0]))
        )

    def forget_names(self) -> None:
        """Look names up anew from now on: pids are used again, and processes change their names."""
        self._names.clear()

    def _name(self, pid: int) -> str:
        if not self._look_up:
            return ""
        if pid not in self._names:
            try:
                self._names[pid] = psutil.Process(pid).name()
            except (psutil.Error, OSError, ValueError, OverflowError):
                self._names[pid] = ""
        return self._names[pid]


def _listed(call: Any, handle: Any) -> list[Any] | Why:
    def twice(handle: Any) -> Any:
        try:
            return call(handle)
        except pynvml.NVMLError_InsufficientSize:  # more processes came between the question for the size and the list
            return call(handle)

    answer = ask(twice, handle)
    return answer if isinstance(answer, Why) else list(answer)
