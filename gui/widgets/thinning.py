"""Fewer points for long curves: extremes of neighbours, so that no peak and no pause is lost."""

import math

import numpy as np

from backend.curves import Floats

# A gap that is this many times as long as readings are apart on average is no single reading that failed.
_PAUSE = 4


def thinned(x: Floats, y: Floats, most: int) -> tuple[Floats, Floats]:
    """Return at most about `most` points: of each group of neighbours the least and the greatest, where they stand.

    A moment at which nobody was reading for a while stays a gap.
    """
    if x.size <= most:
        return x, y
    size = 2 * math.ceil(x.size / most)
    n_groups = math.ceil(x.size / size)
    xs, ys = np.full(n_groups * size, x[-1]), np.full(n_groups * size, np.nan)
    xs[: x.size], ys[: y.size] = x, y
    groups, unknown = ys.reshape(n_groups, size), np.isnan(ys).reshape(n_groups, size)
    firsts = np.arange(n_groups) * size
    least = firsts + np.where(unknown, np.inf, groups).argmin(axis=1)
    greatest = firsts + np.where(unknown, -np.inf, groups).argmax(axis=1)
    picked = np.empty(2 * n_groups, dtype=np.intp)
    picked[0::2], picked[1::2] = np.minimum(least, greatest), np.maximum(least, greatest)
    missing = np.flatnonzero(np.isnan(y[1:-1])) + 1
    pauses = missing[x[missing + 1] - x[missing - 1] > _PAUSE * (x[-1] - x[0]) / x.size]
    if pauses.size:
        picked = np.union1d(picked.clip(max=x.size - 1), pauses)
    return xs[picked], ys[picked]
