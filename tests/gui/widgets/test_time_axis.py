"""The labels of a time axis of a run of the past."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.widgets.time_axis import since_marks

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("begin_s", "end_s", "is_end", "labels"),
    [
        (0, 47, True, ["0 s", "10", "20", "30", "40", "end"]),
        (0, 722, True, ["0 min", "5", "10", "end"]),
        (300, 600, False, ["5 min", "6", "7", "8", "9", "10"]),
        (120, 180, False, ["2:00 min", "2:15", "2:30", "2:45", "3:00"]),
        (-63, 700, True, ["0 min", "5", "10", "end"]),
        (-720, 1500, True, [f"{MINUS}10 min", "0", "10", "20", "end"]),
        (4000, 4060, False, ["1:06:45", "1:07:00", "1:07:15", "1:07:30"]),
        (7200, 9000, False, ["2:00 h", "2:10", "2:20", "2:30"]),
        (0, 86_400, True, ["0 h", "6", "12", "18", "end"]),
    ],
)
def test_labels_are_round_times_since_the_start(begin_s: int, end_s: int, is_end: bool, labels: list[str]) -> None:
    assert [label for _, label in reversed(since_marks(begin_s, end_s, is_end=is_end))] == labels


def seconds(label: str, unit: str) -> float:
    """Read a label as a person does."""
    sign = -1 if label.startswith(MINUS) else 1
    parts = [float(part) for part in label.removeprefix(MINUS).split(":")]
    if len(parts) == 3:
        return sign * (parts[0] * 3600 + parts[1] * 60 + parts[2])
    if len(parts) == 2:
        return sign * (parts[0] * 60 + parts[1]) * (60 if unit == "h" else 1)
    return sign * parts[0] * {"s": 1, "min": 60, "h": 3600}[unit]


@given(st.floats(-4000, 200_000), st.floats(1, 90_000), st.booleans())
def test_each_label_stands_where_its_time_is(begin_s: float, span_s: float, is_end: bool) -> None:
    end_s = begin_s + span_s
    marks = since_marks(begin_s, end_s, is_end=is_end)
    assert len(marks) <= 7
    places = [at for at, _ in marks]
    assert places == sorted(places, reverse=True)
    assert all(-span_s - 1e-6 <= at <= 1e-6 for at in places)
    named = [(at, label) for at, label in marks if label != "end"]
    assert (len(named) < len(marks)) == is_end
    if not named:
        return
    found = re.search(r" (s|min|h)$", named[-1][1])
    unit = found.group(1) if found else ""
    for at, label in named:
        assert seconds(label.removesuffix(f" {unit}"), unit) == pytest.approx(end_s + at, abs=0.5)
    assert all(" " not in label for _, label in named[:-1]), "the unit is said once"
