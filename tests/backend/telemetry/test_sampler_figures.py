"""Every figure of a sample against the test's own sums, for every rule of gaps, restarts and unknowns.

The server hands out what the test set last, and each reading is asked for by the test: no figure depends on how fast
the machine is, and each is compared with the time that its own sample names.
"""

import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backend.engine_api import EngineApi
from backend.events import RunState, Sample
from backend.telemetry.sampler import Sampler
from tests.fakes import metric_pages as pages
from tests.fakes.counter_server import CounterServer, Step

PATIENT_S = 60.0  # the sampler waits 5 s for an answer
HASTY_S = 0.5  # where the answer must come too late

TWO = pages.recorded("v0.32_spec_dp2.txt")
AFTER = pages.grown(TWO)
NULLS = dict.fromkeys((*pages.RATES, *pages.GAUGES, "interval_s"))


class Reader:
    """One sampler, and the server that it reads."""

    def __init__(self, server: CounterServer, sampler: Sampler) -> None:
        self.server = server
        self.sampler = sampler

    async def read(self, step: Step) -> Sample:
        self.server.steps = [step]
        too_late = step.hang or step.health_hang or step.drip_s > 0
        self.sampler.interval_s = HASTY_S if too_late else PATIENT_S
        return await self.sampler.read()

    async def pages(self, *texts: str) -> list[Sample]:
        return [await self.read(Step(text)) for text in texts]


@contextlib.asynccontextmanager
async def reading(*, keep_alive: bool = False) -> AsyncIterator[Reader]:
    with CounterServer([], keep_alive=keep_alive) as server:
        api = EngineApi(server.url)
        try:
            yield Reader(server, Sampler(api))
        finally:
            await api.aclose()


def figures(sample: Sample) -> dict[str, Any]:
    return {key: getattr(sample, key) for key in NULLS}


def assert_window(sample: Sample, before: str, after: str) -> None:
    """Exact but for quantiles, whose value depends on the order of the arithmetic in the last digit."""
    assert sample.state is RunState.READY
    assert sample.interval_s is not None
    assert sample.interval_s > 0
    for key, value in pages.expected(before, after, sample.interval_s).items():
        got = getattr(sample, key)
        if key.endswith(("p50_s", "p95_s")) and value is not None:
            assert math.isclose(got, value, rel_tol=1e-12), key
        else:
            assert (list(got) if isinstance(got, tuple) else got) == value, key


def assert_gauges_only(sample: Sample, page: str) -> None:
    assert sample.state is RunState.READY
    assert figures(sample) == {**NULLS, **pages.gauges(page)}


async def test_first_counting_idle_and_restart_with_two_engines() -> None:
    busy = pages.with_gauges(
        AFTER,
        kv_cache_usage_perc_0=0.25,
        kv_cache_usage_perc_1=0.5,
        num_requests_running_0=3.0,
        num_requests_running_1=2.0,
        num_requests_waiting_1=7.0,
    )
    async with reading() as reader:
        first, counting, idle, fell, again = await reader.pages(TWO, busy, busy, TWO, AFTER)
    assert_gauges_only(first, TWO)
    assert_window(counting, TWO, busy)
    assert (counting.kv_cache_usage_ratio, counting.requests_running, counting.requests_waiting) == (0.375, 5, 7)
    assert None not in figures(counting).values()
    assert_window(idle, busy, busy)
    assert (idle.generation_tokens_per_s, idle.prompt_tokens_per_s, idle.steps_per_s) == (0, 0, 0)
    assert {key for key, value in figures(idle).items() if value is None} == {
        *("acceptance_rate", "mean_acceptance_length", "acceptance_per_position"),
        *("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s"),
    }
    assert_gauges_only(fell, TWO)
    assert_window(again, TWO, AFTER)


async def test_the_engines_estimate_is_the_mean_over_engines() -> None:
    """Each engine has GPUs of its own, so what one GPU moves is the mean and not the sum."""
    line = 'vllm:estimated_read_bytes_per_gpu_total{{engine="{}"}} {}\n'
    before = line.format(0, 1e9) + line.format(1, 5e9)
    written = "vllm:estimated_write_bytes_per_gpu_total"
    before += line.replace("vllm:estimated_read_bytes_per_gpu_total", written).format(0, 1e9)
    after = before.replace(" 1000000000.0", " 7000000000.0").replace(" 5000000000.0", " 6000000000.0")
    async with reading() as reader:
        first, second = await reader.pages(before, after)
    assert first.estimated_bytes_per_s is None
    assert second.interval_s is not None
    assert second.estimated_bytes_per_s == pytest.approx((6e9 + 6e9 + 1e9) / second.interval_s / 2)
    assert second.estimated_flops_per_s is None


