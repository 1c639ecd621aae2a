"""When a silent engine counts as unresponsive: pure rules over what was seen, no clock and no process of its own."""

import math
from dataclasses import dataclass
from enum import StrEnum

# An idle engine still wakes up a little; below this share of one core it counts as still.
_STILL_CPU_RATIO = 0.02
_MAX_PROBE_INTERVAL_S = 600.0
# The token of a probe moves the counters a little later: that is no sign of use.
_PROBE_ECHO_S = 5.0


@dataclass(frozen=True, slots=True)
class Signs:
    """What one look at an engine showed.

    Attributes:
        now_s: monotonic time of the look in seconds.
        log_news: lines of its log so far that are a sign of life.
        counters: anything that changes when its counters do; None when /metrics did not answer.
        cpu_s: CPU seconds used so far by its processes other than the API server.
        processes: how many those are (a change is movement).
        request_outstanding: a request is known to wait: ours, or one that the engine counts.
        suspicious: something speaks for a request that the engine cannot count (a client is connected, a process
            is stopped, /health timed out); worth one cheap question.
    """

    now_s: float
    log_news: int
    counters: object
    cpu_s: float
    processes: int
    request_outstanding: bool
    suspicious: bool


class Verdict(StrEnum):
    """FINE: moving or plainly idle. PROBE: ask it for one token, nothing else changes. STALLED: unresponsive."""

    FINE = "fine"
    PROBE = "probe"
    STALLED = "stalled"


class StallDetector:
    """Remembers when an engine last moved.

    It is stalled only when log, counters and CPU have all been still for `stall_s` and a request is outstanding or
    a probe failed in that time; it stays so until something moves or a probe is answered.
    """

    def __init__(self, *, stall_s: float, now_s: float) -> None:
        self._stall_s = stall_s
        self._last: Signs | None = None
        self._counters: object = None  # the last known ones: a gap in /metrics is no movement
        self._moved_s = now_s
        self._cpu_mark = (now_s, 0.0)
        self._stalled = False
        self._probed_s = -math.inf
        self._next_probe_s = stall_s

    @property
    def moved_s(self) -> float:
        """Monotonic time of the last movement."""
        return self._moved_s

    def look(self, signs: Signs) -> Verdict:
        """Judge a new look; call it about once a second."""
        if self._moves(signs):
            self._moved_s = signs.now_s
            self._stalled = False
        still_s = signs.now_s - self._moved_s
        if still_s < self._stall_s:
            return Verdict.FINE
        if signs.request_outstanding:
            self._stalled = True
        elif self._stalled and signs.now_s - self._probed_s >= self._stall_s:
            # Whoever waited may have gone, and an engine that came back moves nothing by itself: ask again.
            return Verdict.PROBE
        if self._stalled:
            return Verdict.STALLED
        if signs.suspicious and still_s >= self._next_probe_s:
            return Verdict.PROBE
        return Verdict.FINE

    def probe_answered(self, *, answered: bool, now_s: float) -> None:
        """Take the result of a probe; an idle engine that answers is asked ever less often."""
        self._stalled = not answered
        self._probed_s = now_s
        if answered:
            self._moved_s = now_s
            self._next_probe_s = min(self._next_probe_s * 2, _MAX_PROBE_INTERVAL_S)

    def _moves(self, signs: Signs) -> bool:
        last, self._last = self._last, signs
        if last is None or signs.processes != last.processes:
            self._cpu_mark = (signs.now_s, signs.cpu_s)
            return True
        busy = False
        mark_s, mark_cpu_s = self._cpu_mark
        if signs.now_s - mark_s >= 1.0:  # CPU time has a grain of 10 ms: compare over a second or more
            busy = (signs.cpu_s - mark_cpu_s) / (signs.now_s - mark_s) > _STILL_CPU_RATIO
            self._cpu_mark = (signs.now_s, signs.cpu_s)
        counted = False
        if signs.counters is not None:
            counted = self._counters is not None and signs.counters != self._counters
            self._counters = signs.counters
        if counted and signs.now_s - self._probed_s > _PROBE_ECHO_S:
            self._next_probe_s = self._stall_s
        return busy or counted or signs.log_news != last.log_news
