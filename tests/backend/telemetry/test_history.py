"""The ring of samples: order, gaps, wrap-around and the window that is read back."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backend.events import HostSample, RunState, Sample
from backend.telemetry.history import ENGINE_SERIES, HOST_SERIES, History, Ring

READY = Sample(t=0.0, interval_s=1.0, state=RunState.READY)


def test_series_are_the_figures_of_a_sample() -> None:
    assert set(ENGINE_SERIES) == {
        *("generation_tokens_per_s", "prompt_tokens_per_s", "acceptance_rate", "mean_acceptance_length"),
        *("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s", "kv_cache_usage_ratio"),
        *("requests_running", "requests_waiting", "steps_per_s"),
    }
    assert HOST_SERIES == ("cpu_ratio", "memory_used_bytes", "memory_total_bytes")


def test_gaps_are_nan_and_zero_is_zero() -> None:
    history = History(capacity=10)
    for t, value in ((1.0, 5.0), (2.0, None), (3.0, 0.0)):
        history.append(replace(READY, t=t, generation_tokens_per_s=value))
    curve = history.last("generation_tokens_per_s", seconds=60)
    assert list(curve.times) == [1, 2, 3]
    assert [curve.values[0], curve.values[2]] == [5, 0]
    assert math.isnan(curve.values[1])


def test_positions_of_acceptance_come_and_go() -> None:
    history = History(capacity=10)
    for t, positions in ((1.0, None), (2.0, (0.5, 0.25)), (3.0, (0.75,))):
        history.append(replace(READY, t=t, acceptance_per_position=positions))
    second = history.last("acceptance_position_1", seconds=60)
    assert list(second.times) == [1, 2, 3]
    assert [math.isnan(value) for value in second.values] == [True, False, True]
    assert second.values[1] == 0.25


def test_host_and_engine_have_time_axes_of_their_own() -> None:
    history = History(capacity=10)
    history.append(replace(READY, t=1.0, steps_per_s=3.0))
    history.append_host(HostSample(t=1.5, cpu_ratio=None, memory_used_bytes=4, memory_total_bytes=8))
    assert list(history.last("steps_per_s", seconds=1).times) == [1.0]
    assert list(history.last("memory_used_bytes", seconds=1).times) == [1.5]
    assert list(history.last("memory_used_bytes", seconds=1).values) == [4.0]
    assert math.isnan(history.last("cpu_ratio", seconds=1).values[0])


def test_an_empty_history_and_an_unknown_series() -> None:
    history = History(capacity=3)
    assert list(history.last("steps_per_s", seconds=10).times) == []
    history.append(READY)
    assert math.isnan(history.last("no such series", seconds=10).values[0])


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(1, 5), st.one_of(st.none(), st.floats(0, 1e6))), max_size=40),
    st.integers(0, 60),
)
def test_a_ring_is_the_end_of_a_list(capacity: int, rows: list[tuple[int, float | None]], seconds: int) -> None:
    ring, everything, t = Ring(capacity), [], 0
    for step, value in rows:
        t += step
        ring.append(t, {"a": value})
        everything.append((t, value))
    wanted = [row for row in everything[-capacity:] if row[0] >= t - seconds]
    curve = ring.last("a", seconds=seconds)
    assert len(ring) == min(capacity, len(rows))
    assert list(curve.times) == [row[0] for row in wanted]
    assert [None if math.isnan(value) else value for value in curve.values] == [row[1] for row in wanted]
