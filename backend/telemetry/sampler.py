"""Reads one engine at a steady pace: one sample per interval, whatever the engine does."""

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import httpcore2  # noqa: F401 - httpx2 loads it with the first request, which takes 0.1 s of that request's limit

from backend.engine_api import EngineApi
from backend.errors import EngineError, EngineUnreachableError
from backend.events import Health, RunState, Sample, Speculation
from backend.telemetry.engine_metrics import EngineReading, parse
from backend.telemetry.window import Rates, rates

# A scrape ends before the next one is due, so a server that hangs costs no line. An engine that needs longer
# than the cap for a page of 50 kB is not well, however long the interval.
_LIMIT_OF_INTERVAL = 0.9
_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Answer:
    """What `/metrics` gave: `page` is None without an answer; `at_s` is monotonic, `t` Unix time, in seconds."""

    at_s: float
    t: float
    page: str | None = None
    refused: bool = False


class Sampler:
    """Samples one engine; rates span the time between the two readings that they compare.

    Attributes:
        interval_s: seconds from one scrape to the next; may be changed at any time.
        reading: the newest readable page, None before the first.
        rates: the newest comparison of two pages; None in an interval without one.
    """

    def __init__(
        self,
        api: EngineApi,
        *,
        interval_s: float = 1.0,
        known_health: Callable[[], Health | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Sample the engine behind `api`, which stays the caller's to close; tests bring a clock of their own.

        `known_health` gives what somebody who asks `/health` anyway has heard last; a scrape asks where it is None.
        """
        self.interval_s = interval_s
        self._clock = clock
        self._sleep = sleep
        self._known_health = known_health
        self.reading: EngineReading | None = None
        self.rates: Rates | None = None
        self._api = api
        self._read_at_s = 0.0

    async def samples(self) -> AsyncGenerator[Sample, None]:
        """Yield one sample per interval, the first at once, without end.

        Scrapes stand on a grid of monotonic time, so lateness never adds up. A scrape that is late by less than
        half an interval is made at once; older ones are left out, so a stall is not followed by a burst.
        """
        due_s = self._clock()
        while True:
            yield await self.read()
            due_s += self.interval_s
            left_out = round((self._clock() - due_s) / self.interval_s)
            due_s += max(0, left_out) * self.interval_s
            await self._sleep(due_s - self._clock())

    async def read(self) -> Sample:
        """Scrape once, within nine tenths of the interval and 5 s.

        Returns:
            Gauges and rates where the engine answers; every figure None where it does not, or where its page
            cannot be read. The next good answer gives rates over the whole gap.
        """
        limit_s = min(self.interval_s * _LIMIT_OF_INTERVAL, _LIMIT_S)
        async with asyncio.TaskGroup() as group:
            asking_health = group.create_task(self._health(limit_s))
            asking_metrics = group.create_task(self._metrics(limit_s))
        health, answer = asking_health.result(), asking_metrics.result()
        self.rates = None
        state = _state(health, answer)
        reading = parse(answer.page) if state is RunState.READY and answer.page is not None else None
        if reading is None:
            return Sample(t=answer.t, interval_s=None, state=state)
        previous, previous_s = self.reading, self._read_at_s
        self.reading, self._read_at_s = reading, answer.at_s
        if previous is not None:
            self.rates = rates(previous, reading, seconds=answer.at_s - previous_s)
        return _sample(answer.t, reading, self.rates)

    async def _health(self, limit_s: float) -> Health:
        if (known := self._known_health()) is not None:
            return known
        try:
            # The client's limits may be per read; a server that drips its answer must not stretch them.
            async with asyncio.timeout(limit_s):
                return await self._api.health(timeout_s=limit_s)
        except TimeoutError:
            return Health.TIMEOUT

    async def _metrics(self, limit_s: float) -> _Answer:
        page, refused = None, False
        try:
            async with asyncio.timeout(limit_s):
                page = await self._api.metrics(timeout_s=limit_s)
        except TimeoutError:
            pass
        except EngineError as error:  # any answer but a page, or none
            refused = isinstance(error, EngineUnreachableError) and error.refused
        return _Answer(at_s=self._clock(), t=time.time(), page=page, refused=refused)


def _state(health: Health, answer: _Answer) -> RunState:
    if answer.refused or health is Health.REFUSED:
        return RunState.STOPPED
    # A server without `/health` is judged by its metrics alone.
    if answer.page is None or health not in (Health.OK, Health.ABSENT):
        return RunState.UNRESPONSIVE
    return RunState.READY


def _sample(t: float, reading: EngineReading, window: Rates | None) -> Sample:
    sample = Sample(
        t=t,
        interval_s=None,
        state=RunState.READY,
        kv_cache_usage_ratio=reading.kv_cache_usage_ratio,
        requests_running=reading.requests_running,
        requests_waiting=reading.requests_waiting,
        speculation=None if reading.speculates else Speculation.OFF,
    )
    if window is None:
        return sample
    return replace(
        sample,
        interval_s=window.interval_s,
        generation_tokens_per_s=window.generation_tokens_per_s,
        prompt_tokens_per_s=window.prompt_tokens_per_s,
        acceptance_rate=window.acceptance_rate,
        mean_acceptance_length=window.mean_acceptance_length,
        acceptance_per_position=window.acceptance_per_position,
        drafts=window.drafts,
        draft_tokens=window.draft_tokens,
        ttft_count=window.ttft_count,
        ttft_p50_s=window.ttft_p50_s,
        ttft_p95_s=window.ttft_p95_s,
        itl_p50_s=window.itl_p50_s,
        itl_p95_s=window.itl_p95_s,
        steps_per_s=window.steps_per_s,
        estimated_bytes_per_s=_mean(window.estimated_bytes_per_s),
        estimated_flops_per_s=_mean(window.estimated_flops_per_s),
        speculation=window.speculation,
    )


def _mean(by_engine: Mapping[str, float]) -> float | None:
    return statistics.fmean(by_engine.values()) if by_engine else None
