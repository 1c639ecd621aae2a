"""Peak bandwidth: clock x bus, the table that checks it, and what a person enters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.hardware import PeakSource
from backend.telemetry.gpu_peaks import peak_bandwidth

GIB = 1024**3


def peak(
    name: str, memory_gib: float | None, clock: int | None, bits: int | None, entered: float | None = None
) -> tuple[float | None, PeakSource | None]:
    return peak_bandwidth(
        name=name,
        memory_total_bytes=None if memory_gib is None else round(memory_gib * GIB),
        max_memory_clock_mhz=clock,
        memory_bus_bits=bits,
        entered_bytes_per_s=entered,
    )


# GB/s that follow from clock and bus by hand: two transfers a clock, eight bits a byte.
@pytest.mark.parametrize(
    ("name", "memory_gib", "clock", "bits", "gb_per_s"),
    [
        ("NVIDIA GeForce RTX 3090", 24, 9751, 384, 936.096),
        ("NVIDIA GeForce RTX 4090", 24, 10501, 384, 1008.096),
        ("NVIDIA A100-SXM4-40GB", 40, 1215, 5120, 1555.2),
        ("NVIDIA H100 80GB HBM3", 80, 2619, 5120, 3352.32),
        ("NVIDIA H200", 140, 3201, 6144, 4916.736),
        ("NVIDIA Nothing We Know", 16, 1000, 256, 64.0),
    ],
)
def test_formula_where_clock_and_bus_are_known(
    name: str, memory_gib: float, clock: int, bits: int, gb_per_s: float
) -> None:
    bytes_per_s, source = peak(name, memory_gib, clock, bits)
    assert bytes_per_s == pytest.approx(gb_per_s * 1e9)
    assert source is PeakSource.FORMULA


@pytest.mark.parametrize(
    ("name", "memory_gib", "gb_per_s"),
    [
        ("NVIDIA GeForce RTX 3090", 24, 936),
        ("NVIDIA GeForce RTX 3090 Ti", 24, 1008),
        ("NVIDIA GeForce RTX 5090", 32, 1792),
        ("NVIDIA RTX A6000", 48, 768),
        ("NVIDIA RTX 6000 Ada Generation", 48, 960),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 95, 1792),
        ("NVIDIA L4", 22.5, 300),
        ("NVIDIA L40S", 45, 864),
        ("NVIDIA A100-PCIE-40GB", 40, 1555),
        ("NVIDIA A100 80GB PCIe", 80, 1935),
        ("NVIDIA A100-SXM4-80GB", 80, 2039),
        ("NVIDIA H100 PCIe", 80, 2000),
        ("NVIDIA H100 80GB HBM3", 79.6, 3350),
        ("NVIDIA H100 NVL", 93.6, 3900),
        ("NVIDIA H200", 140.4, 4800),
        ("NVIDIA B200", 179, 7672),
        ("NVIDIA GB10", 119.7, 273),
        ("NVIDIA H200", None, 4800),
    ],
)
def test_table_where_the_driver_tells_nothing(name: str, memory_gib: float | None, gb_per_s: float) -> None:
    assert peak(name, memory_gib, None, None) == (gb_per_s * 1e9, PeakSource.TABLE)
    assert peak(name, memory_gib, 0, 256) == (gb_per_s * 1e9, PeakSource.TABLE)


def test_table_wins_over_a_formula_that_is_far_from_it() -> None:
    # 3350 GB/s stand in the table: 15 % off is 2847.5 to 3852.5, and a bus of 5120 bits makes 1.28 GB/s of a MHz.
    assert peak("NVIDIA H100 80GB HBM3", 80, 2230, 5120) == (2230e6 * 2 * 640, PeakSource.FORMULA)
    assert peak("NVIDIA H100 80GB HBM3", 80, 2220, 5120) == (3350e9, PeakSource.TABLE)
    assert peak("NVIDIA H100 80GB HBM3", 80, 3000, 5120) == (3000e6 * 2 * 640, PeakSource.FORMULA)
    assert peak("NVIDIA H100 80GB HBM3", 80, 3020, 5120) == (3350e9, PeakSource.TABLE)


@pytest.mark.parametrize(
    ("name", "memory_gib"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16),  # another chip
        ("NVIDIA H100 80GB HBM3", 64),  # a special build with other memory
        ("NVIDIA H100", 80),
        ("GeForce", 24),
    ],
)
def test_what_is_only_named_alike_is_unknown(name: str, memory_gib: float) -> None:
    assert peak(name, memory_gib, None, None) == (None, None)


@given(
    st.sampled_from(["NVIDIA H200", "other"]),
    st.none() | st.integers(0, 5000),
    st.none() | st.integers(0, 8192),
    st.floats(1, 1e15),
)
def test_what_a_person_enters_always_wins(name: str, clock: int | None, bits: int | None, entered: float) -> None:
    assert peak(name, 140, clock, bits, entered) == (entered, PeakSource.USER)
