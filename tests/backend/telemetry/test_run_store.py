"""Recorded runs read back: the list, spans, gaps, and stores that cannot be read."""

import contextlib
import os
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from backend.errors import StoreError, UsageError
from backend.events import Mark, RunState
from backend.telemetry import run_store
from backend.telemetry.run_store import RunEnd
from backend.telemetry.run_writer import Entry, Figures, RunWriter
from tests.backend.telemetry.recording import T, facts, lives


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def figures(t: float, values: dict[str, float], *, interval_s: float = 1.0) -> Figures:
    """One reading as the recorder hands it to the writer."""
    row = np.array(list(values.values()), dtype="<f8").tobytes()
    return Figures(t, tuple(values), row, interval_s, tokens=None, busy_s=0.0, accepted=0.0, drafted=0.0)


def write(file: Path, *batch: Entry) -> None:
    writer = RunWriter(file, busy_s=5)
    writer.write(batch)
    writer.close()


def test_without_a_store_there_are_no_runs(file: Path) -> None:
    assert run_store.runs(file, fate=lives) == ()
    with pytest.raises(UsageError, match="No run run-1"):
        run_store.load(file, "run-1", fate=lives)
    assert not file.exists(), "reading makes nothing"
    file.touch()  # somebody makes it just now
    assert run_store.runs(file, fate=lives) == ()


def test_the_newest_run_comes_first(file: Path) -> None:
    for run_id, started_at in (("b", T), ("c", T + 10), ("a", T - 10)):
        write(file, (run_id, facts(run_id, started_at=started_at)))
    assert [run.run_id for run in run_store.runs(file, fate=lives)] == ["c", "b", "a"]


def test_the_list_needs_no_readings(file: Path) -> None:
    write(file, ("run-1", facts()), ("run-1", figures(T, {"a": 1.0})))
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("DROP TABLE samples")
    (run,) = run_store.runs(file, fate=lives)
    assert run.run_id == "run-1"
    assert 8 < run.size_bytes < 200


def test_how_an_open_run_ended_is_asked_for(file: Path) -> None:
    write(file, ("run-1", facts()), ("run-1", figures(T + 7, {"a": 1.0})))
    write(file, ("run-2", facts("run-2")))
    write(file, ("run-3", facts("run-3")), ("run-3", RunEnd(T + 1, "stopped")))
    asked = []

    def fate(run_id: str) -> RunEnd:
        asked.append(run_id)
        return RunEnd(None, "ended with Specdeck") if run_id == "run-1" else RunEnd(T + 3, "failed: x", failed=True)

    found = {run.run_id: run for run in run_store.runs(file, fate=fate)}
    assert sorted(asked) == ["run-1", "run-2"]
    assert (found["run-1"].ended_at, found["run-1"].outcome) == (T + 7, "ended with Specdeck"), "its last reading"
    assert (found["run-2"].ended_at, found["run-2"].outcome, found["run-2"].failed) == (T + 3, "failed: x", True)
    assert found["run-3"].outcome == "stopped"
    assert run_store.load(file, "run-1", fate=fate).run.ended_at == T + 7


@pytest.mark.parametrize(
    ("state", "cause", "wanted"),
    [
        (RunState.STOPPED, "whatever", RunEnd(T, "stopped")),
        (RunState.FAILED, "out of memory", RunEnd(T, "failed: out of memory", failed=True)),
        (RunState.FAILED, "", RunEnd(T, "failed", failed=True)),
    ],
)
def test_an_end_in_words(state: RunState, cause: str, wanted: RunEnd) -> None:
    assert RunEnd.of(state, cause, T) == wanted


