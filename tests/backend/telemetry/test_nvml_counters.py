"""Counters of bytes: right rates, and none where a counter wrapped, jumped or began anew."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.hardware import Why
from backend.telemetry.nvml_counters import Counter
from tests.backend.telemetry.nvml_reading import Bench
from tests.fakes.fake_nvml import FakeNvml

LIMIT = 1e12
SECOND_US = 1_000_000


def rates(*readings: tuple[float, int], limit: float = LIMIT) -> list[float | Why]:
    counter = Counter()
    return [counter.rate(count, t_us, limit_bytes_per_s=limit) for count, t_us in readings]


steps = st.lists(st.tuples(st.integers(0, 2**31), st.integers(20_000, 10**7)), min_size=1, max_size=20)


@given(st.integers(0, 2**40), st.integers(1, 2**50), steps)
def test_rate_is_what_was_counted_over_the_time_of_the_driver(
    count: int, t_us: int, steps: list[tuple[int, int]]
) -> None:
    readings = [(count, t_us)]
    for more, later in steps:
        readings.append((readings[-1][0] + more, readings[-1][1] + later))
    first, *others = rates(*readings)
    assert first is Why.NOT_YET
    assert others == [pytest.approx(more / later * 1e6) for more, later in steps]


@given(st.integers(0, 2**32 - 1), steps)
def test_a_counter_that_wraps_gives_no_rate_for_that_time_and_then_goes_on(
    count: int, steps: list[tuple[int, int]]
) -> None:
    true = [count]
    times = [SECOND_US]
    for more, later in steps:
        true.append(true[-1] + more)
        times.append(times[-1] + later)
    told = rates(*((each % 2**32, t_us) for each, t_us in zip(true, times, strict=True)))[1:]
    for (before, after), (more, later), rate in zip(pairwise(true), steps, told, strict=True):
        if before // 2**32 != after // 2**32:  # less than one round, so the counter is lower than it was
            assert rate is Why.NOT_YET
        else:
            assert rate == pytest.approx(more / later * 1e6)


def test_a_counter_that_begins_anew_gives_no_rate() -> None:
    assert rates((9e9, 1 * SECOND_US), (1e3, 2 * SECOND_US), (4e3, 3 * SECOND_US))[1:] == [Why.NOT_YET, 3e3]


def test_a_rate_that_the_link_cannot_carry_is_none() -> None:
    told = rates((0, SECOND_US), (101, 2 * SECOND_US), (201, 3 * SECOND_US), limit=100.0)
    assert told == [Why.NOT_YET, Why.NOT_YET, 100.0]


def test_a_clock_that_goes_back_gives_no_rate() -> None:
    told = rates((0, 9 * SECOND_US), (100, 2 * SECOND_US), (300, 3 * SECOND_US))
    assert told == [Why.NOT_YET, Why.NOT_YET, 200.0]


def test_a_reading_that_the_driver_repeats_is_no_new_one() -> None:
    told = rates((0, SECOND_US), (0, SECOND_US), (500, 2 * SECOND_US), (500, 2 * SECOND_US), (600, 3 * SECOND_US))
    assert told == [Why.NOT_YET, Why.NOT_YET, 500.0, 500.0, 100.0]


@pytest.fixture
def bench(loaded_nvml: FakeNvml, tmp_path: Path) -> Bench:
    return Bench(tmp_path / "sys")


def counted(bench: Bench, fake: FakeNvml, t_s: float, *, pcie: int, nvlink_kib: int = 0) -> tuple[object, object]:
    """Set the counters of the first GPU, as they were at a time, and read them."""
    fake.say(f"field_time_us 0 {t_s * 1e6:.0f}", f"field 0 198 {pcie}", f"field 0 139 {nvlink_kib}")
    reading = bench.reading()
    names = ("pcie_rx_bytes_per_s", "nvlink_rx_bytes_per_s")
    pcie_rate, nvlink_rate = (reading.why.get(name, getattr(reading, name)) for name in names)
    return pcie_rate, nvlink_rate


def test_wraps_of_a_gpu_are_gaps(bench: Bench, loaded_nvml: FakeNvml) -> None:
    wrap = 2**32
    assert counted(bench, loaded_nvml, 1, pcie=wrap - 3000) == (Why.NOT_YET, Why.NOT_YET)
    assert counted(bench, loaded_nvml, 2, pcie=wrap - 1000, nvlink_kib=5) == (2000.0, 5 * 1024)
    assert counted(bench, loaded_nvml, 3, pcie=1000, nvlink_kib=9) == (Why.NOT_YET, 4 * 1024)
    assert counted(bench, loaded_nvml, 5, pcie=9000, nvlink_kib=9) == (4000.0, 0.0)


def test_rates_over_what_the_links_carry_are_gaps(bench: Bench, loaded_nvml: FakeNvml) -> None:
    loaded_nvml.say("pcie_generation_max 0 3", "pcie_width_max 0 8", "nvlinks 0 4", "nvlink_mbps 0 25000")
    pcie_most, nvlink_most_kib = int(8 * 0.985e9), int(4 * 25e9 / 1024)
    counted(bench, loaded_nvml, 1, pcie=0)
    assert counted(bench, loaded_nvml, 2, pcie=pcie_most, nvlink_kib=nvlink_most_kib) == (
        pytest.approx(pcie_most),
        pytest.approx(4 * 25e9),
    )
    double = (3 * pcie_most, 3 * nvlink_most_kib)
    assert counted(bench, loaded_nvml, 3, pcie=double[0], nvlink_kib=double[1]) == (Why.NOT_YET, Why.NOT_YET)


def test_a_driver_without_times_is_read_by_our_clock(
    bench: Bench, loaded_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = iter(range(10**9, 10**11, 10**9))  # a second at each look
    monkeypatch.setattr("backend.telemetry.nvml_gpu.time", SimpleNamespace(monotonic_ns=lambda: next(ours)))
    loaded_nvml.say("field_return 0 197 3", "nvlinks 0 0", "gpus * 1")  # one counter, hence one look a reading
    loaded_nvml.say("field 0 198 1000", "field_time_us 0 -0.5")  # comes out as 0
    assert bench.reading().why["pcie_rx_bytes_per_s"] is Why.NOT_YET
    loaded_nvml.say("field 0 198 8000")
    assert bench.reading().pcie_rx_bytes_per_s == 7000.0
