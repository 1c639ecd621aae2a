"""All GPUs through one start of NVML: one is lost and comes back, slices, sleep, and what keeps NVML from starting."""

from pathlib import Path

import pynvml
import pytest

from backend.hardware import GPU_FIGURES, Why
from backend.telemetry.gpu_messages import SamplerOptions
from backend.telemetry.nvml_session import NvmlSession
from tests.backend.telemetry.nvml_reading import ACTIVITY, OPTIONS, Bench, by_uuid
from tests.fakes.fake_nvml import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    LOST,
    MISMATCH,
    NO_PERMISSION,
    UNKNOWN,
    FakeNvml,
    uuid,
)


@pytest.fixture
def bench(loaded_nvml: FakeNvml, tmp_path: Path) -> Bench:
    return Bench(tmp_path / "sys")


def lost(bench: Bench, options: SamplerOptions = OPTIONS) -> list[int]:
    """Which GPUs are lost in the next snapshot, by their place."""
    snapshot = bench.snapshot(options)
    assert snapshot.problem == ""
    for reading in snapshot.readings:
        told = {name for name in GPU_FIGURES if getattr(reading, name) is not None}
        assert bool(told) != reading.lost
        assert set(reading.why.values()) == {Why.LOST} or not reading.lost
    return [place for place, reading in enumerate(snapshot.readings) if reading.lost]


# ---- lost and found -----------------------------------------------------------------------------------------


def test_one_lost_gpu_hides_no_other_and_is_left_alone(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("gpus * 4", *(f"busy {gpu} {gpu + 1}" for gpu in range(4)))
    assert lost(bench, ACTIVITY) == []
    loaded_nvml.say("lost 2 1")
    for _ in range(3):
        assert lost(bench, ACTIVITY) == [2]
    assert loaded_nvml.calls("used a lost handle") == 1  # that is how it was noticed
    readings = bench.snapshot().readings
    assert [each.busy_ratio for each in readings] == [0.01, 0.02, None, 0.04]
    assert readings[2].processes is None
    assert readings[2].throttle is None
    assert loaded_nvml.calls("nvmlGpmSampleFree") == 2
    bench.rescan()
    assert lost(bench) == [2]
    assert loaded_nvml.calls("used a lost handle") == 1


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetFieldValues",
        "nvmlGpmSampleGet",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetTemperatureV",
    ],
)
def test_a_gpu_may_be_lost_in_any_call(bench: Bench, loaded_nvml: FakeNvml, function: str) -> None:
    assert lost(bench, ACTIVITY) == []
    loaded_nvml.say(f"fault 1 {function} return {LOST}")
    assert lost(bench, ACTIVITY) == [1]
    loaded_nvml.unsay("fault")
    assert lost(bench, ACTIVITY) == [1]  # until it is looked for again
    bench.rescan()
    assert lost(bench, ACTIVITY) == []


@pytest.mark.parametrize("function", ["nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlGpmQueryDeviceSupport"])
def test_a_gpu_that_is_lost_while_it_is_found(bench: Bench, loaded_nvml: FakeNvml, function: str) -> None:
    loaded_nvml.say(f"fault 0 {function} return {LOST}")
    snapshot = bench.snapshot()
    assert [each.uuid for each in snapshot.gpus] == [uuid(1)]
    assert snapshot.links == ()
    loaded_nvml.unsay("fault")
    bench.rescan()
    snapshot = bench.snapshot()
    assert [each.uuid for each in snapshot.gpus] == [uuid(0), uuid(1)]
    assert [(each.first, each.second) for each in snapshot.links] == [(uuid(0), uuid(1))]


def test_a_gpu_that_does_not_give_its_handle_is_no_gpu_that_is_lost(bench: Bench, loaded_nvml: FakeNvml) -> None:
    assert lost(bench) == []
    loaded_nvml.say(f"fault 0 handle return {NO_PERMISSION}", "busy 0 33")
    bench.rescan()
    assert lost(bench) == []
    assert bench.reading().busy_ratio == 0.33


