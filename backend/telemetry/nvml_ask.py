"""Calls NVML so that a failure becomes the reason why a figure is unknown; only the sampler child imports this."""

from collections.abc import Callable
from typing import Any

import pynvml

from backend.hardware import Why

FAILURES = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, UnicodeDecodeError)
"""What a call of pynvml raises: the second one when the library lacks the function, and is no NVMLError."""

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Why.NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Why.NOT_SUPPORTED,  # the library is older than the function
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Why.NOT_SUPPORTED,  # or older than its newest struct
    pynvml.NVML_ERROR_NO_PERMISSION: Why.NO_PERMISSION,
    pynvml.NVML_ERROR_GPU_IS_LOST: Why.LOST,
}


class GpuLostError(Exception):
    """The GPU has fallen off the bus: its handle must not be used again."""


def ask(call: Callable[..., Any], *args: Any) -> Any:
    """Return what a call answers, or as a `Why` the reason for which it does not.

    Raises:
        GpuLostError: the GPU is gone.
    """
    try:
        return call(*args)
    except FAILURES as error:
        why = why_of(error)
    if why is Why.LOST:
        raise GpuLostError
    return why


def why_of(error: Exception) -> Why:
    """Return what one of FAILURES means for a figure."""
    match error:
        case pynvml.NVMLError():
            return reason(error.value)
        case pynvml.NVMLLibraryMismatchError():
            return Why.NOT_SUPPORTED
        case _:
            return Why.ERROR


def reason(code: int) -> Why:
    """Return what an error code of NVML means for a figure."""
    return _REASONS.get(code, Why.ERROR)


def known(answer: Any) -> Any:
    """Return an answer of `ask`, None if it is a reason."""
    return None if isinstance(answer, Why) else answer
