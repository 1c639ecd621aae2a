"""What became of the drafts of several readings, each reading weighted by the drafts behind it.

One reading of an engine with little to do holds a handful of drafts: its acceptance alone is chance.
"""

from dataclasses import dataclass

import numpy as np

from backend.curves import Floats, Readings
from gui.widgets import figures

# The oldest reading of a stretch tells of a time that begins a little before it: that much longer is not worth saying.
_LONGER = 1.25
# What a reading must tell; positions of acceptance may follow.
NAMES = ("interval_s", "drafts", "draft_tokens", "acceptance_rate", "mean_acceptance_length")


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts of a stretch of time.

    Attributes:
        over_s: seconds that are covered.
        count: number of drafts, None while no reading counts them.
        acceptance: accepted / drafted tokens, 0..1; None when nothing was drafted.
        length: 1 + accepted tokens / drafts; None when nothing was drafted.
        positions: accepted at each position / drafts; empty when nothing was drafted.
    """

    over_s: float
    count: float | None = None
    acceptance: float | None = None
    length: float | None = None
    positions: tuple[float, ...] = ()


def pooled(found: Readings, until: float) -> Drafts:
    """Add readings up.

    Args:
        found: the series NAMES, and then one for each position.
        until: Unix time up to which they tell of; one that tells of a much longer time makes the stretch longer.
    """
    interval_s, drafts, draft_tokens, rate, length = found.values[: len(NAMES)]
    at_positions = found.values[len(NAMES) :]
    over_s = until - found.begin
    known = np.isfinite(drafts)
    told_s = float(np.nansum(interval_s))
    positions: tuple[float, ...] = ()
    if len(at_positions):
        counted = (drafts > 0) & np.isfinite(at_positions[0])
        ever = np.flatnonzero(np.isfinite(at_positions[:, counted]).any(axis=1))
        if ever.size:
            weights = drafts[counted]
            accepted = np.nan_to_num(at_positions[: int(ever[-1]) + 1, counted]) @ weights
            positions = tuple((accepted / weights.sum()).tolist())
    return Drafts(
        over_s=told_s if told_s > over_s * _LONGER else over_s,
        count=float(drafts[known].sum()) if known.any() else None,
        # accepted = rate x drafted tokens = (length - 1) x drafts
        acceptance=_weighted(rate, draft_tokens),
        length=_weighted(length, drafts),
        positions=positions,
    )


def words(known: Drafts) -> str:
    """Say how many drafts a figure rests on: "42 drafts in 10 s"."""
    return f"{count_words(known)} in {span_words(known.over_s)}"


def count_words(known: Drafts) -> str:
    """Return "42 drafts"."""
    return f"{figures.number(known.count)} draft{'' if known.count == 1 else 's'}"


def span_words(over_s: float) -> str:
    """Return a stretch of time without what jitters: "10 s", "6 min"."""
    return f"{over_s:.0f} s" if over_s < 45 else figures.span(round(over_s / 60) * 60)


def _weighted(values: Floats, weights: Floats) -> float | None:
    counted = np.isfinite(values) & (weights > 0)
    return float(values[counted] @ weights[counted] / weights[counted].sum()) if counted.any() else None
