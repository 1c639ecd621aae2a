"""Recorded runs read back: the list of them, and one with its readings.

Everything here opens a connection of its own, may take seconds, and belongs on a worker thread; who writes is
`backend.telemetry.recorder`.
"""

import json
import math
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from backend.curves import Floats, Readings, RecordedRun
from backend.errors import UsageError
from backend.events import Mark, PastRun, RunState
from backend.hardware import GpuInfo
from backend.telemetry import store_file
from backend.telemetry.history import longest_pause_s

LIVES = "runs now"
UNSEEN_END = "ended with Specdeck"
GPUS = TypeAdapter(tuple[GpuInfo, ...])
"""How what is known of the GPUs of a run is written."""
_ROWS_AT_ONCE = 512  # a chunk keeps Python's lock for about a millisecond
_RUNS = """SELECT run_id, profile, title, engine, started_at, ready_at, ended_at, outcome, failed, newest_t, tokens,
    busy_s, accepted, drafted, size_bytes, id, interval_s, gpus FROM runs WHERE NOT deleted"""
# The index holds these columns in this order, so nothing is sorted.
_SPAN = "FROM samples WHERE run = ? AND t > ? AND t <= ? ORDER BY t, layout, rowid"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended: `ended_at` is Unix time, None for the time of its last reading; `failed` if by itself."""

    ended_at: float | None
    outcome: str
    failed: bool = False

    @classmethod
    def of(cls, state: RunState, cause: str, ended_at: float | None) -> "RunEnd":
        """Say it of a run that ended as STOPPED, or as FAILED for `cause`."""
        if state is RunState.FAILED:
            return cls(ended_at, f"failed: {cause}" if cause else "failed", failed=True)
        return cls(ended_at, "stopped")


Fate = Callable[[str], RunEnd | None]
"""Says of a run id how a run ended whose end was not recorded; None while it lives."""


def runs(file: Path, *, fate: Fate) -> tuple[PastRun, ...]:
    """Return every recorded run, newest first, without a look at its readings.

    Raises:
        StoreError: the store cannot be read.
    """
    with store_file.reading(file) as connection:
        if connection is None:
            return ()
        rows = connection.execute(f"{_RUNS} ORDER BY started_at DESC, id DESC").fetchall()
    return tuple(_past_run(row, fate) for row in rows)


def load(
    file: Path,
    run_id: str,
    *,
    fate: Fate,
    names: Sequence[str] | None = None,
    seconds: float | None = None,
    until: float | None = None,
) -> RecordedRun:
    """Return a run with its readings.

    Args:
        file: the store.
        run_id: the run.
        fate: how it ended if that was not recorded.
        names: series that are wanted, by default all.
        seconds: length of the span, by default back to the start; a reading at its very begin is left out.
        until: end of the span in Unix seconds, by default that of the run.

    Raises:
        UsageError: there is no such run.
        StoreError: the store cannot be read.
    """
    with store_file.reading(file) as connection:
        row = None if connection is None else connection.execute(f"{_RUNS} AND run_id = ?", (run_id,)).fetchone()
        if connection is None or row is None:
            raise UsageError(f"No run {run_id} is recorded.", "`specdeck history list` shows those that are.")
        number, interval_s, gpus = row[-3:]
        newest_t: float | None = row[9]
        end = math.inf if until is None else until
        begin = -math.inf
        if seconds is not None:
            begin = (end if until is not None else newest_t or time.time()) - seconds
        marks = connection.execute(
            "SELECT t, kind, text FROM marks WHERE run = ? AND t > ? AND t <= ? ORDER BY t", (number, begin, end)
        ).fetchall()
        readings = _read(connection, (number, begin, end), names=names, pause_s=longest_pause_s(interval_s))
        known = GPUS.validate_json(gpus)
    return RecordedRun(_past_run(row, fate), readings, tuple(Mark(*mark) for mark in marks), known)


def _read(
    connection: sqlite3.Connection, span: tuple[int, float, float], *, names: Sequence[str] | None, pause_s: float
) -> Readings:
    """Read the readings of a span into one array, with a row of NaN where nobody was reading for a while."""
    times, used = _times(connection, span)
    layouts = {number: _layout(connection, number) for number in used}
    wanted = list(dict.fromkeys(name for layout in layouts.values() for name in layout)) if names is None else names
    row_of = {name: row for row, name in enumerate(wanted)}
    columns = {number: _columns(layout, row_of) for number, layout in layouts.items()}
    is_pause = np.diff(times) > pause_s
    places = np.arange(len(times)) + np.concatenate([[0], np.cumsum(is_pause)])[: len(times)]
    all_times = np.empty(len(times) + int(is_pause.sum()))
    all_times[places] = times
    paused = np.flatnonzero(is_pause)
    all_times[places[paused] + 1] = (times[paused] + times[paused + 1]) / 2
    values = np.full((len(wanted), len(all_times)), np.nan)
    cursor = connection.execute(f"SELECT layout, figures {_SPAN}", span)
    done = 0
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        first = 0
        for after in range(1, len(rows) + 1):
            number = rows[first][0]
            if after < len(rows) and rows[after][0] == number:
                continue
            block = np.frombuffer(b"".join(figures for _, figures in rows[first:after]), dtype="<f8")
            into, taken = columns[number]
            block = block.reshape(after - first, len(layouts[number]))[:, taken]
            values[into[:, np.newaxis], places[done + first : done + after]] = block.T
            first = after
        done += len(rows)
    begin = span[1] if math.isfinite(span[1]) or not len(times) else float(np.nextafter(times[0], -math.inf))
    return Readings(tuple(wanted), begin, all_times, values)


def _times(connection: sqlite3.Connection, span: tuple[int, float, float]) -> tuple[Floats, dict[int, None]]:
    """Return the times of the readings, and their layouts in the order of appearance; the index alone tells."""
    cursor = connection.execute(f"SELECT t, layout {_SPAN}", span)
    parts: list[Floats] = []
    used: dict[int, None] = {}
    while rows := cursor.fetchmany(8 * _ROWS_AT_ONCE):
        parts.append(np.array([t for t, _ in rows], dtype=np.float64))
        used.update(dict.fromkeys(layout for _, layout in rows))
    return np.concatenate(parts) if parts else np.empty(0), used


def _layout(connection: sqlite3.Connection, number: int) -> list[str]:
    row = connection.execute("SELECT names FROM layouts WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise LookupError(f"layout {number} is missing")
    return [str(name) for name in json.loads(row[0])]


def _columns(layout: Sequence[str], row_of: dict[str, int]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return for each figure that is wanted its row among those wanted, and its place in the layout."""
    taken = [place for place, name in enumerate(layout) if name in row_of]
    return np.array([row_of[layout[place]] for place in taken], dtype=np.intp), np.array(taken, dtype=np.intp)


def _past_run(row: tuple[Any, ...], fate: Fate) -> PastRun:
    run_id, profile, title, engine, started_at, ready_at, ended_at, outcome, failed, newest_t = row[:10]
    tokens, busy_s, accepted, drafted, size_bytes = row[10:15]
    if ended_at is None:
        end = fate(run_id)
        outcome, failed = (LIVES, False) if end is None else (end.outcome, end.failed)
        if end is not None:
            ended_at = end.ended_at or newest_t or started_at
    return PastRun(
        run_id=run_id,
        profile=profile,
        title=title,
        engine=engine,
        started_at=started_at,
        ready_at=ready_at,
        ended_at=ended_at,
        outcome=outcome,
        failed=bool(failed),
        tokens_per_s=tokens / busy_s if tokens is not None and busy_s > 0 else None,
        acceptance_rate=accepted / drafted if drafted > 0 else None,
        tokens=tokens,
        size_bytes=size_bytes,
    )
