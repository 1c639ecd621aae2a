"""What becomes of recorded runs with time: ends, age, size, and that readings are written meanwhile."""

import contextlib
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest

from backend.events import Mark
from backend.settings import Settings
from backend.telemetry import retention, run_store, store_file
from backend.telemetry.run_store import Fate, RunEnd
from backend.telemetry.run_writer import Figures, RunWriter
from tests.backend.telemetry.recording import T, facts, lives, recording, wait

DAY_S = 86_400.0
NAMES = tuple(f"series_{number}" for number in range(125))
ROW = np.arange(125, dtype="<f8").tobytes()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def fill(file: Path, run_id: str, *, ended_at: float | None, n: int = 10) -> None:
    """Record `n` readings of 1,000 bytes each."""
    writer = RunWriter(file, busy_s=5)
    started_at = T if ended_at is None else ended_at - n
    writer.write(
        [
            (run_id, facts(run_id, started_at=started_at)),
            (run_id, Mark(started_at, "start", "Started")),
            *((run_id, Figures(started_at + i, NAMES, ROW, 1.0, None, 0.0, 0.0, 0.0)) for i in range(n)),
        ]
    )
    if ended_at is not None:
        writer.write([(run_id, RunEnd(ended_at, "stopped"))])
    writer.close()


def tidy(file: Path, *, now: float, fate: Fate = lives, stop_after: int | None = None, **values: float) -> None:
    """Do everything that is due at `now`, or only some steps of it."""
    with contextlib.closing(store_file.open_for_writing(file, busy_s=5)) as connection:
        found = retention.steps(connection, file, settings=Settings.model_validate(values), fate=fate, now=now)
        for number, _ in enumerate(found):
            if number == stop_after:
                break


def kept(file: Path) -> list[str]:
    return [run.run_id for run in run_store.runs(file, fate=lives)]


def rows(file: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(file)) as other:
        return int(other.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def whole_bytes(file: Path) -> int:
    return sum(path.stat().st_size for path in store_file.files(file)[:2] if path.exists())


def test_runs_go_when_they_are_too_old(file: Path) -> None:
    fill(file, "old", ended_at=T)
    fill(file, "new", ended_at=T + 2 * DAY_S)
    fill(file, "open", ended_at=None)
    tidy(file, now=T + 10 * DAY_S + 1, keep_history_days=10)
    assert kept(file) == ["new", "open"]
    assert (rows(file, "samples"), rows(file, "marks"), rows(file, "runs")) == (20, 2, 2)
    tidy(file, now=T + 100 * DAY_S, keep_history_days=10)
    assert kept(file) == ["open"], "a run that goes on is never deleted"
    assert len(run_store.load(file, "open", fate=lives).readings.times) == 10


def test_the_oldest_runs_go_when_all_take_too_much_and_the_file_shrinks(file: Path) -> None:
    fill(file, "open", ended_at=None, n=3000)
    for number in range(6):
        fill(file, f"run-{number}", ended_at=T + number, n=3000)
    assert whole_bytes(file) > 21e6
    tidy(file, now=T + DAY_S, keep_history_bytes=12_000_000)
    left = kept(file)
    assert left[0] == "open"
    assert left[1:] == [f"run-{number}" for number in range(5, 5 - len(left[1:]), -1)], "the newest are kept"
    assert whole_bytes(file) <= 12_000_000
    assert whole_bytes(file) >= 12_000_000 * 0.9 - 2 * 4_500_000, "no more is deleted than has to be"
    for run_id in left:
        assert len(run_store.load(file, run_id, fate=lives).readings.times) == 3000
    tidy(file, now=T + DAY_S, keep_history_bytes=10_000_000)
    assert "open" in kept(file)


def test_within_the_limits_everything_stays(file: Path) -> None:
    fill(file, "run-1", ended_at=T, n=100)
    tidy(file, now=T + DAY_S)
    assert kept(file) == ["run-1"]
    assert rows(file, "samples") == 100


def test_a_deletion_that_was_cut_off_is_finished_the_next_time(file: Path) -> None:
    fill(file, "old", ended_at=T, n=2000)
    tidy(file, now=T + 10 * DAY_S, keep_history_days=1, stop_after=2)
    assert kept(file) == [], "half a run is never shown"
    assert 0 < rows(file, "samples") < 2000
    tidy(file, now=T, keep_history_days=1)
    assert rows(file, "samples") == rows(file, "runs") == rows(file, "marks") == 0


def test_ends_that_nobody_recorded_are_written_down(file: Path) -> None:
    fill(file, "run-1", ended_at=None)
    fill(file, "run-2", ended_at=None)
    tidy(file, now=T, fate=lambda run_id: RunEnd(None, "ended with Specdeck") if run_id == "run-1" else None)
    (closed,) = (run for run in run_store.runs(file, fate=lives) if run.run_id == "run-1")
    assert (closed.ended_at, closed.outcome) == (T + 9, "ended with Specdeck"), "its last reading"
    (still_open,) = (run for run in run_store.runs(file, fate=lives) if run.run_id == "run-2")
    assert still_open.ended_at is None


def test_deleted_runs_are_off_the_list_at_once_and_give_their_space_back(file: Path) -> None:
    retention.delete(file, ["run-1"])
    retention.purge(file)
    assert not file.exists()
    fill(file, "run-1", ended_at=T, n=3000)
    fill(file, "run-2", ended_at=T, n=10)
    retention.delete(file, ["run-1"])
    assert kept(file) == ["run-2"]
    assert rows(file, "samples") == 3010
    retention.purge(file)
    assert rows(file, "samples") == 10
    assert whole_bytes(file) < 200_000


def test_readings_are_written_while_much_is_deleted(file: Path) -> None:
    fill(file, "old", ended_at=T, n=30_000)
    with recording(file, settings=Settings(keep_history_days=1)) as made:
        started_at = time.time()
        made.recorder.begin(facts("now", started_at=started_at))
        seen_while_deleting = 0
        number = 0
        while rows(file, "samples") - number > 0:
            made.read(started_at + number, "now", cpu_ratio=0.5)
            number += 1
            made.flush()
            assert len(made.load("now").readings.times) == number
            seen_while_deleting += rows(file, "samples") > number
        assert seen_while_deleting >= 2
        wait(lambda: whole_bytes(file) < 6_000_000)
        assert kept(file) == ["now"]
        assert made.problems == []


def test_a_recorder_looks_after_the_store_when_it_starts_and_when_it_is_told(file: Path) -> None:
    fill(file, "old", ended_at=T)
    fill(file, "new", ended_at=time.time())
    fill(file, "open", ended_at=None)
    ends = {"open": RunEnd(None, "ended with Specdeck")}
    with recording(file, fate=ends.get) as made:
        wait(lambda: kept(file) == ["new"])  # "open" ended at its last reading, which is long ago
        retention.delete(file, ["new"])
        made.recorder.tidy()
        wait(lambda: rows(file, "samples") == 0)
