"""Pictures of the pages that tell of GPUs, with the invented ones of `tests.gui.gpu_scenes`."""

import time
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QSettings
from PySide6.QtTest import QTest

from backend.desk.types import ProfileEntry, Reading, RunView
from backend.events import Bound, HostSample, RunState, Verdict
from gui.bridge import Bridge
from gui.main_window import MainWindow
from gui.panes.gpus import GpusPane
from tests.gui import gpu_scenes as scenes
from tests.tools.shots.camera import Camera
from tests.tools.stage import application

_SPAN_S = 300
_TITLES = {
    0: "Demo: n-gram",
    1: "Llama 3.1 8B + EAGLE-3",
    2: "Llama 3.3 70B + EAGLE-3, TP 2",
    8: "Llama 3.3 70B + EAGLE-3, TP 8",
}
_NO_PEAK = Verdict(Bound.UNKNOWN, "The peak bandwidth of this machine is not known. Run the calibration.")


def take(folder: Path, home: Path, suffix: str) -> None:
    """Take the Run and the GPUs page with 0, 1, 2 and 8 GPUs."""
    application()
    for n_gpus in _TITLES:
        window, bridge = _window(home)
        camera = Camera(window, folder, suffix)
        window.show_page("gpus")
        _feed(window, bridge, n_gpus)
        name = f"gpus-{n_gpus}"
        camera.both(name)
        window.show_page("run")
        QTest.qWait(1500)
        camera.both(f"run-{name}")
        window.show_page("gpus")
        page = window.page("gpus")
        assert isinstance(page, GpusPane)
        if n_gpus == 8:
            for number, section in ((1, "processes"), (2, "hardware")):
                page.sections.button(number).click()
                QTest.qWait(500)
                camera.both(f"{name}-{section}")
            page.sections.button(0).click()
        if not suffix and n_gpus in (0, 8):
            window.resize(1100, 700)
            QTest.qWait(1000)
            camera.both(f"{name}-1100x700")
        window.hide()
        window.deleteLater()
        QTest.qWait(50)


def _window(home: Path) -> tuple[MainWindow, Bridge]:
    """Return a window whose backend does nothing."""
    bridge = Bridge()
    window = MainWindow(bridge, QSettings(str(home / "scenes.ini"), QSettings.Format.IniFormat))
    window.resize(1440, 900)
    window.show()
    return window, bridge


def _feed(window: MainWindow, bridge: Bridge, n_gpus: int) -> None:
    """Hand on the readings of some minutes, as the backend does."""
    view = RunView(
        state=RunState.READY,
        profile="mine",
        title=_TITLES[n_gpus],
        run_id="run",
        url="http://127.0.0.1:8000",
        model="model",
        engine="vllm 0.32.0",
        started_at=time.time() - 5100,
        ready_at=time.time() - 5025,
        memory_utilisation=0.92 if n_gpus else None,
    )
    window.top_bar.show_profiles([ProfileEntry("mine", view.title, "", read_only=False)])
    window.top_bar.choose("mine")
    bridge._show_run(view)
    for second in range(_SPAN_S + 1):
        snapshot = scenes.snapshot(second, n_gpus) if n_gpus else scenes.no_gpus(second)
        sample = scenes.sample(second, max(n_gpus, 1))
        if not n_gpus:  # the demo on a laptop: 0.269 GB a step, 4.89 tokens of each
            steps_per_s = 5.39 * (1 + 0.03 * scenes.wave(second, 1))
            sample = replace(
                sample,
                steps_per_s=steps_per_s,
                generation_tokens_per_s=steps_per_s * 4.89,
                implied_bytes_per_s=steps_per_s * 0.269e9,
                estimated_bytes_per_s=None,
                joules_per_token=None,
            )
        host = HostSample(
            scenes.STARTED + second,
            0.12 + 0.02 * scenes.wave(second, 3),
            round(61 * scenes.GIB),
            round(503.5 * scenes.GIB),
        )
        bridge._hand_on(Reading(host, sample, snapshot, scenes.BANDWIDTH_BOUND if n_gpus else _NO_PEAK))
    QTest.qWait(1500)
