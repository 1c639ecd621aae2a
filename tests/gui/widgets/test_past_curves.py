"""Stretches of recorded runs: what is drawn of them, and means by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.curves import Floats, Readings
from gui.widgets.past_curves import PastCurves

T = 1_800_000_000.0
known = st.floats(0, 1000, allow_nan=False)
value = st.one_of(known, known, st.just(0.0), st.just(math.nan))


def readings(names: tuple[str, ...], rows: list[list[float]] | Floats, *, times: Floats | None = None) -> Readings:
    values = np.array(rows, dtype=float).reshape(len(names), -1)
    at = T + np.arange(values.shape[1], dtype=float) if times is None else times
    return Readings(names, float(at[0]) - 1 if at.size else T, at, values)


@settings(deadline=None)
@given(
    st.lists(st.tuples(value, value, value, value), min_size=1, max_size=300),
    st.integers(0, 320),
    st.integers(-10, 320),
)
def test_means_weigh_each_reading_by_what_it_rests_on(
    rows: list[tuple[float, float, float, float]], seconds: int, last: int
) -> None:
    names = ("interval_s", "generation_tokens_per_s", "ttft_count", "ttft_p50_s")
    curves = PastCurves(readings(names, [list(column) for column in zip(*rows, strict=True)]))
    until = T + last
    inside = [row for number, row in enumerate(rows) if until - seconds < T + number <= until]

    def mean(pairs: list[tuple[float, float]]) -> float | None:
        weighed = [(each, weight) for each, weight in pairs if not math.isnan(each) and weight > 0]
        total = sum(weight for _, weight in weighed)
        return sum(each * weight for each, weight in weighed) / total if weighed else None

    rates = mean([(rate, interval) for interval, rate, _, _ in inside if rate > 0])
    if rates is None and any(not math.isnan(rate) for _, rate, _, _ in inside):
        rates = 0.0
    first = mean([(latency, count) for _, _, count, latency in inside])
    for name, wanted in (("generation_tokens_per_s", rates), ("ttft_p50_s", first)):
        found = curves.mean(name, seconds, until)
        assert found == (None if wanted is None else pytest.approx(wanted, rel=1e-6, abs=1e-6))


def test_rates_are_means_over_the_time_in_which_there_was_any() -> None:
    curves = PastCurves(readings(("generation_tokens_per_s", "interval_s"), [[0, 30, 0, 10, 0], [1, 1, 5, 3, 1]]))
    assert curves.mean("generation_tokens_per_s", 10, T + 4) == pytest.approx((30 + 30) / 4)
    assert curves.mean("generation_tokens_per_s", 1, T + 2) == 0.0, "nothing was made, and that is known"


def test_a_gauge_counts_every_reading_the_same_and_unknown_is_none() -> None:
    curves = PastCurves(readings(("cpu_ratio", "kv_cache_usage_ratio"), [[0.2, math.nan, 0.6, 0.4], [math.nan] * 4]))
    assert curves.mean("cpu_ratio", 10, T + 3) == pytest.approx(0.4)
    assert curves.mean("cpu_ratio", 2, T + 3) == pytest.approx(0.5)
    assert curves.mean("kv_cache_usage_ratio", 10, T + 3) is None
    assert curves.mean("never heard of", 10, T + 3) is None
    assert curves.known == {"cpu_ratio"}


def test_drafts_are_added_up_and_fewer_positions_are_guesses_that_were_not_made() -> None:
    names = ("drafts", "draft_tokens", "acceptance_rate", "mean_acceptance_length")
    positions = ("acceptance_position_0", "acceptance_position_1", "acceptance_position_2")
    n = math.nan
    curves = PastCurves(
        readings(
            (*names, *positions),
            [
                [10, 0, 30, 20],
                [20, 0, 60, 20],
                [0.5, n, 0.25, 0.5],
                [2.0, n, 1.5, 1.5],
                [0.8, n, 0.4, 0.5],
                [0.2, n, 0.1, n],
                [n, n, n, n],
            ],
        )
    )
    found = curves.drafts(100, T + 3, positions)
    assert found.count == 60
    assert found.acceptance == pytest.approx((10 + 15 + 10) / 100)
    assert found.length == pytest.approx((2.0 * 10 + 1.5 * 30 + 1.5 * 20) / 60)
    assert found.positions == pytest.approx(((8 + 12 + 10) / 60, (2 + 3) / 60))
    idle = curves.drafts(1, T + 1, positions)
    assert (idle.count, idle.acceptance, idle.positions) == (0, None, ())
    nothing = PastCurves(readings(("cpu_ratio",), [[0.1]])).drafts(10, T, ())
    assert (nothing.count, nothing.acceptance, nothing.length) == (None, None, None)


def test_the_acceptance_of_the_last_seconds_is_that_of_all_drafts() -> None:
    """Means of overlapping stretches would count some drafts ten times."""
    curves = PastCurves(
        readings(
            ("recent_acceptance_rate", "acceptance_rate", "draft_tokens"), [[0.9, 0.9, 0.1], [0.9, 0.5, 0.1], [1, 1, 2]]
        )
    )
    assert curves.mean("recent_acceptance_rate", 10, T + 2) == pytest.approx((0.9 + 0.5 + 0.2) / 4)


@pytest.fixture(scope="module")
def day() -> PastCurves:
    """24 hours of one reading a second: a saw, silence from the 10th to the 11th hour, one peak."""
    times = T + np.concatenate([np.arange(36_000.0), [37_800.0], np.arange(39_600.0, 86_400.0)])
    values = np.stack([np.mod(times, 100.0), np.ones(times.size)])
    values[:, 36_000] = math.nan
    values[0, 50_000] = 5000.0
    return PastCurves(readings(("tokens", "interval_s"), values, times=times))


def test_a_day_is_drawn_from_few_points_with_its_peak_and_its_gap(day: PastCurves) -> None:
    times, values = day.curve("tokens", 86_400, T + 86_399)
    assert times.size < 9000
    assert np.all(np.diff(times) >= 0)
    assert np.nanmax(values) == 5000.0
    assert times[np.nanargmax(values)] == day.readings.times[50_000]
    silent = np.isnan(values) & (times > T + 35_999) & (times < T + 39_600)
    assert silent.any(), "no line is drawn over the hour in which nobody was reading"


def test_an_hour_of_a_day_is_drawn_reading_by_reading(day: PastCurves) -> None:
    times, values = day.curve("tokens", 3600, T + 20_000)
    assert times.tolist() == list(T + np.arange(16_400.0, 20_001.0))
    assert values.tolist() == list(np.mod(times, 100.0))
    assert day.mean("tokens", 200, T + 1199) == pytest.approx(49.5)


def test_a_run_without_readings_says_nothing() -> None:
    curves = PastCurves(Readings(("tokens",), T, np.empty(0), np.empty((1, 0))))
    assert curves.curve("tokens", 10, T).times.size == 0
    assert curves.mean("tokens", 10, T) is None
    assert curves.drafts(10, T).count is None
