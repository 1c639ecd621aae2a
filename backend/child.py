"""Runs a command that ends when its parent ends: `python -P -m backend.child PARENT_PID COMMAND ...`."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def command(argv: Sequence[str]) -> list[str]:
    """Wrap `argv` so that the process is terminated when this one dies, however it dies.

    The kernel sends the signal when the *thread* that started the child ends, so start it from a thread that
    lives as long as the child should.
    """
    return [sys.executable, "-P", "-m", "backend.child", str(os.getpid()), *argv]


def main(argv: Sequence[str]) -> None:
    """Ask the kernel for the signal, then become the command."""
    parent, *wanted = argv
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != int(parent):
        sys.exit("The parent is gone.")  # it died before the kernel knew what to send
    os.execvp(wanted[0], wanted)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
