"""The machine and its processes as psutil sees them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from backend.events import HostSample


class HostReader:
    """Reads CPU and memory of the machine; CPU use is over the time since the last reading."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def read(self) -> HostSample:
        """Return the machine as it is now; `cpu_ratio` is None in the first reading.

        Used memory is what a new program could not get: total minus available, so caches do not count.
        """
        busy_s, total_s = _cpu_seconds()
        ratio = None
        if self._last is not None and total_s > self._last[1]:
            ratio = min(1.0, max(0.0, (busy_s - self._last[0]) / (total_s - self._last[1])))
        self._last = (busy_s, total_s)
        memory = psutil.virtual_memory()
        return HostSample(
            t=time.time(),
            cpu_ratio=ratio,
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
        )


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What some processes use together.

    Attributes:
        cpu_s: CPU time, user and system, since each one's start, in seconds.
        memory_bytes: resident memory; pages that they share count once for each.
        n_processes: how many of them were there to be read.
    """

    cpu_s: float
    memory_bytes: int
    n_processes: int


def process_use(pids: Iterable[int]) -> ProcessUse:
    """Add up what the processes use; those that are gone or may not be read are left out."""
    cpu_s, memory_bytes, n_processes = 0.0, 0, 0
    for pid in pids:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
        except psutil.Error:
            continue
        cpu_s += times.user + times.system
        memory_bytes += memory.rss
        n_processes += 1
    return ProcessUse(cpu_s=cpu_s, memory_bytes=memory_bytes, n_processes=n_processes)


def _cpu_seconds() -> tuple[float, float]:
    """Busy and total seconds of all cores; time of guests is already inside user time on Linux."""
    times = psutil.cpu_times()._asdict()
    total = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
    return total - times["idle"] - times.get("iowait", 0.0), total
