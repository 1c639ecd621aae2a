"""What the window costs while an engine runs: CPU, and how long its main thread is away."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
from PySide6.QtCore import QEventLoop, QObject, QTimer
from PySide6.QtTest import QTest

from backend.desk.types import ChatDelta, ChatMessage, ChatView
from backend.events import RunState
from tests.tools.bench.figure import Figure
from tests.tools.stage import Stage

_TOKENS_PER_S = 2000
_LINES_PER_S = 10_000


def figures(home: Path, seconds: float) -> Iterator[Figure]:
    """Measure the window on an engine that makes tokens all the time, with the GPUs of the fake NVML."""
    stage = open_beside_engine(home)
    stage.wait(lambda: stage.bridge.gpus is not None and bool(stage.bridge.gpus.gpus), "the GPUs")
    port = int(stage.bridge.run.url.rsplit(":", 1)[1].removesuffix("/v1"))
    _keep_busy(port)
    stage.live(5)
    visible, child = _cpu(seconds)
    yield Figure("CPU of a core at 1 Hz, 8 GPUs, window on the page run", f"{visible:.2%}", "3 %", visible <= 0.03)
    yield Figure("CPU of a core, the sampler of 8 GPUs beside it, with activity", f"{child:.2%}", "", None)
    stage.window.show_page("gpus")
    stage.live(2)
    visible, _ = _cpu(seconds)
    yield Figure("CPU of a core at 1 Hz, 8 GPUs, window on the page gpus", f"{visible:.2%}", "3 %", visible <= 0.03)
    stage.window.showMinimized()
    stage.live(2)
    minimised, child = _cpu(seconds)
    yield Figure("CPU of a core, minimised", f"{minimised:.2%}", "1 %", minimised <= 0.01)
    yield Figure("CPU of a core, the sampler, minimised", f"{child:.2%}", "", None)
    stage.window.showNormal()
    stage.live(2)
    for page in ("run", "logs"):
        stage.window.show_page(page)
        stage.live(2)
        gaps = _stalls(stage, port, seconds)
        gaps.sort()
        p99, worst = gaps[int(len(gaps) * 0.99)], gaps[-1]
        title = f"{_TOKENS_PER_S:,} tokens/s + {_LINES_PER_S:,} log lines/s, page {page}"
        yield Figure(f"main-thread stall p99, {title}", f"{p99 * 1000:.1f} ms", "16 ms", p99 <= 0.016)
        yield Figure(f"main-thread stall max, {title}", f"{worst * 1000:.1f} ms", "50 ms", worst <= 0.05)
    stage.window.show_page("run")
    stage.close(leave_running=True)


def open_beside_engine(home: Path) -> Stage:
    """Open a window on the fake engine, which an earlier one may have left running."""
    stage = Stage(home)
    stage.open()
    stage.live(1)
    if not stage.bridge.run.is_live:
        stage.start("mine")
    stage.wait_for(RunState.READY)
    return stage


def _keep_busy(port: int) -> None:
    """Have the fake engine make tokens all the time; ends with this process."""
    # A process of its own: its CPU must not count as the window's.
    subprocess.Popen([sys.executable, "-P", "-c", _BUSY, str(port), str(os.getpid())])


_BUSY = """
import json, os, sys, time, urllib.request
port, parent = sys.argv[1:]
body = json.dumps({"model": "fake", "prompt": "x", "max_tokens": 1500, "ignore_eos": True}).encode()
while os.getppid() == int(parent):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", data=body,
                                     headers={"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except OSError:
        break
"""


def _cpu(seconds: float) -> tuple[float, float]:
    """CPU seconds for each second, of this process while it waits in the event loop, and of the sampler beside it."""
    mine = psutil.Process()
    sampler = next((child for child in mine.children() if "gpu_sampler" in " ".join(child.cmdline())), None)
    both = [process for process in (mine, sampler) if process]
    before, began = [process.cpu_times() for process in both], time.monotonic()
    _rest(seconds)
    after, took = [process.cpu_times() for process in both], time.monotonic() - began
    used = [(b.user + b.system - a.user - a.system) / took for a, b in zip(before, after, strict=True)]
    return used[0], used[1] if sampler else 0.0


def _rest(seconds: float) -> None:
    """Let the event loop run undisturbed: polling for a condition would count as the window's work."""
    loop = QEventLoop()
    QTimer.singleShot(round(seconds * 1000), loop.quit)
    loop.exec()


class Heartbeat(QObject):
    """Measures how long the main thread was away from its event loop, each millisecond anew."""

    def __init__(self) -> None:
        super().__init__()
        self.gaps: list[float] = []
        self._last = time.perf_counter()
        self._timer = QTimer(self)
        self._timer.setInterval(1)
        self._timer.timeout.connect(self._on_beat)
        self._timer.start()

    def _on_beat(self) -> None:
        now = time.perf_counter()
        self.gaps.append(max(0.0, now - self._last - 0.001))
        self._last = now

    def stop(self) -> list[float]:
        """Return every gap in seconds."""
        self._timer.stop()
        return self.gaps


def _stalls(stage: Stage, port: int, seconds: float) -> list[float]:
    """Flood the log through its file and the chat through the bridge, as the backend does."""
    _fault(port, {"log_lines_per_s": _LINES_PER_S})
    question, answer = ChatMessage("user", "Flood"), ChatMessage("assistant", "")
    tell = stage.bridge._from_backend
    tell(ChatView((question, answer), streaming=True))
    QTest.qWait(300)
    stop = threading.Event()

    def flood() -> None:
        due = time.monotonic()
        while not stop.is_set():
            for number in range(_TOKENS_PER_S // 100):
                tell(ChatDelta("word " if number % 19 else "word.\n\n", n_tokens=1))
            due += 0.01
            time.sleep(max(0.0, due - time.monotonic()))

    feeder = threading.Thread(target=flood)
    feeder.start()
    _rest(1)
    heart = Heartbeat()
    _rest(seconds)
    gaps = heart.stop()
    stop.set()
    feeder.join()
    _fault(port, {"log_lines_per_s": 0})
    tell(ChatView((question,)))
    QTest.qWait(500)
    return gaps


def _fault(port: int, faults: dict[str, object]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/fake/faults", data=json.dumps(faults).encode())
    urllib.request.urlopen(request, timeout=30).close()
