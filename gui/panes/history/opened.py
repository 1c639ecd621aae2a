"""A recorded run that was opened, and how two of them are laid over each other."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

from backend.curves import RecordedRun
from backend.events import Mark
from backend.hardware import GpuInfo, GpuReading, GpuSnapshot, gpu_series
from gui.widgets import past_run_words
from gui.widgets.card import Moment, Past
from gui.widgets.past_curves import PastCurves
from gui.widgets.run_summary import RunFigures


@dataclass(frozen=True, slots=True)
class Opened:
    """A run with its readings; `begin` and `end` are the Unix times of the first and last moment known of it."""

    recorded: RecordedRun
    curves: PastCurves
    begin: float
    end: float

    @property
    def id(self) -> str:
        """Its run id."""
        return self.recorded.run.run_id

    def figures(self) -> RunFigures:
        """Return the figures of the whole run."""
        run = self.recorded.run
        length_s = self.end - self.begin + 1.0
        return RunFigures(
            past_run_words.title(run),
            ", ".join(filter(None, (past_run_words.when(run), run.engine, run.outcome))),
            tokens_per_s=run.tokens_per_s,
            acceptance=run.acceptance_rate,
            length=self.curves.mean("mean_acceptance_length", length_s, self.end),
            ttft_p50_s=self.curves.mean("ttft_p50_s", length_s, self.end),
            lasted_s=past_run_words.lasted_s(run),
        )


async def open_run(work: Coroutine[Any, Any, RecordedRun]) -> Opened:
    """Read a run and prepare it for drawing, both off the main thread."""
    recorded = await work
    return await asyncio.to_thread(prepared, recorded)


def prepared(recorded: RecordedRun) -> Opened:
    """Prepare a run for drawing; takes a moment for a long one."""
    run, times = recorded.run, recorded.readings.times
    moments = [run.started_at, *(t for t in (run.ready_at, run.ended_at) if t is not None)]
    moments += [float(times[0]), float(times[-1])] if times.size else []
    return Opened(recorded, PastCurves(recorded.readings), min(moments), max(max(moments), min(moments) + 1.0))


@dataclass(frozen=True, slots=True)
class Pair:
    """One run, or a second one laid over it with the same moment at the same place.

    Attributes:
        first: the run whose clock counts.
        second: the other one, None for one run alone.
        event: what stands at the same place: "READY" where both got so far, else "the start".
        shift_s: what must be added to a time of the first run to get that of the second.
    """

    first: Opened
    second: Opened | None = None
    event: str = "the start"
    shift_s: float = 0.0

    @classmethod
    def of(cls, first: Opened, second: Opened | None) -> "Pair":
        """Lay two runs over each other."""
        if second is None:
            return cls(first)
        a, b = first.recorded.run, second.recorded.run
        if a.ready_at is not None and b.ready_at is not None:
            return cls(first, second, "READY", b.ready_at - a.ready_at)
        return cls(first, second, "the start", b.started_at - a.started_at)

    @property
    def opened(self) -> tuple[Opened, ...]:
        """The runs."""
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def begin(self) -> float:
        """First moment of either, by the clock of the first."""
        return min(self.first.begin, *(each.begin - self.shift_s for each in self.opened[1:]), self.first.begin)

    @property
    def end(self) -> float:
        """Last moment of either, by the clock of the first."""
        return max(self.first.end, *(each.end - self.shift_s for each in self.opened[1:]), self.first.end)

    @property
    def origin(self) -> float:
        """What the time axis counts from, by the clock of the first."""
        run = self.first.recorded.run
        return run.ready_at if self.event == "READY" and run.ready_at is not None else run.started_at

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What happened in either, by the clock of the first."""
        return (*self._marks(0), *(replace(mark, t=mark.t - self.shift_s) for mark in self._marks(1)))

    def moment(self, span_s: float, until: float) -> Moment:
        """Return a stretch of both, `until` by the clock of the first."""
        other = None
        if self.second is not None:
            other = self._moment(1, span_s, until + self.shift_s, self.origin + self.shift_s, None)
        return self._moment(0, span_s, until, self.origin, other)

    def _moment(self, number: int, span_s: float, until: float, origin: float, other: Moment | None) -> Moment:
        each = self.opened[number]
        end = self.end + (self.shift_s if number else 0.0)
        return Moment(
            now=until,
            span_s=span_s,
            read=each.curves.curve,
            read_each=each.recorded.readings.part,
            gpus=_snapshot(each, span_s, until),
            marks=self._marks(number),
            past=Past(each.curves, end, origin, self.event),
            other=other,
        )

    def _marks(self, number: int) -> tuple[Mark, ...]:
        if number >= len(self.opened):
            return ()
        marks = self.opened[number].recorded.marks
        if self.second is None:
            return marks
        return tuple(replace(mark, text=f"{'AB'[number]}: {mark.text}") for mark in marks)


def _snapshot(each: Opened, span_s: float, until: float) -> GpuSnapshot:
    """Return the GPUs of a run with what tells which of them the engine used."""

    def reading(gpu: GpuInfo) -> GpuReading:
        held = each.curves.mean(gpu_series(gpu.uuid, "engine_bytes"), span_s, until)
        return GpuReading(gpu.uuid, until, engine_bytes=held)

    gpus = each.recorded.gpus
    return GpuSnapshot(until, gpus=gpus, readings=tuple(reading(gpu) for gpu in gpus))
