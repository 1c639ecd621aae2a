"""Runs that nobody supervises any more: engines that can be adopted, and orphans, found by proof only."""

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backend.events import RunState, RunStatus
from backend.launch import ending, processes
from backend.launch.run_folder import RunFolder, RunRecord, all_runs

ENDED_UNSEEN = "The run ended while nobody supervised it."
_UNDER_WAY_S = 60.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """A run that lives without an owner.

    Attributes:
        status: what front ends show, with its processes and their memory.
        adoptable: its API server lives, so it can be supervised again; False for mere orphans.
    """

    folder: RunFolder
    record: RunRecord
    status: RunStatus
    adoptable: bool

    @property
    def memory_bytes(self) -> int:
        """Resident memory of all its processes."""
        return sum(process.memory_bytes for process in self.status.processes)


def _open_runs(runs: Path) -> Iterator[tuple[RunFolder, RunRecord]]:
    for folder in all_runs(runs):
        record = folder.record_or_guess()
        if record.ended_at is None:
            yield folder, record


def survey(runs: Path) -> list[Leftover]:
    """Return every unowned run with living processes; those that died unseen are closed on the way.

    Blocking: reads the environment of every process.
    """
    found = []
    for folder, record in _open_runs(runs):
        if folder.owner_pid() is not None:
            continue
        stats = processes.members(record.identity)
        if stats:
            found.append(Leftover(folder, record, _status(folder, record, stats), adoptable=_has_leader(record)))
        else:
            _close(folder, record)
    return found


def live_runs(runs: Path) -> list[RunStatus]:
    """Return every run that has living processes or an owner, oldest first; closes the dead ones. Blocking."""
    found = []
    for folder, record in _open_runs(runs):
        stats = processes.members(record.identity)
        if stats or folder.owner_pid() is not None:
            found.append(_status(folder, record, stats))
        else:
            _close(folder, record)
    return found


async def end(leftover: Leftover, *, grace_s: float, hurry: asyncio.Event) -> str | None:
    """End an unowned run and clean up behind it.

    Returns:
        What could not be ended, in words, "" normally; None when somebody else has taken the run meanwhile.
    """
    with contextlib.suppress(OSError):  # we end it ourselves
        leftover.folder.request_stop()
    lock = leftover.folder.take_ownership()
    if lock is None:
        return None
    try:
        record = leftover.record
        left = await ending.end_processes(record.identity, grace_s=grace_s, hurry=hurry, note=record.note_shared_memory)
        if not left:
            await asyncio.to_thread(_close, leftover.folder, record)
        return ending.unkillable_words(left)
    finally:
        lock.release()


def _has_leader(record: RunRecord) -> bool:
    return not processes.leader_gone(record.identity)


def _status(folder: RunFolder, record: RunRecord, stats: list[processes.Stat]) -> RunStatus:
    owner = folder.owner_pid()
    state = record.state
    if owner is None and not _has_leader(record):
        state = RunState.FAILED
    return RunStatus(
        run_id=folder.run_id,
        profile=record.profile,
        state=state,
        url=record.url,
        started_at=record.created_at,
        owner_pid=owner,
        processes=processes.describe(stats),
        cause=record.cause,
        exit_words=record.exit_words,
        stalled_s=record.stalled_s,
    )


def _close(folder: RunFolder, record: RunRecord) -> None:
    """Write down the end of a run that nobody watched, and remove its files."""
    if not record.url:
        _forget(folder)
        return
    ending.remove_files(shared_memory=record.shared_memory, temp_dir=Path(record.temp_dir))
    record.ended_at = time.time()
    record.state = RunState.STOPPED if folder.stop_requested() else RunState.FAILED
    if record.state is RunState.FAILED and not record.cause:
        record.cause = ENDED_UNSEEN
    with contextlib.suppress(OSError):  # a full disk: it is closed the next time
        folder.write(record)


def _forget(folder: RunFolder) -> None:
    """Remove a run whose start was cut off before its record was written; a start that is under way is left alone."""
    if time.time() - folder.changed_at() < _UNDER_WAY_S:
        return
    for temp_dir in Path(tempfile.gettempdir()).glob(f"{ending.temp_prefix(folder.run_id)}*"):
        ending.remove_files(shared_memory=(), temp_dir=temp_dir)
    shutil.rmtree(folder.path, ignore_errors=True)
