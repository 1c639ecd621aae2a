"""Reads the counters and sensors of a GPU in one call, and makes rates of those that count up."""

import math
from typing import Any

import pynvml

from backend.hardware import Why
from backend.telemetry.nvml_ask import ask, reason

ALL_LINKS = 0xFFFFFFFF
"""As the scope of an NVLink field: the sum over all links."""

_SHORTEST_US = 10_000
_BLANK = 2**31 - 16
"""From here up (and the same at 64 bits) are values by which NVIDIA's tools say "nothing known"."""

_TAKE = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


class Counter:
    """A count of bytes that goes up; wraps and restarts give no rate, never a wrong one."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self._rate: float | Why = Why.NOT_YET

    def rate(self, count_bytes: float, t_us: int, *, limit_bytes_per_s: float) -> float | Why:
        """Return bytes/s since the reading before, or why there is no such figure.

        Args:
            count_bytes: the counter.
            t_us: when the driver read it, in microseconds.
            limit_bytes_per_s: what the link can carry; a higher rate is none (the counter wrapped or jumped).
        """
        last = self._last
        if last is not None and 0 <= t_us - last[1] < _SHORTEST_US:
            return self._rate  # the driver gave out the same reading once more
        self._last = (count_bytes, t_us)
        self._rate = Why.NOT_YET
        if last is not None and t_us > last[1] and count_bytes >= last[0]:
            rate = (count_bytes - last[0]) / (t_us - last[1]) * 1e6
            if rate <= limit_bytes_per_s:
                self._rate = rate
        return self._rate


def read_fields(handle: Any, wanted: tuple[tuple[int, int], ...]) -> dict[int, tuple[float, int] | Why]:
    """Read several fields in one call.

    Args:
        handle: of the GPU.
        wanted: field and scope of each.

    Returns:
        By field the value and when the driver read it in microseconds, or why there is none.

    Raises:
        GpuLostError: the GPU is gone.
    """
    answer = ask(pynvml.nvmlDeviceGetFieldValues, handle, wanted)
    if isinstance(answer, Why):
        return {field: answer for field, _ in wanted}
    return {each.fieldId: _value(each) for each in answer}


def _value(field: Any) -> tuple[float, int] | Why:
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        # One field may say so for a link that is gone; the calls for the whole GPU tell whether it is lost.
        why = reason(field.nvmlReturn)
        return Why.ERROR if why is Why.LOST else why
    take = _TAKE.get(field.valueType)
    value = getattr(field.value, take) if take is not None else math.nan
    if not math.isfinite(value):
        return Why.ERROR
    return value, field.timestamp


def sensor(answer: tuple[float, int] | Why | None, *, scale: float = 1.0, limit: float = _BLANK) -> float | Why:
    """Return a field's value x scale; one at or over `limit` stands for "nothing known"."""
    if answer is None:
        return Why.NOT_SUPPORTED
    if isinstance(answer, Why):
        return answer
    value = answer[0]
    return value * scale if 0 <= value < limit else Why.NOT_SUPPORTED
