"""`make shots`: pictures of every page and state of the real window on a real engine, into assets/screenshots."""

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from PySide6.QtTest import QTest

from backend.desk.types import ChatSettings
from backend.events import RunState
from gui import theme
from gui.panes.profiles import ProfilesPane
from tests.tools.stage import Stage, application, chat, private_home

_PROFILE = "demo-ngram"
_PROMPT = (
    "Repeat this text:\nThe river runs past the old mill, under the stone bridge and into the lake. In spring the lake "
    "rises to the stone bridge, and the old mill stands in the water until the river falls again."
)
_QUESTION = "Why does a small draft model make a big one faster? Give one short Python example."
_LOAD_S = 70.0
_SPAN_S = 60


def main() -> int:
    """Take the pictures; a second process takes those at 1.5 times the size, on the same engine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scaled", action="store_true", help="the second process")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.scaled:
        return _scaled(options.folder)
    with private_home(keep=("DATA", "CACHE")) as home:
        return _all(options.folder, home)


class Photographer:
    """Grabs the window in both themes."""

    def __init__(self, stage: Stage, folder: Path, suffix: str = "") -> None:
        self._stage = stage
        self._folder = folder
        self._suffix = suffix

    def both(self, name: str) -> None:
        """Grab `name` in both themes."""
        for choice in ("light", "dark"):
            theme.theme.apply(choice)
            QTest.qWait(400)
            self._stage.window.grab().save(str(self._folder / f"{name}-{choice}{self._suffix}.png"))

    def pages(self) -> None:
        """Grab every page but Run."""
        for key in ("profiles", "logs", "settings"):
            self.page(key)
        self._stage.window.show_page("run")

    def page(self, key: str, suffix: str = "") -> None:
        """Grab one page once it shows what it has."""
        self._stage.window.show_page(key)
        page = self._stage.window.page(key)
        if isinstance(page, ProfilesPane):
            self._stage.wait(lambda: page.current != "", "the form")
        QTest.qWait(2500)
        self.both(f"{key}{suffix}")


def _all(folder: Path, home: Path) -> int:
    application()
    stage = Stage(home, agreed=frozenset({"engine-cpu", "demo"}))
    camera = Photographer(stage, folder)
    stage.open()
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
    stage.window.resize(1100, 700)
    QTest.qWait(1500)
    camera.both("run-1100x700")
    for key in ("profiles", "logs", "settings"):
        camera.page(key, "-1100x700")
    stage.window.resize(2560, 1440)
    stage.window.show_page("run")
    QTest.qWait(1500)
    camera.both("run-2560x1440")
    stage.window.resize(1440, 900)
    camera.pages()
    stage.window.close()
    stage.wait(lambda: stage.window.closing.dialog is not None, "the question")
    QTest.qWait(300)
    dialog = stage.window.closing.dialog
    assert dialog is not None
    dialog.grab().save(str(folder / "closing-dark.png"))
    dialog.buttons["cancel"].click()
    stage.close(leave_running=True)
    again = subprocess.run(
        [sys.executable, "-m", "tests.tools.shots", "--scaled", str(folder)],
        env=os.environ | {"QT_SCALE_FACTOR": "1.5"},
        check=False,
    )
    if again.returncode:
        return again.returncode
    return _failed(folder, home)


def _scaled(folder: Path) -> int:
    """The same window at 1.5 times the size; takes over the engine that runs, and ends it."""
    application()
    stage = Stage(folder)
    camera = Photographer(stage, folder, "-1.5x")
    stage.open()
    stage.wait_for(RunState.READY)
    _load(stage, 20.0)
    _show_span(stage)
    _work_on(stage)
    camera.both("run")
    camera.pages()
    stage.bridge.call(stage.window, stage.bridge.desk.change_settings(on_close="ask"))
    stage.wait(lambda: stage.bridge.desk.settings.on_close == "ask", "the setting")
    stage.close()
    (folder / "window.ini").unlink(missing_ok=True)
    return 0


def _failed(folder: Path, home: Path) -> int:
    """A start that fails for real: a context that the model does not have."""
    profile = Path(os.environ["XDG_CONFIG_HOME"]) / "specdeck" / "profiles" / "too-long.toml"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text(
        'schema = 1\ntitle = "Too long a context"\n[target]\nmodel = "specdeck://smollm2-135m-instruct"\n'
        "max_model_len = 1000000\n[memory]\nenforce_eager = true\ncpu_kv_cache_gib = 1\n"
    )
    stage = Stage(home)
    camera = Photographer(stage, folder)
    stage.open()
    stage.start("too-long")
    stage.wait_for(RunState.FAILED)
    QTest.qWait(1200)
    camera.both("failed")
    stage.close()
    return 0


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
    stage.live(4)


if __name__ == "__main__":
    sys.exit(main())
