"""The last minutes of samples: fixed rings of figures over time, with gaps as NaN."""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, fields

from backend.events import HostSample, Sample

# What a chart can show; positions of acceptance come as "acceptance_position_0" and so on.
ENGINE_SERIES = tuple(
    each.name
    for each in fields(Sample)
    if each.name not in ("t", "interval_s", "state", "acceptance_per_position", "speculation")
)
HOST_SERIES = tuple(each.name for each in fields(HostSample) if each.name != "t")


@dataclass(frozen=True, slots=True)
class Curve:
    """One series, oldest first: `times` in Unix seconds, `values` in the unit of its name, NaN for a gap."""

    times: "array[float]"
    values: "array[float]"


class Ring:
    """The newest rows of several series that share a time axis; appending never allocates after the first lap.

    A row is one moment. A series that a row does not name has a gap there, also before its first value.
    """

    def __init__(self, capacity: int) -> None:
        """Keep `capacity` rows, > 0."""
        self._capacity = capacity
        self._times = self._empty()
        self._columns: dict[str, array[float]] = {}
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._capacity)

    @property
    def names(self) -> tuple[str, ...]:
        """Every series that ever had a value, in order of appearance."""
        return tuple(self._columns)

    def append(self, t: float, values: Mapping[str, float | None]) -> None:
        """Add a row at Unix time `t`; None is a gap."""
        slot = self._count % self._capacity
        for name, value in values.items():
            if value is not None and name not in self._columns:
                self._columns[name] = self._empty()
        self._times[slot] = t
        for name, column in self._columns.items():
            value = values.get(name)
            column[slot] = math.nan if value is None else value
        self._count += 1

    def last(self, name: str, *, seconds: float) -> Curve:
        """Return the rows of one series from the newest back to `seconds` before it.

        An unknown series gives gaps.
        """
        times, values = array("d"), array("d")
        if not len(self):
            return Curve(times, values)
        column = self._columns.get(name)
        oldest = self._times[(self._count - 1) % self._capacity] - seconds
        for number in range(self._count - 1, self._count - 1 - len(self), -1):
            slot = number % self._capacity
            if self._times[slot] < oldest:
                break
            times.append(self._times[slot])
            values.append(math.nan if column is None else column[slot])
        times.reverse()
        values.reverse()
        return Curve(times, values)

    def _empty(self) -> "array[float]":
        return array("d", [math.nan]) * self._capacity


class History:
    """What one engine and the machine showed, newest `capacity` samples of each."""

    def __init__(self, *, capacity: int = 3600) -> None:
        """Keep `capacity` samples; at one per second the default is an hour, 29 kB for each series."""
        self._engine = Ring(capacity)
        self._host = Ring(capacity)

    def append(self, sample: Sample) -> None:
        """Add what an engine showed."""
        values: dict[str, float | None] = {name: getattr(sample, name) for name in ENGINE_SERIES}
        for position, rate in enumerate(sample.acceptance_per_position or ()):
            values[f"acceptance_position_{position}"] = rate
        self._engine.append(sample.t, values)

    def append_host(self, sample: HostSample) -> None:
        """Add what the machine showed."""
        self._host.append(sample.t, {name: getattr(sample, name) for name in HOST_SERIES})

    def last(self, name: str, *, seconds: float) -> Curve:
        """Return the last `seconds` of a series of ENGINE_SERIES, HOST_SERIES or a position of acceptance."""
        return (self._host if name in HOST_SERIES else self._engine).last(name, seconds=seconds)
