"""Figures in words: unknown is a dash, thousands are separated, no figure is rounded to a false zero."""

import math
import time

import pytest

from gui.widgets import figures


def local(year: int, month: int, day: int, hour: int, minute: int) -> float:
    """Return the Unix time of a local one."""
    return time.mktime((year, month, day, hour, minute, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (figures.number(1234567), "1,234,567"),
        (figures.number(0.0), "0"),
        (figures.number(-0.2), "0"),
        (figures.number(12.345, 2), "12.35"),
        (figures.rate(0), "0"),
        (figures.rate(1.234), "1.23"),
        (figures.rate(52.04), "52.0"),
        (figures.rate(254.4), "254"),
        (figures.rate(12345.6), "12,346"),
        (figures.percent(0.778), "78 %"),
        (figures.percent(0.778, 1), "77.8 %"),
        (figures.percent(0.0), "0 %"),
        (figures.percent(0.0004), "< 1 %"),
        (figures.percent(0.0004, 1), "< 0.1 %"),
        (figures.gib(12.34 * 1024**3), "12.3 GiB"),
        (figures.duration(0.02), "<0.1 s"),
        (figures.duration(4.21), "4.2 s"),
        (figures.took(0.0), "<0.1 s"),
        (figures.took(4.29), "4.2 s"),
        (figures.took(16.9), "16 s"),
        (figures.duration(42.4), "42 s"),
        (figures.duration(59.8), "1 min"),
        (figures.duration(185), "3 min 5 s"),
        (figures.duration(4350), "1 h 12 min"),
        (figures.elapsed(9.99), "9 s"),
        (figures.elapsed(59.9), "59 s"),
        (figures.elapsed(185.9), "3 min 5 s"),
        (figures.elapsed(-1), "0 s"),
        (figures.span(21600), "6 h"),
        (figures.ago(0.2), "now"),
        (figures.ago(4), "4 s ago"),
        (figures.ago(92), "1 min 32 s ago"),
        (figures.times(0.81), "0.81x"),
        (figures.times(12.46), "12.5x"),
        (figures.times(None), "\N{EN DASH}"),
        (figures.date(local(2026, 11, 3, 14, 3), local(2026, 11, 3, 23, 0)), "today 14:03"),
        (figures.date(local(2026, 11, 3, 14, 3), local(2026, 11, 4, 0, 0)), "3 Nov 14:03"),
        (figures.date(local(2025, 11, 3, 14, 3), local(2026, 11, 3, 0, 0)), "3 Nov 2025 14:03"),
        (figures.date_stamp(local(2026, 1, 9, 4, 5)), "2026-01-09 04-05"),
        (figures.stretch(local(2026, 1, 9, 4, 5), local(2026, 1, 9, 14, 15)), "04:05:00 \N{EN DASH} 14:15:00"),
        (
            figures.stretch(local(2020, 1, 9, 4, 5), local(2020, 1, 10, 1, 1)),
            "9 Jan 04:05 \N{EN DASH} 10 Jan 2020 01:01",
        ),
    ],
)
def test_words(shown: str, wanted: str) -> None:
    assert shown == wanted


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf])
def test_unknown_is_a_dash(unknown: float | None) -> None:
    ways = (figures.number, figures.rate, figures.percent, figures.gib, figures.duration)
    assert {way(unknown) for way in ways} == {"\N{EN DASH}"}
    assert not figures.is_known(unknown)
