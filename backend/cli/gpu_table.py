"""What is known of the GPUs, laid out for a terminal."""

from collections.abc import Iterator
from itertools import groupby

from rich.table import Table
from rich.text import Text

from backend.cli.words import UNKNOWN, figure
from backend.hardware import GpuInfo, GpuLink, GpuReading, GpuSnapshot, Why

_Pair = tuple[GpuInfo, GpuReading]

_MB = 1e6
_GB = 1e9
# Names of the figures that the tables show, for the reasons of those that are unknown.
_SHOWN = {
    "memory_used_bytes": "memory",
    "engine_bytes": "the engine's memory",
    "busy_ratio": "busy",
    "memory_busy_ratio": "memory busy",
    "dram_ratio": "bandwidth",
    "sm_ratio": "SM",
    "tensor_ratio": "tensor",
    "power_w": "power",
    "temperature_c": "temperature",
    "memory_temperature_c": "memory temperature",
    "sm_clock_mhz": "SM clock",
    "memory_clock_mhz": "memory clock",
    "performance_state": "P-state",
    "pcie_rx_bytes_per_s": "PCIe",
    "nvlink_rx_bytes_per_s": "NVLink",
    "throttle": "held down by",
    "processes": "processes",
}
_PATHS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe",
    "NODE": "the PCIe of one NUMA node",
    "SYS": "the link between CPUs",
}


def parts(snapshot: GpuSnapshot) -> Iterator[Table | Text]:
    """Yield what to print, from top to bottom."""
    if snapshot.problem:
        yield Text(snapshot.problem)
    if snapshot.driver:
        yield Text(_driver(snapshot))
    if snapshot.gpus:
        infos = {gpu.uuid: gpu for gpu in snapshot.gpus}
        pairs = [(infos[reading.uuid], reading) for reading in snapshot.readings if reading.uuid in infos]
        for table in (_names, _memory, _load, _state, _traffic):
            yield table(pairs)
        if any(reading.processes for _, reading in pairs):
            yield _processes(pairs)
        yield from _links(snapshot)
        yield from _unknown(pairs)
    elif not snapshot.problem:
        yield Text("The driver shows no GPU.")
    if snapshot.note:
        yield Text(snapshot.note)
    if snapshot.cost_s is not None and snapshot.gpus:
        cost = f"Reading them took {snapshot.cost_s * 1000:,.1f} ms, every {snapshot.interval_s:g} s."
        yield Text(f"These figures are old. {cost}" if snapshot.stale else cost)


def _driver(snapshot: GpuSnapshot) -> str:
    cuda = f", CUDA up to {snapshot.cuda[0]}.{snapshot.cuda[1]}" if snapshot.cuda else ""
    return f"NVIDIA driver {snapshot.driver}{cuda}{f', NVML {snapshot.nvml}' if snapshot.nvml else ''}"


