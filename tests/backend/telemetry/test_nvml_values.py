"""Every figure of a GPU is what the driver (the compiled fake, through the real pynvml) says, in the right unit."""

import os
from pathlib import Path

import psutil
import pytest

from backend.hardware import GPU_FIGURES, GpuInfo, GpuLink, GpuProcess, PeakSource, Why
from backend.telemetry.gpu_messages import SamplerOptions
from tests.backend.telemetry.nvml_reading import ACTIVITY, OPTIONS, Bench, by_uuid
from tests.fakes.fake_nvml import FUNCTION_NOT_FOUND, NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, FakeNvml, uuid

MIB = 1024.0 * 1024.0
OURS = [name for name in GPU_FIGURES if name not in ("engine_bytes", "other_bytes")]


@pytest.fixture
def bench(loaded_nvml: FakeNvml, tmp_path: Path) -> Bench:
    return Bench(tmp_path / "sys")


def test_all_figures_of_one_gpu_among_others(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say(
        "gpus * 3",
        "memory_total 1 24e9",
        "memory_used 1 7e9",
        "memory_reserved 1 5e8",
        "busy 1 42",
        "memory_busy 1 17",
        "memory_mhz 1 9501",
        "sm_mhz 1 1410",
        "p_state 1 2",
        "power_mw 1 212345",
        "energy_mj 1 98765432",
        "celsius 1 66",
        "memory_celsius 1 88",
        "pcie_generation 1 4",
        "pcie_width 1 8",
        "throttle 1 4",
        "gpm 1 10 62.5",
        "gpm 1 2 91.0",
        "gpm 1 5 33.0",
        "process 1 compute 4000000 3e9",
        "field_time_us 1 1000000",
        *("field 1 138 1000", "field 1 139 2000", "field 1 197 5000", "field 1 198 7000"),
        "gpm_time_s 1 100",
    )
    first = bench.reading(1, ACTIVITY)
    rates = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
    gpm = ("dram_ratio", "dram_bytes_per_s", "sm_ratio", "tensor_ratio")
    assert first.why == dict.fromkeys((*rates, *gpm), Why.NOT_YET)

    loaded_nvml.say(  # half a second later: 3 MB and 4 MB over PCIe, 1000 and 3000 KiB over NVLink
        "field_time_us 1 1500000",
        *("field 1 138 2000", "field 1 139 5000", "field 1 197 3005000", "field 1 198 4007000"),
        "gpm_time_s 1 100.5",
    )
    snapshot = bench.snapshot(ACTIVITY)
    reading = by_uuid(snapshot)[uuid(1)]
    assert {name: getattr(reading, name) for name in OURS} == pytest.approx(
        {
            "memory_total_bytes": 24e9,
            "memory_used_bytes": 7e9,
            "memory_reserved_bytes": 5e8,
            "memory_free_bytes": 16.5e9,
            "busy_ratio": 0.42,
            "memory_busy_ratio": 0.17,
            "dram_ratio": 0.625,
            "dram_bytes_per_s": 0.625 * 2 * 2619e6 * 5120 / 8,
            "sm_ratio": 0.91,
            "tensor_ratio": 0.33,
            "memory_clock_mhz": 9501,
            "sm_clock_mhz": 1410,
            "performance_state": 2,
            "power_w": 212.345,
            "energy_j": 98765.432,
            "temperature_c": 66,
            "memory_temperature_c": 88,
            "pcie_tx_bytes_per_s": 6e6,
            "pcie_rx_bytes_per_s": 8e6,
            "nvlink_tx_bytes_per_s": 2000 * 1024,
            "nvlink_rx_bytes_per_s": 6000 * 1024,
            "pcie_generation": 4,
            "pcie_width": 8,
        }
    )
    assert reading.throttle == ("power limit",)
    assert reading.processes == (GpuProcess(4000000, 3_000_000_000, ""),)
    assert reading.why == {}
    assert not reading.lost
    assert reading.t == snapshot.t
    assert snapshot.problem == ""
    others = by_uuid(snapshot)
    assert [others[uuid(gpu)].busy_ratio for gpu in range(3)] == [0.97, 0.42, 0.97]


def test_what_stays_the_same(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say(
        "name 1 NVIDIA GeForce RTX 3090",
        "memory_total 1 25769803776",
        "memory_used 1 7e9",
        "bus_bits 1 384",
        "memory_mhz 1 405",  # asleep: the peak must not come from this
        "memory_mhz_max 1 9751",
        "capability 1 86",
        "power_limit_mw 1 350000",
        "pcie_generation_max 1 4",
        "pcie_width_max 1 16",
        "nvlinks 1 0",
        "gpm_supported 1 0",
        "text driver 575.51.03",
        "text nvml 12.575.51.03",
        "ancestor 0 1 30",
        "p2p 0 1 2 5",
        "p2p 0 1 0 1",
    )
    snapshot = bench.snapshot()
    assert snapshot.gpus[1] == GpuInfo(
        uuid=uuid(1),
        name="NVIDIA GeForce RTX 3090",
        index=1,
        pci_bus_id="00000000:18:00.0",
        memory_total_bytes=25769803776,
        compute_capability=(8, 6),
        memory_bus_bits=384,
        max_memory_clock_mhz=9751,
        peak_bytes_per_s=2 * 9751e6 * 384 / 8,
        peak_source=PeakSource.FORMULA,
        power_limit_w=350.0,
        max_pcie_generation=4,
        max_pcie_width=16,
        nvlinks=0,
        measures_bandwidth=False,
    )
    assert (snapshot.driver, snapshot.nvml, snapshot.cuda) == ("575.51.03", "12.575.51.03", (13, 1))
    assert snapshot.links == (GpuLink(uuid(0), uuid(1), nvlink=False, peer_access=False, path="PHB"),)


def test_links_of_eight_gpus(bench: Bench, loaded_nvml: FakeNvml) -> None:
    levels = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS", 0: "PIX", 99: ""}
    loaded_nvml.say(
        "gpus * 8",
        *(f"ancestor 0 {gpu} {level}" for gpu, level in enumerate(levels, start=1)),
        "p2p 2 3 2 6",  # NVLink: nobody knows
        "p2p 4 5 0 4",  # reading the other's memory: switched off
        *(f"busy {gpu} {10 + gpu}" for gpu in range(8)),
        "fault 7 nvmlDeviceGetP2PStatus return 3",
    )
    snapshot = bench.snapshot()
    links = {(link.first, link.second): link for link in snapshot.links}
    assert set(links) == {(uuid(one), uuid(other)) for one in range(8) for other in range(one + 1, 8)}
    assert [links[uuid(0), uuid(gpu)].path for gpu in range(1, 8)] == list(levels.values())
    assert links[uuid(2), uuid(3)].nvlink is None
    assert links[uuid(2), uuid(3)].peer_access is True
    assert (links[uuid(4), uuid(5)].nvlink, links[uuid(4), uuid(5)].peer_access) == (True, False)
    assert [each.busy_ratio for each in snapshot.readings] == [(10 + gpu) / 100 for gpu in range(8)]
    assert [each.index for each in snapshot.gpus] == list(range(8))
    calls = loaded_nvml.calls("nvmlDeviceGetP2PStatus")
    bench.rescan()
    bench.snapshot()
    assert loaded_nvml.calls("nvmlDeviceGetP2PStatus") == calls  # read once


# ---- figures that are not there -----------------------------------------------------------------------------

FAULTS = {
    "nvmlDeviceGetUtilizationRates": ("busy_ratio", "memory_busy_ratio"),
    "nvmlDeviceGetClockInfo": ("memory_clock_mhz", "sm_clock_mhz"),
    "nvmlDeviceGetPerformanceState": ("performance_state",),
    "nvmlDeviceGetCurrPcieLinkGeneration": ("pcie_generation",),
    "nvmlDeviceGetCurrPcieLinkWidth": ("pcie_width",),
    "nvmlDeviceGetComputeRunningProcesses_v3": ("processes",),
}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (NOT_SUPPORTED, Why.NOT_SUPPORTED),
        (FUNCTION_NOT_FOUND, Why.NOT_SUPPORTED),
        (NO_PERMISSION, Why.NO_PERMISSION),
        (UNKNOWN, Why.ERROR),
    ],
)
@pytest.mark.parametrize("function", FAULTS)
def test_a_figure_that_is_refused_says_why_and_the_others_stay(
    bench: Bench, loaded_nvml: FakeNvml, function: str, code: int, why: Why
) -> None:
    loaded_nvml.say(f"fault 0 {function} return {code}", "gpm_supported * 0", "field_time_us * 1000000")
    bench.snapshot()
    loaded_nvml.say("field_time_us * 2000000")
    readings = by_uuid(bench.snapshot())
    gpm = ("dram_ratio", "dram_bytes_per_s", "sm_ratio", "tensor_ratio")
    absent = dict.fromkeys(gpm, Why.NOT_SUPPORTED)
    assert readings[uuid(0)].why == absent | dict.fromkeys(FAULTS[function], why)
    assert readings[uuid(1)].why == absent
    for name in FAULTS[function]:
        assert getattr(readings[uuid(0)], name) is None
        assert getattr(readings[uuid(1)], name) is not None


