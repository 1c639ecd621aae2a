"""What the history gives and charts draw: curves, and readings one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from backend.events import Mark, PastRun
from backend.hardware import GpuInfo

Floats = npt.NDArray[np.float64]

RECENT_S = 10.0
"""Figures that one reading knows too little of are those of so many seconds."""

EACH_S = 360.0
"""Readings are kept one by one for about so many seconds; older ones are extremes of time buckets."""


class Curve(NamedTuple):
    """One series, oldest first: `times` in Unix seconds, `values` in the unit of its name, NaN for a gap."""

    times: Floats
    values: Floats


class Stretch(NamedTuple):
    """What is known of a series from Unix time `begin` to `end`; a single reading has all three values the same."""

    begin: float
    end: float
    least: float
    mean: float
    greatest: float


class Readings(NamedTuple):
    """Readings one by one, oldest first.

    Attributes:
        names: the series.
        begin: Unix time after which all of them are there; later than was asked for when they are not kept so long.
        times: Unix seconds.
        values: a row for each series, a column for each reading, NaN where it says nothing.
    """

    names: tuple[str, ...]
    begin: float
    times: Floats
    values: Floats

    def after(self, t: float) -> "Readings":
        """Return those that were made after a time."""
        later = self.times > t
        return self._replace(times=self.times[later], values=self.values[:, later])

    def curve(self, name: str, seconds: float, until: float) -> Curve:
        """Return one series over `seconds` up to `until`, both ends included; one that is not there is empty."""
        if name not in self.names:
            return Curve(np.empty(0), np.empty(0))
        first, last = np.searchsorted(self.times, until - seconds), np.searchsorted(self.times, until, side="right")
        return Curve(self.times[first:last], self.values[self.names.index(name), first:last])

    def part(self, names: Sequence[str], seconds: float, until: float) -> "Readings":
        """Return these series over `seconds` up to `until`; one that is not there says nothing."""
        begin = max(until - seconds, self.begin)
        first, last = np.searchsorted(self.times, (begin, until), side="right")
        inside = slice(int(first), max(int(first), int(last)))
        values = np.full((len(names), inside.stop - inside.start), np.nan)
        for row, name in enumerate(names):
            if name in self.names:
                values[row] = self.values[self.names.index(name), inside]
        return Readings(tuple(names), begin, self.times[inside], values)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded run with its readings and marks.

    Attributes:
        readings: the series have the names of the live history; NaN stands where nobody was reading.
        marks: what happened, in the order of time.
        gpus: the GPUs whose series are among the readings.
    """

    run: PastRun
    readings: Readings
    marks: tuple[Mark, ...] = ()
    gpus: tuple[GpuInfo, ...] = ()
