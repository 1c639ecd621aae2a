"""Calibration as window and command line ask for it: engine, GPUs, what refuses it, progress, and giving it up."""

import asyncio
import time
from pathlib import Path

import pytest

from backend.calibration import Calibration
from backend.control import Control
from backend.desk.calibration import CalibrationRoom, measure
from backend.desk.types import Event, JobProgress
from backend.errors import EngineEnvironmentError, UsageError, UserError
from backend.events import RunState, RunStatus
from backend.hardware import Gpu, NvidiaDriver
from backend.launch import calibrate, environments
from backend.launch.calibrate import CalibrationStep
from backend.telemetry import calibration as store
from backend.telemetry import nvml
from tests.backend.launch.calibration_cases import (
    ALL_REDUCE,
    FIRST,
    GB,
    SECOND,
    add_environment,
    gpu,
    tell_torch,
)
from tests.backend.launch.runs import wait_for

LIMIT_S = 60.0
DRIVER = NvidiaDriver("580.95", (13, 0), tuple(Gpu(uuid, "NVIDIA Fake", None, None) for uuid in (FIRST, SECOND)))
RUNNING = RunStatus("20260101-mine", "mine", RunState.READY, "http://127.0.0.1:1", time.time())


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, and no vLLM of the person who runs the tests."""
    monkeypatch.setattr(environments, "find_installed", lambda: ())
    monkeypatch.setattr(nvml, "ask_child", lambda: DRIVER)
    monkeypatch.setattr(calibrate, "_free_memory_bytes", lambda: 64 * GB)
    tell_torch(monkeypatch, gpus=[gpu(), gpu(name="NVIDIA Other")], all_reduce=ALL_REDUCE)


@pytest.fixture
def control() -> Control:
    return Control()


def test_all_gpus_and_the_result_is_kept(control: Control, tmp_path: Path) -> None:
    add_environment(tmp_path / "engine", "cuda")
    found = measure(control, quick=True)
    assert [device.id for device in found.devices] == [FIRST, SECOND]
    assert (found.driver, found.machine, found.quick) == ("580.95", store.machine_id(), True)
    assert store.load() == found


def test_named_gpus_in_their_order(control: Control, tmp_path: Path) -> None:
    add_environment(tmp_path / "engine", "cuda")
    found = measure(control, gpus=(SECOND, FIRST, SECOND), quick=True)
    assert [device.id for device in found.devices] == [SECOND, FIRST]
    with pytest.raises(UsageError, match="There is no GPU GPU-9"):
        measure(control, gpus=("GPU-9",))
    assert store.load() == found


def test_a_named_engine_for_the_processor(control: Control, tmp_path: Path) -> None:
    add_environment(tmp_path / "cuda", "cuda")
    add_environment(tmp_path / "slow", "cpu")
    found = measure(control, environment_id="slow", quick=True)
    assert [device.id for device in found.devices] == ["cpu"]
    assert found.driver == ""
    with pytest.raises(UsageError, match="slow is a CPU build"):
        measure(control, environment_id="slow", gpus=(FIRST,))
    with pytest.raises(UsageError, match="no engine environment named 'other'"):
        measure(control, environment_id="other")


def test_what_cannot_measure(control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineEnvironmentError, match="No vLLM is installed"):
        measure(control)
    add_environment(tmp_path / "amd", "rocm")
    with pytest.raises(EngineEnvironmentError, match="only NVIDIA GPUs and processors"):
        measure(control, environment_id="amd")
    add_environment(tmp_path / "engine", "cuda")
    monkeypatch.setattr(nvml, "ask_child", lambda: "no library")
    with pytest.raises(EngineEnvironmentError, match="no library"):
        measure(control, environment_id="engine")
    monkeypatch.setattr(nvml, "ask_child", lambda: NvidiaDriver("580", (13, 0), ()))
    with pytest.raises(EngineEnvironmentError, match="it shows no GPU"):
        measure(control, environment_id="engine")
    assert store.load() is None


def test_a_running_engine_refuses_it(control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_environment(tmp_path / "engine")
    before = measure(control, quick=True)
    monkeypatch.setattr(control, "live_runs", lambda: [RUNNING])
    with pytest.raises(UserError) as caught:
        measure(control)
    assert caught.value.message == "An engine runs (20260101-mine)."
    assert caught.value.what_to_do == "Stop the engine first: it would disturb the measurement."
    assert store.load() == before


@pytest.mark.parametrize("when", ["copying", "float32"])
def test_an_engine_that_is_started_meanwhile(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It ends at the next step, and also after the last one nothing is kept."""
    add_environment(tmp_path / "engine")
    runs: list[RunStatus] = []
    seen: list[str] = []
    monkeypatch.setattr(control, "live_runs", lambda: runs)

    def start(step: CalibrationStep) -> None:
        seen.append(step.text)
        if when in step.text:
            runs.append(RUNNING)

    with pytest.raises(UserError, match="An engine runs"):
        measure(control, quick=True, on_step=start)
    assert when in seen[-1]
    assert store.load() is None