def test_throttle_and_temperature_by_their_old_names(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say(
        "fault 0 nvmlDeviceGetCurrentClocksEventReasons return 13",
        "fault 0 nvmlDeviceGetTemperatureV return 13",
        "throttle 0 32",
        "celsius 0 91",
    )
    reading = bench.reading()
    assert (reading.throttle, reading.temperature_c) == (("too hot",), 91)
    loaded_nvml.say(
        "fault 0 nvmlDeviceGetCurrentClocksThrottleReasons return 4", "fault 0 nvmlDeviceGetTemperature return 3"
    )
    reading = bench.reading()
    assert (reading.throttle, reading.why["throttle"]) == (None, Why.NO_PERMISSION)
    assert (reading.temperature_c, reading.why["temperature_c"]) == (None, Why.NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0x0, ()),
        (0x1, ()),  # idle
        (0x2, ()),  # somebody set the clocks
        (0x4, ("power limit",)),
        (0x8, ("hardware slowdown",)),
        (0x10, ("sync boost with another GPU",)),
        (0x20, ("too hot",)),
        (0x8 | 0x40, ("much too hot",)),
        (0x8 | 0x80, ("power brake of the power supply",)),
        (0x100, ("clocks of the display",)),
        (0x1 | 0x4 | 0x20, ("power limit", "too hot")),
        (0x8000, ()),  # a reason that we do not know
    ],
)
def test_throttle_in_words(bench: Bench, loaded_nvml: FakeNvml, mask: int, words: tuple[str, ...]) -> None:
    loaded_nvml.say(f"throttle 0 {mask}")
    assert bench.reading().throttle == words


