"""Pictures of recorded runs and of the settings, on the real backend: invented runs in its store, a fake NVML."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtTest import QTest

from backend import paths
from backend.calibration import AllReduce, AllReducePoint, Calibration, DeviceRates, Rate
from backend.events import Mark, RunState
from backend.hardware import GpuInfo
from backend.settings import Settings
from backend.telemetry import calibration
from backend.telemetry.history import RecentAcceptance, engine_values, gpu_values, host_values
from backend.telemetry.recorder import Recorder
from backend.telemetry.run_store import RunEnd
from backend.telemetry.run_writer import RunFacts
from gui.panes.history import HistoryPane
from gui.panes.settings import SettingsPane
from tests.fakes import fake_nvml
from tests.gui import gpu_scenes as scenes
from tests.tools.shots import invented
from tests.tools.shots.camera import Camera
from tests.tools.stage import Stage, application

_HOUR_S = 3600.0
_START_S = 74
_BATCH = 300
_ON_TWO = invented.on(2)
_NGRAM = invented.Engine(2, scenes.Load(70.55e9, 26.4), (0.58, 0.43, 0.35, 0.29, 0.25), seed=7)
_NO_DRAFT = invented.Engine(2, scenes.Load(70.55e9, 27.1), (), seed=9)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that was started so many hours ago and served so many seconds; `cause` is why it failed."""

    title: str
    hours_ago: float
    lasted_s: int
    engine: invented.Engine
    version: str = "0.32.0"
    cause: str = ""


_RUNS = (
    _Run("Llama 3.3 70B, no draft, TP 2", 95.4, 600, _NO_DRAFT, "0.31.1"),
    _Run("Llama 3.3 70B, n-gram, TP 2", 26.2, 900, _NGRAM),
    _Run("Llama 3.3 70B + EAGLE-3, TP 2", 25.1, 0, _ON_TWO, cause="The KV cache does not fit into the GPU memory."),
    _Run("Llama 3.3 70B + EAGLE-3, TP 2", 24.6, 1140, _ON_TWO),
)
_SHOWN, _OTHER = 0, 2  # in the list, which begins with the newest


def take(folder: Path, home: Path, suffix: str, *, every_size: bool) -> None:
    """Take the History page without and with runs, and the settings of a machine with two GPUs."""
    application()
    _make_gpus(home)
    stage = Stage(home)
    camera = Camera(stage.window, folder, suffix, every_size=every_size)
    stage.open()
    stage.wait(lambda: stage.bridge.gpus is not None and len(stage.bridge.gpus.gpus) == 2, "the GPUs")
    stage.window.show_page("history")
    QTest.qWait(1000)
    camera.both("history-empty")
    stage.close()
    _record(_RUNS)
    calibration.save(_calibration())
    stage = Stage(home)
    camera = Camera(stage.window, folder, suffix, every_size=every_size)
    stage.open()
    _history(stage, camera)
    _settings(stage, camera)
    stage.close()


def _make_gpus(home: Path) -> None:
    """Have the sampler find two GPUs on which nothing runs."""
    library = home / "library"
    library.mkdir()
    nvml = fake_nvml.FakeNvml(fake_nvml.build(library), home)
    nvml.say(
        "memory_total * 85520809984",
        "memory_used * 512e6",
        "memory_reserved * 666e6",
        "busy * 0",
        "memory_busy * 0",
        "power_mw * 71300",
        "celsius * 34",
        "memory_celsius * 41",
        "sm_mhz * 345",
        *(f"uuid {number} {invented.gpu(number).uuid}" for number in range(2)),
    )
    os.environ.update(nvml.environment)


def _record(runs: Sequence[_Run]) -> None:
    """Write runs into the store, as the backend does."""
    problems: list[str] = []
    recorder = Recorder(
        paths.folders().history_file, settings=Settings, fate=lambda _: None, on_problem=problems.append
    )
    recorder.start()
    now = time.time()
    for number, run in enumerate(runs):
        _record_one(recorder, f"run-{number}", run, now)
    recorder.close()
    if any(problems):
        raise RuntimeError(f"the runs were not recorded: {problems}")


