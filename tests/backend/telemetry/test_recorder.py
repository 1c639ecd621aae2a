"""The recorder: what is handed over is on disk, whatever happens to the process, the disk or the file."""

import contextlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.events import Mark
from backend.hardware import GpuInfo, PeakSource
from backend.telemetry import run_store, store_file
from backend.telemetry.run_store import RunEnd
from backend.telemetry.run_writer import Entry, Figures, RunWriter
from tests.backend.telemetry.recording import LIMIT_S, Recording, T, facts, lives, recording, wait


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.sqlite"


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the store as another program would that writes."""
    other = sqlite3.connect(file, isolation_level=None, timeout=LIMIT_S)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


# ---- what is kept ------------------------------------------------------------------------------------------------


def test_a_run_comes_back_with_its_readings_marks_and_sums(file: Path) -> None:
    gpu = GpuInfo("GPU-1", "H200", 0, compute_capability=(9, 0), peak_bytes_per_s=4.8e12, peak_source=PeakSource.TABLE)
    with recording(file) as made:
        made.recorder.begin(facts())
        made.recorder.gpus("run-1", [gpu])
        made.recorder.mark("run-1", Mark(T + 0.5, "ready", "Ready"))
        made.recorder.begin(facts(ready_at=T + 0.5))
        made.read(T + 1, cpu_ratio=0.25)
        made.read(
            T + 2, cpu_ratio=0.5, generation_tokens_per_s=40.0, interval_s=1.5, acceptance_rate=0.5, draft_tokens=80.0
        )
        made.read(
            T + 3, cpu_ratio=0.5, generation_tokens_per_s=0.0, interval_s=1.0, acceptance_rate=None, draft_tokens=0.0
        )
        made.read(
            T + 4, cpu_ratio=None, generation_tokens_per_s=20.0, interval_s=1.0, acceptance_rate=1.0, draft_tokens=20.0
        )
        made.flush()
        (listed,) = run_store.runs(file, fate=lives)
        assert listed.ended_at is None
        assert listed.outcome == "runs now"
        made.recorder.end("run-1", RunEnd(T + 5, "stopped"))
    run = made.load()
    assert (run.run.profile, run.run.title, run.run.engine) == ("mine", "Mine", "vllm 1.0")
    assert (run.run.started_at, run.run.ready_at, run.run.ended_at) == (T, T + 0.5, T + 5)
    assert (run.run.outcome, run.run.failed) == ("stopped", False)
    assert run.run.tokens == 1.5 * 40 + 20  # rates times the seconds they span
    assert run.run.tokens_per_s == (1.5 * 40 + 20) / 2.5  # the second with nothing generated does not count
    assert run.run.acceptance_rate == (40 + 20) / (80 + 20)
    assert run.marks == (Mark(T + 0.5, "ready", "Ready"),)
    assert run.gpus == (gpu,)
    assert run.readings.times.tolist() == [T + 1, T + 2, T + 3, T + 4]
    cpu = run.readings.curve("cpu_ratio", 100, T + 100).values
    assert cpu[:3].tolist() == [0.25, 0.5, 0.5]
    assert math.isnan(cpu[3])
    rates = run.readings.curve("generation_tokens_per_s", 100, T + 100).values
    assert math.isnan(rates[0]), "it was unknown before its first value"
    assert rates[1:].tolist() == [40, 0, 20]
    assert made.problems == []


def test_unknown_is_unknown_also_in_the_sums(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts())
        made.read(T + 1, generation_tokens_per_s=None, interval_s=None, acceptance_rate=None, draft_tokens=None)
        made.flush()
        known = made.load().run
        assert (known.tokens, known.tokens_per_s, known.acceptance_rate) == (None, None, None)
        made.read(T + 2, generation_tokens_per_s=0.0, interval_s=1.0, acceptance_rate=None, draft_tokens=0.0)
        made.flush()
        known = made.load().run
        assert (known.tokens, known.tokens_per_s, known.acceptance_rate) == (0.0, None, None)


_VALUES = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 1e300, 8e10 + 0.5, 1e-320]))
_READINGS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "GPU-1/power_w", "ü"]), _VALUES), min_size=1, max_size=8
)


@settings(max_examples=25, deadline=None)
@given(rows=_READINGS)
def test_every_value_comes_back_bit_by_bit(rows: list[dict[str, float | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder, recording(Path(folder) / "history.sqlite") as made:
        made.recorder.begin(facts())
        for number, values in enumerate(rows):
            made.recorder.reading("run-1", T + number, values, interval_s=1.0)
        made.flush()
        readings = made.load().readings
        assert readings.times.tolist() == [T + number for number in range(len(rows))]
        assert set(readings.names) == {name for row in rows for name, value in row.items() if value is not None}
        for name, values in zip(readings.names, readings.values, strict=True):
            wanted = [math.nan if row.get(name) is None else row[name] for row in rows]
            np.testing.assert_array_equal(values, np.array(wanted, dtype=np.float64))


def test_nobody_needs_to_flush(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts())
        made.read(T + 1, cpu_ratio=0.5)
        wait(lambda: bool(run_store.runs(file, fate=lives)) and len(made.load().readings.times) == 1)
        made.read(T + 2, cpu_ratio=0.5)
        wait(lambda: len(made.load().readings.times) == 2)


def test_only_the_owner_may_read_the_store(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts())
        made.read(T + 1, cpu_ratio=0.5)
        made.flush()
        assert {path.name: oct(path.stat().st_mode & 0o777) for path in file.parent.iterdir()} == {
            "history.sqlite": "0o600",
            "history.sqlite-wal": "0o600",
            "history.sqlite-shm": "0o600",
        }


def test_text_that_cannot_be_written_as_it_is(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts(title="\ud800 model"))
        made.recorder.mark("run-1", Mark(T, "crash", "\udfff"))
        made.recorder.end("run-1", RunEnd(T + 1, "failed: \ud83d", failed=True))
    run = made.load()
    assert (run.run.title, run.run.outcome, run.marks[0].text) == ("? model", "failed: ?", "?")


def test_readings_of_a_run_that_never_began_are_not_kept(file: Path) -> None:
    with recording(file) as made:
        made.read(T, cpu_ratio=0.5)
        made.flush()
        assert run_store.runs(file, fate=lives) == ()


# ---- several recorders -------------------------------------------------------------------------------------------


def test_a_run_goes_on_in_another_recorder_with_a_gap_in_between(file: Path) -> None:
    with recording(file) as first:
        first.recorder.begin(facts(ready_at=T))
        first.recorder.mark("run-1", Mark(T, "start", "Started"))
        first.read(T + 1, cpu_ratio=0.1, generation_tokens_per_s=10.0, interval_s=1.0)
        first.read(T + 2, cpu_ratio=0.2, generation_tokens_per_s=10.0, interval_s=1.0)
    with recording(file) as second:
        second.recorder.begin(facts(engine="", ready_at=None))
        second.recorder.mark("run-1", Mark(T, "start", "Started"))
        second.read(T + 62, requests_running=1.0, cpu_ratio=0.3, generation_tokens_per_s=30.0, interval_s=1.0)
        second.read(T + 63, cpu_ratio=0.4)
    run = second.load()
    assert run.run.ended_at is None
    assert (run.run.engine, run.run.ready_at) == ("vllm 1.0", T), "what was known before is still known"
    assert run.run.tokens == 50
    assert run.marks == (Mark(T, "start", "Started"),)
    assert run.readings.times.tolist() == [T + 1, T + 2, T + 32, T + 62, T + 63]
    cpu = run.readings.curve("cpu_ratio", 1000, T + 1000).values
    assert np.isnan(cpu).tolist() == [False, False, True, False, False]
    assert np.isnan(run.readings.values[:, 2]).all()


def test_a_run_that_ended_and_goes_on_is_open_again(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts())
        made.recorder.end("run-1", RunEnd(T + 5, "failed: x", failed=True))
        made.flush()
        made.recorder.begin(facts())
        made.flush()
        run = made.load().run
        assert (run.ended_at, run.outcome, run.failed) == (None, "runs now", False)


def test_two_recorders_write_at_the_same_time(file: Path) -> None:
    with recording(file, busy_s=LIMIT_S) as first, recording(file, busy_s=LIMIT_S) as second:
        first.recorder.begin(facts("run-1"))
        second.recorder.begin(facts("run-2"))
        for number in range(200):
            first.read(T + number, cpu_ratio=1.0)
            second.read(T + number, "run-2", cpu_ratio=2.0)
            if number % 40 == 0:
                first.flush()
                second.flush()
        first.flush()
        second.flush()
        for run_id, value in (("run-1", 1.0), ("run-2", 2.0)):
            readings = first.load(run_id).readings
            assert readings.values.tolist() == [[value] * 200]
        assert first.problems == second.problems == []


def test_another_version_of_the_engine_is_marked_at_the_start(file: Path) -> None:
    with recording(file) as made:
        for number, (profile, engine) in enumerate(
            [("mine", "vllm 1.0"), ("other", "vllm 3.0"), ("mine", "vllm 1.0"), ("mine", ""), ("mine", "vllm 2.0")]
        ):
            run = facts(f"run-{number}", profile=profile, engine=engine, started_at=T + number)
            made.recorder.begin(run)
            made.recorder.begin(run)
            made.flush()
        mark = Mark(T + 4, "version", "vllm 1.0 before, vllm 2.0 now")
        assert made.marks == [mark]
        assert [made.load(f"run-{number}").marks for number in range(5)] == [(), (), (), (), (mark,)]


# ---- a process that is killed ------------------------------------------------------------------------------------

_CHILD = """
import sys, time
from pathlib import Path
from tests.backend.telemetry.recording import Recording, facts
made = Recording(Path(sys.argv[1]), busy_s=5)
made.recorder.start()
made.recorder.begin(facts(started_at=time.time()))
while True:
    t = time.time()
    made.read(t, cpu_ratio=0.5, generation_tokens_per_s=100.0, interval_s=0.05)
    print(repr(t), flush=True)
    time.sleep(0.05)