def test_power_from_whatever_the_driver_has(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("field 0 185 100000", "field 0 186 200000", "power_mw 0 300000")
    assert bench.reading().power_w == 100.0  # the average over a second
    loaded_nvml.say("field_return 0 185 3")
    assert bench.reading().power_w == 200.0
    loaded_nvml.say("field_return 0 186 3")
    assert bench.reading().power_w == 300.0
    loaded_nvml.say("fault 0 nvmlDeviceGetPowerUsage return 3")
    reading = bench.reading()
    assert (reading.power_w, reading.why["power_w"]) == (None, Why.NOT_SUPPORTED)


def test_sensors_that_say_nothing_known(bench: Bench, loaded_nvml: FakeNvml) -> None:
    blank = 9223372036854775794  # as the tools of NVIDIA write it
    loaded_nvml.say("memory_celsius 0 2147483642", f"field 0 83 {blank}", "p_state 0 32")
    reading = bench.reading()
    assert reading.memory_temperature_c is reading.energy_j is reading.performance_state is None
    assert reading.why["memory_temperature_c"] is reading.why["energy_j"] is Why.NOT_SUPPORTED
    assert reading.why["performance_state"] is Why.ERROR


def test_fields_that_fail_one_by_one_or_all_together(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("field_return 0 82 4", "field_return 0 83 999", "field_return 0 138 15")
    reading = bench.reading()
    assert reading.why["memory_temperature_c"] is Why.NO_PERMISSION
    assert reading.why["energy_j"] is Why.ERROR
    assert reading.why["nvlink_tx_bytes_per_s"] is Why.ERROR  # a link that is gone is no GPU that is gone
    assert not reading.lost
    assert reading.power_w is not None
    loaded_nvml.say("fault 1 nvmlDeviceGetFieldValues return 3")
    reading = bench.reading(1)
    assert {"memory_temperature_c", "energy_j", "nvlink_tx_bytes_per_s"} <= reading.why.keys()
    assert reading.power_w == 512.345
    assert reading.busy_ratio == 0.97


# ---- memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [FUNCTION_NOT_FOUND, NOT_SUPPORTED, 25])
def test_memory_of_an_old_driver_counts_its_reserve_as_used(bench: Bench, loaded_nvml: FakeNvml, code: int) -> None:
    loaded_nvml.say(
        f"fault * nvmlDeviceGetMemoryInfo_v2 return {code}", "memory_total * 24e9", "memory_used * 7e9",
        "memory_reserved * 5e8",
    )  # fmt: skip
    reading = bench.reading()
    assert (reading.memory_total_bytes, reading.memory_used_bytes, reading.memory_free_bytes) == (24e9, 7.5e9, 16.5e9)
    assert reading.memory_reserved_bytes is None
    assert reading.why["memory_reserved_bytes"] is Why.NOT_SUPPORTED


def test_memory_that_makes_no_sense_is_unknown(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("memory_total 0 0", "memory_used 0 0", "memory_reserved 0 0", "memory_used 1 1e12")
    for gpu in range(2):
        reading = bench.reading(gpu)
        assert reading.memory_total_bytes is None
        assert reading.why["memory_used_bytes"] is Why.ERROR
        assert bench.info(gpu).memory_total_bytes is None


def test_memory_that_a_user_may_not_see(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("fault 0 nvmlDeviceGetMemoryInfo_v2 return 4")
    reading = bench.reading()
    assert (reading.memory_used_bytes, reading.why["memory_used_bytes"]) == (None, Why.NO_PERMISSION)
    assert reading.busy_ratio == 0.97
    loaded_nvml.unsay("fault")
    assert bench.info().memory_total_bytes == 80 * 1024**3  # learnt as soon as it is told


def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    host = psutil.virtual_memory()._replace(total=128_000_000_000, available=100_000_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: host)


@pytest.mark.parametrize(
    "lines", [("unified 0 1",), ("memory_total 0 0", "memory_used 0 0"), ("memory_total 0 128e9",)]
)
def test_memory_shared_with_the_host(
    bench: Bench, loaded_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...]
) -> None:
    shared(monkeypatch)
    loaded_nvml.say(
        "name 0 NVIDIA GB10",
        "memory_reserved 0 0",
        "bus_bits 0 0",
        "gpm_supported 0 0",
        "process 0 compute 7 5e9",
        *lines,
    )
    info = bench.info()
    assert (info.unified_memory, info.memory_total_bytes) == (True, 128_000_000_000)
    assert (info.peak_bytes_per_s, info.peak_source) == (273e9, PeakSource.TABLE)
    assert (info.max_pcie_generation, info.max_pcie_width) == (None, None)
    reading = bench.reading()
    assert (reading.memory_total_bytes, reading.memory_used_bytes, reading.memory_free_bytes) == (128e9, 28e9, 100e9)
    assert reading.why["memory_reserved_bytes"] is Why.NOT_SUPPORTED
    for name in ("pcie_generation", "pcie_width", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"):
        assert reading.why[name] is Why.NOT_SUPPORTED  # the link that it shows is not there
    assert reading.processes is not None
    assert [each.used_bytes for each in reading.processes] == [5_000_000_000]


def test_memory_that_is_not_told_is_shared_only_where_the_name_says_so(
    bench: Bench, loaded_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch)
    loaded_nvml.say("unified 0 1", "name 1 NVIDIA Thor", "memory_total 1 32e9", "memory_used 1 1e9")
    info = bench.info(0)
    assert (info.unified_memory, info.memory_total_bytes) == (False, None)
    assert bench.reading(0).why["memory_used_bytes"] is Why.NOT_SUPPORTED
    info = bench.info(1)  # its own memory, whatever its name
    assert (info.unified_memory, info.memory_total_bytes) == (False, 32_000_000_000)


# ---- processes ----------------------------------------------------------------------------------------------


def test_processes_of_all_lists_once_each(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say(
        f"process 0 compute {os.getpid()} 2e9",
        f"process 0 graphics {os.getpid()} 2e9",
        "process 0 graphics 3999999 1e9",
        "process 0 mps 3999998 3e9",
        "process 0 compute 3999997 -1",
    )
    name = psutil.Process().name()
    assert bench.reading().processes == (
        GpuProcess(3999998, 3_000_000_000),
        GpuProcess(os.getpid(), 2_000_000_000, name),
        GpuProcess(3999999, 1_000_000_000),
        GpuProcess(3999997, None),
    )
    assert bench.reading(1).processes == ()


def test_scrambled_processes_are_left_out(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say(
        "memory_total 0 24e9",
        "memory_used 0 1e9",
        "process 0 compute 0 1e9",
        "process 0 compute 4294967295 1e9",
        "process 0 compute 3999999 1.8e19",
        "process 0 compute 3999998 24000000001",
        "process 0 compute 4294967294 2e9",  # odd, but it may be
    )
    assert bench.reading().processes == (GpuProcess(4294967294, 2_000_000_000),)


def test_a_list_that_grows_while_it_is_read(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("process 0 compute 3999999 1e9", "list_grows 0 1")
    assert bench.reading().processes == (GpuProcess(3999999, 1_000_000_000),)
    loaded_nvml.say("list_grows 0 2")
    reading = bench.reading()
    assert (reading.processes, reading.why["processes"]) == (None, Why.ERROR)


def test_graphics_and_mps_may_be_missing(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say(
        "process 0 compute 3999999 1e9",
        "fault 0 nvmlDeviceGetGraphicsRunningProcesses_v3 return 13",
        "fault 0 nvmlDeviceGetMPSComputeRunningProcesses_v3 return 4",
    )
    assert bench.reading().processes == (GpuProcess(3999999, 1_000_000_000),)


def test_processes_only_if_asked_for(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("process 0 compute 3999999 1e9")
    reading = bench.reading(0, SamplerOptions(processes=False))
    assert (reading.processes, reading.why["processes"]) == (None, Why.NOT_READ)
    assert loaded_nvml.calls("nvmlDeviceGetComputeRunningProcesses_v3") == 0
    assert bench.reading(0, OPTIONS).processes is not None


# ---- performance counters -----------------------------------------------------------------------------------


def tick_gpm(bench: Bench, fake: FakeNvml, t: float, options: SamplerOptions = ACTIVITY) -> dict[str, object]:
    """Read the first GPU with its counters at the time `t`; returns what GPM alone tells, or why it does not."""
    fake.say(f"gpm_time_s * {t}")
    reading = bench.reading(0, options)
    names = ("dram_ratio", "sm_ratio", "tensor_ratio", "dram_bytes_per_s")
    return {name: reading.why.get(name, getattr(reading, name)) for name in names}


def test_counters_are_read_only_while_shown(bench: Bench, loaded_nvml: FakeNvml) -> None:
    for t in (1, 2, 3):
        assert set(tick_gpm(bench, loaded_nvml, t, OPTIONS).values()) == {Why.NOT_READ}
    assert loaded_nvml.calls("nvmlGpmSampleGet") == loaded_nvml.calls("nvmlGpmMetricsGet") == 0
    assert set(tick_gpm(bench, loaded_nvml, 4).values()) == {Why.NOT_YET}
    assert tick_gpm(bench, loaded_nvml, 5)["dram_ratio"] == pytest.approx(0.62)
    tick_gpm(bench, loaded_nvml, 6, OPTIONS)
    # Shown again: a sample from before would span the time in which nobody looked.
    assert set(tick_gpm(bench, loaded_nvml, 7).values()) == {Why.NOT_YET}
    assert tick_gpm(bench, loaded_nvml, 8)["sm_ratio"] == pytest.approx(0.9)


def test_counters_follow_from_tick_to_tick_and_swap_their_samples(bench: Bench, loaded_nvml: FakeNvml) -> None:
    tick_gpm(bench, loaded_nvml, 1)
    for n in range(2, 6):
        loaded_nvml.say(f"gpm 0 10 {10 * n}")
        assert tick_gpm(bench, loaded_nvml, n)["dram_ratio"] == pytest.approx(n / 10)
    assert loaded_nvml.calls("nvmlGpmSampleAlloc") == 4  # two for each GPU, for good


def test_a_little_over_the_peak_stays_as_it_is_and_nonsense_goes(bench: Bench, loaded_nvml: FakeNvml) -> None:
    tick_gpm(bench, loaded_nvml, 1)
    loaded_nvml.say("gpm 0 10 101.5", "gpm 0 2 nan", "gpm 0 5 -3")
    told = tick_gpm(bench, loaded_nvml, 2)
    assert told["dram_ratio"] == pytest.approx(1.015)
    assert told["sm_ratio"] is told["tensor_ratio"] is Why.ERROR


def test_a_metric_that_a_gpu_lacks_is_missing_alone(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("gpm_return 0 5 3")
    tick_gpm(bench, loaded_nvml, 1)
    told = tick_gpm(bench, loaded_nvml, 2)
    assert told["tensor_ratio"] is Why.NOT_SUPPORTED
    assert told["dram_ratio"] == pytest.approx(0.62)


@pytest.mark.parametrize(("code", "why"), [(3, Why.NOT_SUPPORTED), (4, Why.NO_PERMISSION)])
def test_a_driver_that_promises_counters_but_gives_none(
    bench: Bench, loaded_nvml: FakeNvml, code: int, why: Why
) -> None:
    loaded_nvml.say(f"fault 0 nvmlGpmSampleGet return {code}")
    assert bench.info().measures_bandwidth
    assert set(tick_gpm(bench, loaded_nvml, 1).values()) == {why}
    assert not bench.info().measures_bandwidth
    calls = loaded_nvml.calls("nvmlGpmSampleGet")
    tick_gpm(bench, loaded_nvml, 2)
    assert loaded_nvml.calls("nvmlGpmSampleGet") == calls + 1  # the other GPU's: this one is not asked again


def test_a_sample_that_fails_once_starts_anew(bench: Bench, loaded_nvml: FakeNvml) -> None:
    tick_gpm(bench, loaded_nvml, 1)
    loaded_nvml.say("fault 0 nvmlGpmSampleGet return 999")
    assert set(tick_gpm(bench, loaded_nvml, 2).values()) == {Why.ERROR}
    loaded_nvml.unsay("fault")
    assert set(tick_gpm(bench, loaded_nvml, 3).values()) == {Why.NOT_YET}
    assert tick_gpm(bench, loaded_nvml, 4)["dram_ratio"] == pytest.approx(0.62)


def test_bandwidth_in_bytes_needs_a_peak_and_takes_the_entered_one(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("name 0 NVIDIA Unknown", "bus_bits 0 0")
    tick_gpm(bench, loaded_nvml, 1)
    told = tick_gpm(bench, loaded_nvml, 2)
    assert (told["dram_ratio"], told["dram_bytes_per_s"]) == (pytest.approx(0.62), Why.NOT_SUPPORTED)
    entered = SamplerOptions(activity=True, peaks={uuid(0): 1e12})
    told = tick_gpm(bench, loaded_nvml, 3, entered)
    assert told["dram_bytes_per_s"] == pytest.approx(0.62e12)
    info = bench.info(0, entered)
    assert (info.peak_bytes_per_s, info.peak_source) == (1e12, PeakSource.USER)
    assert bench.info(1, entered).peak_source is PeakSource.FORMULA
    assert bench.info(0).peak_bytes_per_s is None  # taken back


def test_links_by_the_counters_of_gpm_where_there_are_no_others(bench: Bench, loaded_nvml: FakeNvml) -> None:
    for field in (138, 139, 197, 198):
        loaded_nvml.say(f"field_return 0 {field} 3")
    loaded_nvml.say("gpm 0 20 10", "gpm 0 21 20", "gpm 0 60 300", "gpm 0 61 400", "gpm_time_s 0 1")
    names = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s")
    reading = bench.reading()
    assert {reading.why[name] for name in names} == {Why.NOT_READ}
    reading = bench.reading(0, ACTIVITY)
    assert {reading.why[name] for name in names} == {Why.NOT_YET}
    loaded_nvml.say("gpm_time_s 0 2")
    reading = bench.reading(0, ACTIVITY)
    assert [getattr(reading, name) for name in names] == [10 * MIB, 20 * MIB, 300 * MIB, 400 * MIB]


def test_the_slow_look_at_pcie_only_if_wanted_and_nothing_else_tells(bench: Bench, loaded_nvml: FakeNvml) -> None:
    wanted = SamplerOptions(pcie_snapshot=True)
    bench.snapshot(wanted)
    assert loaded_nvml.calls("nvmlDeviceGetPcieThroughput") == 0  # the counters tell
    loaded_nvml.say("field_return 0 197 3", "field_return 0 198 3", "gpm_supported 0 0", "generation 0 1")
    bench.snapshot()
    bench.rescan()
    reading = bench.reading()
    assert reading.why["pcie_tx_bytes_per_s"] is reading.why["pcie_rx_bytes_per_s"] is Why.NOT_READ
    assert loaded_nvml.calls("nvmlDeviceGetPcieThroughput") == 0
    loaded_nvml.say("pcie_tx 0 5e6", "pcie_rx 0 7e6")
    reading = bench.reading(0, wanted)
    assert (reading.pcie_tx_bytes_per_s, reading.pcie_rx_bytes_per_s) == (5e6, 7e6)
    assert loaded_nvml.calls("nvmlDeviceGetPcieThroughput") == 2
