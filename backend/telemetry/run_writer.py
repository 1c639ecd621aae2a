"""Writes what is recorded of runs into the store: the connection, the rows, and the sums of each run."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.events import Mark
from backend.hardware import GpuInfo
from backend.telemetry import store_file
from backend.telemetry.run_store import GPUS, RunEnd

_ROW_BYTES = 60  # what a reading takes besides its figures: its row, its line in the index


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What identifies a run, and what is known of it from the start; the same run id again continues it."""

    run_id: str
    profile: str
    title: str
    engine: str
    started_at: float
    ready_at: float | None = None


@dataclass(frozen=True, slots=True)
class RunGpus:
    """What is known of the GPUs of a run."""

    gpus: tuple[GpuInfo, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """One reading: the figures in the order of `names`, and what it adds to the sums of its run.

    Attributes:
        t: Unix time in seconds.
        names: of the series.
        figures: 64-bit floats, little-endian, NaN where unknown.
        interval_s: at what pace readings come.
        tokens: generated tokens, None if unknown; `busy_s` the seconds in which they were made.
        accepted: accepted tokens of those `drafted`.
    """

    t: float
    names: tuple[str, ...]
    figures: bytes
    interval_s: float
    tokens: float | None
    busy_s: float
    accepted: float
    drafted: float


Entry = tuple[str, RunFacts | RunGpus | Figures | Mark | RunEnd]
"""A run id, and what is to be written about that run."""


def sums(values: Mapping[str, float | None]) -> tuple[float | None, float, float, float]:
    """Return what the figures of a Sample add to the last four fields of Figures."""
    rate, interval_s = values.get("generation_tokens_per_s"), values.get("interval_s")
    acceptance, drafted = values.get("acceptance_rate"), values.get("draft_tokens")
    known = rate is not None and interval_s is not None
    accepted = acceptance * drafted if acceptance is not None and drafted is not None else 0.0
    return (
        rate * interval_s if rate is not None and interval_s is not None else None,
        interval_s or 0.0 if known and rate else 0.0,
        accepted,
        (drafted or 0.0) if acceptance is not None else 0.0,
    )


class RunWriter:
    """The one connection through which a recorder writes; all of it belongs to one thread at a time.

    After an error `close` it: the next use opens the store again, and continues the runs that have not ended.
    """

    def __init__(self, file: Path, *, busy_s: float) -> None:
        self._file = file
        self._busy_s = busy_s
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._facts: dict[str, RunFacts] = {}  # of runs that have not ended
        self._numbers: dict[str, int] = {}
        self._layouts: dict[tuple[str, ...], int] = {}
        self._new_marks: list[Mark] = []

    def connection(self) -> sqlite3.Connection:
        """Open the store, or return the connection there is.

        Raises:
            sqlite3.Error, OSError, NewerStoreError: as `store_file.open_for_writing`.
        """
        if self._connection is not None and _identity(self._file) != self._identity:
            self.close()  # somebody moved or deleted the file: what is written into it now is lost
        if self._connection is None:
            self._connection = store_file.open_for_writing(self._file, busy_s=self._busy_s)
            self._identity = _identity(self._file)
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        self._numbers.clear()
        self._layouts.clear()
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def write(self, batch: Sequence[Entry]) -> list[Mark]:
        """Write all of it or nothing; returns what the store alone knows to have happened: another version."""
        connection = self.connection()
        self._new_marks = []
        with store_file.transaction(connection):
            for run_id, what in batch:
                if isinstance(what, RunFacts):
                    self._facts[run_id] = what
                    self._numbers.pop(run_id, None)
                number = self._number(connection, run_id)
                if number is not None:
                    self._write_one(connection, number, what)
        for run_id, what in batch:
            if isinstance(what, RunEnd):
                self._facts.pop(run_id, None)
                self._numbers.pop(run_id, None)
        return self._new_marks

    def _write_one(self, connection: sqlite3.Connection, number: int, what: object) -> None:
        match what:
            case Figures():
                self._write_figures(connection, number, what)
            case Mark():
                connection.execute(
                    "INSERT OR IGNORE INTO marks VALUES (?, ?, ?, ?)", (number, what.t, what.kind, _clean(what.text))
                )
            case RunGpus():
                text = GPUS.dump_json(what.gpus).decode()
                connection.execute("UPDATE runs SET gpus = ? WHERE id = ?", (text, number))
            case RunEnd():
                connection.execute(
                    "UPDATE runs SET ended_at = coalesce(?, newest_t, started_at), outcome = ?, failed = ? "
                    "WHERE id = ?",
                    (what.ended_at, _clean(what.outcome), what.failed, number),
                )

    def _write_figures(self, connection: sqlite3.Connection, number: int, what: Figures) -> None:
        layout = self._layout(connection, what.names)
        connection.execute("INSERT INTO samples VALUES (?, ?, ?, ?)", (number, what.t, layout, what.figures))
        connection.execute(
            "UPDATE runs SET newest_t = max(coalesce(newest_t, ?1), ?1), interval_s = max(interval_s, ?2), "
            "tokens = CASE WHEN ?3 IS NULL THEN tokens ELSE coalesce(tokens, 0) + ?3 END, busy_s = busy_s + ?4, "
            "accepted = accepted + ?5, drafted = drafted + ?6, size_bytes = size_bytes + ?7 WHERE id = ?8",
            (
                what.t, what.interval_s, what.tokens, what.busy_s, what.accepted, what.drafted,
                len(what.figures) + _ROW_BYTES, number,
            ),
        )  # fmt: skip

    def _number(self, connection: sqlite3.Connection, run_id: str) -> int | None:
        """Return the number of a run, which begins or continues if it has not ended; None if it is not known."""
        if run_id not in self._numbers:
            is_new = _find(connection, run_id) is None
            facts = self._facts.get(run_id)
            if facts is not None:
                self._begin(connection, facts)
            number = _find(connection, run_id)
            if number is None:
                return None
            self._numbers[run_id] = number
            if facts is not None and is_new:
                self._compare_version(connection, number, facts)
        return self._numbers[run_id]

    def _begin(self, connection: sqlite3.Connection, facts: RunFacts) -> None:
        connection.execute(
            "INSERT INTO runs (run_id, profile, title, engine, started_at, ready_at) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (run_id) DO UPDATE SET title = excluded.title, "
            "engine = CASE excluded.engine WHEN '' THEN engine ELSE excluded.engine END, "
            "ready_at = coalesce(excluded.ready_at, ready_at), ended_at = NULL, outcome = '', failed = 0, deleted = 0",
            (
                facts.run_id, facts.profile, _clean(facts.title), _clean(facts.engine), facts.started_at,
                facts.ready_at,
            ),
        )  # fmt: skip

    def _compare_version(self, connection: sqlite3.Connection, number: int, facts: RunFacts) -> None:
        """Mark the start of a run whose profile ran with another vLLM the last time."""
        row = connection.execute(
            "SELECT engine FROM runs WHERE profile = ? AND id != ? AND engine != '' AND started_at <= ? "
            "ORDER BY started_at DESC, id DESC LIMIT 1",
            (facts.profile, number, facts.started_at),
        ).fetchone()
        if row is not None and facts.engine and row[0] != facts.engine:
            mark = Mark(facts.started_at, "version", f"{row[0]} before, {facts.engine} now")
            self._write_one(connection, number, mark)
            self._new_marks.append(mark)

    def _layout(self, connection: sqlite3.Connection, names: tuple[str, ...]) -> int:
        """Return the number of a list of series; runs with the same series share it."""
        if names not in self._layouts:
            text = json.dumps(names)
            row = connection.execute("SELECT id FROM layouts WHERE names = ?", (text,)).fetchone()
            if row is None:
                row = (connection.execute("INSERT INTO layouts (names) VALUES (?)", (text,)).lastrowid,)
            self._layouts[names] = row[0]
        return self._layouts[names]


def _find(connection: sqlite3.Connection, run_id: str) -> int | None:
    row = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else int(row[0])


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _clean(text: str) -> str:
    """Text that can be written: halves of a surrogate pair become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
