"""A chat for tests: the engine it asks, what was asked, and everything it told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from backend.desk.chat import Chat
from backend.desk.runs import Runs
from backend.desk.types import ChatDelta, ChatMessage, Event
from backend.engine_api import EngineApi
from tests.fakes.fixtures import LIMIT_S, FakeVllm


class Recording(EngineApi):
    """An engine's client that remembers what was asked."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[dict[str, Any]] = []

    def stream_chat(self, messages: Any, **fields: Any) -> Any:
        self.asked.append({"messages": [dict(message) for message in messages], **fields})
        return super().stream_chat(messages, **fields)


class Room:
    """A chat, the engine it asks, and everything it told."""

    def __init__(self, api: Recording) -> None:
        self.api = api
        self.events: list[Event] = []
        self.runs = SimpleNamespace(readable=SimpleNamespace(api=api, record=SimpleNamespace(served_model_name="fake")))
        self._told = asyncio.Event()
        self.chat = Chat(cast("Runs", self.runs), self._on_event)

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        self._told.set()

    @property
    def last(self) -> ChatMessage:
        return self.chat.view().messages[-1]

    def told_text(self, since: int = 0) -> str:
        return "".join(event.text for event in self.events[since:] if isinstance(event, ChatDelta))

    def told_tokens(self) -> int:
        return sum(event.n_tokens for event in self.events if isinstance(event, ChatDelta))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that comes true with something told."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self._told.clear()
                await self._told.wait()

    async def until_text(self) -> None:
        await self.until(lambda: bool(self.told_text()))


@asynccontextmanager
async def open_room(fake: FakeVllm) -> AsyncIterator[Room]:
    room = Room(Recording(fake.url))
    try:
        yield room
    finally:
        await room.api.aclose()
