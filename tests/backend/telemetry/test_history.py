"""The history of samples: order, gaps, wrap-around, the span that is read back, and extremes that survive."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.curves import Curve
from backend.events import HostSample, RunState, Sample
from backend.hardware import GpuReading, GpuSnapshot, gpu_series
from backend.telemetry.history import ENGINE_SERIES, HOST_SERIES, LEVELS, MAX_POINTS, RECENT_ACCEPTANCE, History, Track

READY = Sample(t=0.0, interval_s=1.0, state=RunState.READY)
STARTED = 1_800_000_000.0


def known(curve: Curve) -> list[tuple[float, object]]:
    return [(t, value) for t, value in zip(curve.times, curve.values, strict=True) if not math.isnan(value)]


def test_series_are_the_figures_of_a_sample() -> None:
    assert set(ENGINE_SERIES) == {
        *("interval_s", "drafts", "draft_tokens", "ttft_count"),
        *("generation_tokens_per_s", "prompt_tokens_per_s", "acceptance_rate", "mean_acceptance_length"),
        *("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s", "kv_cache_usage_ratio"),
        *("requests_running", "requests_waiting", "steps_per_s"),
        *("estimated_bytes_per_s", "estimated_flops_per_s", "implied_bytes_per_s", "joules_per_token"),
    }
    assert HOST_SERIES == ("cpu_ratio", "memory_used_bytes", "memory_total_bytes")


def test_gaps_are_nan_and_zero_is_zero() -> None:
    history = History()
    for t, value in ((1.0, 5.0), (2.0, None), (3.0, 0.0)):
        history.append(replace(READY, t=t, generation_tokens_per_s=value))
    curve = history.last("generation_tokens_per_s", seconds=60)
    assert list(curve.times) == [1, 2, 3]
    assert [curve.values[0], curve.values[2]] == [5, 0]
    assert math.isnan(curve.values[1])


def test_recent_acceptance_counts_each_draft_of_ten_seconds_of_one_engine() -> None:
    history = History()

    def add(t: float, tokens: float, rate: float | None, **changes: object) -> None:
        sample = replace(READY, t=t, draft_tokens=tokens, acceptance_rate=rate, **changes)  # type: ignore[arg-type]
        history.append(sample)

    add(1, 10, 0.5)
    add(2, 30, 0.9)
    add(3, 0, None)  # idle: still those of before
    add(11, 20, 0.1)  # the first one is ten seconds old
    add(12, 0, None, interval_s=None, state=RunState.UNRESPONSIVE)
    add(21.5, 0, None)
    add(22, 10, 0.2)
    add(22.5, 0, None, interval_s=None, state=RunState.STOPPED)
    add(23, 10, 0.7)  # of another engine
    assert known(history.last(RECENT_ACCEPTANCE, seconds=60)) == [
        (1, pytest.approx(0.5)),
        (2, pytest.approx(32 / 40)),
        (3, pytest.approx(32 / 40)),
        (11, pytest.approx(29 / 50)),
        (22, pytest.approx(0.2)),
        (23, pytest.approx(0.7)),
    ]
    add(5, 10, 0.3)  # the clock was set back
    assert known(history.last(RECENT_ACCEPTANCE, seconds=60)) == [(5, pytest.approx(0.3))]


def test_positions_of_acceptance_come_and_go() -> None:
    history = History()
    assert not history.positions
    for t, positions in ((1.0, None), (2.0, (0.5, 0.25)), (3.0, (0.75,))):
        history.append(replace(READY, t=t, acceptance_per_position=positions))
    assert history.positions == ("acceptance_position_0", "acceptance_position_1")
    second = history.last("acceptance_position_1", seconds=60)
    assert list(second.times) == [1, 2, 3]
    assert [math.isnan(value) for value in second.values] == [True, False, True]
    assert second.values[1] == 0.25


def test_a_position_that_turns_up_late_is_unknown_before() -> None:
    history = History()
    for second in range(2000):
        rates = (0.5, 0.25) if second == 1990 else None
        history.append(replace(READY, t=STARTED + second, acceptance_per_position=rates))
    curve = history.last("acceptance_position_1", seconds=1800)
    assert set(known(curve)) == {(STARTED + 1990, 0.25)}
    assert np.all(np.diff(curve.times) >= 0)
    assert len(curve.times) > 600


def test_host_and_engine_have_time_axes_of_their_own() -> None:
    history = History()
    history.append(replace(READY, t=1.0, steps_per_s=3.0))
    history.append_host(HostSample(t=1.5, cpu_ratio=None, memory_used_bytes=4, memory_total_bytes=8))
    assert list(history.last("steps_per_s", seconds=1).times) == [1.0]
    assert list(history.last("memory_used_bytes", seconds=1).times) == [1.5]
    assert list(history.last("memory_used_bytes", seconds=1).values) == [4.0]
    assert math.isnan(history.last("cpu_ratio", seconds=1).values[0])


def test_an_empty_history_and_an_unknown_series() -> None:
    history = History()
    assert list(history.last("steps_per_s", seconds=10).times) == []
    history.append(READY)
    assert math.isnan(history.last("no such series", seconds=10).values[0])


def test_a_span_can_end_before_the_newest_reading() -> None:
    history = History()
    for second in range(10):
        history.append(replace(READY, t=STARTED + second, steps_per_s=second))
    curve = history.last("steps_per_s", seconds=3, until=STARTED + 6)
    assert list(curve.values) == [3, 4, 5, 6]
    assert known(history.last("steps_per_s", seconds=3, until=STARTED + 20)) == []


def test_readings_come_one_by_one_as_far_as_they_are_kept() -> None:
    history = History(interval_s=10.0)  # keeps 36
    for number in range(50):
        positions = (number / 100,) if number % 2 else None
        history.append(replace(READY, t=STARTED + 10 * number, drafts=float(number), acceptance_per_position=positions))
    names = ("drafts", "acceptance_position_0", "no such series")
    some = history.readings(names, seconds=100)
    assert some.begin == STARTED + 390
    assert list(some.times) == [STARTED + 10 * number for number in range(40, 50)], "that at the begin tells of before"
    assert list(some.values[0]) == list(range(40, 50))
    assert [None if math.isnan(value) else value for value in some.values[1]] == [
        number / 100 if number % 2 else None for number in range(40, 50)
    ]
    assert np.isnan(some.values[2]).all()
    every = history.readings(names, seconds=1000)
    assert every.begin == STARTED + 140, "the oldest that is kept"
    assert list(every.values[0]) == list(range(15, 50))
    earlier = history.readings(names, seconds=20, until=STARTED + 205)
    assert list(earlier.values[0]) == [19, 20]
    assert History().readings(names, seconds=10).values.shape == (3, 0)


@pytest.mark.parametrize("interval_s", [0.25, 1.0, 10.0])
def test_a_day_fits_in_the_points_of_a_plot_and_keeps_its_peaks(interval_s: float) -> None:
    history = History(interval_s=interval_s)
    n_readings = round(26 * 3600 / 5)
    peaks = {n_readings - 1 - round(back_s / 5): 1000.0 + back_s for back_s in (100, 1000, 5000, 20000, 80000)}
    for number in range(n_readings):
        history.append(replace(READY, t=STARTED + 5 * number, steps_per_s=peaks.get(number, number % 7)))
    for span_s, peak in ((300, 1100), (1800, 2000), (7200, 6000), (21600, 21000), (86400, 81000)):
        curve = history.last("steps_per_s", seconds=span_s)
        assert len(curve.times) <= MAX_POINTS + 4, span_s
        assert max(curve.values) == peak
        assert min(curve.values) == 0
        assert curve.times[-1] - curve.times[0] >= span_s * 0.99


def test_readings_every_five_seconds_are_no_gap() -> None:
    """The desk reads that seldom while the window is hidden; buckets that are skipped by that are no gap either."""
    history = History()
    for number in range(1000):
        history.append(replace(READY, t=STARTED + 6 * number, steps_per_s=1.0))
    for span_s in (60, 1800, 7200):
        assert not np.isnan(history.last("steps_per_s", seconds=span_s).values).any()


def test_readings_that_are_to_come_seldom_from_now_on_are_no_gap() -> None:
    """A person sets another interval while the window is open."""
    history = History()
    for second in range(10):
        history.append(replace(READY, t=STARTED + second, steps_per_s=1.0))
    history.expect_every(60.0)
    for number in range(1, 10):
        history.append(replace(READY, t=STARTED + 60 * number, steps_per_s=1.0))
    assert not np.isnan(history.last("steps_per_s", seconds=600).values).any()
    history.expect_every(1.0)
    history.append(replace(READY, t=STARTED + 700, steps_per_s=1.0))
    assert np.isnan(history.last("steps_per_s", seconds=600).values).sum() == 1


def test_gpus_that_are_read_seldom_have_no_gaps_and_each_snapshot_counts_once() -> None:
    """The same snapshot comes with every reading of the machine until there is another one."""
    history = History()
    name = gpu_series("GPU-1", "power_w")

    def told(t: float, interval_s: float) -> None:
        reading = GpuReading("GPU-1", STARTED + t, power_w=300.0)
        history.append_gpus(GpuSnapshot(STARTED + t, readings=(reading,), interval_s=interval_s))

    for second in range(181):
        told(second // 60 * 60, 60.0)
    assert known(history.last(name, seconds=600)) == [(STARTED + t, 300.0) for t in (0, 60, 120, 180)]
    assert not np.isnan(history.last(name, seconds=600).values).any()
    told(240, 0.5)  # the interval has just become a short one
    told(241, 0.5)
    assert not np.isnan(history.last(name, seconds=600).values).any()
    told(300, 0.5)
    assert np.isnan(history.last(name, seconds=600).values).sum() == 1, "nobody was reading for a minute"


def test_series_that_turn_up_together_keep_their_own_values() -> None:
    history = History()
    for t, names in ((0, ("power_w",)), (1, ("power_w", "busy_ratio", "temperature_c"))):
        told = {name: 10.0 * number + t for number, name in enumerate(names)}
        reading = GpuReading("GPU-1", STARTED + t, **told)  # type: ignore[arg-type]
        history.append_gpus(GpuSnapshot(STARTED + t, readings=(reading,)))
    for seconds in (60, 7200):
        for name, values in (("power_w", {0.0, 1.0}), ("busy_ratio", {11.0}), ("temperature_c", {21.0})):
            assert {value for _, value in known(history.last(gpu_series("GPU-1", name), seconds=seconds))} == values
        assert known(history.last("GPU-1/unheard_of", seconds=seconds)) == []


def test_a_time_without_readings_is_a_gap_at_every_level() -> None:
    """A suspended machine, for example: no reading says so, only the clock."""
    history = History()
    times = [*range(1000), *range(1600, 2000)]
    for second in times:
        history.append(replace(READY, t=STARTED + second, steps_per_s=1.0))
    for span_s in (1200, 1800, 7200, 21600, 86400):
        curve = history.last("steps_per_s", seconds=span_s)
        gaps = curve.times[np.isnan(curve.values)] - STARTED
        assert len(gaps), span_s
        assert all(1000 <= t <= 1600 for t in gaps)


def test_an_engine_that_is_gone_is_a_gap_at_every_level() -> None:
    history = History()
    for second in range(4000):
        history.append(replace(READY, t=STARTED + second, steps_per_s=None if 3000 <= second < 3600 else 1.0))
    for span_s in (1800, 7200, 21600, 86400):
        curve = history.last("steps_per_s", seconds=span_s)
        in_gap = (curve.times >= STARTED + 3240) & (curve.times < STARTED + 3360)  # a whole bucket at any level
        assert np.isnan(curve.values[in_gap]).all(), span_s
        assert in_gap.any() or span_s == 86400
        assert np.isnan(curve.values).any()


def test_a_clock_that_is_set_back_starts_anew_and_a_small_step_back_does_not() -> None:
    history = History()
    for t, value in ((100.0, 1.0), (99.5, 2.0), (101.0, 3.0)):
        history.append(replace(READY, t=t, steps_per_s=value))
    assert known(history.last("steps_per_s", seconds=60)) == [(100.0, 1.0), (100.0, 2.0), (101.0, 3.0)]
    history.append(replace(READY, t=10.0, steps_per_s=4.0))
    assert known(history.last("steps_per_s", seconds=60)) == [(10.0, 4.0)]


def test_memory_is_fixed() -> None:
    """Two days leave the same arrays behind as the first minute."""

    def held(track: Track) -> list[int]:
        return [array.nbytes for level in track._levels for array in vars(level).values() if hasattr(array, "nbytes")]

    track = Track(("a",), n_rows=360, levels=LEVELS, gap_s=1000)
    track.append(0, {"a": 1.0})
    before = held(track)
    for number in range(2000):
        track.append(number * 90, {"a": 1.0})
    assert held(track) == before
    assert sum(before) < 200_000


ROWS = st.lists(st.tuples(st.integers(1, 5), st.one_of(st.none(), st.floats(-1e6, 1e6))), max_size=60)


@given(st.integers(1, 8), ROWS, st.integers(0, 60))
def test_rows_are_the_end_of_a_list(n_rows: int, rows: list[tuple[int, float | None]], seconds: int) -> None:
    track, everything, t = Track(n_rows=n_rows, gap_s=100), [], 0
    for step, value in rows:
        t += step
        track.append(t, {"a": value})
        everything.append((t, value))
    wanted = [row for row in everything[-n_rows:] if row[0] >= t - seconds]
    curve = track.last("a", seconds=seconds)
    assert list(curve.times) == [row[0] for row in wanted]
    assert [None if math.isnan(value) else value for value in curve.values] == [row[1] for row in wanted]


@given(ROWS, st.integers(1, 40))
def test_extremes_survive_and_nothing_is_made_up(rows: list[tuple[int, float | None]], seconds: int) -> None:
    """Each point of a curve is a reading; the extremes of a span are those of the readings in it."""
    width_s = 10
    track, readings, t = Track(n_rows=1, levels=[(width_s, 40)], gap_s=100), [], 0
    for step, value in rows:
        t += step
        track.append(t, {"a": value})
        readings.append((t, value))
    curve = track.last("a", seconds=seconds)
    assert set(known(curve)) <= set(readings)
    assert np.all(np.diff(curve.times) >= 0)
    if len(rows) > 1:
        begin = (t - seconds) // width_s * width_s  # the bucket in which the span begins is there whole
        inside = [value for at, value in readings if at >= begin and value is not None]
        assert [value for _, value in known(curve)] == [] or inside
        if inside:
            assert np.nanmax(curve.values) == max(inside)
            assert np.nanmin(curve.values) == min(inside)
        for number in {at // width_s for at, _ in readings if at >= begin}:
            in_bucket = [value for at, value in readings if at // width_s == number]
            drawn = [v for at, v in zip(curve.times, curve.values, strict=True) if at // width_s == number]
            assert drawn
            assert all(math.isnan(v) for v in drawn) == all(value is None for value in in_bucket)


@given(
    st.lists(st.one_of(st.none(), st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)), min_size=1, max_size=400)
)
def test_a_stretch_says_least_mean_and_greatest_of_its_readings(values: list[float | None]) -> None:
    track = Track(("a",), n_rows=20, levels=((5.0, 1e6),), gap_s=10.0)
    for second, value in enumerate(values):
        track.append(STARTED + second, {"a": value})
    if len(values) <= 20:
        return  # each reading is still known by itself
    for number in range(len(values) // 5 + 1):
        inside = [value for value in values[number * 5 : number * 5 + 5] if value is not None]
        found = track.stretch("a", STARTED + number * 5 + 2.5, seconds=1e5)
        if not inside:
            assert found is None
            continue
        assert found is not None
        assert (found.begin, found.end) == (STARTED + number * 5, STARTED + number * 5 + 5)
        assert (found.least, found.greatest) == (min(inside), max(inside))
        assert found.mean == pytest.approx(sum(inside) / len(inside), abs=1e-3)


def test_a_stretch_of_what_is_kept_one_by_one_is_one_reading() -> None:
    history = History()
    for second, value in enumerate((3.0, None, 7.0)):
        history.append(replace(READY, t=STARTED + second, steps_per_s=value))
    at = STARTED + 2
    assert history.stretch("steps_per_s", at + 0.2, seconds=60) == (at, at, 7.0, 7.0, 7.0)
    assert history.stretch("steps_per_s", STARTED + 1, seconds=60) is None
    assert history.stretch("unheard_of", at, seconds=60) is None


def test_whether_a_gpu_is_throttled_is_kept_as_a_number() -> None:
    history = History()
    for second, throttle in enumerate(((), ("power cap", "heat"), None, ())):
        reading = GpuReading("GPU-a", STARTED + second, throttle=throttle)
        history.append_gpus(GpuSnapshot(STARTED + second, readings=(reading,)))
    curve = history.last("GPU-a/throttled", seconds=60)
    assert known(curve) == [(STARTED, 0.0), (STARTED + 1, 1.0), (STARTED + 3, 0.0)]


def test_gpus_are_kept_by_uuid_and_a_stale_snapshot_is_a_gap() -> None:
    history = History()

    def add(t: float, used: dict[str, float | None], *, stale: bool = False) -> None:
        readings = tuple(GpuReading(uuid, t, memory_used_bytes=value) for uuid, value in used.items())
        history.append_gpus(GpuSnapshot(t, readings=readings, stale=stale))

    add(STARTED, {"GPU-a": 1.0, "GPU-b": 2.0})
    add(STARTED + 1, {"GPU-b": 3.0, "GPU-a": None})
    add(STARTED + 2, {"GPU-a": 9.0, "GPU-b": 9.0}, stale=True)
    add(STARTED + 3, {"GPU-b": 0.0})
    first, second = (history.last(f"{uuid}/memory_used_bytes", seconds=60) for uuid in ("GPU-a", "GPU-b"))
    assert known(first) == [(STARTED, 1.0)]
    assert known(second) == [(STARTED, 2.0), (STARTED + 1, 3.0), (STARTED + 3, 0.0)]
    assert second.times.size == 4
