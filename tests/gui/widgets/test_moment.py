"""What a moment says of a series at the time of the read-out."""

import math

import numpy as np
import pytest

from backend.curves import Curve, Readings, Stretch
from backend.events import HostSample
from backend.telemetry.history import History
from gui.widgets.card import Moment

T = 1_800_000_000.0


def nothing(*_: object) -> Readings:
    return Readings((), T, np.empty(0), np.empty((0, 0)))


def of_readings(curve: Curve, span_s: float = 300.0) -> Moment:
    """A moment whose curve is made of nothing but readings, as that of a short run of the past."""
    return Moment(T, span_s, read=lambda _name, _seconds, _until: curve, read_each=nothing)


def test_the_nearest_reading_counts_and_no_gap() -> None:
    moment = of_readings(Curve(T + np.array([-40.0, -39, -38, -10]), np.array([1.0, math.nan, 3, 4])))
    assert moment.mean_at("a", -39.6) == 1
    assert moment.mean_at("a", -38.9) is None, "a gap"
    assert moment.mean_at("a", -36) == 3
    assert moment.mean_at("a", -25) is None, "nothing was read near that time"
    assert of_readings(Curve(np.empty(0), np.empty(0))).mean_at("a", -1) is None


def of_history(history: History, span_s: float) -> Moment:
    return Moment(
        T,
        span_s,
        read=lambda name, seconds, until: history.last(name, seconds=seconds, until=until),
        read_each=nothing,
        around=lambda name, t, seconds, until: history.stretch(name, t, seconds=seconds, until=until),
    )


def test_in_a_long_span_the_mean_of_some_seconds_counts_so_that_parts_add_up() -> None:
    """An hour of a memory that fills and empties each second: extremes of used and total would not fit together."""
    history = History()
    for second in range(-3600, 1):
        used = 4 if second % 2 else 12
        history.append_host(HostSample(T + second, (16 - used) / 16, used, 16))
    short, long = of_history(history, 300), of_history(history, 7200)
    assert short.at("memory_used_bytes", -61) == Stretch(T - 61, T - 61, 4.0, 4.0, 4.0)
    found = long.at("memory_used_bytes", -1810)
    assert found is not None
    assert (found.least, found.greatest, found.end - found.begin) == (4.0, 12.0, 20.0)
    assert found.begin <= T - 1810 < found.end
    means = [long.mean_at(name, -1810) for name in ("memory_used_bytes", "cpu_ratio")]
    assert means == [pytest.approx(8.0), pytest.approx(0.5)]  # 8 of 16 bytes used, half of them free
    assert long.at("memory_used_bytes", -7000) is None, "nobody was reading then"
