"""GPUs in the readings of a desk: figures, whose memory it is, and what is read when."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.desk.desk import Desk
from backend.events import RunState
from backend.hardware import GpuReading, GpuSnapshot, Why
from backend.launch import processes
from backend.telemetry import gpus
from tests.backend.desk.home import Told, open_desk, prepare_home
from tests.backend.telemetry.scripted_sampler import Script, is_alive
from tests.e2e.fake_environment import Traces

# Says what it was told to do in place of the driver's version.
ECHO = """
for line in sys.stdin:
    say("GPU-1", driver=line.strip(), interval_s=60.0)
"""
# Names the processes that stand in a file, each with 2 GB.
NAMES = """
while True:
    pids = json.loads(NAMED.read_text()) if NAMED.exists() else [1]
    say("GPU-1", used=10e9, processes=tuple(GpuProcess(pid, 2_000_000_000) for pid in pids))
    time.sleep(0.05)
"""


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Script]:
    def start_this(code: str) -> Script:
        script = Script(tmp_path, f"NAMED = Path({str(tmp_path / 'named')!r})\n{code}")
        monkeypatch.setattr(gpus, "ARGV", script.argv)
        return script

    return start_this


def newest(told: Told) -> GpuSnapshot | None:
    return told.readings[-1].gpus if told.readings else None


def only_reading(told: Told) -> GpuReading | None:
    snapshot = newest(told)
    return snapshot.readings[0] if snapshot and snapshot.readings else None


async def test_figures_are_in_the_readings_and_all_is_ended_at_the_end(use: Callable[[str], Script]) -> None:
    script = use("go_on('GPU-1', used=5e9)")
    async with open_desk() as (_, told):
        await told.wait(lambda: only_reading(told) is not None)
        assert told.readings[0].gpus is None  # the first reading waits for no GPU
        reading = only_reading(told)
        assert reading is not None
        assert (reading.memory_used_bytes, reading.engine_bytes, reading.other_bytes) == (5e9, 0.0, 5e9)
    assert script.pids
    assert not any(map(is_alive, script.pids))


async def test_a_crash_is_a_problem_in_the_readings_and_the_rest_goes_on(use: Callable[[str], Script]) -> None:
    use("os.kill(os.getpid(), signal.SIGSEGV)")
    async with open_desk() as (_, told):
        await told.wait(lambda: newest(told) is not None)
        snapshot = newest(told)
        assert snapshot is not None
        assert snapshot.problem.startswith("NVML crashed (signal 11).")
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) > n_before)


async def test_a_sampler_that_hangs_holds_up_no_reading(use: Callable[[str], Script]) -> None:
    script = use("hang()")
    async with open_desk() as (_, told):
        await told.wait(lambda: bool(script.pids))
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) >= n_before + 2)
        assert newest(told) is None


async def wishes(desk: Desk, told: Told, **expected: object) -> None:
    def are_told() -> bool:
        snapshot = newest(told)
        return snapshot is not None and expected.items() <= json.loads(snapshot.driver).items()

    desk._wake.set()  # hidden, it would take 5 s to the next reading
    await told.wait(are_told)


async def test_what_is_read_follows_window_charts_and_settings(use: Callable[[str], Script]) -> None:
    use(ECHO)
    async with open_desk() as (desk, told):
        await desk.change_settings(sample_interval_s=0.25)
        await wishes(desk, told, interval_s=0.5, activity=False, pcie_snapshot=False, peaks={}, processes=True)
        await desk.show_activity(True)
        await wishes(desk, told, activity=True)
        await desk.change_settings(gpu_profiling=False)
        await wishes(desk, told, activity=False)
        await desk.change_settings(gpu_profiling=True, gpu_interval_s=1.5, gpu_pcie_snapshot=True)
        await wishes(desk, told, activity=True, interval_s=1.5, pcie_snapshot=True)
        await desk.set_visible(False)
        await wishes(desk, told, activity=False, interval_s=5.0)
        await desk.change_settings(gpu_peak_bytes_per_s={"GPU-1": 1e12})
        await wishes(desk, told, activity=False, interval_s=5.0, peaks={"GPU-1": 1e12})
        await desk.set_visible(True)
        await wishes(desk, told, activity=True, interval_s=1.5)
        await desk.show_activity(False)
        await wishes(desk, told, activity=False, interval_s=1.5)


async def test_a_slower_interval_is_not_quickened_by_hiding(use: Callable[[str], Script]) -> None:
    use(ECHO)
    async with open_desk() as (desk, told):
        await desk.change_settings(gpu_interval_s=20.0)
        await desk.set_visible(False)
        await wishes(desk, told, interval_s=20.0)


async def start_engine(desk: Desk, told: Told, port: int) -> Traces:
    await desk.runs.start("mine")
    await told.wait_for(RunState.READY)
    return Traces.of_listener(port)


async def test_memory_of_the_engine_is_that_of_its_processes(use: Callable[[str], Script], tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    use(NAMES)
    async with open_desk() as (desk, told):
        await desk.change_settings(sample_interval_s=0.25)
        await start_engine(desk, told, port)
        run = desk.runs.current
        assert run is not None
        core = next(stat.pid for stat in processes.members(run.record.identity) if stat.pid != run.record.pid)
        (tmp_path / "new").write_text(json.dumps([core, os.getpid(), run.record.pid]))
        (tmp_path / "new").rename(tmp_path / "named")
        await told.wait(lambda: (reading := only_reading(told)) is not None and reading.engine_bytes == 4e9)
        reading = only_reading(told)
        assert reading is not None
        assert reading.other_bytes == 6e9
        assert reading.processes is not None
        assert {each.pid for each in reading.processes if each.is_engine} == {core, run.record.pid}
        await desk.runs.stop()
        await told.wait(lambda: (reading := only_reading(told)) is not None and reading.engine_bytes == 0.0)


async def test_an_engine_that_is_on_no_gpu_holds_nothing(use: Callable[[str], Script], tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    use(NAMES)
    async with open_desk() as (desk, told):
        await desk.change_settings(sample_interval_s=0.25)
        await start_engine(desk, told, port)
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) > n_before + 2 and only_reading(told) is not None)
        await told.wait(lambda: (reading := only_reading(told)) is not None and reading.engine_bytes == 0.0)
        states = {reading.gpus.readings[0].engine_bytes for reading in told.readings if reading.gpus}
        assert states <= {0.0, None}


async def test_in_a_container_that_hides_processes_the_share_is_unknown(
    use: Callable[[str], Script], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_FIRST_PID_NAMESPACE", 1)
    port = prepare_home(tmp_path)
    (tmp_path / "named").write_text(json.dumps([2**22 + 7]))
    use(NAMES)
    async with open_desk() as (desk, told):
        await desk.change_settings(sample_interval_s=0.25)
        await told.wait(lambda: (reading := only_reading(told)) is not None and reading.engine_bytes == 0.0)
        await start_engine(desk, told, port)
        await told.wait(
            lambda: (reading := only_reading(told)) is not None and reading.why.get("engine_bytes") is Why.HIDDEN
        )
        reading = only_reading(told)
        assert reading is not None
        assert (reading.engine_bytes, reading.other_bytes) == (None, None)


async def test_closing_does_not_wait_for_a_sampler_that_hangs(use: Callable[[str], Script]) -> None:
    script = use("say('GPU-1'); hang()")
    async with open_desk() as (_, told):
        await told.wait(lambda: newest(told) is not None)
    assert not any(map(is_alive, script.pids))