async def test_one_engine_of_two_that_falls_is_a_restart_though_the_sum_grows() -> None:
    before = pages.small_page(per_engine={"0": {"generation": 100}, "1": {"generation": 100}})
    after = pages.small_page(per_engine={"0": {"generation": 900}, "1": {"generation": 99}})
    async with reading() as reader:
        _, fell, again = await reader.pages(before, after, after)
    assert_gauges_only(fell, after)
    assert again.generation_tokens_per_s == 0


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (Step(hang=True), RunState.UNRESPONSIVE),
        (Step("Service Unavailable", status=503, health=503), RunState.UNRESPONSIVE),
        (Step(TWO, health=503), RunState.UNRESPONSIVE),
        (Step(TWO, health=500), RunState.UNRESPONSIVE),
        (Step(TWO, health_hang=True), RunState.UNRESPONSIVE),
        (Step("", status=500), RunState.UNRESPONSIVE),
        (Step(TWO, drip_s=1.0), RunState.UNRESPONSIVE),
        (Step(reset=True), RunState.UNRESPONSIVE),
        (Step(""), RunState.READY),
        (Step("<html><body>It works!</body></html>"), RunState.READY),
        (Step(bytes(range(256)) * 10), RunState.READY),
        (Step(TWO[: TWO.index("vllm:generation_tokens_total{") + 40]), RunState.READY),
        (Step("process_start_time_seconds 1.0\n"), RunState.READY),
    ],
)
async def test_a_gap_is_nulls_in_each_sample_and_then_spanned(fault: Step, state: RunState) -> None:
    async with reading() as reader:
        await reader.pages(TWO)
        gaps = [await reader.read(fault), await reader.read(fault)]
        (back,) = await reader.pages(AFTER)
    for gap in gaps:
        assert gap.state is state
        assert figures(gap) == NULLS
    assert_window(back, TWO, AFTER)
    assert back.interval_s is not None
    if fault.hang or fault.health_hang or fault.drip_s:
        assert back.interval_s > 2 * 0.9 * HASTY_S, "the whole gap, two limits long"


async def test_a_restart_during_a_gap_is_seen() -> None:
    async with reading() as reader:
        await reader.pages(AFTER)
        await reader.read(Step(hang=True))
        back, again = await reader.pages(TWO, TWO)
    assert_gauges_only(back, TWO)
    assert_window(again, TWO, TWO)


async def test_a_server_without_health_is_judged_by_its_metrics() -> None:
    async with reading() as reader:
        first = await reader.read(Step(TWO, health=404))
        second = await reader.read(Step(AFTER, health=404))
    assert_gauges_only(first, TWO)
    assert_window(second, TWO, AFTER)


async def test_the_first_answer_after_silence_has_no_rates() -> None:
    async with reading() as reader:
        silent = await reader.read(Step(hang=True))
        first, second = await reader.pages(TWO, AFTER)
    assert (silent.state, figures(silent)) == (RunState.UNRESPONSIVE, NULLS)
    assert_gauges_only(first, TWO)
    assert_window(second, TWO, AFTER)


@pytest.mark.parametrize("keep_alive", [False, True])
async def test_refused_is_stopped_and_comes_back(keep_alive: bool) -> None:
    async with reading(keep_alive=keep_alive) as reader:
        await reader.pages(TWO)
        reader.server.stop()
        stopped = await reader.sampler.read()
        reader.server.start()
        (back,) = await reader.pages(AFTER)
    assert (stopped.state, figures(stopped)) == (RunState.STOPPED, NULLS)
    assert_window(back, TWO, AFTER)


async def test_every_recorded_page_growing_and_at_rest() -> None:
    recorded = [pages.recorded(name) for name in pages.RECORDED]
    older = [pages.older(TWO, version) for version in pages.OLDER]
    every = [*recorded, *older, pages.both_names(pages.recorded("v0.32_spec_load.txt"))]
    async with reading() as reader:
        for number, text in enumerate(every, 1):
            # Each from a start time of its own, as if one engine followed the other.
            page = text.replace("\nprocess_start_time_seconds ", f"\nprocess_start_time_seconds {number}")
            more = pages.grown(page)
            first, counting, idle = await reader.pages(page, more, more)
            assert_gauges_only(first, page)
            assert_window(counting, page, more)
            assert_window(idle, more, more)
            assert counting.ttft_p50_s is not None
            assert counting.itl_p95_s is not None
            speculates = bool(pages.series(page, pages.COUNTERS["drafts"]))
            assert (counting.acceptance_rate is not None) == speculates
            assert (counting.acceptance_per_position is not None) == speculates


async def test_two_recorded_pages_of_one_run() -> None:
    idle, load = (pages.recorded(f"v0.32_spec_{name}.txt") for name in ("idle", "load"))
    async with reading() as reader:
        _, window = await reader.pages(idle, load)
    assert window.generation_tokens_per_s is not None
    assert window.generation_tokens_per_s > 0
    assert_window(window, idle, load)
    assert window.drafts is not None
    assert window.draft_tokens is not None
    assert window.acceptance_rate is not None
    assert window.mean_acceptance_length is not None
    accepted = (window.mean_acceptance_length - 1) * window.drafts
    assert accepted == pytest.approx(window.acceptance_rate * window.draft_tokens)
    for metric, got in ((pages.COUNTERS["drafts"], window.drafts), (pages.COUNTERS["drafted"], window.draft_tokens)):
        grown = sum(pages.series(load, metric).values()) - sum(pages.series(idle, metric).values())
        assert got == grown > 0
