"""A recorder that notes what it tells, and the store behind it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backend.curves import RecordedRun
from backend.events import Mark
from backend.settings import Settings
from backend.telemetry import run_store
from backend.telemetry.recorder import Recorder
from backend.telemetry.run_store import RunEnd
from backend.telemetry.run_writer import RunFacts

LIMIT_S = 60.0
T = 1_700_000_000.0
"""Unix time at which the runs of these tests start."""


def lives(_run_id: str) -> RunEnd | None:
    return None


def facts(run_id: str = "run-1", **changes: object) -> RunFacts:
    """Facts of a run."""
    known: dict[str, object] = {
        "run_id": run_id,
        "profile": "mine",
        "title": "Mine",
        "engine": "vllm 1.0",
        "started_at": T,
    }
    return RunFacts(**{**known, **changes})  # type: ignore[arg-type]


class Recording:
    """A recorder on a file; `problems`, `notices` and `marks` are what it told, in order."""

    def __init__(
        self, file: Path, *, settings: Settings | None = None, fate: run_store.Fate = lives, busy_s: float = 0.05
    ) -> None:
        self.file = file
        self.problems: list[str] = []
        self.notices: list[str] = []
        self.marks: list[Mark] = []
        self.recorder = Recorder(
            file,
            settings=lambda: settings or Settings(),
            fate=fate,
            on_problem=self.problems.append,
            on_notice=self.notices.append,
            on_mark=self.marks.append,
            busy_s=busy_s,
        )

    def read(self, t: float, run_id: str = "run-1", **values: float | None) -> None:
        """Hand a reading over."""
        self.recorder.reading(run_id, t, values, interval_s=1.0)

    def load(self, run_id: str = "run-1") -> RecordedRun:
        return run_store.load(self.file, run_id, fate=lives)

    def flush(self) -> None:
        assert self.recorder.flush(limit_s=LIMIT_S)


@contextlib.contextmanager
def recording(
    file: Path, *, settings: Settings | None = None, fate: run_store.Fate = lives, busy_s: float = 0.05
) -> Iterator[Recording]:
    """Give a recorder at work."""
    made = Recording(file, settings=settings, fate=fate, busy_s=busy_s)
    made.recorder.start()
    try:
        yield made
    finally:
        made.recorder.close()


def wait(condition: Callable[[], bool]) -> None:
    """Wait for what a thread or another process does."""
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.01)