def test_unplugged_and_back_with_a_new_handle(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("gpus * 3", *(f"field {gpu} 198 1000000" for gpu in range(3)), "field_time_us * 1000000")
    assert lost(bench) == []
    loaded_nvml.say("absent 1 1")
    assert lost(bench) == [1]
    bench.rescan()
    assert lost(bench) == [1]
    assert [each.uuid for each in bench.snapshot().gpus] == [uuid(0), uuid(1), uuid(2)]
    loaded_nvml.say("absent 1 0", "generation 1 1", "busy 1 77", "field 1 198 9000000", "field_time_us * 2000000")
    assert lost(bench) == [1]  # nobody has looked yet
    bench.rescan()
    assert lost(bench) == []
    reading = bench.reading(1)
    assert reading.busy_ratio == 0.77
    assert reading.why["pcie_rx_bytes_per_s"] is Why.NOT_YET  # its counters are those of another life
    assert bench.reading(0).pcie_rx_bytes_per_s == 0.0
    assert loaded_nvml.calls("used a lost handle") == 1
    assert loaded_nvml.calls("nvmlInitWithFlags") == 1


def test_a_gpu_that_is_unplugged_between_two_readings_is_noticed_by_its_absence(
    bench: Bench, loaded_nvml: FakeNvml
) -> None:
    assert lost(bench) == []
    loaded_nvml.say("absent 0 1")
    bench.rescan()
    snapshot = bench.snapshot()
    assert [each.lost for each in snapshot.readings] == [True, False]
    assert loaded_nvml.calls("used a lost handle") == 0


def test_a_new_gpu_is_found(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("gpus * 1")
    assert len(bench.snapshot().gpus) == 1
    loaded_nvml.say("gpus * 3")
    assert len(bench.snapshot().gpus) == 1
    bench.rescan()
    snapshot = bench.snapshot()
    assert [each.index for each in snapshot.gpus] == [0, 1, 2]
    assert len(snapshot.links) == 3


def test_versions_are_read_again(bench: Bench, loaded_nvml: FakeNvml) -> None:
    assert bench.snapshot().driver == "580.95.05"
    loaded_nvml.say("text driver 590.10")
    bench.rescan()
    assert bench.snapshot().driver == "590.10"


# ---- MIG ----------------------------------------------------------------------------------------------------


def test_slices_stand_on_their_own(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say(
        "slices 0 2", "slice_memory 0 10e9", "memory_used 0 4e9", "memory_reserved 0 1e9", "gpm_time_s 0 1",
        "gpm 0 10 40", "process 0 compute 3999999 1e9",
    )  # fmt: skip
    bench.snapshot(ACTIVITY)
    loaded_nvml.say("gpm_time_s 0 2")
    snapshot = bench.snapshot(ACTIVITY)
    names = [uuid(0), f"MIG-0-{uuid(0)}", f"MIG-1-{uuid(0)}", uuid(1)]
    assert [each.uuid for each in snapshot.gpus] == names
    assert [each.parent_uuid for each in snapshot.gpus] == ["", uuid(0), uuid(0), ""]
    assert [each.mig_enabled for each in snapshot.gpus] == [True, False, False, False]
    part = snapshot.gpus[1]
    assert (part.name, part.memory_total_bytes) == ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10_000_000_000)
    assert part.peak_bytes_per_s is None  # of its GPU's it has an unknown share
    reading = by_uuid(snapshot)[names[1]]
    assert (reading.memory_used_bytes, reading.memory_free_bytes) == (4e9, 5e9)
    assert reading.dram_ratio == pytest.approx(0.4)
    assert reading.processes is not None
    for name in ("busy_ratio", "power_w", "temperature_c", "pcie_rx_bytes_per_s", "dram_bytes_per_s", "throttle"):
        assert reading.why[name] is Why.NOT_SUPPORTED
    whole = by_uuid(snapshot)[uuid(0)]
    assert whole.why["busy_ratio"] is Why.NOT_SUPPORTED
    assert whole.power_w is not None
    assert len(snapshot.links) == 1  # between whole GPUs


def test_counters_of_slices_on_older_drivers_go_by_their_gpu(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("slices 0 1", "gpm_needs_parent 0 1", "gpm_time_s 0 1", "gpm 0 10 25")
    bench.snapshot(ACTIVITY)
    loaded_nvml.say("gpm_time_s 0 2")
    assert by_uuid(bench.snapshot(ACTIVITY))[f"MIG-0-{uuid(0)}"].dram_ratio == pytest.approx(0.25)
    assert loaded_nvml.calls("nvmlGpmMigSampleGet") == 2


def test_a_slice_that_is_gone_is_lost_and_its_gpu_is_not(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("slices 0 2")
    bench.snapshot()
    loaded_nvml.say("slices 0 1")
    bench.rescan()
    readings = by_uuid(bench.snapshot())
    gone = f"MIG-1-{uuid(0)}"
    assert {name: each.lost for name, each in readings.items()} == {
        uuid(0): False, f"MIG-0-{uuid(0)}": False, gone: True, uuid(1): False,
    }  # fmt: skip
    loaded_nvml.say("slices 0 2")
    bench.rescan()
    assert not by_uuid(bench.snapshot())[gone].lost


def test_slices_are_lost_with_their_gpu(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("slices 0 2")
    bench.snapshot()
    loaded_nvml.say("lost 0 1")
    readings = by_uuid(bench.snapshot())
    assert [name for name, each in readings.items() if not each.lost] == [uuid(1)]
    assert loaded_nvml.calls("used a lost handle") == 1
    loaded_nvml.say("lost 0 0")
    bench.rescan()
    assert not any(each.lost for each in bench.snapshot().readings)


def test_a_gpu_that_is_cut_while_we_look(bench: Bench, loaded_nvml: FakeNvml) -> None:
    assert not bench.info().mig_enabled
    loaded_nvml.say("slices 0 1")
    bench.rescan()
    snapshot = bench.snapshot()
    assert snapshot.gpus[0].mig_enabled
    assert snapshot.gpus[1].parent_uuid == uuid(0)


# ---- how often ----------------------------------------------------------------------------------------------


def test_what_costs_much_is_read_every_two_seconds_and_not_of_all_gpus_at_once(
    bench: Bench, loaded_nvml: FakeNvml
) -> None:
    loaded_nvml.say("gpus * 8")

    def lists(ticks: int) -> list[int]:
        found = []
        for _ in range(ticks):
            before = loaded_nvml.calls("nvmlDeviceGetComputeRunningProcesses_v3")
            bench.snapshot(interval_s=0.5)
            found.append(loaded_nvml.calls("nvmlDeviceGetComputeRunningProcesses_v3") - before)
        return found

    assert lists(1) == [8]  # the first snapshot is whole
    assert lists(8) == [2] * 8
    loaded_nvml.say("celsius * 70", "throttle * 4", "process * compute 3999999 1e9")
    seen: list[set[float | None]] = []
    for _ in range(4):
        snapshot = bench.snapshot(interval_s=0.5)
        assert all(each.processes is not None and each.throttle is not None for each in snapshot.readings)
        seen.append({each.temperature_c for each in snapshot.readings})
    assert seen == [{61, 70}, {61, 70}, {61, 70}, {70}]
    for _ in range(3):
        bench.snapshot(interval_s=5.0)
    assert loaded_nvml.calls("nvmlDeviceGetUtilizationRates") == 8 * 16
    assert loaded_nvml.calls("nvmlInitWithFlags") == 1


def test_static_facts_are_read_once(bench: Bench, loaded_nvml: FakeNvml) -> None:
    names = ("nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMaxClockInfo")
    for _ in range(3):
        bench.snapshot()
        bench.rescan()
    assert [loaded_nvml.calls(name) for name in names] == [2, 2, 2, 2]


def test_looking_for_gpus_keeps_its_pace(bench: Bench, loaded_nvml: FakeNvml) -> None:
    for _ in range(5):
        bench.snapshot()
    assert loaded_nvml.calls("nvmlDeviceGetCount_v2") == 1
    bench.rescan()
    bench.snapshot()
    assert loaded_nvml.calls("nvmlDeviceGetCount_v2") == 2


# ---- nothing to read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (DRIVER_NOT_LOADED, "not loaded. Load it (sudo modprobe nvidia)"),
        (MISMATCH, "was updated, but the old one still runs. Restart the machine or reload the driver"),
        (NO_PERMISSION, "Ask for the right to read and write /dev/nvidia*"),
        (FUNCTION_NOT_FOUND, "too old"),
        (UNKNOWN, "In a container, restart that"),
        (17, "does not answer (The operating system has blocked the request.)"),
        (12345, "does not answer (an error of the fake)"),
    ],
)
def test_why_nvml_does_not_start(bench: Bench, loaded_nvml: FakeNvml, code: int, words: str) -> None:
    loaded_nvml.say(f"fault * nvmlInitWithFlags return {code}")
    for _ in range(3):
        snapshot = bench.snapshot()
        assert words in snapshot.problem
        assert not snapshot.gpus
        assert not snapshot.readings
    assert loaded_nvml.calls("nvmlInitWithFlags") == 1
    assert bench.session.is_outdated == (code == MISMATCH)
    bench.rescan()
    bench.snapshot()
    assert loaded_nvml.calls("nvmlInitWithFlags") == 2
    loaded_nvml.unsay("fault")
    bench.rescan()
    assert bench.snapshot().problem == ""
    assert len(bench.snapshot().readings) == 2
    assert not bench.session.is_outdated


def test_library_missing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert "libnvidia-ml.so.1) is not installed" in bench.snapshot().problem


def test_no_gpu_at_all(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("gpus * 0")
    snapshot = bench.snapshot()
    assert "shows no GPU" in snapshot.problem
    assert snapshot.driver == "580.95.05"
    loaded_nvml.say("gpus * 1")
    bench.rescan()
    assert bench.snapshot().problem == ""


def test_a_container_that_lost_its_gpus(bench: Bench, loaded_nvml: FakeNvml) -> None:
    assert bench.snapshot().problem == ""
    for function in (
        *("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetClockInfo"),
        *("nvmlDeviceGetPerformanceState", "nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage"),
        *("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth"),
        *("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetCurrentClocksEventReasons"),
    ):
        loaded_nvml.say(f"fault * {function} return {UNKNOWN}")
    snapshot = bench.snapshot()
    assert "In a container, restart that" in snapshot.problem
    assert len(snapshot.readings) == 2
    loaded_nvml.unsay("fault * nvmlDeviceGetUtilizationRates")
    assert bench.snapshot().problem == ""


def test_notes_on_wsl_and_containers(loaded_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "backend.telemetry.nvml_session"
    monkeypatch.setattr(f"{module}.sees_host_pids", lambda: True)
    monkeypatch.setattr(f"{module}._kernel", lambda: "Linux version 6.1.0")
    assert Bench(tmp_path).snapshot().note == ""
    monkeypatch.setattr(f"{module}.sees_host_pids", lambda: False)
    loaded_nvml.say("process 0 compute 1 1e9")
    snapshot = Bench(tmp_path).snapshot()
    assert "In a container" in snapshot.note
    assert snapshot.readings[0].processes is not None
    assert snapshot.readings[0].processes[0].name == ""  # here another process has that pid
    monkeypatch.setattr(f"{module}._kernel", lambda: "Linux version 6.6.87.2-microsoft-standard-WSL2")
    assert "Windows shows Linux only some figures" in Bench(tmp_path).snapshot().note


# ---- asleep -------------------------------------------------------------------------------------------------


def device(sysfs: Path, bus: str, *, status: str, control: str = "auto", vendor: str = "0x10de") -> Path:
    """Write a GPU as the kernel shows it; returns the file of its state."""
    folder = sysfs / "bus/pci/devices" / f"0000:{bus}:00.0"
    (folder / "power").mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text("0x030200\n")
    (folder / "power/control").write_text(f"{control}\n")
    (folder / "power/runtime_status").write_text(f"{status}\n")
    return folder / "power/runtime_status"


def test_nvml_is_not_started_while_all_gpus_sleep(bench: Bench, loaded_nvml: FakeNvml) -> None:
    status = device(bench.sysfs, "17", status="suspended")
    device(bench.sysfs, "00", status="active", vendor="0x8086")
    assert "sleeps to save power" in bench.snapshot().problem
    assert loaded_nvml.calls("nvmlInitWithFlags") == 0
    woken = NvmlSession(wake=True, sysfs=bench.sysfs)
    assert woken.read(OPTIONS, interval_s=1.0).problem == ""
    status.write_text("active\n")
    assert bench.snapshot().problem == ""  # at once, not when it is next looked for


def test_a_gpu_that_sleeps_is_left_alone(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("field 0 198 1000", "field_time_us 0 1000000")
    status = device(bench.sysfs, "17", status="active")
    assert bench.reading().busy_ratio == 0.97
    status.write_text("suspended\n")
    before = loaded_nvml.calls("nvmlDeviceGetUtilizationRates")
    counts = loaded_nvml.calls("nvmlDeviceGetCount_v2")
    for _ in range(3):
        bench.rescan()
        readings = by_uuid(bench.snapshot())
        assert set(readings[uuid(0)].why.values()) == {Why.ASLEEP}
        assert not readings[uuid(0)].lost
        assert readings[uuid(1)].busy_ratio == 0.97
    assert loaded_nvml.calls("nvmlDeviceGetUtilizationRates") == before + 3
    assert loaded_nvml.calls("nvmlDeviceGetCount_v2") == counts  # to look for it would wake it
    status.write_text("active\n")
    loaded_nvml.say("field 0 198 90000", "field_time_us 0 9000000")
    reading = bench.reading()
    assert reading.busy_ratio == 0.97
    assert reading.why["pcie_rx_bytes_per_s"] is Why.NOT_YET  # no rate spans its sleep


def test_a_gpu_that_may_not_sleep_is_read_whatever_its_state_says(bench: Bench) -> None:
    device(bench.sysfs, "17", status="suspended", control="on")
    device(bench.sysfs, "99", status="active")
    assert bench.reading().busy_ratio == 0.97
