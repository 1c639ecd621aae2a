"""Runs a short command with a time limit that holds even if the command cannot be killed (a driver that hangs)."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.0
"""How long to wait for the end of a command that was killed."""
_TICK_S = 0.2

# Killed but not ended: state D, inside a system call. Kept here until they can be collected, so that none stays a
# zombie for longer than until the next command.
_stuck: list[subprocess.Popen[bytes]] = []


def never() -> bool:
    """Give nothing up: what `cancelled` is where nobody can ask for an end."""
    return False


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended: `code` as of `subprocess`, None when it was cut off; what it wrote until then."""

    code: int | None
    stdout: bytes
    stderr: bytes


def run(
    argv: Sequence[str],
    *,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Done:
    """Run a command without input; returns after at most `limit_s` seconds and a short grace.

    Args:
        argv: the command.
        limit_s: it is killed after this many seconds.
        env: its variables, by default ours.
        cwd: its working folder, by default ours.
        cancelled: asked again and again; the command is killed once it says yes.

    Raises:
        OSError: it cannot be started.
    """
    _collect()
    # Files, not pipes: a grandchild that keeps a pipe open would have to be waited for.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        code: int | None = None
        try:
            code = _wait(process, limit_s, cancelled)
        except subprocess.TimeoutExpired:
            _end(process)
        except BaseException:  # also Ctrl-C: it must not go on alone
            _end(process)
            raise
        out.seek(0)
        err.seek(0)
        return Done(code, out.read(), err.read())


def _wait(process: "subprocess.Popen[bytes]", limit_s: float, cancelled: Callable[[], bool] | None) -> int:
    if cancelled is None:
        return process.wait(limit_s)
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return process.wait(min(_TICK_S, max(deadline - time.monotonic(), 0.0)))
        except subprocess.TimeoutExpired:
            if cancelled() or time.monotonic() >= deadline:
                raise


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        leave_behind(process)


def leave_behind(process: subprocess.Popen[bytes]) -> None:
    """Wait no longer for a process that was killed but does not end, and collect it when it has."""
    _collect()
    _stuck.append(process)


def _collect() -> None:
    _stuck[:] = [process for process in _stuck if process.poll() is None]