def _table(*columns: str, words: tuple[str, ...] = ()) -> Table:
    """Make a table with a row for each GPU; columns named in `words` stand left, the others are figures."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("#", min_width=1, no_wrap=True)
    for heading in columns:
        table.add_column(heading, justify="left" if heading in words else "right", no_wrap=True)
    return table


def _names(pairs: list[_Pair]) -> Table:
    table = _table("GPU", "UUID", "", words=("GPU", "UUID", ""))
    for gpu, reading in pairs:
        name = f"{gpu.name} (slice)" if gpu.parent_uuid else gpu.name
        state = "lost" if reading.lost else "memory shared with the host" if gpu.unified_memory else ""
        table.add_row(str(gpu.index), Text(name), Text(gpu.uuid), state)
    return table


def _memory(pairs: list[_Pair]) -> Table:
    table = _table("used GB", "of GB", "engine", "others", "reserved", "free")
    for gpu, reading in pairs:
        sizes = (
            reading.memory_used_bytes,
            gpu.memory_total_bytes if reading.memory_total_bytes is None else reading.memory_total_bytes,
            reading.engine_bytes,
            reading.other_bytes,
            reading.memory_reserved_bytes,
            reading.memory_free_bytes,
        )
        table.add_row(str(gpu.index), *map(_gb, sizes))
    return table


def _load(pairs: list[_Pair]) -> Table:
    table = _table("busy", "memory busy", "SM", "tensor", "GB/s", "of peak", "peak GB/s", "from", words=("from",))
    for gpu, reading in pairs:
        table.add_row(
            str(gpu.index),
            figure(reading.busy_ratio, ".0%"),
            figure(reading.memory_busy_ratio, ".0%"),
            figure(reading.sm_ratio, ".0%"),
            figure(reading.tensor_ratio, ".0%"),
            _scaled(reading.dram_bytes_per_s, _GB, ",.0f"),
            figure(reading.dram_ratio, ".0%"),
            _scaled(gpu.peak_bytes_per_s, _GB, ",.0f"),
            gpu.peak_source or "",
        )
    return table


def _state(pairs: list[_Pair]) -> Table:
    words = "held down by"
    table = _table("W", "of W", "°C", "memory °C", "SM MHz", "memory MHz", "P-state", words, words=(words,))
    for gpu, reading in pairs:
        table.add_row(
            str(gpu.index),
            figure(reading.power_w, ",.0f"),
            figure(gpu.power_limit_w, ",.0f"),
            figure(reading.temperature_c, ".0f"),
            figure(reading.memory_temperature_c, ".0f"),
            figure(reading.sm_clock_mhz, ",.0f"),
            figure(reading.memory_clock_mhz, ",.0f"),
            figure(reading.performance_state, ".0f"),
            Text(UNKNOWN if reading.throttle is None else ", ".join(reading.throttle) or "nothing"),
        )
    return table


def _traffic(pairs: list[_Pair]) -> Table:
    table = _table("PCIe in MB/s", "out MB/s", "generation", "lanes", "NVLink in MB/s", "out MB/s")
    for gpu, reading in pairs:
        table.add_row(
            str(gpu.index),
            _scaled(reading.pcie_rx_bytes_per_s, _MB, ",.0f"),
            _scaled(reading.pcie_tx_bytes_per_s, _MB, ",.0f"),
            figure(reading.pcie_generation, ".0f"),
            figure(reading.pcie_width, ".0f"),
            _scaled(reading.nvlink_rx_bytes_per_s, _MB, ",.0f"),
            _scaled(reading.nvlink_tx_bytes_per_s, _MB, ",.0f"),
        )
    return table


def _processes(pairs: list[_Pair]) -> Table:
    table = _table("process", "", "pid", "GB", words=("process", ""))
    for gpu, reading in pairs:
        for process in sorted(reading.processes or (), key=lambda each: -(each.used_bytes or 0)):
            name = Text(process.name or UNKNOWN)
            owner = "engine" if process.is_engine else ""
            table.add_row(str(gpu.index), name, owner, str(process.pid), _gb(process.used_bytes))
    return table


def _links(snapshot: GpuSnapshot) -> Iterator[Text]:
    index = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
    known = [link for link in snapshot.links if link.first in index and link.second in index]
    for words, links in groupby(sorted(known, key=_link_words), key=_link_words):
        pairs = ", ".join(f"{index[link.first]}-{index[link.second]}" for link in links)
        yield Text(f"GPUs {pairs}: {words}")


def _link_words(link: GpuLink) -> str:
    if link.nvlink:
        return "NVLink"
    path = f"connected over {_PATHS.get(link.path, link.path)}" if link.path else "connection not known"
    direct = {True: ", direct access", False: ", no direct access", None: ""}[link.peer_access]
    return path + direct


def _unknown(pairs: list[_Pair]) -> Iterator[Text]:
    """Say why figures are missing, each reason once."""
    titles: dict[tuple[Why, tuple[int, ...]], list[str]] = {}
    for name, title in _SHOWN.items():
        indexes: dict[Why, list[int]] = {}
        for gpu, reading in pairs:
            if getattr(reading, name) is None and name in reading.why and not reading.lost:
                indexes.setdefault(reading.why[name], []).append(gpu.index)
        for why, where in indexes.items():
            titles.setdefault((why, tuple(where)), []).append(title)
    everywhere = tuple(gpu.index for gpu, reading in pairs if not reading.lost)
    for (reason, places), named in titles.items():
        on = "" if places == everywhere else f" (GPU {', '.join(map(str, places))})"
        yield Text(f"{UNKNOWN} {reason}: {', '.join(named)}{on}", style="dim")


def _gb(size: float | None) -> str:
    return _scaled(size, _GB, ",.1f")


def _scaled(value: float | None, unit: float, spec: str) -> str:
    return figure(None if value is None else value / unit, spec)
