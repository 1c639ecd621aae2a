"""The machine as psutil sees it."""

import time

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


def _cpu_seconds() -> tuple[float, float]:
    """Busy and total seconds of all cores; time of guests is already inside user time on Linux."""
    times = psutil.cpu_times()._asdict()
    total = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
    return total - times["idle"] - times.get("iowait", 0.0), total
