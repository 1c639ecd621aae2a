"""One installer at a time: a lock file beside the engine environments."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from backend import paths
from backend.errors import EngineEnvironmentError

_PATIENCE_S = 1.0


@contextlib.contextmanager
def hold() -> Iterator[None]:
    """Keep other installers out; the lock ends with this process, however it ends.

    Raises:
        EngineEnvironmentError: another one is at work.
    """
    folder = paths.folders().engines
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Not inherited by children: a pip that outlives us must not hold it.
    handle = os.open(folder / ".install.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _try(handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:  # somebody who only looked would be gone by now
                raise EngineEnvironmentError(
                    "Another Specdeck is installing or removing an engine right now.",
                    "Wait until it has finished, then try again.",
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def is_held() -> bool:
    """Whether an installer is at work."""
    try:
        handle = os.open(paths.folders().engines / ".install.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _try(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
