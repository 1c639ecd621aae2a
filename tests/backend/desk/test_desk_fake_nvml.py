"""A desk, the real sampler and the real pynvml on the fake NVML: figures, lost GPUs, crashes, hangs, no driver."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from backend.events import RunState
from backend.hardware import GpuReading, GpuSnapshot, Why
from backend.launch import processes
from backend.telemetry import gpus
from backend.telemetry.gpus import Timing
from tests.backend.desk.home import Told, open_desk, prepare_home
from tests.fakes.fake_nvml import DRIVER_NOT_LOADED, LOST, MISMATCH, FakeNvml, uuid

USED = "nvmlDeviceGetUtilizationRates"  # called at each tick


@pytest.fixture
def nvml(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """The library that samplers of this test load."""
    for name, value in fake_nvml.environment.items():
        monkeypatch.setenv(name, value)
    return fake_nvml


def limits(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    monkeypatch.setattr(gpus, "Timing", lambda: replace(Timing(), **changes))  # type: ignore[arg-type]


def newest(told: Told) -> GpuSnapshot:
    snapshot = told.readings[-1].gpus if told.readings else None
    return snapshot or GpuSnapshot(t=0.0, problem="nothing yet")


def reading(told: Told, gpu: int) -> GpuReading:
    found = [each for each in newest(told).readings if each.uuid == uuid(gpu)]
    return found[0] if found else GpuReading(uuid(gpu), 0.0)


def is_good(told: Told) -> bool:
    return not newest(told).problem and not newest(told).stale


async def test_values_arrive_and_change(nvml: FakeNvml) -> None:
    nvml.say("memory_used * 31e9", "busy 0 97", "busy 1 12")
    async with open_desk() as (_, told):
        await told.wait(lambda: is_good(told))
        snapshot = newest(told)
        assert (snapshot.driver, snapshot.cuda is not None, len(snapshot.gpus)) == ("580.95.05", True, 2)
        assert [gpu.uuid for gpu in snapshot.gpus] == [uuid(0), uuid(1)]
        assert [each.busy_ratio for each in snapshot.readings] == [0.97, 0.12]
        assert reading(told, 0).memory_used_bytes == 31e9
        assert reading(told, 0).other_bytes == 31e9
        nvml.say("busy 1 55")
        await told.wait(lambda: reading(told, 1).busy_ratio == 0.55)
        assert nvml.calls("nvmlInitWithFlags") == 1


async def test_bandwidth_is_measured_only_while_its_chart_is_shown(nvml: FakeNvml) -> None:
    async with open_desk() as (desk, told):
        await told.wait(lambda: is_good(told))
        assert reading(told, 0).dram_ratio is None
        assert reading(told, 0).why["dram_ratio"] is Why.NOT_READ
        await desk.show_activity(True)
        await told.wait(lambda: reading(told, 0).dram_ratio == 0.62)
        await desk.show_activity(False)
        await told.wait(lambda: reading(told, 0).dram_ratio is None)
        calls = nvml.calls("nvmlGpmSampleGet")
        await desk.change_settings(gpu_profiling=False)
        await desk.show_activity(True)
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) >= n_before + 3)
        assert nvml.calls("nvmlGpmSampleGet") == calls


async def test_memory_is_split_by_the_processes_of_the_engine(nvml: FakeNvml, tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    assert port
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        run = desk.runs.current
        assert run is not None
        core = next(stat.pid for stat in processes.members(run.record.identity) if stat.pid != run.record.pid)
        nvml.say("memory_used * 31e9", f"process 0 compute {core} 24e9", f"process 0 graphics {os.getpid()} 2e9")
        await told.wait(lambda: reading(told, 0).engine_bytes == 24e9 and reading(told, 0).memory_used_bytes == 31e9)
        assert reading(told, 0).other_bytes == 7e9
        await told.wait(lambda: reading(told, 1).engine_bytes == 0.0)
        nvml.unsay("process 0 compute")
        nvml.say(f"process 0 compute {core} -1")
        await told.wait(lambda: reading(told, 0).why.get("engine_bytes") is Why.NOT_SUPPORTED)
        assert reading(told, 0).engine_bytes is None


async def test_one_gpu_is_lost_and_the_other_goes_on(nvml: FakeNvml) -> None:
    async with open_desk() as (_, told):
        await told.wait(lambda: is_good(told) and len(newest(told).readings) == 2)
        nvml.say("lost 1 1", "busy 0 33")
        await told.wait(lambda: reading(told, 1).lost and reading(told, 0).busy_ratio == 0.33)
        assert is_good(told)
        assert reading(told, 1).memory_used_bytes is None
        assert reading(told, 1).why["memory_used_bytes"] is Why.LOST
        assert reading(told, 1).why["engine_bytes"] is Why.LOST


async def test_a_segfault_in_nvml_is_told_and_followed_by_a_new_start(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(monkeypatch, back_off_s=(3.0,))
    async with open_desk() as (_, told):
        await told.wait(lambda: is_good(told))
        nvml.say(f"fault 0 {USED} crash")
        await told.wait(lambda: newest(told).problem.startswith("NVML crashed (signal 11)."))
        assert newest(told).stale
        assert len(newest(told).gpus) == 2
        nvml.unsay("fault")
        await told.wait(lambda: is_good(told))
        assert nvml.calls("nvmlInitWithFlags") == 2


async def test_a_call_that_hangs_makes_figures_old_and_the_sampler_is_replaced(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(monkeypatch, stale_s=1.5, silence_s=4.0, back_off_s=(0.1, 0.1, 0.1))
    async with open_desk() as (_, told):
        await told.wait(lambda: is_good(told))
        n_before = len(told.readings)
        nvml.say(f"fault 1 {USED} hang")
        await told.wait(lambda: newest(told).stale)
        await told.wait(lambda: "has not answered" in newest(told).problem)
        nvml.unsay("fault")
        await told.wait(lambda: is_good(told))
        while_it_hung = [each.gpus for each in told.readings[n_before:]]
        assert all(while_it_hung)
        assert len(told.readings) - n_before > 3  # the desk went on reading
        assert nvml.calls("nvmlInitWithFlags") >= 2


async def test_a_driver_that_was_updated_is_told_until_it_fits(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, retry_s=0.1, back_off_s=(3600.0,))
    nvml.say(f"fault * nvmlInitWithFlags return {MISMATCH}")
    async with open_desk() as (_, told):
        await told.wait(lambda: "was updated" in newest(told).problem)
        assert not newest(told).stale
        await told.wait(
            lambda: nvml.calls("nvmlInitWithFlags") >= 3
        )  # each by a new process, which loads the new library
        nvml.unsay("fault")
        await told.wait(lambda: is_good(told))


async def test_a_driver_that_is_not_loaded_is_told_and_the_sampler_waits_for_it(nvml: FakeNvml) -> None:
    nvml.say(f"fault * nvmlInitWithFlags return {DRIVER_NOT_LOADED}")
    async with open_desk() as (_, told):
        await told.wait(lambda: "not loaded" in newest(told).problem)
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) >= n_before + 6)
        assert "not loaded" in newest(told).problem
        assert not newest(told).stale


async def test_a_machine_without_the_library_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("This is no library, and stands before one that there may be. " * 100)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    async with open_desk() as (_, told):
        await told.wait(lambda: "is not installed" in newest(told).problem)
        assert newest(told).gpus == ()


async def test_all_gpus_lost_are_no_problem_of_the_desk(nvml: FakeNvml) -> None:
    async with open_desk() as (_, told):
        await told.wait(lambda: is_good(told))
        nvml.say("lost * 1", f"fault * nvmlDeviceGetHandleByIndex_v2 return {LOST}")
        await told.wait(lambda: all(each.lost for each in newest(told).readings))
        assert len(newest(told).readings) == 2