"""


def test_a_killed_process_loses_two_seconds_at_most_and_the_next_one_goes_on(file: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(file)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )
    assert child.stdout is not None
    try:
        handed_over = [float(child.stdout.readline())]
        while handed_over[-1] < handed_over[0] + 4:
            handed_over.append(float(child.stdout.readline()))
    finally:
        os.kill(child.pid, signal.SIGKILL)
        killed_at = time.time()
        rest, _ = child.communicate()
    handed_over += [float(line) for line in rest.splitlines()[:-1]]
    # A machine that let the child stand still that long did the same to its thread.
    stood_still_s = float(np.diff([*handed_over, killed_at]).max())
    run = run_store.load(file, "run-1", fate=lives)
    kept = run.readings.times[~np.isnan(run.readings.values).all(axis=0)].tolist()
    assert kept == handed_over[: len(kept)], "nothing is missing in between"
    assert kept[-1] >= killed_at - 2 - stood_still_s
    assert run.run.tokens == pytest.approx(len(kept) * 5.0), "the sums fit what is there"
    with recording(file, busy_s=5) as made:
        made.recorder.begin(facts())
        made.read(killed_at + 30, cpu_ratio=1.0)
        made.flush()
        times = made.load().readings.times.tolist()
        assert times[-1] == killed_at + 30
        assert times[-2] == pytest.approx((kept[-1] + killed_at + 30) / 2), "a gap"
        assert made.problems == []


# ---- trouble -----------------------------------------------------------------------------------------------------


def test_a_locked_store_is_told_once_and_nothing_is_lost(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts())
        made.flush()
        with locked(file):
            made.read(T + 1, cpu_ratio=0.1)
            wait(lambda: bool(made.problems))
            made.read(T + 2, cpu_ratio=0.2)
            assert not made.recorder.flush(limit_s=0.3)
        made.flush()
        assert made.load().readings.times.tolist() == [T + 1, T + 2]
        assert len(made.problems) == 2
        assert "locked" in made.problems[0]
        assert str(file) in made.problems[0]
        assert made.problems[1] == ""


def test_while_nothing_can_be_written_the_newest_readings_are_kept(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts())
        made.flush()
        with locked(file):
            for number in range(1000):
                made.read(T + number, cpu_ratio=0.5)
                if number == 10:
                    made.recorder.mark("run-1", Mark(T + number, "chat", "chat"))
        made.flush()
        run = made.load()
        assert run.readings.times[-1] == T + 999
        assert 600 <= len(run.readings.times) < 1000
        assert len(run.marks) == 1, "what happened is not given up for readings"


def test_a_full_disk(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space is what SQLite's own limit of pages allows."""
    limit: list[int] = []
    really_open = store_file.open_for_writing

    def small(path: Path, *, busy_s: float) -> sqlite3.Connection:
        connection = really_open(path, busy_s=busy_s)
        if limit:
            connection.execute(f"PRAGMA max_page_count = {limit[0]}")
        return connection

    monkeypatch.setattr(store_file, "open_for_writing", small)
    names = [f"series_{number}" for number in range(200)]
    limit.append(12)
    with recording(file) as made:
        made.recorder.begin(facts())
        for number in range(60):
            made.recorder.reading("run-1", T + number, dict.fromkeys(names, float(number)), interval_s=1.0)
            if number < 3:
                made.flush()
        wait(lambda: bool(made.problems))
        assert "no space" in made.problems[0]
        kept = made.load().readings.times.tolist()
        assert kept[:3] == [T, T + 1, T + 2], "what was written stays readable"
        limit.clear()
        made.flush()
        assert made.problems[1:] == [""]
        assert made.load().readings.times.tolist() == [T + number for number in range(60)]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied"), "permissions"),
        (OSError(28, "No space left on device"), "no space"),
        (OSError(30, "Read-only file system"), "Read-only"),
    ],
)
def test_a_folder_that_cannot_be_written(
    file: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    real = os.open
    refusing = [True]

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if refusing and path == file:
            raise error
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    with recording(file) as made:
        made.recorder.begin(facts())
        made.read(T, cpu_ratio=0.5)
        wait(lambda: bool(made.problems))
        assert words in made.problems[0]
        refusing.clear()
        made.flush()
        assert made.problems[1:] == [""]
        assert made.load().readings.times.tolist() == [T]


def test_a_store_of_a_newer_specdeck_is_left_alone(file: Path) -> None:
    file.parent.mkdir()
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE future (x)")
        other.execute("PRAGMA user_version = 99")
    before = file.read_bytes()
    with recording(file) as made:
        made.recorder.begin(facts())
        made.read(T, cpu_ratio=0.5)
        wait(lambda: bool(made.problems))
    assert "newer Specdeck" in made.problems[0]
    assert file.read_bytes() == before
    assert made.notices == []


def test_a_file_that_is_no_store_is_set_aside(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"no database at all" * 1000)
    with recording(file) as made:
        wait(lambda: bool(made.notices))
        made.recorder.begin(facts())
        made.read(T, cpu_ratio=0.5)
        made.flush()
        assert made.load().readings.times.tolist() == [T]
    aside = file.with_name("history.sqlite.damaged-1")
    assert aside.read_bytes() == b"no database at all" * 1000
    assert aside.name in made.notices[0]
    assert (len(made.notices), made.problems) == (1, [])


def test_a_store_that_is_damaged_while_it_is_used(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts("old"))
        made.recorder.end("old", RunEnd(T, "stopped"))
        made.recorder.begin(facts())
        made.read(T, cpu_ratio=0.5)
        made.flush()
        with contextlib.closing(sqlite3.connect(file)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        file.write_bytes(b"\x00" * 100 + os.urandom(file.stat().st_size - 100))
        made.read(T + 1, cpu_ratio=0.5)
        made.flush()
        assert len(made.notices) == 1
        (run,) = run_store.runs(file, fate=lives)
        assert (run.run_id, run.title) == ("run-1", "Mine"), "the current run goes on in the new store"
        assert made.load().readings.times.tolist() == [T + 1]
        made.read(T + 2, cpu_ratio=0.5)
        made.flush()
        assert made.load().readings.times.tolist() == [T + 1, T + 2]
    assert file.with_name("history.sqlite.damaged-1").exists()


def test_a_store_that_is_deleted_while_it_is_used(file: Path) -> None:
    with recording(file) as made:
        made.recorder.begin(facts())
        made.read(T, cpu_ratio=0.5)
        made.flush()
        for path in store_file.files(file):
            path.unlink()
        made.read(T + 1, cpu_ratio=0.5)
        made.flush()
        assert made.load().readings.times.tolist() == [T + 1]


def test_closing_does_not_wait_for_a_lock_that_stays(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Recording(file)
    made.recorder.start()
    made.recorder.begin(facts())
    made.flush()
    with locked(file):
        made.read(T, cpu_ratio=0.5)
        made.recorder.close()
    assert "not recorded" in caplog.text


def test_a_bug_does_not_end_the_recording(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with recording(file) as made:
        made.recorder.begin(facts())
        made.recorder.mark("run-1", Mark(T, "chat", 1))  # type: ignore[arg-type]
        made.flush()
        made.recorder.begin(facts())
        made.read(T, cpu_ratio=0.5)
        made.flush()
        assert made.load().readings.times.tolist() == [T]
    assert "Readings were not recorded" in caplog.text


def test_nothing_is_written_where_nothing_is_recorded(file: Path) -> None:
    with recording(file) as made:
        made.recorder.tidy()
        made.flush()
    assert not file.exists()


def test_layouts_are_shared(file: Path) -> None:
    with recording(file) as made:
        for run_id in ("run-1", "run-2", "run-3"):
            made.recorder.begin(facts(run_id))
            made.read(T, run_id, a=1.0, b=2.0)
        made.flush()
        with contextlib.closing(sqlite3.connect(file)) as other:
            assert [json.loads(names) for (names,) in other.execute("SELECT names FROM layouts")] == [["a", "b"]]


def test_what_waits_is_written_in_its_order(file: Path) -> None:
    """Readings make no sense before the run that they belong to."""
    with recording(file, busy_s=1.0) as made:
        made.recorder.begin(facts("other"))
        made.flush()
        with locked(file):
            made.recorder.begin(facts())
            made.read(T, cpu_ratio=0.0)
            wait(lambda: not made.recorder._waiting)  # the thread tries to write them
            made.read(T + 1, cpu_ratio=1.0)
            made.recorder.end("run-1", RunEnd(T + 2, "stopped"))
            wait(lambda: bool(made.problems))
        made.flush()
        run = made.load()
        assert run.readings.times.tolist() == [T, T + 1]
        assert run.run.outcome == "stopped"


def test_a_good_store_is_never_set_aside(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have begun it after this one met the damage."""
    really_write = RunWriter.write
    failing = [True]

    def write(writer: RunWriter, batch: Sequence[Entry]) -> list[Mark]:
        if failing and any(isinstance(what, Figures) for _, what in batch):
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return really_write(writer, batch)

    monkeypatch.setattr(RunWriter, "write", write)
    with recording(file) as made:
        made.recorder.begin(facts())
        made.flush()
        made.read(T, cpu_ratio=0.5)
        wait(lambda: bool(made.problems))
        assert "damaged" in made.problems[0]
        failing.clear()
        made.flush()
        assert made.load().readings.times.tolist() == [T]
        assert made.notices == []
    assert [path.name for path in file.parent.iterdir()] == ["history.sqlite"]
