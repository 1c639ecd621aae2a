"""Records runs: takes readings without waiting, and writes them in a thread of its own."""

import logging
import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from backend import paths
from backend.events import Mark
from backend.hardware import GpuInfo
from backend.settings import Settings
from backend.telemetry import retention, store_file
from backend.telemetry.run_store import Fate, RunEnd
from backend.telemetry.run_writer import Entry, Figures, RunFacts, RunGpus, RunWriter, sums
from backend.telemetry.store_file import NewerStoreError

log = logging.getLogger(__name__)

_BATCH_S = 0.5
_BUSY_S = 2.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 1.0, 10.0
_TIDY_EVERY_S, _TIDY_AGAIN_S = 3600.0, 60.0
_BETWEEN_STEPS_S = 0.02  # so that other processes get their turn
# What is kept while the store cannot be written: ten minutes of readings, some 2 MB with eight GPUs.
_MOST_READINGS = 600
_MOST_OTHERS = 1000


class Recorder:
    """Writes runs into the store; what is handed over is on disk within a second, unless there is trouble.

    Its methods may be called on any thread and return at once, except `flush` and `close`. Trouble with the store
    never raises: it is told once, what comes meanwhile is kept as far as there is room, and recording goes on when
    it can.
    """

    def __init__(
        self,
        file: Path,
        *,
        settings: Callable[[], Settings],
        fate: Fate,
        on_problem: Callable[[str], None],
        on_notice: Callable[[str], None] = lambda _: None,
        on_mark: Callable[[Mark], None] = lambda _: None,
        busy_s: float = _BUSY_S,
    ) -> None:
        """Prepare to write into `file`; nothing is opened before `start`.

        Args:
            file: the store.
            settings: gives the settings as they are now: how long and how much is kept.
            fate: how a run ended whose end was not recorded.
            on_problem: takes why nothing can be written, "" when it can be again; called on the writing thread.
            on_notice: takes what else is to be known: a damaged store was set aside; called there as well.
            on_mark: takes what only the store knows to have happened (another version); called there as well.
            busy_s: how long to wait for another process that writes.
        """
        self._file = file
        self._settings = settings
        self._fate = fate
        self._on_problem = on_problem
        self._on_notice = on_notice
        self._on_mark = on_mark
        self._names: dict[str, dict[str, None]] = {}  # series of each run, in order of appearance
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._n_figures = 0  # of those that wait
        self._n_put = self._n_done = 0
        self._write_s = self._tidy_s = 0.0  # monotonic times before which nothing is to be done
        self._closing = False
        self._thread: threading.Thread | None = None
        self._writer = RunWriter(file, busy_s=busy_s)  # this and what follows belongs to the thread
        self._problem = ""
        self._retry_s = _FIRST_RETRY_S
        self._tidying: Iterator[None] | None = None

    def start(self) -> None:
        """Begin to write, and to look after what was recorded before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
            self._thread.start()

    def begin(self, facts: RunFacts) -> None:
        """Record a run from now on, or continue it; also when more is known of it."""
        self._put(facts.run_id, facts)

    def gpus(self, run_id: str, gpus: Sequence[GpuInfo]) -> None:
        """Keep what is known of the GPUs of a run."""
        self._put(run_id, RunGpus(tuple(gpus)))

    def reading(self, run_id: str, t: float, values: Mapping[str, float | None], *, interval_s: float) -> None:
        """Keep what was read at Unix time `t`, by the name of its series; readings come every `interval_s`."""
        names = self._names.setdefault(run_id, {})
        names.update(dict.fromkeys(name for name, value in values.items() if value is not None))
        row = [math.nan if (value := values.get(name)) is None else value for name in names]
        figures = np.array(row, dtype="<f8").tobytes()
        self._put(run_id, Figures(t, tuple(names), figures, interval_s, *sums(values)))

    def mark(self, run_id: str, mark: Mark) -> None:
        """Keep that something happened; what was kept already is not kept twice."""
        self._put(run_id, mark)

    def end(self, run_id: str, end: RunEnd) -> None:
        """Write down how a run ended; nothing more is kept of it."""
        self._names.pop(run_id, None)
        self._put(run_id, end)

    def tidy(self) -> None:
        """Look soon after what is to be deleted."""
        with self._changed:
            self._tidy_s = 0.0
            self._changed.notify()

    def flush(self, *, limit_s: float = 5.0) -> bool:
        """Wait until everything so far is written; False if that takes too long. Blocking."""
        with self._changed:
            wanted = self._n_put
            self._write_s = 0.0
            self._changed.notify()
            return self._changed.wait_for(lambda: self._n_done >= wanted, limit_s)

    def close(self) -> None:
        """Write the rest and end the thread; what cannot be written within seconds is lost. Blocking."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _put(self, run_id: str, what: RunFacts | RunGpus | Figures | Mark | RunEnd) -> None:
        with self._changed:
            self._waiting.append((run_id, what))
            self._n_put += 1
            self._n_figures += isinstance(what, Figures)
            self._drop_oldest()
            self._changed.notify()

    def _drop_oldest(self) -> None:
        """Keep what waits within bounds; readings that are lost leave a gap."""
        while (too_many := self._n_figures > _MOST_READINGS) or len(self._waiting) - self._n_figures > _MOST_OTHERS:
            place = next(i for i, (_, what) in enumerate(self._waiting) if isinstance(what, Figures) is too_many)
            del self._waiting[place]
            self._n_figures -= too_many
            self._n_done += 1

    # ---- the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        closing = False
        while not closing:
            batch, closing = self._next()
            if batch:
                self._write(batch)
            if not closing and time.monotonic() >= self._tidy_s:
                self._tidy_a_step()
        self._writer.close()
        if self._waiting:
            log.warning("The newest readings were not recorded. %s", self._problem)

    def _next(self) -> tuple[list[Entry], bool]:
        """Wait for something to do; returns what is to be written, and whether it is the last."""
        with self._changed:
            while not self._closing:
                now_s = time.monotonic()
                due_s = min(self._tidy_s, self._write_s if self._waiting else math.inf)
                if now_s >= due_s:
                    break
                self._changed.wait(due_s - now_s)
            if not self._closing and time.monotonic() < self._write_s:
                return [], False
            batch = list(self._waiting)
            self._waiting.clear()
            self._n_figures = 0
            return batch, self._closing

    def _write(self, batch: list[Entry]) -> None:
        try:
            marks = self._writer.write(batch)
        except (sqlite3.Error, OSError, NewerStoreError) as error:
            if not isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                self._put_back(batch)
                self._meet(error)
                return
            log.exception("Readings were not recorded.")  # a bug, which must not keep what comes from being written
            self._writer.close()
        except Exception:
            log.exception("Readings were not recorded.")
            self._writer.close()
        else:
            for mark in marks:
                self._on_mark(mark)
            self._retry_s = _FIRST_RETRY_S
            self._tell("")
        with self._changed:
            self._write_s = time.monotonic() + _BATCH_S
            self._n_done += len(batch)
            self._changed.notify_all()

    def _put_back(self, batch: list[Entry]) -> None:
        with self._changed:
            self._waiting.extendleft(reversed(batch))
            self._n_figures += sum(isinstance(what, Figures) for _, what in batch)
            self._drop_oldest()

    def _meet(self, error: sqlite3.Error | OSError | NewerStoreError) -> None:
        """Set a damaged store aside, or say what is wrong and try again in a while."""
        self._writer.close()
        if self._set_aside(error):
            return
        self._tell(str(store_file.problem(error, self._file)))
        with self._changed:
            self._write_s = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)

    def _tell(self, problem: str) -> None:
        """Say it once."""
        if problem != self._problem:
            self._problem = problem
            if problem:
                log.warning("%s", problem)
            self._on_problem(problem)

    def _set_aside(self, error: Exception) -> bool:
        """Move the store away if it is damaged; True when a new one can be begun."""
        if not store_file.is_damage(error) or not store_file.is_damaged(self._file):
            return False
        _, journal, shared = store_file.files(self._file)
        try:
            aside = paths.set_aside(self._file)
            for beside in (journal, shared):
                if beside.exists():
                    os.replace(beside, aside.with_name(beside.name.replace(self._file.name, aside.name)))
        except OSError as failure:
            log.warning("The damaged store cannot be moved: %s", failure)
            return False
        words = (
            f"The recorded runs were damaged; their file is now {aside.name} in {aside.parent}, and a new one begins."
        )
        log.warning("%s", words)
        self._on_notice(words)
        return True

    def _tidy_a_step(self) -> None:
        """Do a part of what is due; trouble with that alone can wait."""
        pause_s = _BETWEEN_STEPS_S
        try:
            if self._tidying is None:
                if not self._file.exists():
                    pause_s = _TIDY_EVERY_S
                    return
                self._tidying = retention.steps(
                    self._writer.connection(), self._file, settings=self._settings(), fate=self._fate, now=time.time()
                )
            if next(self._tidying, self) is self:
                self._tidying, pause_s = None, _TIDY_EVERY_S
        except (sqlite3.Error, OSError, NewerStoreError) as error:
            self._tidying, pause_s = None, _TIDY_AGAIN_S
            self._writer.close()
            if not self._set_aside(error):
                log.info("Recorded runs are looked after later: %s", error)
        except Exception:
            self._tidying, pause_s = None, _TIDY_EVERY_S
            log.exception("Recorded runs were not looked after.")
        finally:
            with self._changed:
                self._tidy_s = time.monotonic() + pause_s
