"""Our own children end by themselves when their parent dies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.backend.launch import runs as helpers

PARENT = (
    "import subprocess, sys; from backend import child;"
    "p = subprocess.Popen(child.command([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(600)']));"
    "print(p.pid, flush=True); sys.stdin.read()"
)


def test_a_child_ends_with_a_killed_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        (pid,) = (int(line) for line in lines if line != "1")
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        helpers.wait_for(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