def test_a_span_and_the_series_that_are_wanted(file: Path) -> None:
    rows = [("run-1", figures(T + i, {"a": float(i), "b": -float(i)})) for i in range(10)]
    marks = [("run-1", Mark(T + i + 0.5, "chat", str(i))) for i in range(10)]
    write(file, ("run-1", facts()), *rows, *marks)
    whole = run_store.load(file, "run-1", fate=lives)
    assert whole.readings.part(["b"], 200, T + 100).values.tolist() == [[-float(i) for i in range(10)]]
    part = run_store.load(file, "run-1", fate=lives, seconds=3, until=T + 6, names=["b", "c"])
    assert part.readings.names == ("b", "c")
    assert part.readings.begin == T + 3
    assert part.readings.times.tolist() == [T + 4, T + 5, T + 6]
    assert part.readings.curve("b", 100, T + 100).values.tolist() == [-4, -5, -6]
    assert np.isnan(part.readings.curve("c", 100, T + 100).values).all()
    assert [mark.text for mark in part.marks] == ["3", "4", "5"]
    newest = run_store.load(file, "run-1", fate=lives, seconds=2).readings
    assert newest.times.tolist() == [T + 8, T + 9]
    assert run_store.load(file, "run-1", fate=lives, until=T + 1).readings.times.tolist() == [T, T + 1]
    assert run_store.load(file, "run-1", fate=lives, seconds=1, until=T - 5).readings.values.shape == (0, 0)


@pytest.mark.parametrize(
    ("interval_s", "pause_s", "is_gap"), [(1.0, 12.4, False), (1.0, 12.6, True), (8.0, 19.9, False), (8.0, 20.1, True)]
)
def test_when_a_pause_is_a_gap(file: Path, interval_s: float, pause_s: float, is_gap: bool) -> None:
    """After two and a half intervals; while the window is hidden an interval is 5 s."""
    times = [T, T + 1, T + 1 + pause_s]
    write(
        file,
        ("run-1", facts()),
        *(("run-1", figures(t, {"a": 1.0}, interval_s=interval_s)) for t in times),
    )
    readings = run_store.load(file, "run-1", fate=lives).readings
    if is_gap:
        times.insert(2, T + 1 + pause_s / 2)
    assert readings.times.tolist() == pytest.approx(times)
    assert np.isnan(readings.values[0]).tolist() == ([False, False, True, False] if is_gap else [False] * 3)


def test_series_that_come_later_and_in_another_order(file: Path) -> None:
    rows = [{"a": 1.0}, {"a": 2.0, "b": 3.0}, {"b": 4.0, "a": 5.0}, {"c": 6.0}, {"a": 7.0}]
    write(file, ("run-1", facts()), *(("run-1", figures(T + i, row)) for i, row in enumerate(rows)))
    readings = run_store.load(file, "run-1", fate=lives).readings
    for name in "abc":
        wanted = [row.get(name, np.nan) for row in rows]
        np.testing.assert_array_equal(readings.curve(name, 10, T + 10).values, wanted)


def test_a_clock_that_was_set_back(file: Path) -> None:
    times = [T, T + 1, T + 0.5, T + 2]
    write(file, ("run-1", facts()), *(("run-1", figures(t, {"a": t})) for t in times))
    readings = run_store.load(file, "run-1", fate=lives).readings
    assert readings.times.tolist() == readings.values[0].tolist() == sorted(times)


def test_a_day_of_eight_gpus(file: Path) -> None:
    """Loaded whole within seconds, while other threads get their turn and a recorder goes on writing."""
    n = 86_400
    names = tuple(f"GPU-{gpu}/figure_{number}" for gpu in range(8) for number in range(25))
    values = np.random.default_rng(1).random((n, len(names)))
    writer = RunWriter(file, busy_s=5)
    writer.write([("run-1", facts())])
    for first in range(0, n, 3600):
        part = [Figures(T + i, names, values[i].tobytes(), 1.0, 5.0, 1.0, 1.0, 2.0) for i in range(first, first + 3600)]
        writer.write([("run-1", one) for one in part])
    longest_s = [0.0]
    ended = threading.Event()

    def beat() -> None:
        last_s = time.perf_counter()
        while not ended.is_set():
            time.sleep(0.001)
            now_s = time.perf_counter()
            longest_s[0], last_s = max(longest_s[0], now_s - last_s), now_s

    other = threading.Thread(target=beat)
    other.start()
    try:
        cpu_s = time.process_time()
        run = run_store.load(file, "run-1", fate=lives)
        cpu_s = time.process_time() - cpu_s
    finally:
        ended.set()
        other.join()
    assert run.readings.names == names
    assert run.readings.times[[0, -1]].tolist() == [T, T + n - 1]
    np.testing.assert_array_equal(run.readings.values, values.T)
    assert run.run.tokens == 5.0 * n
    assert cpu_s < 20, "one second on an idle machine"
    assert longest_s[0] < 1, "five milliseconds on an idle machine"
    cpu_s = time.process_time()
    assert len(run_store.runs(file, fate=lives)) == 1
    assert time.process_time() - cpu_s < 1
    writer.close()


