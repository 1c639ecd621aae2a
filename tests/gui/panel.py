"""The whole window in this process, on an environment whose vLLM is the fake server, and how a person drives it."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from PySide6.QtCore import QSettings, Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from backend.desk.types import ChatMessage, ChatView
from backend.events import RunState
from gui.bridge import Bridge
from gui.main_window import MainWindow
from tests.backend.desk.home import prepare_home
from tests.e2e.fake_environment import kill_all_with

LIMIT_MS = 60_000


class Panel:
    """A window with its bridge; `port` is that of the profile "mine"."""

    def __init__(self, qtbot: QtBot, folder: Path, *, port: int, agreed: frozenset[str] = frozenset()) -> None:
        self.qtbot = qtbot
        self.port = port
        self.bridge = Bridge()
        self.store = QSettings(str(folder / "window.ini"), QSettings.Format.IniFormat)
        self.window = MainWindow(self.bridge, self.store, agreed=agreed)
        self.window.resize(1440, 900)
        self.chat = ChatView()
        self.bridge.chat_changed.connect(self._on_chat_changed)
        self.closed = False
        self.window.closed.connect(self._on_closed)

    def _on_chat_changed(self, view: ChatView) -> None:
        self.chat = view

    @property
    def answers(self) -> list[ChatMessage]:
        """Answers that have ended."""
        return [message for message in self.chat.messages if message.role == "assistant" and message.usage]

    def ask(self, text: str) -> ChatMessage:
        """Type a question, send it with the mouse, and wait for the whole answer."""
        before = len(self.answers)
        self.window.chat.input.setFocus()
        self.qtbot.keyClicks(self.window.chat.input, text)
        self.click(self.window.chat.send)
        self.wait(lambda: len(self.answers) > before and not self.chat.streaming)
        return self.answers[-1]

    def _on_closed(self) -> None:
        self.closed = True

    def open(self) -> None:
        """Show the window and wait until it knows the profiles."""
        self.bridge.start()
        self.window.show()
        self.wait(lambda: self.window.top_bar.profile != "")

    @property
    def state(self) -> RunState:
        return self.bridge.run.state

    def wait(self, condition: Callable[[], bool], *, limit_ms: int = LIMIT_MS) -> None:
        self.qtbot.waitUntil(condition, timeout=limit_ms)

    def wait_for(self, *states: RunState) -> None:
        """Wait until the run is in one of `states`."""
        self.wait(lambda: self.state in states)

    def click(self, widget: QWidget) -> None:
        if widget is self.window.top_bar.button:  # it takes no second click while its meaning is new
            self.wait(lambda: not self.window.top_bar.is_settling)
        self.qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)

    def choose(self, name: str) -> None:
        self.window.top_bar.choose(name)
        assert self.window.top_bar.profile == name

    def start(self) -> None:
        """Press Start with the profile "mine" chosen."""
        self.choose("mine")
        self.click(self.window.top_bar.button)

    def start_and_wait(self) -> None:
        self.start()
        self.wait_for(RunState.READY)

    def close(self) -> None:
        """End the window and, with it, the engine."""
        if not self.closed:
            self.window.close_now()
            self.wait(lambda: self.closed)
        self.window.deleteLater()


@contextlib.contextmanager
def make_panel(qtbot: QtBot, folder: Path, *, port: int | None = None) -> Iterator[Panel]:
    """Give an open window; `port` is that of a home that is prepared already."""
    made = Panel(qtbot, folder, port=prepare_home(folder) if port is None else port)
    try:
        made.open()
        yield made
    finally:
        try:
            made.close()
        finally:
            made.bridge.close()
            kill_all_with(f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}")
