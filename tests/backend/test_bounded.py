"""Commands with a time limit, also those that no kill ends."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from backend import bounded


def test_code_and_output(tmp_path: Path) -> None:
    done = bounded.run(["sh", "-c", 'echo out; echo "$A" >&2; pwd; exit 3'], limit_s=60, env={"A": "b"}, cwd=tmp_path)
    assert done == bounded.Done(3, f"out\n{tmp_path}\n".encode(), b"b\n")
    assert bounded.run(["sh", "-c", "kill -SEGV $$"], limit_s=60).code == -signal.SIGSEGV
    with pytest.raises(FileNotFoundError):
        bounded.run([str(tmp_path / "absent")], limit_s=60)


def test_input_is_empty() -> None:
    assert bounded.run(["cat"], limit_s=60) == bounded.Done(0, b"", b"")


def test_command_out_of_time_is_ended(tmp_path: Path) -> None:
    done = bounded.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; echo so far; exec sleep 600"], limit_s=1.0)
    assert (done.code, done.stdout) == (None, b"so far\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_grandchild_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    before = time.monotonic()
    done = bounded.run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; echo done"], limit_s=60)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (done.code, done.stdout) == (0, b"done\n")
    assert time.monotonic() - before < 30


def test_command_that_no_kill_ends_is_left_behind_and_collected_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill without effect stands for a process in state D, which only a hanging driver makes."""
    monkeypatch.setattr(bounded, "GRACE_S", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", lambda self: None)
        before = time.monotonic()
        assert bounded.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"], limit_s=1.0).code is None
        assert time.monotonic() - before < 30
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie now
    bounded.run(["true"], limit_s=60)
    assert not Path(f"/proc/{pid}").exists()


def test_command_that_is_given_up_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    argv = ["sh", "-c", f"echo $$ > {file}.new; mv {file}.new {file}; exec sleep 600"]
    done = bounded.run(argv, limit_s=600, cancelled=file.exists)
    assert done.code is None
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
    assert bounded.run(["sh", "-c", "exit 3"], limit_s=600, cancelled=lambda: False).code == 3
    assert bounded.run(["sleep", "600"], limit_s=0.5, cancelled=lambda: False).code is None
