"""The window outside of pytest, for pictures and measurements: an application, a panel, and waiting for conditions."""

import contextlib
import gc
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from PySide6.QtCore import QSettings, QtMsgType, qInstallMessageHandler
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from backend.desk.types import ChatMessage, ChatView
from backend.events import RunState
from gui import theme
from gui.bridge import Bridge
from gui.main_window import MainWindow
from tests.e2e.fake_environment import kill_all_with

LIMIT_S = 300.0


@contextlib.contextmanager
def private_home(*, keep: tuple[str, ...] = ()) -> Iterator[Path]:
    """Point the XDG folders into a new folder, but for those of `keep` ("DATA": where the engines are).

    At the end every process that was started with them is ended: after an error the engine would hold its port. The
    environment is as before then.
    """
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="specdeck-stage-") as name:
        for kind in ("CONFIG", "STATE", "DATA", "CACHE"):
            if kind not in keep:
                os.environ[f"XDG_{kind}_HOME"] = str(Path(name) / kind.lower())
        try:
            yield Path(name)
        finally:
            kill_all_with(f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}")
            os.environ.clear()
            os.environ.update(before)


def application(choice: str = "dark") -> QApplication:
    """Make the application with the real look, without a screen unless one is asked for."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        qInstallMessageHandler(_on_message)
        app = QApplication(["specdeck"])
        app.setQuitOnLastWindowClosed(False)
        theme.prepare(app, choice)
    return app


def _on_message(kind: QtMsgType, _context: object, message: str) -> None:
    if "This plugin does not support" not in message:
        sys.stderr.write(f"{kind.name}: {message}\n")


class Stage:
    """One window with its bridge."""

    def __init__(self, folder: Path, *, agreed: frozenset[str] = frozenset()) -> None:
        self.bridge = Bridge()
        self.store = QSettings(str(folder / "window.ini"), QSettings.Format.IniFormat)
        self.window = MainWindow(self.bridge, self.store, agreed=agreed)
        self.chat = ChatView()
        self.bridge.chat_changed.connect(self._on_chat_changed)
        self.closed = False
        self.window.closed.connect(self._on_closed)
        self.window.page_made.connect(gc.freeze)  # as the application does

    def open(self, width: int = 1440, height: int = 900) -> None:
        """Show the window and wait until it knows the profiles."""
        self.window.resize(width, height)
        self.bridge.start()
        self.window.show()
        self.wait(lambda: self.window.top_bar.profile != "", "the profiles")

    def wait(self, condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        """Let the window live until a condition holds."""
        end = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {limit_s:.0f} s for {what}; the run is {self.bridge.run}")
            QTest.qWait(20)

    def wait_for(self, *states: RunState) -> None:
        """Wait until the run is in one of `states`."""
        self.wait(lambda: self.bridge.run.state in states, " or ".join(states))

    def live(self, seconds: float) -> None:
        """Let the window live for a while: charts need time to show something."""
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= end, "time to pass", seconds + 60)

    def start(self, name: str) -> None:
        """Start a profile."""
        self.window.start_profile(name)

    def ask(self, text: str) -> ChatMessage:
        """Ask in the chat and wait for the whole answer."""
        n_before = len(self.chat.messages)
        self.window.chat.input.setPlainText(text)
        self.window.chat.send.click()
        self.wait(lambda: len(self.chat.messages) > n_before and not self.chat.streaming, "an answer")
        return self.chat.messages[-1]

    def close(self, *, leave_running: bool = False) -> None:
        """Close the window."""
        if leave_running:
            self.bridge.call(self.window, self.bridge.desk.change_settings(on_close="leave"))
            self.wait(lambda: self.bridge.desk.settings.on_close == "leave", "the setting")
        self.window.close_now()
        self.wait(lambda: self.closed, "the end")
        self.window.deleteLater()
        QTest.qWait(50)

    def _on_chat_changed(self, view: ChatView) -> None:
        self.chat = view

    def _on_closed(self) -> None:
        self.closed = True


def chat(url: str, model: str, prompt: str, max_tokens: int) -> None:
    """Have an engine answer, without the product's client."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    request = urllib.request.Request(
        f"{url}/chat/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with contextlib.suppress(OSError):
        urllib.request.urlopen(request, timeout=LIMIT_S).read()
