"""Windows that are opened and closed again and again, in every state, leave nothing behind."""

import contextlib
import gc
import json
import os
import re
import signal
import tempfile
import threading
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from backend.events import RunState
from tests.backend.desk.home import prepare_home
from tests.e2e.fake_environment import Traces, kill_all_with
from tests.gui.panel import Panel

# Qt makes and keeps a few for itself, however many windows there were.
_QT_EVENTFDS = 4
STATES = ("stopped", "preflight", "starting", "ready", "streaming", "unresponsive", "stopping", "failed")


def bring_to(panel: Panel, state: str) -> None:
    """Bring the run into a state, however it gets there."""
    if state == "stopped":
        return
    if state == "starting":
        os.environ["FAKE_VLLM_OPTIONS"] = "--start-delay 600"
    panel.start()
    if state == "preflight":
        panel.wait(lambda: panel.state is not RunState.STOPPED)
    elif state == "starting":
        panel.wait_for(RunState.STARTING)
    else:
        panel.wait_for(RunState.READY)
    if state == "streaming":
        fault(panel.port, {"step_s": 0.5})
        ask(panel)
    elif state == "unresponsive":
        fault(panel.port, {"freeze": True})
        ask(panel)
        panel.wait_for(RunState.UNRESPONSIVE)
    elif state == "stopping":
        fault(panel.port, {"ignore_term": True})
        panel.click(panel.window.top_bar.button)
        panel.wait_for(RunState.STOPPING)
    elif state == "failed":
        os.kill(Traces.of_listener(panel.port).session, signal.SIGKILL)
        panel.wait_for(RunState.FAILED)


def ask(panel: Panel) -> None:
    panel.window.chat.input.setPlainText("Hello")
    panel.click(panel.window.chat.send)
    panel.wait(lambda: panel.chat.streaming)


def fault(port: int, faults: dict[str, object]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/fake/faults", data=json.dumps(faults).encode())
    urllib.request.urlopen(request, timeout=30).close()


def descriptors() -> Counter[str]:
    """What this process has open, by kind or path."""
    found: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        found[re.sub(r":\[\d+\]$", "", target)] += 1
    return found


def left_files(temporary: Path) -> set[str]:
    """Temporary files, and shared memory that nobody holds: what is held belongs to some other engine."""
    held = ""
    for entry in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            held += "".join(line for line in entry.read_text().splitlines() if "/dev/shm/" in line)
    shared = {str(path) for path in Path("/dev/shm").glob("psm_*")}
    return {str(path) for path in temporary.glob("specdeck-*")} | {path for path in shared if path not in held}


def cycle(qtbot: QtBot, folder: Path, port: int, state: str) -> None:
    panel = Panel(qtbot, folder, port=port)
    try:
        panel.open()
        bring_to(panel, state)
    finally:
        os.environ.pop("FAKE_VLLM_OPTIONS", None)
        panel.close()
        panel.bridge.close()
        panel.bridge.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    gc.collect()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("state", STATES)
def test_nothing_is_left_of_windows_closed_in(
    qtbot: QtBot,
    tmp_path: Path,
    no_leaks: None,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
) -> None:
    """Once in `make test`; `--open-close N` says how often each state is tried."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    port = prepare_home(tmp_path)
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "specdeck" / "settings.toml"
    settings.write_text("stall_s = 1.5\nprobe_timeout_s = 1.0\nstop_grace_s = 0.5\nkeep_runs = 3\n")
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    try:
        cycle(qtbot, tmp_path, port, state)  # what is loaded once stays
        threads, open_before, files = threading.active_count(), descriptors(), left_files(temporary)
        widgets = len(app.allWidgets())
        for _ in range(request.config.getoption("--open-close")):
            cycle(qtbot, tmp_path, port, state)
        assert threading.active_count() == threads
        found, eventfds = descriptors(), "anon_inode:[eventfd]"
        assert found[eventfds] <= open_before[eventfds] + _QT_EVENTFDS
        del found[eventfds], open_before[eventfds]
        assert found == open_before
        assert left_files(temporary) - files == set()
        assert len(app.allWidgets()) == widgets
        runs = Path(os.environ["XDG_STATE_HOME"]) / "specdeck" / "runs"
        assert not runs.is_dir() or len(list(runs.iterdir())) <= 4, "three that are kept, and the newest"
    finally:
        kill_all_with(f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}")
