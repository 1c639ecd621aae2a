"""SIGINT, SIGTERM and SIGHUP as calls on the running event loop."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def handled(on_signal: Callable[[], object]) -> Iterator[None]:
    """Call `on_signal` for each signal that asks this program to end, instead of ending it.

    A SIGHUP that is ignored, as under nohup, stays ignored.
    """
    loop = asyncio.get_running_loop()
    numbers = [number for number in ENDING if not _is_ignored_hangup(number)]
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Turn each of these signals into KeyboardInterrupt, so that blocking work cleans up as it does after Ctrl-C.

    SIGINT too: a shell script starts what it puts into the background with that one ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [number for number in ENDING if not _is_ignored_hangup(number)]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_ignored_hangup(number: signal.Signals) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