def test_reading_while_a_recorder_writes(file: Path) -> None:
    """Each read sees a whole state: as many readings as the sums of the run say."""
    write(file, ("run-1", facts()))
    ended = threading.Event()

    def fill() -> None:
        writer = RunWriter(file, busy_s=60)
        i = 0
        while not ended.is_set():
            values = [np.array([i + j], "<f8").tobytes() for j in range(7)]
            part = [Figures(T + i + j, ("a",), row, 1.0, 1.0, 1.0, 0.0, 0.0) for j, row in enumerate(values)]
            writer.write([("run-1", one) for one in part])
            i += 7
        writer.close()

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        counts: list[int] = []
        deadline_s = time.monotonic() + 60
        while len(set(counts)) < 10 and time.monotonic() < deadline_s:
            run = run_store.load(file, "run-1", fate=lives)
            counts.append(len(run.readings.times))
            assert run.readings.values.tolist() == ([[float(i) for i in range(counts[-1])]] if counts[-1] else [])
            assert (run.run.tokens or 0) == counts[-1]
            assert counts[-1] % 7 == 0
    finally:
        ended.set()
        thread.join()
    assert len(set(counts)) >= 10


# ---- stores that cannot be read ----------------------------------------------------------------------------------


def test_a_folder_in_which_nobody_may_write(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite wants to put a file beside a store with a log, unless it is told that nobody changes it."""
    write(file, ("run-1", facts()))
    real = sqlite3.connect

    class Refusing(sqlite3.Connection):
        def execute(self, *_: object) -> sqlite3.Cursor:
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DIRECTORY
            raise error

    def connect(place: str, **more: object) -> sqlite3.Connection:
        kind = sqlite3.Connection if "immutable=1" in place else Refusing
        return real(place, factory=kind, **more)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert [run.run_id for run in run_store.runs(file, fate=lives)] == ["run-1"]


def test_a_newer_schema_is_said(file: Path) -> None:
    write(file, ("run-1", facts()))
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreError, match="newer Specdeck"):
        run_store.runs(file, fate=lives)


def test_a_damaged_store_is_said_and_left_alone(file: Path) -> None:
    file.write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match=f"damaged.*{file}"):
        run_store.runs(file, fate=lives)
    assert file.read_bytes() == b"x" * 5000


def test_damaged_readings_are_said(file: Path) -> None:
    write(file, ("run-1", facts()), ("run-1", figures(T, {"a": 1.0, "b": 2.0})))
    with contextlib.closing(sqlite3.connect(file)) as other, other:
        other.execute("UPDATE samples SET figures = x'0011223344556677'")
    with pytest.raises(StoreError, match="damaged"):
        run_store.load(file, "run-1", fate=lives)
    with contextlib.closing(sqlite3.connect(file)) as other, other:
        other.execute("DELETE FROM layouts")
    with pytest.raises(StoreError, match="damaged"):
        run_store.load(file, "run-1", fate=lives)


def test_no_connection_is_left_open(file: Path) -> None:
    write(file, ("run-1", facts()))
    with pytest.raises(UsageError):
        run_store.load(file, "run-2", fate=lives)
    run_store.load(file, "run-1", fate=lives)
    held = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert not [path for path in held if path.startswith(str(file))]
