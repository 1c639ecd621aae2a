"""The sampler child with the real pynvml on the compiled fake: its pace, its commands, its ends, its failures."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.hardware import GpuSnapshot, NvidiaDriver, PeakSource, Why
from backend.telemetry import nvml
from backend.telemetry.gpu_messages import Decoder
from backend.telemetry.gpu_sampler import Pace
from tests.backend.telemetry.sampler_child import ARGV, LIMIT_S, SamplerChild
from tests.fakes.fake_nvml import DRIVER_NOT_LOADED, MISMATCH, FakeNvml, uuid
from tests.fakes.fixtures import wait_for


def busy(snapshot: GpuSnapshot) -> list[float | None]:
    return [each.busy_ratio for each in snapshot.readings]


# ---- what it says -------------------------------------------------------------------------------------------


def test_values_follow_the_driver_and_nvml_starts_once(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment) as child:
        first = child.next()
        assert busy(first) == [0.97, 0.97]
        assert first.driver == "580.95.05"
        assert first.readings[0].why["pcie_rx_bytes_per_s"] is Why.NOT_YET
        second = child.next()
        assert second.gpus == first.gpus
        assert second.links == first.links
        assert second.cost_s is not None
        assert second.cost_s > 0
        rate = second.readings[0].pcie_rx_bytes_per_s
        assert rate == pytest.approx(3.4e9, rel=1e-3)  # by the fake's own clock
        fake_nvml.say("busy 1 12")
        assert busy(child.until(lambda snapshot: snapshot.readings[1].busy_ratio == 0.12)) == [0.97, 0.12]
        fake_nvml.say("power_limit_mw 0 300000")
        child.until(lambda snapshot: snapshot.gpus[0].power_limit_w == 300.0)
        assert fake_nvml.calls("nvmlInitWithFlags") == 1
        assert fake_nvml.calls("nvmlShutdown") == 0


def test_eight_gpus(fake_nvml: FakeNvml) -> None:
    fake_nvml.say("gpus * 8", *(f"busy {gpu} {gpu * 10}" for gpu in range(8)))
    with SamplerChild(fake_nvml.environment) as child:
        snapshot = child.next()
        assert busy(snapshot) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
        assert [gpu.uuid for gpu in snapshot.gpus] == [uuid(gpu) for gpu in range(8)]
        assert len(snapshot.links) == 28


def test_one_gpu_lost_in_mid_run_and_back(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment, "--rescan", "0.5") as child:
        assert busy(child.next()) == [0.97, 0.97]
        fake_nvml.say("lost 0 1")
        assert busy(child.until(lambda snapshot: snapshot.readings[0].lost)) == [None, 0.97]
        fake_nvml.say("lost 0 0", "generation 0 1", "busy 0 55")
        back = child.until(lambda snapshot: not snapshot.readings[0].lost)
        assert busy(back) == [0.55, 0.97]
        assert fake_nvml.calls("nvmlInitWithFlags") == 1


def test_once_is_one_whole_snapshot_with_rates(fake_nvml: FakeNvml) -> None:
    done = subprocess.run(
        [*ARGV, "--once", "--activity", "--peak", f"{uuid(1)}=1e12"],
        env={**os.environ, **fake_nvml.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=LIMIT_S,
    )
    (line,) = done.stdout.splitlines()
    snapshot = Decoder().snapshot(line)
    for reading in snapshot.readings:
        assert reading.why == {}
    assert snapshot.readings[1].dram_bytes_per_s == pytest.approx(0.62e12)
    assert snapshot.gpus[1].peak_source is PeakSource.USER
    assert done.stderr == b""


# ---- commands -----------------------------------------------------------------------------------------------


def test_counters_are_read_from_the_command_on_and_no_longer_than_wanted(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment) as child:
        for _ in range(3):
            assert child.next().readings[0].why["dram_ratio"] is Why.NOT_READ
        assert fake_nvml.calls("nvmlGpmSampleGet") == fake_nvml.calls("nvmlGpmMetricsGet") == 0
        child.tell(activity=True)
        shown = child.until(lambda snapshot: snapshot.readings[1].dram_ratio is not None)
        assert shown.readings[1].dram_ratio == pytest.approx(0.62)
        child.tell(activity=False)
        child.until(lambda snapshot: snapshot.readings[0].why.get("dram_ratio") is Why.NOT_READ)
        calls = fake_nvml.calls("nvmlGpmSampleGet")
        for _ in range(2):
            child.next()
        assert fake_nvml.calls("nvmlGpmSampleGet") == calls


def test_every_option_can_be_changed_while_it_runs(fake_nvml: FakeNvml) -> None:
    fake_nvml.say("process * compute 3999999 1e9", "field_return * 198 3", "gpm_supported * 0")
    with SamplerChild(fake_nvml.environment, "--no-processes") as child:
        snapshot = child.next()
        assert snapshot.readings[0].why["processes"] is Why.NOT_READ
        assert snapshot.readings[0].why["pcie_rx_bytes_per_s"] is Why.NOT_READ
        child.tell(processes=True, pcie_snapshot=True, peaks={uuid(0): 2e12})
        snapshot = child.until(lambda snapshot: snapshot.readings[0].processes)
        assert snapshot.readings[0].pcie_rx_bytes_per_s == 3.4e9
        assert snapshot.gpus[0].peak_bytes_per_s == 2e12


def test_a_shorter_interval_takes_effect_at_once(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment, interval="600") as child:
        assert child.next().interval_s == 600.0
        child.tell(interval_s=0.3)
        child.until(lambda snapshot: snapshot.interval_s == 0.3)


def test_what_is_no_command_is_ignored(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment) as child:
        child.next()
        assert child.process.stdin is not None
        child.process.stdin.write(b'nonsense\n{"spin": 1}\n\xff\n{"interval_s": ')
        child.process.stdin.write(b"0.5}\n")  # a line may come in parts
        child.until(lambda snapshot: snapshot.interval_s == 0.5)
        child.end_input()
        assert child.ended() == 0
        assert child.words().count("Ignored a command") == 3


# ---- pace ---------------------------------------------------------------------------------------------------


def test_never_faster_than_four_times_a_second(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment, interval="0.001") as child:
        child.tell(interval_s=0)
        times = [child.next().t for _ in range(5)]
    assert times[-1] - times[0] > 0.9  # four intervals, of which a busy machine may shift the ends


def test_costly_ticks_come_less_often_until_they_are_cheap(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment) as child:
        child.next()
        fake_nvml.say("fault 0 nvmlDeviceGetUtilizationRates slow 80000")
        child.until(lambda snapshot: snapshot.interval_s > 0.25 and (snapshot.cost_s or 0.0) > 0.08)
        fake_nvml.unsay("fault")
        child.until(lambda snapshot: snapshot.interval_s == 0.25)


def test_pace_doubles_when_ticks_cost_over_a_fifth_and_comes_back() -> None:
    pace = Pace()

    def intervals(*costs: float) -> list[float]:
        told = []
        for cost_s in costs:
            pace.took(cost_s, wanted_s=0.5)
            told.append(pace.interval_s(0.5))
        return told

    assert pace.interval_s(0.5) == 0.5
    assert intervals(0.09, 0.09, 0.09) == [0.5, 0.5, 0.5]
    assert intervals(0.11, 0.09, 0.11, 0.11) == [0.5, 0.5, 0.5, 1.0]  # one alone is the machine, not the driver
    assert intervals(0.11, 0.11, 0.11) == [1.0, 1.0, 1.0]  # 11 % now
    assert intervals(0.04, 0.04, 0.04, 0.04, 0.11) == [1.0] * 5
    assert intervals(0.04, 0.04, 0.04, 0.04, 0.04) == [1.0] * 4 + [0.5]


@given(st.lists(st.floats(0, 100), max_size=200), st.floats(0.25, 5))
def test_pace_has_its_limits_and_always_comes_back(costs: list[float], wanted_s: float) -> None:
    pace = Pace()
    for cost_s in costs:
        pace.took(cost_s, wanted_s=wanted_s)
        assert wanted_s <= pace.interval_s(wanted_s) <= 8 * wanted_s
    for _ in range(4 * 5):
        pace.took(0.0, wanted_s=wanted_s)
    assert pace.interval_s(wanted_s) == wanted_s


# ---- ends ---------------------------------------------------------------------------------------------------


def test_ends_with_its_input_and_says_nothing(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment, interval="600") as child:
        child.next()
        child.end_input()
        assert child.ended() == 0
        assert child.words() == ""


def test_an_interrupt_from_the_terminal_is_for_the_program(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment) as child:
        child.next()
        child.process.send_signal(signal.SIGINT)
        for _ in range(3):
            assert child.next().problem == ""


def test_ends_when_nobody_reads_it(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment) as child:
        child.next()
        assert child.process.stdout is not None
        child.process.stdout.close()
        assert child.ended() == -signal.SIGPIPE
        assert child.words() == ""


PARENT = """
import subprocess, sys
from backend import child
process = subprocess.Popen(child.command(sys.argv[1:]), stdin=subprocess.PIPE)
print(process.pid, flush=True)
process.wait()
"""


@pytest.mark.parametrize("lines", [(), ("fault 0 nvmlDeviceGetUtilizationRates hang",)], ids=["reading", "hanging"])
def test_ends_with_its_parent_even_while_the_driver_hangs(fake_nvml: FakeNvml, lines: tuple[str, ...]) -> None:
    fake_nvml.say(*lines)
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT, *ARGV],
        env={**os.environ, **fake_nvml.environment},
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    sampler = psutil.Process(int(parent.stdout.readline()))
    wait_for(lambda: fake_nvml.calls("nvmlDeviceGetUtilizationRates") > 0, limit_s=LIMIT_S)
    parent.kill()
    parent.wait(LIMIT_S)
    parent.stdout.close()
    wait_for(lambda: not sampler.is_running() or sampler.status() == psutil.STATUS_ZOMBIE, limit_s=LIMIT_S)


# ---- failures -----------------------------------------------------------------------------------------------


def test_a_crash_in_nvml_is_a_death_by_signal(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment) as child:
        child.next()
        fake_nvml.say("fault 1 nvmlDeviceGetClockInfo crash")
        assert child.ended() == -signal.SIGSEGV


def test_a_call_that_hangs_is_silence(fake_nvml: FakeNvml) -> None:
    with SamplerChild(fake_nvml.environment) as child:
        child.next()
        fake_nvml.say("fault 0 nvmlDeviceGetFieldValues hang")
        before = fake_nvml.calls("nvmlDeviceGetFieldValues")
        wait_for(lambda: fake_nvml.calls("nvmlDeviceGetFieldValues") > before, limit_s=LIMIT_S)
        assert child.process.poll() is None
        child.process.terminate()  # a hang in user space ends like any process
        assert child.ended() == -signal.SIGTERM


def test_a_driver_that_is_not_loaded_is_tried_again(fake_nvml: FakeNvml) -> None:
    fake_nvml.say(f"fault * nvmlInitWithFlags return {DRIVER_NOT_LOADED}")
    with SamplerChild(fake_nvml.environment, "--rescan", "1") as child:
        first = child.next()
        assert "not loaded" in first.problem
        assert first.interval_s == 2.5  # alive, but there is nothing to look at
        assert "not loaded" in child.next().problem
        fake_nvml.unsay("fault")
        assert busy(child.until(lambda snapshot: not snapshot.problem)) == [0.97, 0.97]


def test_a_library_of_another_driver_ends_it_so_that_a_new_one_can_load_the_new(fake_nvml: FakeNvml) -> None:
    fake_nvml.say(f"fault * nvmlInitWithFlags return {MISMATCH}")
    with SamplerChild(fake_nvml.environment) as child:
        assert "Restart the machine or reload the driver" in child.next().problem
        assert child.ended() == 0


def without_library(folder: Path) -> dict[str, str]:
    """A file that no loader takes stands before the library of a machine that has one."""
    (folder / "libnvidia-ml.so.1").write_bytes(b"")
    return {"LD_LIBRARY_PATH": str(folder)}


def test_no_library(tmp_path: Path) -> None:
    with SamplerChild(without_library(tmp_path)) as child:
        for _ in range(2):
            snapshot = child.next()
            assert "libnvidia-ml.so.1) is not installed" in snapshot.problem
            assert snapshot.readings == ()


# ---- asked once for the driver ------------------------------------------------------------------------------


def test_driver_for_the_installer(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.say("memory_total 1 24e9", "memory_used 1 6e9", "memory_reserved 1 1e9", "unified 0 1", "slices 1 2")
    for name, value in fake_nvml.environment.items():
        monkeypatch.setenv(name, value)
    driver = nvml.ask_child(limit_s=LIMIT_S)
    assert isinstance(driver, NvidiaDriver)
    assert (driver.version, driver.cuda) == ("580.95.05", (13, 1))
    assert [(gpu.uuid, gpu.memory_total_bytes, gpu.memory_free_bytes) for gpu in driver.gpus] == [
        (uuid(0), None, None),
        (uuid(1), 24_000_000_000, 17_000_000_000),
    ]
    fake_nvml.say("gpus * 0")
    driver = nvml.ask_child(limit_s=LIMIT_S)
    assert isinstance(driver, NvidiaDriver)
    assert driver.gpus == ()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nvmlInitWithFlags return 9", "not loaded"),
        ("nvmlInitWithFlags return 18", "was updated"),
        ("nvmlDeviceGetName crash", "crashed (signal 11)"),
        ("nvmlSystemGetDriverVersion return 3", "does not tell the version"),
    ],
)
def test_no_driver_for_the_installer(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, fault: str, words: str
) -> None:
    fake_nvml.say(f"fault * {fault}")
    for name, value in fake_nvml.environment.items():
        monkeypatch.setenv(name, value)
    problem = nvml.ask_child(limit_s=LIMIT_S)
    assert isinstance(problem, str)
    assert words in problem


def test_no_library_for_the_installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in without_library(tmp_path).items():
        monkeypatch.setenv(name, value)
    problem = nvml.ask_child(limit_s=LIMIT_S)
    assert isinstance(problem, str)
    assert "is not installed" in problem