def _record_one(recorder: Recorder, run_id: str, run: _Run, now: float) -> None:
    begin = now - run.hours_ago * _HOUR_S
    ready = begin + _START_S
    engine = f"vllm {run.version}"
    recorder.begin(RunFacts(run_id, run_id, run.title, engine, begin, None if run.cause else ready))
    recorder.mark(run_id, Mark(begin, "start", "Started"))
    recorder.gpus(run_id, _gpus())
    if not run.cause:
        recorder.mark(run_id, Mark(ready, "ready", "Ready"))
    recent = RecentAcceptance()
    for second in range(_START_S + run.lasted_s):
        t = begin + second
        values = host_values(invented.host(second, t)) | gpu_values(
            invented.snapshot(second, run.engine, t, loaded=min(second / _START_S, 1.0))
        )
        if second > _START_S:
            values |= engine_values(invented.sample(second, run.engine, t), recent)
        if second in (_START_S + 60, _START_S + 400):
            recorder.mark(run_id, Mark(t, "chat", "Chat"))
        recorder.reading(run_id, t, values, interval_s=1.0)
        if second % _BATCH == 0:
            recorder.flush()
    end = ready + run.lasted_s
    state = RunState.FAILED if run.cause else RunState.STOPPED
    recorder.mark(run_id, Mark(end, "crash", "Failed (exit status 1)") if run.cause else Mark(end, "stop", "Stopped"))
    recorder.end(run_id, RunEnd.of(state, run.cause, end))
    recorder.flush()


def _gpus() -> tuple[GpuInfo, ...]:
    return tuple(invented.gpu(number) for number in range(2))


def _history(stage: Stage, camera: Camera) -> None:
    """Grab the newest run, then two over each other."""
    stage.window.show_page("history")
    page = stage.window.page("history")
    assert isinstance(page, HistoryPane)
    stage.wait(lambda: page.model.rowCount() == len(_RUNS), "the recorded runs")
    selection = page.list.view.selectionModel()
    flag = selection.SelectionFlag
    for row, choose, n_shown, name in (
        (_SHOWN, flag.ClearAndSelect, 1, "history"),
        (_OTHER, flag.Select, 2, "history-two"),
        (_SHOWN + 1, flag.ClearAndSelect, 1, "history-failed"),
    ):
        index = page.model.index(row, 0)
        selection.setCurrentIndex(index, choose)
        stage.wait(lambda n_shown=n_shown: len(page.summary.rows()) == (1 if n_shown == 1 else 3), "the run")  # type: ignore[misc]
        QTest.qWait(1500)
        stage.wait(lambda: not page.grid.is_drawing, "the cards")
        camera.both(name)
        camera.resized(name, 1100, 700)
        camera.resized(name, 2560, 1440)


def _settings(stage: Stage, camera: Camera) -> None:
    """Grab the calibration and the settings of GPUs."""
    stage.window.show_page("settings")
    page = stage.window.page("settings")
    assert isinstance(page, SettingsPane)
    QTest.qWait(2000)
    shown = page.area.widget()
    assert shown is not None
    card = page.rows["gpu_interval_s"].parentWidget()
    assert card is not None
    for name, widget in (("settings-calibration", page.calibration), ("settings-gpus", card)):
        page.area.verticalScrollBar().setValue(widget.mapTo(shown, widget.rect().topLeft()).y() - 12)
        QTest.qWait(500)
        camera.both(name)
        camera.resized(name, 1100, 700)


def _calibration() -> Calibration:
    """Return what two H100 reach about."""
    devices = tuple(
        DeviceRates(
            gpu.uuid,
            gpu.name,
            copy_bytes_per_s=Rate(2.86e12 + number * 4e9, 2.85e12),
            read_bytes_per_s=Rate(3.02e12 - number * 3e9, 3.0e12),
            flops_per_s={
                "bfloat16": Rate(742e12, 731e12),
                "float16": Rate(738e12, 729e12),
                "float32": Rate(51.7e12, 51e12),
            },
        )
        for number, gpu in enumerate(_gpus())
    )
    points = tuple(AllReducePoint(size, 11e-6 + size / 172e9) for size in (2**n for n in range(12, 29, 2)))
    between = AllReduce(tuple(device.id for device in devices), points)
    at = time.time() - 50 * _HOUR_S
    return Calibration(calibration.machine_id(), at, devices, between, "2.11.0", "vllm 0.32.0", "580.95.05")
