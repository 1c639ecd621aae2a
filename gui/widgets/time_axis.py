"""Labels of a time axis: seconds before now while an engine runs, time since the start in a run of the past."""

import math
from collections.abc import Callable

# Seconds between two labels, for spans up to the one beside it.
_STEPS = ((90, 15), (600, 60), (3600, 600), (14_400, 1800), (43_200, 3600), (math.inf, 14_400))
_UNITS = ((90, 1, "s"), (3600, 60, "min"), (math.inf, 3600, "h"))
# Round steps for an axis that may begin anywhere.
_ROUND = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
# Labels that stand closer together than this share of the axis would run into each other.
_CLOSE = 0.11

TimeMarks = tuple[tuple[float, str], ...]
"""(Seconds before the right end as a negative number, label), from the right to the left."""


def time_marks(span_s: float, *, n_most: int = 6) -> TimeMarks:
    """Return the labels of the last `span_s` seconds; the unit stands at the first one."""
    step = next(step for longest, step in _STEPS if span_s <= longest)
    while span_s / step > n_most:
        step *= 2
    unit_s, unit = next((size, unit) for longest, size, unit in _UNITS if span_s <= longest)
    marks = [(0.0, "now")]
    for count in range(1, int(span_s // step) + 1):
        marks.append((-float(count * step), f"\N{MINUS SIGN}{count * step / unit_s:g}"))
    at, label = marks[-1]
    marks[-1] = (at, f"{label} {unit}")
    return tuple(marks)


def since_marks(begin_s: float, end_s: float, *, is_end: bool, n_most: int = 5) -> TimeMarks:
    """Return the labels of a stretch of a run of the past.

    Args:
        begin_s: where the stretch begins, in seconds after the moment that the axis counts from.
        end_s: where it ends, > `begin_s`.
        is_end: the run ends there, and the axis says so.
        n_most: labels there may be, besides that of the end.
    """
    span_s = end_s - begin_s
    step = next((step for step in _ROUND if span_s / step <= n_most), float(math.ceil(span_s / n_most)))
    farthest_s = max(abs(begin_s), abs(end_s))
    if step >= 3600:
        text, unit = _whole(3600), "h"
    elif farthest_s > 7200 and step >= 60:
        text, unit = _clock(60), "h"
    elif step >= 60:
        text, unit = _whole(60), "min"
    elif farthest_s <= 90:
        text, unit = _whole(1), "s"
    else:
        text, unit = (_clock(1), "min") if farthest_s < 3600 else (_clock(1, hours=True), "")
    places = [count * step for count in range(math.ceil(begin_s / step), math.floor(end_s / step) + 1)]
    labels = [(at, ("\N{MINUS SIGN}" if at < 0 else "") + text(abs(at))) for at in places]
    labels[:1] = [(at, f"{label} {unit}".strip()) for at, label in labels[:1]]
    marks = [(at - end_s, label) for at, label in reversed(labels)]
    if is_end:
        marks = [(0.0, "end"), *(mark for mark in marks if -mark[0] > _CLOSE * span_s)]
    return tuple(marks)


def _whole(unit_s: int) -> Callable[[float], str]:
    return lambda seconds: f"{seconds / unit_s:g}"


def _clock(unit_s: int, *, hours: bool = False) -> Callable[[float], str]:
    """Return what says "12:05": two units of which the smaller one is `unit_s`; "1:12:05" with hours before them."""

    def text(seconds: float) -> str:
        large, small = divmod(round(seconds / unit_s), 60)
        return f"{large // 60}:{large % 60:02d}:{small:02d}" if hours else f"{large}:{small:02d}"

    return text
