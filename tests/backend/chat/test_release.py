"""Whether a stopped request is gone is told from how the engine's count moves, and from nothing else."""

from collections.abc import Iterator

import pytest

from backend.chat.release import Release, watch


class _Counts:
    """Gives one count after another, the last one for ever."""

    def __init__(self, *counts: float | None) -> None:
        self._counts: Iterator[float | None] = iter(counts)
        self._last: float | None = None

    async def __call__(self) -> float | None:
        self._last = next(self._counts, self._last)
        return self._last


@pytest.mark.parametrize(
    ("before", "counts", "found"),
    [
        (1.0, (0.0,), Release.LET_GO),
        (3.0, (3.0, 3.0, 2.0), Release.LET_GO),
        (1.0, (1.0,), Release.KEPT),
        (2.0, (2.0, 3.0), Release.KEPT),  # somebody else asked something meanwhile
        (0.0, (0.0,), Release.UNKNOWN),  # the engine never counted it
        (0.0, (0.0, 1.0, 0.0), Release.LET_GO),  # it counted it late
        (None, (None,), Release.UNKNOWN),
        (None, (1.0, None, 0.0), Release.LET_GO),
        (1.0, (None,), Release.KEPT),
    ],
)
async def test_the_verdict_follows_the_counts(
    before: float | None, counts: tuple[float | None, ...], found: Release
) -> None:
    assert await watch(_Counts(*counts), before=before, limit_s=0.5) is found
