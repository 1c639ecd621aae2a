"""The file of the recorded runs, in SQLite: its tables, how it is opened, and what can be wrong with it."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from backend.errors import StoreError

SCHEMA = 1
_TABLES = (
    # `tokens` to `drafted` are sums over the readings, kept with each of them; `interval_s` is the slowest pace set.
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, profile TEXT NOT NULL, title TEXT NOT NULL,
        engine TEXT NOT NULL, started_at REAL NOT NULL, ready_at REAL, ended_at REAL, outcome TEXT NOT NULL DEFAULT '',
        failed INTEGER NOT NULL DEFAULT 0, newest_t REAL, interval_s REAL NOT NULL DEFAULT 0, tokens REAL,
        busy_s REAL NOT NULL DEFAULT 0, accepted REAL NOT NULL DEFAULT 0, drafted REAL NOT NULL DEFAULT 0,
        size_bytes INTEGER NOT NULL DEFAULT 0, gpus TEXT NOT NULL DEFAULT '[]', deleted INTEGER NOT NULL DEFAULT 0)""",
    # The names of the series, as JSON, in the order of the figures of a reading.
    "CREATE TABLE layouts (id INTEGER PRIMARY KEY, names TEXT NOT NULL)",
    # `figures` are 64-bit floats, little-endian, NaN where unknown.
    "CREATE TABLE samples (run INTEGER NOT NULL, t REAL NOT NULL, layout INTEGER NOT NULL, figures BLOB NOT NULL)",
    "CREATE INDEX samples_of_run ON samples (run, t, layout)",
    """CREATE TABLE marks (run INTEGER NOT NULL, t REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
        PRIMARY KEY (run, t, kind, text)) WITHOUT ROWID""",
)
LOG_LIMIT_BYTES = 4_194_304
_READ_WAIT_S = 2.0


class NewerStoreError(Exception):
    """The store was written by a newer Specdeck."""


def open_for_writing(file: Path, *, busy_s: float) -> sqlite3.Connection:
    """Open the store, and make it where there is none.

    Args:
        file: the store; other processes may have it open too.
        busy_s: how long each statement waits for another process's lock.

    Raises:
        sqlite3.Error, OSError: it cannot be opened.
        NewerStoreError: its schema is not known here.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(file, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        if schema(connection) == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before anything is in the file
        connection.execute("PRAGMA journal_mode = WAL")
        # What was committed survives the death of this process; a power cut may cost the last seconds.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")
        with transaction(connection):
            if schema(connection) == 0:
                for table in _TABLES:
                    connection.execute(table)
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
    except BaseException:
        connection.close()
        raise
    return connection


def schema(connection: sqlite3.Connection) -> int:
    """Return the schema number, 0 for a file without tables.

    Raises:
        NewerStoreError: it is not known here.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise NewerStoreError
    return int(version)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all that is done inside, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection | None]:
    """Give a read-only connection that sees one state of the store; None where nothing was ever recorded.

    Raises:
        StoreError: the store cannot be read.
    """
    if not file.exists():
        yield None
        return
    try:
        with contextlib.closing(_open_for_reading(file)) as connection:
            connection.execute("BEGIN")
            yield connection if schema(connection) else None  # it may be made just now
    except (sqlite3.Error, NewerStoreError) as error:
        raise problem(error, file, reading=True) from error
    except (ValueError, LookupError) as error:
        raise StoreError(f"The recorded runs are damaged: {error}.", f"Move {file} away to begin anew.") from error


def _open_for_reading(file: Path) -> sqlite3.Connection:
    uri = f"{file.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=_READ_WAIT_S, isolation_level=None)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        connection.close()
        no_place = primary_code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
        if not no_place or files(file)[1].exists():
            raise
        # In a folder where nobody may write there is no place for what readers and writers share.
        connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    return connection


def problem(error: sqlite3.Error | OSError | NewerStoreError, file: Path, *, reading: bool = False) -> StoreError:
    """Put into words why the store cannot be used, and what to do."""
    code = primary_code(error)
    number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, error)
    then = "" if reading else " Recording goes on by itself then."
    if isinstance(error, NewerStoreError):
        return StoreError("The recorded runs were written by a newer Specdeck.", "Update Specdeck to use them.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError("Another program holds the recorded runs locked.", f"End what uses {file}.{then}")
    if code == sqlite3.SQLITE_FULL or number in (errno.ENOSPC, errno.EDQUOT):
        return StoreError("There is no space left to record the run.", f"Free some in {file.parent}.{then}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM) or number is not None:
        what = "read" if reading else "written"
        return StoreError(f"The recorded runs cannot be {what}: {reason}.", f"Check the permissions of {file}.{then}")
    if is_damage(error):
        return StoreError(f"The recorded runs are damaged: {error}.", f"Move {file} away to begin anew.")
    return StoreError(f"The recorded runs cannot be used: {error}.", f"Check the disk of {file}.{then}")


def primary_code(error: Exception) -> int | None:
    """Return SQLite's error code without what it adds to it, None for another error."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def is_damage(error: Exception) -> bool:
    """Whether an error says that the file is not what it should be."""
    return primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or (
        isinstance(error, sqlite3.OperationalError) and str(error).startswith(("no such table", "no such column"))
    )


def is_damaged(file: Path) -> bool:
    """Look at the whole file; another process may have put a good one in its place since an error was met."""
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=_READ_WAIT_S)) as connection:
            if schema(connection) == 0:
                return bool(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
            connection.execute("SELECT run_id, gpus, deleted FROM runs LIMIT 1").fetchone()
            connection.execute("SELECT run, t, layout, figures FROM samples LIMIT 1").fetchone()
            return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok"
    except sqlite3.Error as error:
        return is_damage(error)
    except NewerStoreError:
        return False


def files(file: Path) -> tuple[Path, Path, Path]:
    """Return the store and what SQLite keeps beside it (the log that is not merged yet, what connections share)."""
    return file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")
