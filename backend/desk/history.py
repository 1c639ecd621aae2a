"""The runs that were recorded, and the recording of the one that runs now, for the window and the command line."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from backend import paths
from backend.control import Control
from backend.curves import RecordedRun
from backend.desk.types import Event, RunView, StoreProblem
from backend.errors import UsageError, UserError
from backend.events import HostSample, Mark, PastRun, RunState, Sample
from backend.hardware import GpuInfo, GpuSnapshot
from backend.telemetry import export, retention, run_store
from backend.telemetry.export import Kind
from backend.telemetry.history import RecentAcceptance, engine_values, gpu_values, host_values
from backend.telemetry.recorder import Recorder
from backend.telemetry.run_store import RunEnd
from backend.telemetry.run_writer import RunFacts

_ENDED = (RunState.STOPPED, RunState.FAILED)
_ROUNDING_S = 1.0
_LIST_WAIT_S = 1.0
T = TypeVar("T")


@dataclass(slots=True)
class _Followed:
    """The current run: what is known of it, what the recorder was `told`, and what has happened to it."""

    view: RunView
    has_ended: bool = False
    told: RunFacts | None = None
    marks: list[Mark] = field(default_factory=list)
    gpus: tuple[GpuInfo, ...] = ()
    recent: RecentAcceptance = field(default_factory=RecentAcceptance)


class PastRuns:
    """Follows the current run, and shows those that were recorded. Belongs to the backend's event loop.

    What happens to a run becomes marks, which never hold what was asked or answered. They are told also when nothing
    is recorded.

    Attributes:
        problem: why nothing can be recorded now, in words that say what to do; "" normally.
    """

    def __init__(self, control: Control, emit: Callable[[Event], None]) -> None:
        """Prepare; `emit` takes a StoreProblem whenever there is one, and when it is over."""
        self._control = control
        self._emit = emit
        self.problem = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._file = paths.folders().history_file
        self._recorder = Recorder(
            self._file,
            settings=lambda: control.settings,
            fate=control.fate,
            on_problem=lambda text: self._on_loop(self._on_problem, text),
            on_notice=lambda text: self._on_loop(self._on_notice, text),
            on_mark=lambda mark: self._on_loop(self._new_marks.append, mark),
        )
        self._new_marks: list[Mark] = []  # since the last reading
        self._run = _Followed(RunView())

    async def begin(self) -> None:
        """Record from now on, and look after what was recorded before."""
        self._loop = asyncio.get_running_loop()
        self._recorder.start()

    async def close(self) -> None:
        """Write the rest, within seconds; a run that goes on is continued by whoever takes it over."""
        await asyncio.to_thread(self._recorder.close)

    # ---- recording -------------------------------------------------------------------------------------------

    def follow(self, view: RunView) -> None:
        """Take how the current run is now."""
        if not view.run_id:
            return  # it is prepared, or none
        before = self._run.view
        if view.run_id != before.run_id:
            self._run = _Followed(view)
            self._note(Mark(view.started_at or time.time(), "start", "Started"))
            before = RunView()
        elif self._run.has_ended:
            return
        self._run.view = view
        if view.ready_at is not None and before.ready_at is None:
            self._note(Mark(view.ready_at, "ready", "Ready"))
        if view.state is RunState.UNRESPONSIVE and before.state is not RunState.UNRESPONSIVE:
            length = "" if view.stalled_s is None else f" for {view.stalled_s:.0f} s"
            self._note(Mark(time.time(), "stall", f"No sign of life{length}"))
        if view.state in _ENDED:
            self._end(view)
        elif self._control.settings.record:
            self._tell_facts()

    def take(self, host: HostSample, engine: Sample | None, gpus: GpuSnapshot | None) -> tuple[Mark, ...]:
        """Record one reading of the current run; returns what has happened since the last one."""
        if self._run.view.run_id and not self._run.has_ended and self._control.settings.record:
            self._tell_facts()
            self._record(self._run.view.run_id, host, engine, gpus)
        marks = tuple(self._new_marks)
        self._new_marks.clear()
        return marks

    def mark(self, kind: str, text: str) -> None:
        """Note that something happens now; `kind` as in Mark, `text` without anything private."""
        self._note(Mark(time.time(), kind, text))

    def _note(self, mark: Mark) -> None:
        self._new_marks.append(mark)
        if self._run.view.run_id and not self._run.has_ended:
            self._run.marks.append(mark)
            if self._run.told is not None and self._control.settings.record:
                self._recorder.mark(self._run.view.run_id, mark)

    def _tell_facts(self) -> None:
        """Let the recorder know what is known of the run; the first time with what has happened to it."""
        view = self._run.view
        started_at = view.started_at if view.started_at is not None else self._run.marks[0].t
        facts = RunFacts(view.run_id, view.profile, view.title, view.engine, started_at, view.ready_at)
        if facts != self._run.told:
            self._recorder.begin(facts)
        if self._run.told is None:
            for mark in self._run.marks:
                self._recorder.mark(view.run_id, mark)
        self._run.told = facts

    def _record(self, run_id: str, host: HostSample, engine: Sample | None, gpus: GpuSnapshot | None) -> None:
        values, t = host_values(host), host.t
        if engine is not None:
            values |= engine_values(engine, self._run.recent)
            t = engine.t
        if gpus is not None and not gpus.stale:
            values |= gpu_values(gpus)
            if gpus.gpus != self._run.gpus:
                self._run.gpus = gpus.gpus
                self._recorder.gpus(run_id, gpus.gpus)
        self._recorder.reading(run_id, t, values, interval_s=self._control.settings.sample_interval_s)

    def _end(self, view: RunView) -> None:
        ended_at = view.ended_at if view.ended_at is not None else time.time()
        if view.state is RunState.FAILED:
            how = view.diagnosis.exit_words if view.diagnosis else ""
            self._note(Mark(ended_at, "crash", f"Failed ({how})" if how else "Failed"))
        else:
            self._note(Mark(ended_at, "stop", "Stopped"))
        if self._run.told is not None or self._control.settings.record:
            self._tell_facts()
            cause = view.diagnosis.cause if view.diagnosis else ""
            self._recorder.end(view.run_id, RunEnd.of(view.state, cause, ended_at))
        self._run.has_ended = True

    def _on_loop(self, act: Callable[[T], None], what: T) -> None:
        """Go from the recorder's thread to the loop, unless that has ended."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(act, what)

    def _on_problem(self, text: str) -> None:
        self.problem = text
        self._emit(StoreProblem(text))

    def _on_notice(self, text: str) -> None:
        self._emit(StoreProblem(text, lasts=False))

    # ---- reading back ----------------------------------------------------------------------------------------

    async def list(self) -> tuple[PastRun, ...]:
        """Return every recorded run, newest first; what has happened so far is written before, if that goes quickly.

        Raises:
            UserError: they cannot be read.
        """
        if self._loop is not None:
            await asyncio.to_thread(self._recorder.flush, limit_s=_LIST_WAIT_S)
        return await asyncio.to_thread(run_store.runs, self._file, fate=self._control.fate)

    async def open(
        self,
        run_id: str,
        *,
        names: Sequence[str] | None = None,
        seconds: float | None = None,
        until: float | None = None,
    ) -> RecordedRun:
        """Return a run with its readings, by default all of them; see `run_store.load`.

        Raises:
            UserError: there is no such run, or it cannot be read.
        """
        return await asyncio.to_thread(
            run_store.load, self._file, run_id, fate=self._control.fate, names=names, seconds=seconds, until=until
        )

    async def delete(self, run_ids: Sequence[str]) -> None:
        """Delete recorded runs for good.

        Raises:
            UserError: one of them goes on, is not there, or the store cannot be written.
        """
        known = {run.run_id: run for run in await self.list()}
        for run_id in run_ids:
            if run_id not in known:
                raise UsageError(f"No run {run_id} is recorded.", "`specdeck history list` shows those that are.")
            if known[run_id].ended_at is None:
                raise UserError(f"The run {run_id} goes on.", "Stop it first.")
        await asyncio.to_thread(retention.delete, self._file, run_ids)
        if self._loop is not None:
            self._recorder.tidy()
        else:
            await asyncio.to_thread(retention.purge, self._file)

    async def export(
        self, run_id: str, path: Path, kind: Kind, begin: float | None = None, end: float | None = None
    ) -> None:
        """Write what was recorded of a run from `begin` to `end` (Unix seconds, both included) into a file.

        Raises:
            UserError: there is no such run, or a file cannot be read or written.
        """
        seconds = None
        if begin is not None and end is not None:
            seconds = end - begin + _ROUNDING_S
        run = await self.open(run_id, seconds=seconds, until=end)
        first, last = -math.inf if begin is None else begin, math.inf if end is None else end
        await asyncio.to_thread(export.write, run, path, kind, begin=first, end=last)

    async def export_live(self, path: Path, kind: Kind, begin: float | None = None, end: float | None = None) -> None:
        """Write what was recorded of the run that is shown now; as `export`.

        Raises:
            UserError: nothing is recorded of it, or a file cannot be read or written.
        """
        if self._run.told is None:
            raise UserError(
                "Nothing of this run is recorded.", "Start an engine with the recording turned on in Settings."
            )
        if self.problem:
            raise UserError(self.problem)
        if not await asyncio.to_thread(self._recorder.flush):
            raise UserError("The newest readings are not written yet.", "Try again in a moment.")
        await self.export(self._run.told.run_id, path, kind, begin, end)
