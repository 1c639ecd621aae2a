"""The pace of the sampler by a clock of the test's own, and what it keeps and leaves."""

import asyncio
import contextlib
from collections.abc import Sequence

from backend.engine_api import EngineApi
from backend.errors import EngineUnreachableError
from backend.events import Health, RunState, Sample, Speculation
from backend.telemetry.sampler import Sampler
from tests.fakes import metric_pages as pages
from tests.fakes.counter_server import CounterServer, Step

LOAD = pages.recorded("v0.32_spec_load.txt")


class Clock:
    """Time that passes only when somebody lets it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)
        await asyncio.sleep(0)


class TimedApi(EngineApi):
    """An engine whose pages take the given times, None for one that never answers; notes when it was asked."""

    def __init__(self, clock: Clock, takes_s: Sequence[float | None]) -> None:
        super().__init__("http://127.0.0.1:1")
        self._clock = clock
        self._takes_s = iter(takes_s)
        self.asked_s: list[float] = []
        self.limits_s: set[float] = set()

    async def health(self, *, timeout_s: float = 2.0) -> Health:
        self.limits_s.add(timeout_s)
        return Health.OK

    async def metrics(self, *, timeout_s: float = 2.0) -> str:
        self.limits_s.add(timeout_s)
        self.asked_s.append(self._clock.now - 1000.0)
        takes_s = next(self._takes_s, 0.0)
        if takes_s is None:
            self._clock.now += timeout_s
            raise EngineUnreachableError("slow", refused=False)
        self._clock.now += takes_s
        return LOAD


async def collect(sampler: Sampler, clock: Clock, uses_s: Sequence[float]) -> list[Sample]:
    """One sample more than `uses_s`, the times for which the reader of the samples keeps the loop."""
    got: list[Sample] = []
    async with contextlib.aclosing(sampler.samples()) as samples:
        for use_s in (*uses_s, 0.0):
            got.append(await anext(samples))
            clock.now += use_s
    return got


async def test_late_ticks_are_made_at_once_older_ones_left_out_and_the_grid_stays() -> None:
    clock = Clock()
    api = TimedApi(clock, [])
    got = await collect(Sampler(api, interval_s=10.0, clock=clock, sleep=clock.sleep), clock, [3, 12, 1, 37, 0, 26, 0])
    # Late by 2 (at once), on time, late by 27 (the third tick after it is nearest), on time, late by 16, on time.
    assert api.asked_s == [0, 10, 22, 30, 70, 80, 110, 120]
    assert [sample.interval_s for sample in got] == [None, 10, 12, 8, 40, 10, 30, 10]


async def test_a_slow_engine_moves_no_tick_and_intervals_are_from_answer_to_answer() -> None:
    clock = Clock()
    api = TimedApi(clock, [0, 4, 1, None, None, 2, 0])
    got = await collect(Sampler(api, interval_s=10.0, clock=clock, sleep=clock.sleep), clock, [0] * 6)
    assert api.asked_s == [0, 10, 20, 30, 40, 50, 60]
    # Answers at 0, 14, 21, none, none, 52 and 60.
    assert [sample.interval_s for sample in got] == [None, 14, 7, None, None, 31, 8]
    assert [sample.state for sample in got].count(RunState.UNRESPONSIVE) == 2


async def test_a_scrape_must_end_before_the_next_and_within_5_s() -> None:
    for interval_s, limit_s in ((0.25, 0.225), (1.0, 0.9), (60.0, 5.0)):
        clock = Clock()
        api = TimedApi(clock, [])
        await Sampler(api, interval_s=interval_s, clock=clock, sleep=clock.sleep).read()
        assert api.limits_s == {limit_s}


async def test_the_interval_can_be_changed_while_it_runs() -> None:
    clock = Clock()
    api = TimedApi(clock, [])
    sampler = Sampler(api, interval_s=60.0, clock=clock, sleep=clock.sleep)
    async with contextlib.aclosing(sampler.samples()) as samples:
        await anext(samples)
        sampler.interval_s = 2.0
        assert (await anext(samples)).interval_s == 2.0
        assert (await anext(samples)).interval_s == 2.0
        sampler.interval_s = 7.0
        assert (await anext(samples)).interval_s == 7.0


async def test_the_real_clock_runs_too() -> None:
    with CounterServer([Step(LOAD)]) as server:
        api = EngineApi(server.url)
        async with contextlib.aclosing(Sampler(api, interval_s=0.3).samples()) as samples:
            got = [await anext(samples) for _ in range(3)]
        await api.aclose()
    assert all(sample.interval_s is None or sample.interval_s > 0 for sample in got)


async def test_speculation_off_idle_and_counting() -> None:
    off = pages.recorded("v0.32_nospec_idle.txt")
    with CounterServer([]) as server:
        api = EngineApi(server.url)
        sampler, got = Sampler(api, interval_s=60.0), []
        for page in (off, pages.grown(off), LOAD, LOAD, pages.grown(LOAD)):
            server.steps = [Step(page)]
            got.append(await sampler.read())
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
        task = asyncio.create_task(Sampler(api, interval_s=60.0).read())
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
