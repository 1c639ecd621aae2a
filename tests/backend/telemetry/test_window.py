"""What happened between two readings: values by hand, every kind of restart, and random histories."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.events import Speculation
from backend.telemetry.engine_metrics import parse
from backend.telemetry.window import Rates, quantile, rates
from tests.fakes import metric_pages as pages

ONE = {"generation": 100, "prompt": 50, "steps": 40, "drafts": 20, "drafted": 40, "accepted": 10}
ONE |= {"p0": 8, "p1": 2, "b0": 1, "b1": 4, "b2": 5}
TWO = {"generation": 130, "prompt": 55, "steps": 52, "drafts": 30, "drafted": 60, "accepted": 22}
TWO |= {"p0": 16, "p1": 6, "b0": 3, "b1": 7, "b2": 9}


def compare(before: str, after: str, seconds: float = 2.0) -> Rates | None:
    first, second = parse(before), parse(after)
    assert first is not None
    assert second is not None
    return rates(first, second, seconds=seconds)


def known(before: str, after: str, seconds: float = 2.0) -> Rates:
    result = compare(before, after, seconds)
    assert result is not None
    return result


def same(got: float | None, wanted: float | None) -> bool:
    if got is None or wanted is None:
        return got is wanted
    return math.isclose(got, wanted, rel_tol=1e-9)


def test_one_engine_by_hand() -> None:
    got = known(pages.small_page(per_engine={"0": ONE}), pages.small_page(per_engine={"0": TWO}))
    assert got.interval_s == 2
    assert got.generation_tokens_per_s == 15
    assert got.prompt_tokens_per_s == 2.5
    assert got.steps_per_s == 6
    assert got.acceptance_rate == 12 / 20
    assert got.mean_acceptance_length == 1 + 12 / 10
    assert got.acceptance_per_position == (8 / 10, 4 / 10)
    assert (got.drafts, got.draft_tokens) == (10, 20)
    assert got.ttft_count == 4
    # Growth: 2 up to 0.1 s, 3 up to 1 s, 4 in all: the second is at the end of the first bucket, 3.8 of 4 are
    # beyond the last finite bound.
    assert got.ttft_p50_s == 0.1
    assert got.ttft_p95_s == 1.0
    assert got.itl_p50_s == 0.1
    assert got.speculation is Speculation.COUNTING


def test_two_engines_are_added_up() -> None:
    still = {"0": ONE, "1": TWO}
    moved = {"0": TWO, "1": {**TWO, "generation": 140, "steps": 55, "accepted": 23, "drafts": 32, "drafted": 64}}
    got = known(pages.small_page(per_engine=still), pages.small_page(per_engine=moved))
    assert got.generation_tokens_per_s == (30 + 10) / 2
    assert got.steps_per_s == (12 + 3) / 2
    assert got.steps_per_s_by_engine == {"0": 6, "1": 1.5}
    assert (got.drafts, got.draft_tokens) == (10 + 2, 20 + 4)
    assert got.acceptance_rate == (12 + 1) / (20 + 4)
    assert got.mean_acceptance_length == 1 + 13 / 12
    assert got.acceptance_per_position == (8 / 12, 4 / 12)


def test_idle_gives_zero_rates_and_nothing_else() -> None:
    page = pages.small_page(per_engine={"0": ONE, "1": TWO})
    assert known(page, page) == Rates(
        interval_s=2.0,
        generation_tokens_per_s=0,
        prompt_tokens_per_s=0,
        steps_per_s=0,
        steps_per_s_by_engine={"0": 0, "1": 0},
        drafts=0,
        draft_tokens=0,
        ttft_count=0,
        speculation=Speculation.IDLE,
    )


def test_without_speculation_its_fields_are_unknown() -> None:
    got = known(
        pages.small_page(per_engine={"0": {"generation": 1}}),
        pages.small_page(per_engine={"0": {"generation": 5}}),
    )
    assert got.generation_tokens_per_s == 2
    assert got.speculation is Speculation.OFF
    assert got.acceptance_rate is got.mean_acceptance_length is None
    assert got.acceptance_per_position is None
    assert got.drafts is got.draft_tokens is None


def test_drafts_without_an_accepted_token() -> None:
    after = {**ONE, "drafts": 24, "drafted": 48}
    got = known(pages.small_page(per_engine={"0": ONE}), pages.small_page(per_engine={"0": after}))
    assert (got.acceptance_rate, got.mean_acceptance_length) == (0, 1)
    assert got.acceptance_per_position == (0, 0)


@pytest.mark.parametrize("name", [*pages.COUNTERS, "p1", "b2"])
@pytest.mark.parametrize("engine", ["0", "1"])
def test_any_counter_of_any_engine_that_falls_is_a_restart(name: str, engine: str) -> None:
    before = {"0": ONE, "1": ONE}
    after = {"0": TWO, "1": TWO}
    after[engine] = {**TWO, name: ONE[name] - 1}
    assert compare(pages.small_page(per_engine=before), pages.small_page(per_engine=after)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda: pages.small_page(per_engine={"0": TWO}, start=2.0e9),
        lambda: pages.small_page(per_engine={"0": TWO, "1": TWO}),
        lambda: pages.small_page(per_engine={"1": TWO}),
    ],
)
def test_another_start_time_or_set_of_engines_is_a_restart(change: Callable[[], str]) -> None:
    assert compare(pages.small_page(per_engine={"0": ONE}), change()) is None


def test_a_counter_that_comes_or_goes_is_unknown_and_the_rest_is_known() -> None:
    without = {key: value for key, value in TWO.items() if key != "prompt"}
    for before, after in ((ONE, without), (without, {**TWO, "prompt": 99})):
        got = known(pages.small_page(per_engine={"0": before}), pages.small_page(per_engine={"0": after}))
        assert got.prompt_tokens_per_s is None
        assert got.generation_tokens_per_s is not None


def test_positions_with_a_hole_are_unknown() -> None:
    holes = [{key: value for key, value in page.items() if key != "p0"} for page in (ONE, TWO)]
    before, after = (pages.small_page(per_engine={"0": page}) for page in holes)
    got = known(before, after)
    assert got.acceptance_per_position is None
    assert got.acceptance_rate == 0.6


def test_more_than_nine_positions_stay_in_order() -> None:
    before = {**ONE, **{f"p{at}": 0 for at in range(12)}}
    after = {**TWO, **{f"p{at}": 10 - at / 2 for at in range(12)}}
    got = known(
        pages.small_page(per_engine={"0": before}, positions=12),
        pages.small_page(per_engine={"0": after}, positions=12),
    )
    assert got.acceptance_per_position == tuple((10 - at / 2) / 10 for at in range(12))


def test_prefix_cache_hits() -> None:
    page = "vllm:prefix_cache_queries_total {}\nvllm:prefix_cache_hits_total {}\n"
    assert known(page.format(10, 5), page.format(30, 10)).prefix_cache_hit_ratio == 0.25


def test_estimates_of_memory_traffic_are_those_of_each_engine_and_zero_is_none() -> None:
    def page(*engines: tuple[float, float, float]) -> str:
        return "".join(
            f'vllm:estimated_{name}_per_gpu_total{{engine="{engine}"}} {value}\n'
            for engine, values in enumerate(engines)
            for name, value in zip(("read_bytes", "write_bytes", "flops"), values, strict=True)
        )

    got = known(page((100, 10, 0), (400, 0, 7)), page((180, 16, 0), (500, 0, 27)), 2.0)
    assert got.estimated_bytes_per_s == {"0": (80 + 6) / 2, "1": 100 / 2}
    assert got.estimated_flops_per_s == {"1": 20 / 2}
    still = page((180, 16, 5))
    assert known(still, still).estimated_bytes_per_s == {"0": 0}
    off = page((0, 0, 0))
    assert known(off, off).estimated_bytes_per_s == {}


def test_nothing_overflows() -> None:
    before = {"generation": 0.0, "drafts": 0.0, "drafted": 0.0, "accepted": 0.0}
    after = {"generation": 9e299, "drafts": 5e-324, "drafted": 5e-324, "accepted": 9e299}
    got = known(pages.small_page(per_engine={"0": before}), pages.small_page(per_engine={"0": after}), 1e-9)
    assert got.generation_tokens_per_s is None
    assert got.acceptance_rate is got.mean_acceptance_length is None


@pytest.mark.parametrize(
    ("q", "buckets", "value"),
    [
        (0.5, {1.0: 10.0, 2.0: 10.0, math.inf: 10.0}, 0.5),
        (0.5, {1.0: 0.0, 2.0: 10.0, math.inf: 10.0}, 1.5),
        (0.95, {1.0: 50.0, 2.0: 90.0, 4.0: 100.0, math.inf: 100.0}, 3.0),
        (0.5, {1.0: 5.0, 2.0: 5.0, math.inf: 10.0}, 1.0),  # exactly at a bound
        (0.5, {1.0: 2.0, 2.0: 4.0, math.inf: 100.0}, 2.0),  # beyond the last finite bound
        (0.5, {1.0: 4.0, 2.0: 2.0, 3.0: 8.0, math.inf: 8.0}, 1.0),  # counts that fall on the way
        (0.75, {1.0: 4.0, 2.0: 2.0, 3.0: 8.0, math.inf: 8.0}, 2.5),
        (0.5, {1.0: 4.0, 2.0: 9.0, math.inf: 8.0}, 1.0 + 0.5 / 5),
        (0.5, {-1.0: 5.0, math.inf: 5.0}, -1.0),
        (0.0, {1.0: 0.0, 2.0: 5.0, math.inf: 5.0}, 0.0),
        (0.5, {1.0: 0.0, math.inf: 0.0}, None),
        (0.5, {math.inf: 7.0}, None),
        (0.5, {1.0: 7.0}, None),
        (0.5, {}, None),
    ],
)
def test_quantile_by_hand(q: float, buckets: dict[float, float], value: float | None) -> None:
    assert same(quantile(q, buckets), value)


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=25),
    st.floats(0.01, 0.99),
    st.lists(st.floats(1e-4, 1e4), min_size=24, max_size=24, unique=True),
)
def test_quantile_against_a_walk_along_the_buckets(observations: list[int], q: float, bounds: list[float]) -> None:
    edges = [*sorted(bounds)[: len(observations) - 1], math.inf]
    cumulative = {edge: float(sum(observations[: at + 1])) for at, edge in enumerate(edges)}
    assert same(quantile(q, cumulative), pages.own_quantile(q, cumulative))


GROWTH = st.fixed_dictionaries({key: st.integers(0, 500) for key in [*pages.COUNTERS, "b0", "b1", "b2"]})
EVENTS = st.lists(
    st.tuples(st.sampled_from(["grow", "grow", "grow", "gap", "restart"]), GROWTH, GROWTH, st.floats(0.25, 60)),
    min_size=1,
    max_size=12,
)


@given(EVENTS)
def test_rates_times_intervals_are_the_growth_of_the_counters(
    events: list[tuple[str, dict[str, int], dict[str, int], float]],
) -> None:
    """Two engines count on, with readings that fail and restarts that begin at zero under a new start time."""
    counters = {engine: dict.fromkeys([*pages.COUNTERS, "b0", "b1", "b2"], 0) for engine in "01"}
    start, seconds, measured, counted, since = 1.0, 0.0, 0.0, 0, 0
    previous = parse(pages.small_page(per_engine={e: {**c} for e, c in counters.items()}, start=start))
    assert previous is not None
    for kind, *growths, duration in events:
        if kind == "restart":
            start += 1
            since = 0
            for each in counters.values():
                each.update(dict.fromkeys(each, 0))
        for each, growth in zip(counters.values(), growths, strict=True):
            for key in pages.COUNTERS:
                each[key] += growth[key]
            each["b0"] += growth["b0"]
            each["b1"] += growth["b0"] + growth["b1"]
            each["b2"] += growth["b0"] + growth["b1"] + growth["b2"]
        since += sum(growth["generation"] for growth in growths)
        seconds += duration
        if kind == "gap":
            continue
        current = parse(pages.small_page(per_engine={e: {**c} for e, c in counters.items()}, start=start))
        assert current is not None
        window = rates(previous, current, seconds=seconds)
        if window is None:
            assert previous.process_start_s != current.process_start_s
        else:
            assert window.generation_tokens_per_s is not None
            measured += window.generation_tokens_per_s * window.interval_s
            counted += since
        previous, seconds, since = current, 0.0, 0
    assert measured == pytest.approx(counted, rel=1e-9)
