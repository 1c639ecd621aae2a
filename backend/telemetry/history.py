"""The last day of figures in fixed memory: readings one by one, older ones as extremes and means of time buckets."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from backend.curves import EACH_S, RECENT_S, Curve, Floats, Readings, Stretch
from backend.events import HostSample, RunState, Sample
from backend.hardware import GPU_FIGURES, GPU_SIGN, THROTTLED, GpuSnapshot, gpu_series

# What a chart can show; positions of acceptance come as "acceptance_position_0" and so on.
ENGINE_SERIES = tuple(
    each.name for each in fields(Sample) if each.name not in ("t", "state", "acceptance_per_position", "speculation")
)
HOST_SERIES = tuple(each.name for each in fields(HostSample) if each.name != "t")
POSITION_SERIES = "acceptance_position_"
RECENT_ACCEPTANCE = "recent_acceptance_rate"

MAX_POINTS = 720
# Seconds a bucket, seconds kept: 360 buckets of two points each are as many points as a plot has pixels.
LEVELS = ((5.0, 1800.0), (20.0, 7200.0), (60.0, 21600.0), (240.0, 86400.0))
# Nobody was reading (a suspended machine, an engine that was not there) when the next reading comes this late;
# while the window is hidden one comes every 5 s, whatever the interval is, and that is no gap.
_SLOWEST_INTERVAL_S = 5.0
_GAP_INTERVALS = 2.5


class _Rows:
    """The newest rows, one for each reading."""

    def __init__(self, capacity: int, n_columns: int) -> None:
        self._capacity = capacity
        self._times = np.full(capacity, np.nan)
        self._values = np.full((n_columns, capacity), np.nan)
        self._count = 0
        self._order: tuple[npt.NDArray[np.intp], Floats] | None = None  # slots and their times, oldest first

    def append(self, t: float, row: Floats, gap_since: float | None) -> None:
        if gap_since is not None:
            self._put((gap_since + t) / 2, np.full_like(row, np.nan))
        self._put(t, row)

    def stretch(self, column: int, t: float) -> Stretch | None:
        """Return the reading nearest to `t`."""
        order, times = self._in_order()
        if not order.size:
            return None
        slot = order[np.argmin(np.abs(times - t))]
        value, at = float(self._values[column, slot]), float(self._times[slot])
        return None if math.isnan(value) else Stretch(at, at, value, value, value)

    def _put(self, t: float, row: Floats) -> None:
        slot = self._count % self._capacity
        self._times[slot] = t
        self._values[:, slot] = row
        self._count += 1
        self._order = None

    def _in_order(self) -> tuple[npt.NDArray[np.intp], Floats]:
        """Slots and times of the rows, oldest first; worked out once for all series that are asked for."""
        if self._order is None:
            slots = _oldest_first(self._count, self._capacity)
            self._order = slots, self._times[slots]
        return self._order

    def add_columns(self, count: int) -> None:
        self._values = np.vstack([self._values, np.full((count, self._capacity), np.nan)])

    def reach(self, start: float) -> bool:
        """Whether nothing since `start` was overwritten."""
        return self._count <= self._capacity or bool(self._times[self._count % self._capacity] <= start)

    def curve(self, column: int, start: float, end: float) -> Curve:
        order, times = self._in_order()
        inside = slice(int(np.searchsorted(times, start)), int(np.searchsorted(times, end, side="right")))
        return Curve(times[inside], self._values[column, order[inside]])

    def readings(self, names: Sequence[str], columns: Sequence[int], start: float, end: float) -> Readings:
        order, times = self._in_order()
        begin = start if self.reach(start) else float(times[0])
        inside = (times > begin) & (times <= end)
        values = self._values[np.asarray(columns)[:, np.newaxis], order[inside]]
        return Readings(tuple(names), begin, times[inside], values)


class _Buckets:
    """Least, greatest and mean value of each series in each stretch of `width_s`, with the time of the extremes.

    Without a value both extremes stand at the begin of the bucket.
    """

    def __init__(self, width_s: float, capacity: int, n_columns: int) -> None:
        self._width_s = width_s
        self._capacity = capacity
        self._numbers = np.zeros(capacity, dtype=np.int64)
        self._extremes = np.full((4, n_columns, capacity), np.nan)  # least, greatest, time of least, of greatest
        self._sums = np.zeros((2, n_columns, capacity))  # of the values, and how many there were
        self._count = 0

    def append(self, t: float, row: Floats, gap_since: float | None) -> None:
        number = int(t // self._width_s)
        newest = self._numbers[(self._count - 1) % self._capacity]
        if not self._count or number != newest:
            if gap_since is not None and number > newest + 1:
                self._open(newest + 1)  # an empty bucket, so that no line is drawn over the gap
            self._open(number)
        slot = (self._count - 1) % self._capacity
        least, greatest, t_least, t_greatest = self._extremes[:, :, slot]
        known = ~np.isnan(row)
        self._sums[0, known, slot] += row[known]
        self._sums[1, known, slot] += 1
        lower, higher = known & ~(row >= least), known & ~(row <= greatest)
        least[lower], t_least[lower] = row[lower], t
        greatest[higher], t_greatest[higher] = row[higher], t

    def _open(self, number: int) -> None:
        slot = self._count % self._capacity
        self._numbers[slot] = number
        self._extremes[:2, :, slot] = np.nan
        self._extremes[2:, :, slot] = number * self._width_s
        self._sums[:, :, slot] = 0
        self._count += 1

    def add_columns(self, count: int) -> None:
        added = np.full((4, count, self._capacity), np.nan)
        added[2:] = self._numbers * self._width_s
        self._extremes = np.concatenate([self._extremes, added], axis=1)
        self._sums = np.concatenate([self._sums, np.zeros((2, count, self._capacity))], axis=1)

    def stretch(self, column: int, t: float) -> Stretch | None:
        """Return the bucket in which `t` lies, None if it is not kept or has no value."""
        order = _oldest_first(self._count, self._capacity)
        slots = order[self._numbers[order] == int(t // self._width_s)]
        if not slots.size or not self._sums[1, column, slots[-1]]:
            return None
        slot = slots[-1]
        total, count = self._sums[:, column, slot]
        begin = float(self._numbers[slot]) * self._width_s
        least, greatest = self._extremes[:2, column, slot]
        return Stretch(begin, begin + self._width_s, float(least), float(total / count), float(greatest))

    def reach(self, start: float) -> bool:
        """Whether nothing since `start` was overwritten."""
        return self._count <= self._capacity or bool(
            self._numbers[self._count % self._capacity] * self._width_s <= start
        )

    def curve(self, column: int, start: float, end: float) -> Curve:
        """Two points a bucket; the bucket in which the span begins is there whole."""
        order = _oldest_first(self._count, self._capacity)
        numbers = self._numbers[order]
        order = order[(numbers >= start // self._width_s) & (numbers <= end // self._width_s)]
        least, greatest, t_least, t_greatest = self._extremes[:, column, order]
        least_first = t_least <= t_greatest
        times = np.column_stack([np.minimum(t_least, t_greatest), np.maximum(t_least, t_greatest)]).ravel()
        values = np.column_stack(
            [np.where(least_first, least, greatest), np.where(least_first, greatest, least)]
        ).ravel()
        return Curve(times[times <= end], values[times <= end])


class Track:
    """Several series that share a time axis: rows for the newest readings, and levels of ever wider buckets.

    A row is one moment. A series that a row does not name has a gap there, also before its first value.
    """

    def __init__(
        self, names: Sequence[str] = (), *, n_rows: int, levels: Sequence[tuple[float, float]] = (), gap_s: float
    ) -> None:
        """Make room for everything that will ever be kept, save for series that turn up later.

        Args:
            names: series known from the start.
            n_rows: readings to keep one by one, > 0.
            levels: seconds a bucket and seconds to keep, finest first.
            gap_s: a reading that comes later than this after the one before leaves a gap between the two; may be set
                to something else at any time.
        """
        self._columns = {name: number for number, name in enumerate(names, start=1)}  # column 0 stays unknown
        self._shape = n_rows, tuple(levels)
        self.gap_s = gap_s
        self._clear()

    def _clear(self) -> None:
        n_rows, levels = self._shape
        n_columns = len(self._columns) + 1
        self._newest_t: float | None = None
        self._levels: list[_Rows | _Buckets] = [_Rows(n_rows, n_columns)]
        # One more for the bucket that is being filled, and one for the bucket that the span only touches.
        self._levels += [_Buckets(width_s, int(kept_s // width_s) + 2, n_columns) for width_s, kept_s in levels]

    @property
    def names(self) -> tuple[str, ...]:
        """Every series, in order of appearance."""
        return tuple(self._columns)

    @property
    def newest_t(self) -> float | None:
        """Unix time of the newest row, None without any."""
        return self._newest_t

    def append(self, t: float, values: Mapping[str, float | None]) -> None:
        """Add a row at Unix time `t`; None is a gap. A clock that is set back far starts everything anew."""
        gap_since: float | None = None
        if self._newest_t is not None:
            if t < self._newest_t - self.gap_s:
                self._clear()
            elif t - self._newest_t > self.gap_s:
                gap_since = self._newest_t
            t = t if self._newest_t is None else max(t, self._newest_t)
        self._newest_t = t
        new = [name for name, value in values.items() if value is not None and name not in self._columns]
        if new:  # all in one go: the first reading of eight GPUs brings two hundred
            self._columns |= {name: number for number, name in enumerate(new, start=len(self._columns) + 1)}
            for level in self._levels:
                level.add_columns(len(new))
        row = np.full(len(self._columns) + 1, np.nan)
        for name, value in values.items():
            if value is not None:
                row[self._columns[name]] = value
        for level in self._levels:
            level.append(t, row, gap_since)

    def last(self, name: str, *, seconds: float, until: float | None = None) -> Curve:
        """Return one series over `seconds` up to `until` (the newest row), as finely as it is still known."""
        if self._newest_t is None:
            return Curve(np.empty(0), np.empty(0))
        end = self._newest_t if until is None else until
        start = end - seconds
        return self._finest(start).curve(self._columns.get(name, 0), start, end)

    def stretch(self, name: str, t: float, *, seconds: float, until: float | None = None) -> Stretch | None:
        """Return what `last` with the same span knows of one series at `t`; None without a value there."""
        if self._newest_t is None:
            return None
        end = self._newest_t if until is None else until
        return self._finest(end - seconds).stretch(self._columns.get(name, 0), t)

    def _finest(self, start: float) -> _Rows | _Buckets:
        return next((level for level in self._levels if level.reach(start)), self._levels[-1])

    def readings(self, names: Sequence[str], *, seconds: float, until: float | None = None) -> Readings:
        """Return series reading by reading, over `seconds` up to `until` (the newest row), if they reach so far."""
        end = (self._newest_t or 0.0) if until is None else until
        rows = self._levels[0]
        assert isinstance(rows, _Rows)
        return rows.readings(names, [self._columns.get(name, 0) for name in names], end - seconds, end)


class History:
    """What one engine and the machine showed over the last day, some 60 kB for each series."""

    def __init__(self, *, interval_s: float = 1.0) -> None:
        """Make room for readings that come every `interval_s` seconds; other paces are fine too."""
        n_rows = max(1, min(round(EACH_S / interval_s), MAX_POINTS))
        gap_s = longest_pause_s(interval_s)
        self._interval_s = self._gpu_interval_s = interval_s
        self._recent = RecentAcceptance()
        self._engine = Track((*ENGINE_SERIES, RECENT_ACCEPTANCE), n_rows=n_rows, levels=LEVELS, gap_s=gap_s)
        self._host = Track(HOST_SERIES, n_rows=n_rows, levels=LEVELS, gap_s=gap_s)
        self._gpus = Track(n_rows=n_rows, levels=LEVELS, gap_s=gap_s)

    @property
    def positions(self) -> tuple[str, ...]:
        """The series of acceptance by position that ever had a value."""
        return tuple(name for name in self._engine.names if name.startswith(POSITION_SERIES))

    def expect_every(self, interval_s: float) -> None:
        """Take readings that come every `interval_s` seconds from now on for readings without a gap."""
        self._interval_s = interval_s
        self._engine.gap_s = self._host.gap_s = longest_pause_s(interval_s)

    def append(self, sample: Sample) -> None:
        """Add what an engine showed."""
        self._engine.append(sample.t, engine_values(sample, self._recent))

    def append_host(self, sample: HostSample) -> None:
        """Add what the machine showed."""
        self._host.append(sample.t, host_values(sample))

    def append_gpus(self, snapshot: GpuSnapshot) -> None:
        """Add what the GPUs showed; a GPU that is not read, or a stale snapshot, is a gap.

        GPUs may be read less often than everything else: the same snapshot comes again then, and counts once.
        """
        if snapshot.t == self._gpus.newest_t:
            return
        before_s, self._gpu_interval_s = self._gpu_interval_s, max(self._interval_s, snapshot.interval_s)
        self._gpus.gap_s = longest_pause_s(max(before_s, self._gpu_interval_s))
        values = {} if snapshot.stale else gpu_values(snapshot)
        self._gpus.append(snapshot.t, values)

    def last(self, name: str, *, seconds: float, until: float | None = None) -> Curve:
        """Return the last `seconds` of a series: ENGINE_SERIES, HOST_SERIES, positions, RECENT_ACCEPTANCE, gpu_series.

        Readings stand one by one as long as they are kept; before that, each bucket of time gives two points, its
        least and its greatest value at the times when they were read. A bucket without a value is a gap.

        Args:
            name: the series; one that is not known gives gaps.
            seconds: length of the span; a curve has at most about 720 points whatever it is.
            until: end of the span in Unix seconds, by default the newest reading.
        """
        return self._track(name).last(name, seconds=seconds, until=until)

    def stretch(self, name: str, t: float, *, seconds: float, until: float | None = None) -> Stretch | None:
        """Return least, mean and greatest value of a series around Unix time `t`, as finely as in `last`."""
        return self._track(name).stretch(name, t, seconds=seconds, until=until)

    def _track(self, name: str) -> Track:
        return self._host if name in HOST_SERIES else self._gpus if GPU_SIGN in name else self._engine

    def readings(self, names: Sequence[str], *, seconds: float, until: float | None = None) -> Readings:
        """Return what the readings of an engine say, one by one: for sums, which extremes of buckets cannot give.

        A reading tells of the time before it, so one that stands exactly at the begin of the span is left out.

        Args:
            names: series of ENGINE_SERIES, or positions of acceptance; one that is not known gives gaps.
            seconds: length of the span; what is older than some 6 minutes is not kept one by one.
            until: end of the span in Unix seconds, by default the newest reading.
        """
        return self._engine.readings(names, seconds=seconds, until=until)


def longest_pause_s(interval_s: float) -> float:
    """Return after how many seconds without a reading nobody was reading; readings come every `interval_s`."""
    return _GAP_INTERVALS * max(interval_s, _SLOWEST_INTERVAL_S)


def engine_values(sample: Sample, recent: "RecentAcceptance") -> dict[str, float | None]:
    """Return every figure of an engine by the name of its series; `recent` takes the sample too."""
    values: dict[str, float | None] = {name: getattr(sample, name) for name in ENGINE_SERIES}
    for position, rate in enumerate(sample.acceptance_per_position or ()):
        values[f"{POSITION_SERIES}{position}"] = rate
    values[RECENT_ACCEPTANCE] = recent.after(sample)
    return values


def host_values(sample: HostSample) -> dict[str, float | None]:
    """Return every figure of the machine by the name of its series."""
    return {name: getattr(sample, name) for name in HOST_SERIES}


def gpu_values(snapshot: GpuSnapshot) -> dict[str, float | None]:
    """Return every figure of every GPU by the name of its series, and whether it is throttled."""
    values: dict[str, float | None] = {}
    for reading in snapshot.readings:
        values |= {gpu_series(reading.uuid, figure): getattr(reading, figure) for figure in GPU_FIGURES}
        throttled = None if reading.throttle is None else float(bool(reading.throttle))
        values[gpu_series(reading.uuid, THROTTLED)] = throttled
    return values


class RecentAcceptance:
    """Accepted over drafted tokens of the last RECENT_S; in one reading of a quiet engine it is chance."""

    def __init__(self) -> None:
        self._held: deque[tuple[float, float, float]] = deque()  # time, accepted and drafted tokens

    def after(self, sample: Sample) -> float | None:
        """Take a sample and return the rate; None without drafts or without an answer."""
        if sample.state is RunState.STOPPED or (self._held and sample.t < self._held[-1][0]):
            self._held.clear()  # another engine's drafts do not count, nor those before the clock was set back
        if sample.acceptance_rate is not None and sample.draft_tokens is not None:
            self._held.append((sample.t, sample.acceptance_rate * sample.draft_tokens, sample.draft_tokens))
        while self._held and self._held[0][0] <= sample.t - RECENT_S:
            self._held.popleft()
        drafted = sum(tokens for _, _, tokens in self._held)
        return sum(accepted for _, accepted, _ in self._held) / drafted if drafted and sample.interval_s else None


def _oldest_first(count: int, capacity: int) -> npt.NDArray[np.intp]:
    """Slots of a ring that are in use, in order of age."""
    return np.arange(max(0, count - capacity), count, dtype=np.intp) % capacity
