"""The folder of one run: its record, its log, its owner's lock and the wish to stop it."""

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backend import paths
from backend.events import RunState
from backend.launch.processes import Identity, Stat, boot_id, members, shared_memory_of

log = logging.getLogger(__name__)

SCHEMA = 1
# struct flock of 64-bit Linux: type, whence, start, length (0: to the end), pid (0 for locks of open files).
_WHOLE_FILE = struct.pack("hhxxxxqqixxxx", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class RunRecord(BaseModel):
    """What `run.json` holds; times are Unix seconds, None for what did not happen (yet)."""

    model_config = ConfigDict(extra="ignore")

    schema_version: int = Field(SCHEMA, le=SCHEMA)
    run_id: str
    profile: str
    environment: str
    host: str
    port: int
    url: str
    served_model_name: str
    argv: list[str]
    state: RunState = RunState.PREFLIGHT  # as its owner last saw it
    stalled_s: float | None = None  # length of the last stall
    temp_dir: str
    created_at: float
    boot_id: str
    pid: int | None = None
    start_ticks: int | None = None
    ready_at: float | None = None
    phases: list[tuple[str, float]] = []  # name and seconds, in the order of the start-up
    shared_memory: list[str] = []
    ended_at: float | None = None
    exit_words: str = ""
    cause: str = ""
    cause_line: int | None = None

    @property
    def identity(self) -> Identity:
        """What proves a process to be of this run."""
        return Identity(self.run_id, self.boot_id, self.pid, self.start_ticks)

    def note_shared_memory(self, stats: list[Stat]) -> bool:
        """Remember what must be removed should these processes be killed; True when that is more than before."""
        names = shared_memory_of(stats) | set(self.shared_memory)
        is_more = names != set(self.shared_memory)
        self.shared_memory = sorted(names)
        return is_more


class OwnerLock:
    """Held by the one process that supervises a run; the kernel frees it however that process ends."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def release(self) -> None:
        """Give the run up, so that another process may supervise it."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class RunFolder:
    """One run on disk; every method reads or writes the files as they are now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log_file = path / "engine.log"
        self._record_file = path / "run.json"
        self._lock_file = path / "owner.lock"
        self._stop_file = path / "stop.requested"
        self._key_file = path / "api_key"
        self._profile_file = path / "profile.toml"

    @classmethod
    def create(cls, runs: Path, profile: str) -> Self:
        """Make the folder of a new run; its name is the run id."""
        run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{profile}-{secrets.token_hex(3)}"
        path = runs / run_id
        path.mkdir(parents=True, mode=0o700)
        return cls(path)

    @property
    def run_id(self) -> str:
        """The id of the run, which is the folder's name."""
        return self.path.name

    def write(self, record: RunRecord) -> None:
        """Write `run.json`."""
        paths.write_atomic(self._record_file, record.model_dump_json(indent=1) + "\n")

    def record(self) -> RunRecord | None:
        """Read `run.json`; None when there is none, it is of a newer Specdeck, or damaged (then it is set aside)."""
        try:
            text = self._record_file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("The record of run %s cannot be read: %s", self.run_id, error)
            return None
        try:
            return RunRecord.model_validate_json(text)
        except ValidationError as error:
            if any(detail["loc"] == ("schema_version",) for detail in error.errors()):
                log.warning("The record of run %s was written by a newer Specdeck.", self.run_id)
                return None
            aside = paths.set_aside(self._record_file)
            log.warning("The record of run %s was damaged; it is now %s.", self.run_id, aside)
            return None

    def record_or_guess(self) -> RunRecord:
        """Read `run.json`; where it cannot be read, the run id alone still proves the run's processes."""
        return self.record() or RunRecord(
            run_id=self.run_id,
            profile=self.run_id[16:-7],  # between the time and the random end
            environment="",
            host="",
            port=0,
            url="",
            served_model_name="",
            argv=[],
            temp_dir="",
            created_at=self.changed_at(),
            boot_id=boot_id(),
        )

    def changed_at(self) -> float:
        """Unix time at which the folder last changed, 0 if it is gone."""
        try:
            return self.path.stat().st_mtime
        except OSError:
            return 0.0

    def write_key(self, api_key: str) -> None:
        """Keep the engine's API key for other front ends of the same person."""
        paths.write_atomic(self._key_file, api_key)

    def key(self) -> str | None:
        """Return the engine's API key, None if it has none."""
        try:
            return self._key_file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            log.warning(
                "The API key of run %s cannot be read (%s): its engine will refuse to chat.", self.run_id, error
            )
            return None

    def write_profile(self, text: str) -> None:
        """Keep the profile as it is now: it may be changed while the engine runs."""
        paths.write_atomic(self._profile_file, text)

    def profile_text(self) -> str | None:
        """Return the profile that the run was started with, None if it was not kept."""
        try:
            return self._profile_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def request_stop(self) -> None:
        """Say that somebody wants this run to end, so that every watcher calls its end STOPPED, not FAILED."""
        self._stop_file.touch(mode=0o600)  # empty, so that it needs no space on a full disk

    def stop_requested(self) -> bool:
        """Whether somebody asked for the end of this run."""
        return self._stop_file.exists()

    def take_ownership(self) -> OwnerLock | None:
        """Become the one supervisor of this run; None when another living process is."""
        handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except BlockingIOError:
            os.close(handle)
            return None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return OwnerLock(handle)

    def owner_pid(self) -> int | None:
        """Return the pid of the process that supervises this run, None when nobody does."""
        try:
            handle = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            held = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _WHOLE_FILE)  # asks only: nobody is kept from taking it
            if struct.unpack_from("h", held)[0] == fcntl.F_UNLCK:
                return None
            text = os.pread(handle, 32, 0).decode().strip()
            return int(text) if text.isdigit() else None
        finally:
            os.close(handle)

    def size_bytes(self) -> int:
        """How much disk the folder takes."""
        return sum(file.stat().st_size for file in self.path.iterdir() if file.is_file())


def all_runs(runs: Path) -> list[RunFolder]:
    """Return every run on disk, oldest first (ids begin with the time)."""
    if not runs.is_dir():
        return []
    return [RunFolder(path) for path in sorted(runs.iterdir()) if path.is_dir()]


def usual_phases(folders: Iterable[RunFolder], *, profile: str, newest: int = 5) -> dict[str, float]:
    """Return how long each phase of this profile's start usually takes: the median of the newest ready runs."""
    seconds: dict[str, list[float]] = {}
    found = 0
    for folder in sorted(folders, key=lambda folder: folder.run_id, reverse=True):
        record = folder.record() if f"-{profile}-" in folder.run_id else None
        if record is None or record.profile != profile or record.ready_at is None:
            continue
        for name, length in record.phases:
            seconds.setdefault(name, []).append(length)
        found += 1
        if found == newest:
            break
    return {name: sorted(lengths)[len(lengths) // 2] for name, lengths in seconds.items()}


def prune(runs: Path, *, keep: int, keep_bytes: int) -> None:
    """Delete the oldest finished runs beyond `keep` or `keep_bytes`; a run that may still live is never touched."""
    total = 0
    finished = 0
    for folder in reversed(all_runs(runs)):
        with contextlib.suppress(OSError):  # another front end prunes at the same time, or it is not ours
            record = folder.record_or_guess()
            if folder.owner_pid() is not None or (record.ended_at is None and members(record.identity)):
                continue
            finished += 1
            total += folder.size_bytes()
            if finished > keep or (total > keep_bytes and finished > 1):
                shutil.rmtree(folder.path, ignore_errors=True)
