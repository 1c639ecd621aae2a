"""The readings of a run of the past, prepared so that any stretch of it can be drawn and summed up at once."""

import math
from collections.abc import Sequence

import numpy as np

from backend.curves import Curve, Floats, Readings
from gui.widgets.pooled_acceptance import Drafts
from gui.widgets.thinning import thinned

MEAN_WORDS = "Mean over what is shown; each reading counts by what it rests on: time, requests, tokens or drafts."

# A stretch of more readings than this is drawn from a thinned copy, which is still finer than any plot.
_MOST_POINTS = 8192
# Sums are kept for so many readings together; only those at both ends of a stretch are added one by one.
_BLOCK = 64
_TIME, _TOKENS, _DRAFTS = "interval_s", "generation_tokens_per_s", "drafts"
# What a reading of a series rests on. The machine is read at a steady pace: its readings all count the same.
_WEIGHTS = {
    "generation_tokens_per_s": _TIME,
    "prompt_tokens_per_s": _TIME,
    "steps_per_s": _TIME,
    "acceptance_rate": "draft_tokens",
    "mean_acceptance_length": _DRAFTS,
    "ttft_p50_s": "ttft_count",
    "ttft_p95_s": "ttft_count",
    "itl_p50_s": _TOKENS,
    "itl_p95_s": _TOKENS,
}
# Rates count for the time in which there was any.
_WHILE_ANY = frozenset({"generation_tokens_per_s", "prompt_tokens_per_s", "steps_per_s"})
# Each reading of it tells of several seconds already: what it is made of is added up instead.
_MADE_OF = {"recent_acceptance_rate": "acceptance_rate"}
_POSITION = "acceptance_position_"


class PastCurves:
    """Making one takes a moment for a long run and belongs on a worker thread; asking it is quick.

    Attributes:
        readings: what it was made of.
        positions: the series of acceptance by position.
        known: the series that have any value.
    """

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self.positions = tuple(name for name in readings.names if name.startswith(_POSITION))
        self._rows = {name: row for row, name in enumerate(readings.names)}
        self.known = frozenset(
            name for name, values in zip(readings.names, readings.values, strict=True) if np.isfinite(values).any()
        )
        n_readings = readings.times.size
        self._thin: dict[str, Curve] = {}
        if n_readings > _MOST_POINTS:
            self._thin = {
                name: Curve(*thinned(readings.times, readings.values[row], _MOST_POINTS))
                for name, row in self._rows.items()
            }
        starts = np.arange(0, n_readings, _BLOCK)
        self._sums: dict[str, Floats] = {}  # of all blocks before: values x weights, and weights
        for name in self._rows if n_readings else ():
            sums = np.add.reduceat(self._weighted(name, 0, n_readings), starts, axis=1)
            self._sums[name] = np.concatenate([np.zeros((2, 1)), np.cumsum(sums, axis=1)], axis=1)

    def curve(self, name: str, seconds: float, until: float) -> Curve:
        """Return one series over `seconds` up to `until` (Unix time), of a long stretch its extremes."""
        first, last = self._inside(seconds, until)
        if last - first <= _MOST_POINTS or name not in self._thin:
            return self.readings.curve(name, seconds, until)
        times, values = self._thin[name]
        begin, end = np.searchsorted(times, until - seconds), np.searchsorted(times, until, side="right")
        return Curve(times[begin:end], values[begin:end])

    def mean(self, name: str, seconds: float, until: float) -> float | None:
        """Return the mean of a series over `seconds` up to `until`, None where it is not known; see MEAN_WORDS."""
        name = _MADE_OF.get(name, name)
        total, weight = self._total(name, seconds, until)
        if weight > 0:
            return total / weight
        if name not in _WHILE_ANY or name not in self._rows:
            return None
        first, last = self._inside(seconds, until)
        return 0.0 if np.isfinite(self.readings.values[self._rows[name], first:last]).any() else None

    def drafts(self, seconds: float, until: float, positions: Sequence[str] = ()) -> Drafts:
        """Return what became of all drafts within `seconds` up to `until`, at these positions too."""
        count, known = self._total(_DRAFTS, seconds, until)
        at = [self._total(name, seconds, until) for name in positions]
        while at and not at[-1][1] > 0:
            at.pop()
        return Drafts(
            over_s=seconds,
            count=count if known > 0 else None,
            acceptance=self.mean("acceptance_rate", seconds, until),
            length=self.mean("mean_acceptance_length", seconds, until),
            # Where drafts have fewer positions, no guess was accepted at the others.
            positions=tuple(accepted / at[0][1] for accepted, _ in at) if at and at[0][1] > 0 else (),
        )

    def _inside(self, seconds: float, until: float) -> tuple[int, int]:
        """Return first and last + 1 of the readings; one at the very begin tells of the time before it."""
        first, last = np.searchsorted(self.readings.times, (until - seconds, until), side="right")
        return int(first), max(int(first), int(last))

    def _total(self, name: str, seconds: float, until: float) -> tuple[float, float]:
        """Return the sum of values x weights and that of the weights."""
        if name not in self._sums:
            return 0.0, 0.0
        first, last = self._inside(seconds, until)
        begin, end = -(-first // _BLOCK), last // _BLOCK
        if begin >= end:
            parts = [self._weighted(name, first, last).sum(axis=1)]
        else:
            blocks = self._sums[name]
            parts = [
                self._weighted(name, first, begin * _BLOCK).sum(axis=1),
                blocks[:, end] - blocks[:, begin],
                self._weighted(name, end * _BLOCK, last).sum(axis=1),
            ]
        total, weight = np.sum(parts, axis=0)
        return float(total), float(weight)

    def _weighted(self, name: str, first: int, last: int) -> Floats:
        """Return values x weights and weights of readings, 0 where nothing is known."""
        values = self.readings.values[self._rows[name], first:last]
        weight = _DRAFTS if name.startswith(_POSITION) else _WEIGHTS.get(name)
        if weight is None:
            weights = np.ones_like(values)
        elif weight in self._rows:
            weights = self.readings.values[self._rows[weight], first:last]
        else:
            weights = np.full_like(values, math.nan)
        counted = np.isfinite(values) & (weights > 0)
        if name in _WHILE_ANY:
            counted &= values > 0
        weights = np.where(counted, weights, 0.0)
        return np.stack([np.where(counted, values, 0.0) * weights, weights])
