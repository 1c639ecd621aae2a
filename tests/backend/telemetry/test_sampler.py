"""The pace of the sampler and what it keeps, in this process."""

import asyncio
import contextlib
import time

from backend.engine_api import EngineApi
from backend.events import RunState, Sample, Speculation
from backend.telemetry.sampler import Sampler
from tests.fakes import metric_pages as pages
from tests.fakes.counter_server import CounterServer, Step

LOAD = pages.recorded("v0.32_spec_load.txt")


async def collect(sampler: Sampler, n: int, *, stall_after: int | None = None, stall_s: float = 0.0) -> list[Sample]:
    got: list[Sample] = []
    async with contextlib.aclosing(sampler.samples()) as samples:
        async for sample in samples:
            got.append(sample)
            if len(got) == stall_after:
                time.sleep(stall_s)  # noqa: ASYNC251 - a stall of the whole loop is the point
            if len(got) == n:
                return got
    raise AssertionError("the sampler ended by itself")


async def test_after_a_stall_ticks_are_left_out_and_the_grid_stays() -> None:
    with CounterServer([Step(LOAD)]) as server:
        api = EngineApi(server.url)
        start = time.time()
        got = await collect(Sampler(api, interval_s=0.4), 5, stall_after=2, stall_s=1.3)
        await api.aclose()
    ticks = [(sample.t - start) / 0.4 for sample in got]
    # Samples 0 and 1, then the loop stands still until 4.3 intervals: the next are at 4 or 5 and go on in steps.
    assert ticks[2] > 3.9
    assert ticks[3] - ticks[2] > 0.5
    assert 0.8 < ticks[4] - ticks[3] < 1.5
    assert got[2].interval_s is not None
    assert got[2].interval_s > 1.3
    assert abs(ticks[4] - round(ticks[4])) < 0.4


async def test_the_interval_can_be_changed_while_it_runs() -> None:
    with CounterServer([Step(LOAD)]) as server:
        api = EngineApi(server.url)
        sampler = Sampler(api, interval_s=60.0)
        async with contextlib.aclosing(sampler.samples()) as samples:
            await anext(samples)
            sampler.interval_s = 0.3
            second = await anext(samples)
            third = await anext(samples)
        await api.aclose()
    assert second.interval_s is not None
    assert third.interval_s is not None
    assert max(second.interval_s, third.interval_s) < 5


async def test_speculation_off_idle_and_counting() -> None:
    off = pages.recorded("v0.32_nospec_idle.txt")
    steps = [Step(off), Step(pages.grown(off)), Step(LOAD), Step(LOAD), Step(pages.grown(LOAD))]
    with CounterServer(steps) as server:
        api = EngineApi(server.url)
        sampler = Sampler(api, interval_s=0.4)
        got = await collect(sampler, len(steps))
        await api.aclose()
    assert [sample.speculation for sample in got] == [
        Speculation.OFF,
        Speculation.OFF,
        None,  # another engine: whether its counters move is not known yet
        Speculation.IDLE,
        Speculation.COUNTING,
    ]
    assert sampler.reading is not None
    assert sampler.rates is not None
    assert sampler.rates.steps_per_s_by_engine == {"0": got[-1].steps_per_s}


async def test_a_cancelled_sampler_leaves_nothing_running() -> None:
    with CounterServer([Step(hang=True, health_hang=True)]) as server:
        api = EngineApi(server.url)
        task = asyncio.create_task(collect(Sampler(api, interval_s=60.0), 1))
        while server.asked.total() < 2:  # noqa: ASYNC110 - counted in the threads of the server
            await asyncio.sleep(0.01)
        task.cancel()
        assert (await asyncio.wait({task}))[0] == {task}
        assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await api.aclose()


async def test_a_refused_connection_is_stopped() -> None:
    with CounterServer([Step(LOAD)]) as server:
        url = server.url
    api = EngineApi(url)
    sample = await Sampler(api).read()
    await api.aclose()
    assert sample.state is RunState.STOPPED
    assert sample.requests_running is None
