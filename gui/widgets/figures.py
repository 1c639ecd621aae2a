"""Figures as people read them: unknown is a dash, thousands are separated, a unit stands after a space."""

import math
import time

UNKNOWN = "\N{EN DASH}"
GIB = 1024**3
"""Bytes of a GiB."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def is_known(value: float | None) -> bool:
    """Tell whether there is a figure at all; None and NaN are none."""
    return value is not None and math.isfinite(value)


def number(value: float | None, decimals: int = 0) -> str:
    """Return "1,234" or, with one decimal, "1,234.5"."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def rate(value: float | None) -> str:
    """Return a rate with as many decimals as it can carry: "254", "52.0", "1.25"."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return number(value, 0 if value >= 99.95 or value == 0 else 1 if value >= 9.995 else 2)


def percent(ratio: float | None, decimals: int = 0) -> str:
    """Return 0..1 as "78 %"; what is there but rounds to nothing is "< 1 %"."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    least = 10.0**-decimals
    if 0 < ratio * 100 < least / 2:
        return f"< {number(least, decimals)} %"
    return f"{number(ratio * 100, decimals)} %"


def gib(size_bytes: float | None) -> str:
    """Return bytes as "12.3 GiB"."""
    return UNKNOWN if size_bytes is None or not math.isfinite(size_bytes) else f"{number(size_bytes / GIB, 1)} GiB"


def duration(seconds: float | None) -> str:
    """Return "<0.1 s", "4.2 s", "42 s", "3 min 5 s" or "1 h 12 min"."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if 0 <= seconds < 0.05:
        return "<0.1 s"
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = whole % 3600 // 60
    return f"{whole // 3600:,} h {minutes} min" if minutes else f"{whole // 3600:,} h"


def took(seconds: float) -> str:
    """Return how long a step took; rounded down, so that no step seems longer than all of them: "0.4 s", "17 s"."""
    shown = max(0.0, seconds)
    return duration(math.floor(shown * 10) / 10 if shown < 10 else math.floor(shown))


def elapsed(seconds: float) -> str:
    """Return how long something has gone on in whole seconds that are over, as `uptime` counts them: "3 min 5 s"."""
    whole = int(max(0.0, seconds))
    return f"{whole} s" if whole < 60 else duration(float(whole))


def uptime(seconds: float) -> str:
    """Return how long something runs, without seconds that only distract: "42 s", "12 min", "1 h 12 min"."""
    minutes = int(max(0.0, seconds)) // 60
    if minutes < 1:
        return f"{int(max(0.0, seconds))} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def span(seconds: float) -> str:
    """Return a round stretch of time: "1 min", "6 h"."""
    return duration(seconds) if seconds >= 60 else f"{seconds:g} s"


def clock(t: float) -> str:
    """Return the local time of day of a Unix time: "14:03:22"."""
    return time.strftime("%H:%M:%S", time.localtime(t))


def date(t: float, now: float) -> str:
    """Return the local day and time of day of a Unix time: "today 14:03", "3 Nov 14:03", "3 Nov 2025 14:03"."""
    then, today = time.localtime(t), time.localtime(now)
    minute = time.strftime("%H:%M", then)
    if then[:3] == today[:3]:
        return f"today {minute}"
    year = "" if then.tm_year == today.tm_year else f" {then.tm_year}"
    return f"{then.tm_mday} {_MONTHS[then.tm_mon - 1]}{year} {minute}"


def stretch(begin: float, end: float) -> str:
    """Return from when to when something was, with the day where that is another: "14:03:22 - 14:08:22"."""
    if time.localtime(begin)[:3] == time.localtime(end)[:3]:
        return f"{clock(begin)} \N{EN DASH} {clock(end)}"
    return f"{date(begin, end)} \N{EN DASH} {date(end, time.time())}"


def date_stamp(t: float) -> str:
    """Return the local time of a Unix time as it may stand in the name of a file: "2026-11-03 14-03"."""
    return time.strftime("%Y-%m-%d %H-%M", time.localtime(t))


def times(ratio: float | None) -> str:
    """Return how many times as much something is: "0.81x", "12.5x"."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    return f"{number(ratio, 2 if ratio < 9.995 else 1)}x"


def ago(seconds: float) -> str:
    """Return how long ago something was: "now", "42 s ago", "2 min 5 s ago"."""
    return "now" if seconds < 0.5 else f"{duration(round(seconds))} ago" if seconds >= 10 else f"{seconds:.0f} s ago"
