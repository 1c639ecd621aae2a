"""The window as a process: it starts, is one for each user, ends on signals, and loses no engine when killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend.desk.home import prepare_home
from tests.backend.launch import runs as helpers
from tests.e2e.fake_environment import Traces, kill_all_with

LIMIT_S = 60.0


class Windows:
    """Starts windows as processes in this test's XDG folders, from a folder that holds foreign packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("gui", "backend", "profiles"):
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").write_text("raise SystemExit('a foreign package was imported')")
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gui", *args],
            cwd=self.folder,
            env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        kill_all_with(f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}")


@pytest.fixture
def windows(tmp_path: Path, no_leaks: None) -> Iterator[Windows]:
    made = Windows(tmp_path / "elsewhere")
    try:
        yield made
    finally:
        made.close()


def runs() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "specdeck" / "runs"


def state() -> str:
    """State of the newest run, "" while there is none."""
    with contextlib.suppress(OSError, ValueError):
        return str(json.loads((max(runs().iterdir()) / "run.json").read_text())["state"])
    return ""


def is_open() -> bool:
    return (Path(os.environ["XDG_STATE_HOME"]) / "specdeck" / "window.lock").exists()


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        mask = next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1]
        return bool(int(mask, 16) & (1 << (number - 1)))
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_window_and_engine(windows: Windows, tmp_path: Path, number: signal.Signals) -> None:
    port = prepare_home(tmp_path)
    window = windows.start("--start", "mine")
    helpers.wait_for(lambda: state() == "READY" or window.poll() is not None)
    traces = Traces.of_listener(port)
    window.send_signal(number)
    out, err = window.communicate(timeout=LIMIT_S)
    assert (window.returncode, out, err) == (0, "", "")
    assert state() == "STOPPED"
    traces.assert_nothing_left()


def test_the_settings_may_leave_the_engine_running(windows: Windows, tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "specdeck" / "settings.toml"
    settings.write_text('on_close = "leave"\n')
    window = windows.start("--start", "mine")
    helpers.wait_for(lambda: state() == "READY" or window.poll() is not None)
    window.send_signal(signal.SIGTERM)
    window.communicate(timeout=LIMIT_S)
    assert window.returncode == 0
    assert helpers.listening(port)


def test_a_killed_window_leaves_an_engine_that_the_next_one_ends(windows: Windows, tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    first = windows.start("--start", "mine")
    helpers.wait_for(lambda: state() == "READY" or first.poll() is not None)
    traces = Traces.of_listener(port)
    first.kill()
    first.communicate()
    second = windows.start()
    owner = max(runs().iterdir()) / "owner.lock"
    helpers.wait_for(lambda: owner.read_text().strip() == str(second.pid) or second.poll() is not None)
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=LIMIT_S)
    assert second.returncode == 0
    assert state() == "STOPPED"
    traces.assert_nothing_left()


def test_the_second_window_hands_its_wish_to_the_first(windows: Windows, tmp_path: Path) -> None:
    prepare_home(tmp_path)
    first = windows.start()
    helpers.wait_for(lambda: is_open() or first.poll() is not None)
    second = windows.start("--start", "mine")
    assert second.wait(LIMIT_S) == 0, second.communicate()
    helpers.wait_for(lambda: state() == "READY" or first.poll() is not None)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=LIMIT_S)
    assert first.returncode == 0
    assert state() == "STOPPED"


def test_a_start_while_the_window_closes_opens_a_new_one(windows: Windows, tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    first = windows.start("--start", "mine")
    helpers.wait_for(lambda: state() == "READY" or first.poll() is not None)
    fault(port, {"ignore_term": True})  # so that the end takes a while
    first.send_signal(signal.SIGTERM)
    helpers.wait_for(lambda: state() == "STOPPING")
    second = windows.start()
    first.communicate(timeout=LIMIT_S)
    helpers.wait_for(lambda: catches(second.pid, signal.SIGTERM) or second.poll() is not None)
    assert second.poll() is None
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=LIMIT_S)
    assert (first.returncode, second.returncode) == (0, 0)


def fault(port: int, faults: dict[str, object]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/fake/faults", data=json.dumps(faults).encode())
    urllib.request.urlopen(request, timeout=LIMIT_S).close()


def test_a_silent_first_window_is_named(windows: Windows, tmp_path: Path) -> None:
    first = windows.start()
    helpers.wait_for(lambda: catches(first.pid, signal.SIGTERM) or first.poll() is not None)
    first.send_signal(signal.SIGSTOP)
    second = windows.start()
    _, err = second.communicate(timeout=LIMIT_S)
    first.send_signal(signal.SIGCONT)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=LIMIT_S)
    assert second.returncode == 1
    assert f"process {first.pid}" in err
    assert first.returncode == 0
