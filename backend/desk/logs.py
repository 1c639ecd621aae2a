"""The engines' logs as the window sees them: which there are, and their lines as they come."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from backend import paths
from backend.desk.types import Event, JobProgress, LogBatch, LogLine, RunEntry
from backend.errors import UsageError
from backend.events import RunState
from backend.launch import run_folder
from backend.launch.log_tail import LogTail, Tail
from backend.launch.processes import leader_gone
from backend.launch.run_folder import RunFolder

TROUBLE = "logs"
"""Job of the events that say why a log cannot be read now, without a text when it can be again."""
_TICK_S = 0.1
_AGAIN_S = 1.0
_LINES_PER_BATCH = 1000
# The window takes in no more; what an engine writes faster waits in the file, not in the memory.
_LINES_PER_S = 40_000


class Logs:
    """Follows one log at a time and tells its new lines; reads nothing while none is followed."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._wake = asyncio.Event()
        self._changing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._chosen: tuple[str, Path] | None = None  # None: the current run
        self._current: tuple[str, Path] | None = None
        self._told: tuple[str, Path] | None = None  # the log whose lines the window has
        self._tail: LogTail | None = None
        self._trouble = ""

    async def runs(self) -> tuple[RunEntry, ...]:
        """Return the runs whose logs can be read, newest first."""
        return await asyncio.to_thread(_runs)

    async def follow(self, run_id: str | None, *, resume: bool = False) -> None:
        """Tell the lines of a run's log, from its end backwards as many as are kept, then as they come.

        Args:
            run_id: a run of `runs`; None is the current run, whichever that is.
            resume: the window still has all the lines that were told: if they are of this log, go on behind them.

        Raises:
            UsageError: there is no log of that run.
        """
        async with self._changing:  # first of all, so that what is called later also happens later
            chosen = None if run_id is None else (run_id, await asyncio.to_thread(_log_file, run_id))
            await self._stop()
            self._chosen = chosen
            if not resume:
                self._told = self._tail = None
            self._stopping = False
            self._task = asyncio.create_task(self._follow())

    async def unfollow(self) -> None:
        """Tell no more lines."""
        async with self._changing:
            await self._stop()

    def current_run_changed(self, run_id: str, log_file: Path | None) -> None:
        """Learn which run is the current one; on the loop, returns at once, often called without a change.

        Without a run the log of the last one stays: that is what a person wants to read then.
        """
        if run_id and log_file is not None and (run_id, log_file) != self._current:
            self._current = (run_id, log_file)
            self._wake.set()

    async def close(self) -> None:
        """Stop following."""
        await self.unfollow()

    async def _stop(self) -> None:
        """Let the reading end by itself, so that what was read is also told."""
        self._stopping = True
        self._wake.set()
        task, self._task = self._task, None
        if task is not None:
            await task

    async def _follow(self) -> None:
        if self._told is None and self._chosen is None and self._current is None:
            self._emit(LogBatch("", (), reset=True))
        while not self._stopping:
            self._wake.clear()
            target = self._chosen or self._current
            if target is None:
                await self._wake.wait()
                continue
            is_new = self._tail is None or target != self._told
            if is_new:
                self._told, self._tail = target, LogTail(target[1])
            assert self._tail is not None
            try:
                tail, trouble = await asyncio.to_thread(self._tail.read), ""
            except (OSError, ValueError) as error:
                tail, trouble = Tail(()), f"The log cannot be read: {_reason(error)}. It is tried again."
            self._tell(target[0], tail, reset=is_new or tail.reset)
            if trouble != self._trouble:
                self._trouble = trouble
                self._emit(JobProgress(TROUBLE, trouble))
            pause_s = len(tail.lines) / _LINES_PER_S
            if not tail.more:
                pause_s = max(pause_s, _AGAIN_S if trouble else _TICK_S)
            # Not wait_for: on Python 3.11 it loses a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    def _tell(self, run_id: str, tail: Tail, *, reset: bool) -> None:
        lines = tuple(LogLine(*line) for line in tail.lines)
        for start in range(0, len(lines) or int(reset), _LINES_PER_BATCH):
            self._emit(
                LogBatch(
                    run_id,
                    lines[start : start + _LINES_PER_BATCH],
                    reset=reset and start == 0,
                    replaces_last=tail.replaces_last and not reset and start == 0,
                )
            )


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _runs() -> tuple[RunEntry, ...]:
    entries = []
    for folder in reversed(run_folder.all_runs(paths.folders().runs)):
        if folder.log_file.exists():
            entries.append(_entry(folder))
    return tuple(entries)


def _entry(folder: RunFolder) -> RunEntry:
    record = folder.record_or_guess()
    state = record.state
    if record.ended_at is None and folder.owner_pid() is None and leader_gone(record.identity):
        state = RunState.FAILED  # nobody was there to write its end down
    return RunEntry(folder.run_id, record.profile, record.created_at, state, folder.log_file)


def _log_file(run_id: str) -> Path:
    for folder in run_folder.all_runs(paths.folders().runs):
        if folder.run_id == run_id and folder.log_file.exists():
            return folder.log_file
    raise UsageError("The log of that run is gone.", "Choose another run; only the newest ones are kept.")
