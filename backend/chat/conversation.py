"""A conversation: the messages so far, and asking the next question."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backend.engine_api import EngineApi
from backend.engine_stream import ChatStream


class Conversation:
    """Messages exchanged with one model of one engine.

    Args:
        api: the engine.
        model: name the engine serves.
        system: instructions for the model, "" for none.
        max_tokens: longest answer, None for the engine's own limit.
        temperature: None for the model's own default.
    """

    def __init__(
        self,
        api: EngineApi,
        *,
        model: str,
        system: str = "",
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> None:
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
        self._api = api
        self._model = model
        self._max_tokens = max_tokens
        self._temperature = temperature

    @asynccontextmanager
    async def ask(self, text: str) -> AsyncIterator[ChatStream]:
        """Ask, and give the stream of the answer; iterate over it inside the block.

        Question and answer become part of the conversation when the block ends, also an answer that was cut short
        there. After an error the conversation is as before, so the question can be asked again.
        """
        question = {"role": "user", "content": text}
        async with self._api.stream_chat(
            [*self.messages, question], model=self._model, max_tokens=self._max_tokens, temperature=self._temperature
        ) as stream:
            yield stream
        self.messages += [question, {"role": "assistant", "content": stream.text}]
