"""Pictures of every page and state of the window in real runs on a real engine."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtTest import QTest

from backend.desk.types import ChatSettings
from backend.events import RunState
from gui.panes.profiles import ProfilesPane
from tests.tools.shots.camera import Camera
from tests.tools.stage import Stage, application, chat

_PROFILE = "demo-ngram"
_PAGES = ("profiles", "logs", "settings")
_PROMPT = (
    "Repeat this text:\nThe river runs past the old mill, under the stone bridge and into the lake. In spring the lake "
    "rises to the stone bridge, and the old mill stands in the water until the river falls again."
)
_QUESTION = "Why does a small draft model make a big one faster? Give one short Python example."
_LOAD_S = 70.0
_SPAN_S = 60


def take(folder: Path, home: Path, *, scaled: Callable[[], int] | None) -> int:
    """Take all pictures of real runs; `scaled` takes those of other sizes on the engine that runs, if wanted."""
    application()
    stage = Stage(home, agreed=frozenset({"engine-cpu", "demo"}))
    camera = Camera(stage.window, folder, every_size=scaled is not None)
    stage.open()
    _record_nothing(stage)
    stage.wait(lambda: len(stage.bridge.history.last("cpu_ratio", seconds=60).times) >= 5, "some readings")
    camera.both("idle")
    stage.start(_PROFILE)
    stage.wait_for(RunState.STARTING, RunState.FAILED)
    stage.wait(lambda: len(stage.bridge.run.phases) >= 2 or stage.bridge.run.state is not RunState.STARTING, "phases")
    camera.both("starting")
    stage.wait_for(RunState.READY, RunState.FAILED)
    if stage.bridge.run.state is RunState.FAILED:
        sys.stderr.write(f"{stage.bridge.run.diagnosis}\n")
        return 1
    _short_answers(stage)
    _load(stage, _LOAD_S)
    stage.ask(_QUESTION)
    _show_span(stage)
    _work_on(stage)
    camera.both("run")
    camera.resized("run", 1100, 700)
    camera.resized("run", 2560, 1440)
    _pages(stage, camera)
    stage.window.close()
    stage.wait(lambda: stage.window.closing.dialog is not None, "the question")
    QTest.qWait(300)
    dialog = stage.window.closing.dialog
    assert dialog is not None
    camera.one("closing-dark", dialog)
    dialog.buttons["cancel"].click()
    stage.close(leave_running=scaled is not None)
    if scaled is not None and (code := scaled()):
        return code
    _failed(folder, home)
    return 0


def take_scaled(folder: Path) -> int:
    """Take those at 1.5 times the size; takes over the engine that runs, and ends it."""
    application()
    stage = Stage(folder)
    camera = Camera(stage.window, folder, "-1.5x")
    stage.open()
    stage.wait_for(RunState.READY)
    _load(stage, 20.0)
    _show_span(stage)
    _work_on(stage)
    camera.both("run")
    _pages(stage, camera)
    stage.bridge.call(stage.window, stage.bridge.desk.change_settings(on_close="ask"))
    stage.wait(lambda: stage.bridge.desk.settings.on_close == "ask", "the setting")
    stage.close()
    (folder / "window.ini").unlink(missing_ok=True)
    return 0


def _failed(folder: Path, home: Path) -> None:
    """A start that fails for real: a context that the model does not have."""
    profile = Path(os.environ["XDG_CONFIG_HOME"]) / "specdeck" / "profiles" / "too-long.toml"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text(
        'schema = 1\ntitle = "Too long a context"\n[target]\nmodel = "specdeck://smollm2-135m-instruct"\n'
        "max_model_len = 1000000\n[memory]\nenforce_eager = true\ncpu_kv_cache_gib = 1\n"
    )
    stage = Stage(home)
    camera = Camera(stage.window, folder)
    stage.open()
    stage.start("too-long")
    stage.wait_for(RunState.FAILED)
    QTest.qWait(1200)
    camera.both("failed")
    stage.close()


def _pages(stage: Stage, camera: Camera) -> None:
    """Grab every page but Run."""
    for key in _PAGES:
        _page(stage, camera, key)
    stage.window.show_page("run")


def _page(stage: Stage, camera: Camera, key: str) -> None:
    """Grab one page once it shows what it has."""
    stage.window.show_page(key)
    page = stage.window.page(key)
    if isinstance(page, ProfilesPane):
        stage.wait(lambda: page.current != "", "the form")
    QTest.qWait(2500)
    camera.both(key)
    camera.resized(key, 1100, 700)


def _record_nothing(stage: Stage) -> None:
    """Leave the recorded runs of whoever takes the pictures alone: they are kept beside the engines."""
    stage.bridge.call(stage.window, stage.bridge.desk.change_settings(record=False))
    stage.wait(lambda: not stage.bridge.desk.settings.record, "the setting")


def _short_answers(stage: Stage) -> None:
    """Let the small model not ramble to the end of its context."""
    wanted = ChatSettings(temperature=0.0, max_tokens=150)
    stage.bridge.call(stage.window, stage.bridge.desk.chat.change_settings(wanted))
    stage.wait(lambda: stage.chat.settings == wanted, "the settings of the chat")


def _show_span(stage: Stage) -> None:
    """Show a minute: the pictures are taken after little more than that."""
    bar = stage.window.run_pane.bar
    bar.show_span(_SPAN_S)
    bar.span_chosen.emit(_SPAN_S)


def _load(stage: Stage, seconds: float) -> None:
    """Ask in the chat and beside it, so that the charts show a busy engine."""
    run = stage.bridge.run
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        beside = threading.Thread(target=chat, args=(run.url, run.model, _PROMPT, 60))
        beside.start()
        if not stage.chat.messages:
            stage.ask(_PROMPT)
        stage.live(6)
        stage.wait(lambda thread=beside: not thread.is_alive(), "the load")  # type: ignore[misc]


def _work_on(stage: Stage) -> None:
    """Have the engine at work while the picture is taken."""
    run = stage.bridge.run
    for _ in range(2):
        threading.Thread(target=chat, args=(run.url, run.model, _PROMPT, 400), daemon=True).start()
    stage.wait(lambda: _tokens_per_s(stage) > 0, "the first tokens")
    stage.live(3)


def _tokens_per_s(stage: Stage) -> float:
    newest = stage.bridge.reading
    return (newest.engine.generation_tokens_per_s or 0.0) if newest is not None and newest.engine is not None else 0.0