def test_a_failure_leaves_the_old_result(control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_environment(tmp_path / "engine")
    before = measure(control, quick=True)
    tell_torch(monkeypatch, fault={"at": "mm", "how": "kill"})
    with pytest.raises(UserError, match="SIGKILL"):
        measure(control, quick=True)
    assert store.load() == before


# ---- the room of the window ----------------------------------------------------------------------------------------


async def test_room(control: Control, tmp_path: Path) -> None:
    add_environment(tmp_path / "engine")
    told: list[Event] = []
    room = CalibrationRoom(control, told.append)
    assert await room.last() is None
    found = await room.run(quick=True)
    assert await room.last() == found
    steps = [event for event in told if isinstance(event, JobProgress)]
    assert {step.job for step in steps} == {"calibration"}
    assert steps[0].text == "Looking at this machine"
    assert steps[-1].text.endswith("matrix products, float32")
    assert steps[-1].fraction == 0.8


async def test_room_tells_that_an_engine_was_asked(control: Control, tmp_path: Path) -> None:
    from backend import paths

    add_environment(tmp_path / "engine")
    for kept in (paths.folders().cache / "probes").iterdir():
        kept.unlink()
    told: list[Event] = []
    await CalibrationRoom(control, told.append).run(quick=True)
    assert JobProgress("engines", "") in told


async def begun(room: CalibrationRoom, mark: Path) -> "asyncio.Task[Calibration]":
    """A measurement that hangs where `mark` says."""
    task = asyncio.create_task(room.run())
    await asyncio.to_thread(wait_for, mark.exists, limit_s=LIMIT_S)
    return task


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that hangs in the middle, and the file that says so."""
    add_environment(tmp_path / "engine")
    tell_torch(monkeypatch, fault={"at": "mm", "how": "hang", "mark": str(tmp_path / "mark")})
    return tmp_path / "mark"


async def test_cancel(control: Control, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = CalibrationRoom(control, lambda _event: None)
    await room.cancel()  # nothing is under way
    task = await begun(room, mark)
    with pytest.raises(UserError, match="under way already"):
        await room.run()
    await room.cancel()
    with pytest.raises(UserError, match="was cancelled"):
        await task
    assert await room.last() is None
    tell_torch(monkeypatch)
    assert (await room.run(quick=True)).devices  # it can be done again


@pytest.mark.parametrize("how", ["close", "task"])
async def test_close(control: Control, mark: Path, how: str) -> None:
    room = CalibrationRoom(control, lambda _event: None)
    task = await begun(room, mark)
    if how == "close":
        await room.close()
        with pytest.raises(UserError, match="was cancelled"):
            await task
        with pytest.raises(UserError):
            await room.run()
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
