"""A stand-in for the bridge: the signals a pane listens to, and a record of what it asked the chat."""

from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import Signal

from backend.desk.types import ChatView, RunView
from backend.events import RunState
from tests.gui.panes.direct_bridge import DirectBridge


class _Chat:
    """Every method records its name and arguments; nothing happens before the coroutine is run."""

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, None]]:
        async def method(*args: Any) -> None:
            self._calls.append((name, *args))

        return method


class _Desk:
    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self.chat = _Chat(calls)


class FakeBridge(DirectBridge):
    """Tells of conversations, and keeps what was asked of the chat."""

    chat_changed = Signal(object)
    chat_grew = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.chat = ChatView()
        self.calls: list[tuple[Any, ...]] = []
        self.desk = _Desk(self.calls)

    def tell_run(self, state: RunState, *, prompt: str = "") -> None:
        """The engine has another state."""
        self.run = RunView(state=state, prompt=prompt)
        self.run_changed.emit(self.run)

    def tell_chat(self, *messages: Any, **fields: Any) -> None:
        """The conversation is another one."""
        self.chat_changed.emit(ChatView(tuple(messages), **fields))
