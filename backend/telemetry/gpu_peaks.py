"""The highest memory bandwidth of a GPU: from its clock and bus, checked against a table that ships.

NVML reports the memory clock of GDDR and HBM alike as half the data rate, so two bits per clock and line are right for
both. Drivers have reported wrong bus widths, hence the check; where the two disagree, the table wins.
"""

import re
from dataclasses import dataclass

from backend.hardware import PeakSource

_NEAR = 0.15
_MEMORY_NEAR = 0.15


@dataclass(frozen=True, slots=True)
class _Known:
    """A GPU by the name that NVML gives it, without "NVIDIA"; the memory tells apart what is named alike."""

    name: str
    memory_gb: float
    peak_gb_per_s: float


# GB/s as NVIDIA states them for the product; the B200's is what its bus of 7680 bits gives.
_TABLE = (
    _Known(r"GeForce RTX 3090", 24, 936),
    _Known(r"GeForce RTX 3090 Ti", 24, 1008),
    _Known(r"GeForce RTX 4090( D)?", 24, 1008),
    _Known(r"GeForce RTX 5090( D)?", 32, 1792),
    _Known(r"RTX A6000", 48, 768),
    _Known(r"RTX 6000 Ada Generation", 48, 960),
    _Known(r"RTX PRO 6000 Blackwell .*Edition", 96, 1792),
    _Known(r"L4", 24, 300),
    _Known(r"L40S", 48, 864),
    _Known(r"A100-(SXM4|PCIE)-40GB", 42, 1555),
    _Known(r"A100 80GB PCIe", 85, 1935),
    _Known(r"A100-SXM4-80GB", 85, 2039),
    _Known(r"H100 PCIe", 85, 2000),
    _Known(r"H100 80GB HBM3", 85, 3350),
    _Known(r"H100 NVL", 100, 3900),
    _Known(r"H200( NVL)?", 150, 4800),
    _Known(r"B200", 191, 7672),
    _Known(r"GB10", 128, 273),
)


def peak_bandwidth(
    *,
    name: str,
    memory_total_bytes: int | None,
    max_memory_clock_mhz: int | None,
    memory_bus_bits: int | None,
    entered_bytes_per_s: float | None = None,
) -> tuple[float | None, PeakSource | None]:
    """Return the highest memory bandwidth of a GPU in bytes/s and where it comes from, (None, None) if unknown.

    Args:
        name: as NVML gives it.
        memory_total_bytes: None if unknown; then the name alone decides.
        max_memory_clock_mhz: the highest, not the current one, as NVML reports it.
        memory_bus_bits: width of the memory bus.
        entered_bytes_per_s: what a person entered, which always wins.
    """
    if entered_bytes_per_s is not None:
        return entered_bytes_per_s, PeakSource.USER
    formula = None
    if max_memory_clock_mhz and memory_bus_bits:
        formula = 2 * max_memory_clock_mhz * 1e6 * memory_bus_bits / 8
    table = _look_up(name, memory_total_bytes)
    if formula is not None and (table is None or abs(formula - table) <= _NEAR * table):
        return formula, PeakSource.FORMULA
    if table is not None:
        return table, PeakSource.TABLE
    return None, None


def _look_up(name: str, memory_total_bytes: int | None) -> float | None:
    name = name.removeprefix("NVIDIA ")
    for known in _TABLE:
        memory = known.memory_gb * 1e9
        if re.fullmatch(known.name, name) and (
            memory_total_bytes is None or abs(memory_total_bytes - memory) <= _MEMORY_NEAR * memory
        ):
            return known.peak_gb_per_s * 1e9
    return None
