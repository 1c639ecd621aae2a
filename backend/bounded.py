"""Runs a short command with a time limit that holds even if the command cannot be killed (a driver that hangs)."""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.0
"""How long to wait for the end of a command that was killed."""

# Killed but not ended: state D, inside a system call. Kept here until they can be collected, so that none stays a
# zombie for longer than until the next command.
_stuck: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended: `code` as of `subprocess`, None when its time was over; what it wrote until then."""

    code: int | None
    stdout: bytes
    stderr: bytes


def run(
    argv: Sequence[str], *, limit_s: float, env: Mapping[str, str] | None = None, cwd: Path | str | None = None
) -> Done:
    """Run a command without input; returns after at most `limit_s` seconds and a short grace.

    Args:
        argv: the command.
        limit_s: it is killed after this many seconds.
        env: its variables, by default ours.
        cwd: its working folder, by default ours.

    Raises:
        OSError: it cannot be started.
    """
    _stuck[:] = [process for process in _stuck if process.poll() is None]
    # Files, not pipes: a grandchild that keeps a pipe open would have to be waited for.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        code: int | None = None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
        except BaseException:  # also Ctrl-C: it must not go on alone
            _end(process)
            raise
        out.seek(0)
        err.seek(0)
        return Done(code, out.read(), err.read())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _stuck.append(process)
