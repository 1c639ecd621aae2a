"""What becomes of recorded runs with time: open ends are closed, old and large ones go, and the file shrinks.

All of it comes in steps of some milliseconds, each a transaction of its own, so that readings are written in between.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from backend.settings import Settings
from backend.telemetry import store_file
from backend.telemetry.run_store import Fate
from backend.telemetry.store_file import transaction

_DAY_S = 86_400.0
_READINGS_A_STEP = 256
_PAGES_A_STEP = 256
_BUSY_S = 5.0
# Room is made for more than a moment, and the log beside the file counts as well.
_MADE_ROOM = 0.9


def hide(connection: sqlite3.Connection, run_ids: Sequence[str]) -> None:
    """Take runs off the list at once; their readings go with the next `steps`."""
    with transaction(connection):
        connection.executemany("UPDATE runs SET deleted = 1 WHERE run_id = ?", [(run_id,) for run_id in run_ids])


def delete(file: Path, run_ids: Sequence[str]) -> None:
    """Take runs off the list, for a recorder or `purge` to remove them. Blocking.

    Raises:
        StoreError: the store cannot be written.
    """
    if not file.exists():
        return
    try:
        with contextlib.closing(store_file.open_for_writing(file, busy_s=_BUSY_S)) as connection:
            hide(connection, run_ids)
    except (sqlite3.Error, OSError, store_file.NewerStoreError) as error:
        raise store_file.problem(error, file) from error


def purge(file: Path) -> None:
    """Remove what was deleted and give its space back. Blocking, for seconds.

    Raises:
        StoreError: the store cannot be written.
    """
    if not file.exists():
        return
    try:
        with contextlib.closing(store_file.open_for_writing(file, busy_s=_BUSY_S)) as connection:
            for _ in _remove_hidden(connection):
                pass
            for _ in _shrink(connection):
                pass
    except (sqlite3.Error, OSError, store_file.NewerStoreError) as error:
        raise store_file.problem(error, file) from error


def steps(connection: sqlite3.Connection, file: Path, *, settings: Settings, fate: Fate, now: float) -> Iterator[None]:
    """Do all that is due, a step at a time; a run without an end is never deleted.

    Args:
        connection: writes to the store.
        file: the store.
        settings: `keep_history_days` and `keep_history_bytes`, which count the file and the log beside it.
        fate: how a run ended whose end was not recorded.
        now: Unix time.
    """
    yield from _close_open_ends(connection, fate)
    yield from _remove_hidden(connection)
    oldest = now - settings.keep_history_days * _DAY_S
    with transaction(connection):
        connection.execute("UPDATE runs SET deleted = 1 WHERE ended_at < ?", (oldest,))
    yield from _remove_hidden(connection)
    _merge_log(connection)
    if _used_bytes(connection, file) > settings.keep_history_bytes:
        while _used_bytes(connection, file) > _MADE_ROOM * settings.keep_history_bytes:
            with transaction(connection):
                hidden = connection.execute(
                    "UPDATE runs SET deleted = 1 WHERE id = (SELECT id FROM runs WHERE ended_at IS NOT NULL "
                    "AND NOT deleted ORDER BY ended_at LIMIT 1)"
                ).rowcount
            if not hidden:
                break
            yield from _remove_hidden(connection)
    yield from _shrink(connection)


def _close_open_ends(connection: sqlite3.Connection, fate: Fate) -> Iterator[None]:
    """Write down how runs ended that nobody recorded the end of."""
    open_runs = connection.execute("SELECT id, run_id FROM runs WHERE ended_at IS NULL AND NOT deleted").fetchall()
    for number, run_id in open_runs:
        end = fate(run_id)
        if end is not None:
            with transaction(connection):
                connection.execute(
                    "UPDATE runs SET ended_at = coalesce(?, newest_t, started_at), outcome = ?, failed = ? "
                    "WHERE id = ? AND ended_at IS NULL",
                    (end.ended_at, end.outcome, end.failed, number),
                )
        yield


def _remove_hidden(connection: sqlite3.Connection) -> Iterator[None]:
    while True:
        row = connection.execute("SELECT id FROM runs WHERE deleted LIMIT 1").fetchone()
        if row is None:
            return
        removed = _READINGS_A_STEP
        while removed == _READINGS_A_STEP:
            with transaction(connection):
                removed = connection.execute(
                    "DELETE FROM samples WHERE rowid IN (SELECT rowid FROM samples WHERE run = ? ORDER BY t LIMIT ?)",
                    (*row, _READINGS_A_STEP),
                ).rowcount
            yield
        with transaction(connection):
            connection.execute("DELETE FROM marks WHERE run = ?", row)
            connection.execute("DELETE FROM runs WHERE id = ? AND deleted", row)
        yield


def _shrink(connection: sqlite3.Connection) -> Iterator[None]:
    """Give the pages that nothing uses any more back to the file system."""
    while _pragma(connection, "freelist_count"):
        # Of a statement that gives rows without columns, `execute` does the first step only: one page.
        connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_A_STEP})")
        yield
    _merge_log(connection)
    yield


def _merge_log(connection: sqlite3.Connection) -> None:
    """Bring the log into the file and empty it; nobody waits for those who read just now, it is tried again later."""
    wait_ms = _pragma(connection, "busy_timeout")
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {wait_ms}")


def _used_bytes(connection: sqlite3.Connection, file: Path) -> int:
    """Bytes that the store takes, without pages that are given back later, and with the log as it is kept."""
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    log = store_file.files(file)[1]
    log_bytes = min(log.stat().st_size, store_file.LOG_LIMIT_BYTES) if log.exists() else 0
    return pages * _pragma(connection, "page_size") + log_bytes


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
