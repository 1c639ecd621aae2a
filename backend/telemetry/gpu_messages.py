"""What the GPU sampler and the program say to each other: one JSON object a line, snapshots one way, options the other.

A snapshot's parts that hardly ever change (GPUs, links, versions) are in a line only when they differ from what the
line before said, and figures that are unknown are left out; so a line can only be read by the `Decoder` that has read
all lines before it, from the first line of that child on.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from backend.hardware import GpuInfo, GpuLink, GpuProcess, GpuReading, GpuSnapshot, PeakSource, Why

MIN_INTERVAL_S = 0.25
"""Oftener would hold the driver's lock and slow down the very engine that is watched."""
MAX_INTERVAL_S = 600.0

_STEADY = ("driver", "nvml", "cuda", "note", "gpus", "links")
_FIGURES = tuple(each.name for each in fields(GpuReading) if each.name not in ("uuid", "t", "processes", "why"))


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """What the sampler is told to do.

    Attributes:
        interval_s: time between two ticks; held within MIN_INTERVAL_S and MAX_INTERVAL_S.
        activity: read the GPU's performance counters (GPM): DRAM bandwidth, SM and tensor activity.
        pcie_snapshot: where nothing else tells PCIe traffic, take samples that cost 40 ms for each GPU.
        processes: read who holds memory.
        peaks: highest memory bandwidth in bytes/s by UUID, as a person entered it.
    """

    interval_s: float = 0.5
    activity: bool = False
    pcie_snapshot: bool = False
    processes: bool = True
    peaks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Hold the interval in its limits, whoever asks for another."""
        object.__setattr__(self, "interval_s", min(max(self.interval_s, MIN_INTERVAL_S), MAX_INTERVAL_S))

    def line(self) -> str:
        """Return the command, with its line end, that makes a sampler do this."""
        return json.dumps(asdict(self)) + "\n"

    def changed(self, line: str | bytes) -> "SamplerOptions":
        """Return the options after a command, which names any of the fields.

        Raises:
            ValueError: the line is no such command.
        """
        wanted = json.loads(line)
        if not isinstance(wanted, dict):
            raise ValueError(f"not an object: {line!r}")  # noqa: TRY004 - one error for every bad line
        values: dict[str, Any] = {}
        for name, value in wanted.items():
            if name == "peaks" and isinstance(value, dict) and all(map(_is_number, value.values())):
                values[name] = {uuid: float(peak) for uuid, peak in value.items() if peak > 0}
            elif name == "interval_s" and _is_number(value):
                values[name] = float(value)
            elif name in ("activity", "pcie_snapshot", "processes") and isinstance(value, bool):
                values[name] = value
            else:
                raise ValueError(f"{name}: {value!r}")
        return replace(self, **values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Encoder:
    """Writes the snapshots of one sampler as lines."""

    def __init__(self) -> None:
        self._said: dict[str, object] = {}

    def line(self, snapshot: GpuSnapshot) -> str:
        """Return a snapshot as one line with its line end."""
        message: dict[str, Any] = {
            "t": snapshot.t,
            "problem": snapshot.problem,
            "cost_s": snapshot.cost_s,
            "interval_s": snapshot.interval_s,
            "readings": [_plain_reading(each) for each in snapshot.readings],
        }
        for name in _STEADY:
            value = getattr(snapshot, name)
            if name not in self._said or self._said[name] != value:
                self._said[name] = value
                message[name] = [asdict(each) for each in value] if name in ("gpus", "links") else value
        return json.dumps(message, separators=(",", ":"), allow_nan=False) + "\n"


def _plain_reading(reading: GpuReading) -> dict[str, Any]:
    """All but the time, which is that of the snapshot, and what is unknown."""
    plain: dict[str, Any] = {"uuid": reading.uuid, "why": reading.why}
    for name in _FIGURES:
        if (value := getattr(reading, name)) is not None and value is not False:
            plain[name] = value
    if reading.processes is not None:
        plain["processes"] = [(each.pid, each.used_bytes, each.name) for each in reading.processes]
    return plain


class Decoder:
    """Reads the lines of one sampler, in their order."""

    def __init__(self) -> None:
        self._steady: dict[str, Any] = {}

    def snapshot(self, line: str | bytes) -> GpuSnapshot:
        """Return the snapshot of the next line, whole.

        Raises:
            ValueError: the line is no snapshot.
        """
        try:
            message = json.loads(line)
            for name in _STEADY:
                if name in message:
                    self._steady[name] = _steady(name, message[name])
            t = float(message["t"])
            return GpuSnapshot(
                t=t,
                problem=str(message["problem"]),
                readings=tuple(_reading(each, t) for each in message["readings"]),
                cost_s=message["cost_s"],
                interval_s=float(message["interval_s"]),
                **self._steady,
            )
        except (LookupError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"no snapshot of GPUs: {error!r}") from error


def _steady(name: str, value: Any) -> Any:
    match name:
        case "cuda":
            return None if value is None else (int(value[0]), int(value[1]))
        case "gpus":
            return tuple(map(_gpu, value))
        case "links":
            return tuple(GpuLink(**each) for each in value)
        case _:
            return str(value)


def _gpu(plain: dict[str, Any]) -> GpuInfo:
    capability, source = plain["compute_capability"], plain["peak_source"]
    return GpuInfo(
        **{
            **plain,
            "compute_capability": None if capability is None else (int(capability[0]), int(capability[1])),
            "peak_source": None if source is None else PeakSource(source),
        }
    )


def _reading(plain: dict[str, Any], t: float) -> GpuReading:
    values = {**plain, "t": t, "why": {name: Why(reason) for name, reason in plain["why"].items()}}
    if "throttle" in values:
        values["throttle"] = tuple(values["throttle"])
    if "processes" in values:
        values["processes"] = tuple(GpuProcess(pid, used, name) for pid, used, name in values["processes"])
    return GpuReading(**values)
