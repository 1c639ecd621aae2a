"""The chat as the window sees it: one conversation that is kept over restarts, streamed answer by answer."""

import asyncio
import dataclasses
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from backend.chat import release
from backend.chat.release import Release
from backend.desk import chat_file
from backend.desk.runs import Runs
from backend.desk.types import ChatDelta, ChatMessage, ChatSettings, ChatView, Event
from backend.engine_api import EngineApi
from backend.engine_stream import ChatStream
from backend.errors import EngineError, UsageError, UserError
from backend.events import ChatUsage
from backend.launch.supervisor import Supervisor
from backend.telemetry import engine_metrics

log = logging.getLogger(__name__)

_COUNT_TIMEOUT_S = 1.0
_KEEP_EVERY_S = 2.0
_SEED_LIMIT = 2**63  # vLLM takes a signed 64-bit number
_CONTINUE = {"add_generation_prompt": False, "continue_final_message": True}
_ASKING = "Stopped; asking the engine whether it has let it go."
_NOTES = {
    Release.LET_GO: "Stopped; the engine has let it go.",
    Release.KEPT: "Stopped here, but the engine still works on a request.",
    Release.UNKNOWN: "Stopped here; the engine does not say whether it has let it go.",
}


class Chat:
    """The conversation; emits a ChatView at each change and ChatDelta while an answer streams.

    Questions and answers take turns: a question that failed keeps its answer, which says why. What is asked in place
    of older messages replaces them for good only with its first token; without one they come back.
    """

    def __init__(
        self, runs: Runs, emit: Callable[[Event], None], *, on_question: Callable[[], None] = lambda: None
    ) -> None:
        """Talk to the current run; `on_question` is called when something is asked."""
        self._runs = runs
        self._emit = emit
        self._on_question = on_question
        self._messages: list[ChatMessage] = []
        self._settings = ChatSettings()
        self._notice = ""
        self._before: list[ChatMessage] = []  # what `undo` brings back
        self._undo_words = ""
        # What a failure before the first token brings back, and what to say when there was none.
        self._replaced: tuple[list[ChatMessage], str] | None = None
        self._writing = threading.Lock()
        self._n_writes = self._newest_write = 0
        self._problem = ""  # what the newest write met with
        self._api: EngineApi | None = None
        self._stream: ChatStream | None = None
        self._done: asyncio.Event | None = None  # set while an answer is being written
        self._stopped = False
        self._count_before: float | None = None

    def view(self) -> ChatView:
        """Return the conversation as it is now, with the text that has been streamed so far."""
        return ChatView(
            messages=tuple(self._messages),
            settings=self._settings,
            streaming=self._done is not None,
            notice=self._notice,
            undo=self._undo_words if self._done is None else "",
        )

    async def load(self) -> None:
        """Read the kept conversation and tell it."""
        kept = await asyncio.to_thread(chat_file.read)
        self._messages, self._settings, self._notice = list(kept.messages), kept.settings, kept.notice
        self._tell()

    async def send(self, text: str) -> None:
        """Ask the running engine; returns when the answer has ended, for whatever reason.

        An error of the engine is told on the answer.

        Raises:
            UserError: the question was not taken: no engine is ready, or an answer is being written.
        """
        await self._ask([*self._messages, ChatMessage("user", _question(text))])

    async def regenerate(self) -> None:
        """Ask the last question again, in place of its answer; raises as `send`, and as `edit`."""
        if not self._messages:
            raise UsageError("There is no question to ask again.")
        await self._ask_anew(self._messages[:-1], "The earlier answer was replaced.")

    async def edit(self, index: int, text: str) -> None:
        """Put another text in place of question `index`, drop what followed, and ask.

        Raises:
            UserError: as `send`, or nothing came of it: the conversation is as it was before.
        """
        if not 0 <= index < len(self._messages) or self._messages[index].role != "user":
            raise UsageError("This question is no longer part of the conversation.")
        await self._ask_anew(
            [*self._messages[:index], ChatMessage("user", _question(text))],
            "The question and what followed were replaced.",
        )

    async def go_on(self) -> None:
        """Continue the last answer, which was cut by its length; raises as `send`."""
        last = self._messages[-1] if self._messages else None
        if last is None or last.usage is None or last.usage.finish_reason != "length":
            raise UsageError("The last answer was not cut by its length.")
        if not last.text:
            raise UsageError(
                "The answer was cut while the model was still reasoning, so there is no text to continue.",
                "Allow longer answers in the chat's settings, and ask again.",
            )
        run = self._free_engine()
        self._messages[-1] = dataclasses.replace(last, usage=None, error="", note="")
        await self._answer(run, earlier=last)

    async def stop(self) -> None:
        """End the answer that streams, and find out whether the engine has let it go; returns then."""
        done, stream = self._done, self._stream
        if done is None:
            return
        if stream is not None and not self._stopped:
            self._stopped = True
            try:
                self._count_before = await self._count()
            finally:  # also when nobody waits for this any more
                await stream.aclose()
        await done.wait()

    async def clear(self) -> None:
        """Forget the conversation; the settings stay. `undo` brings it back until the next question."""
        self._refuse_while_writing()
        if self._messages:
            self._before, self._messages = self._messages, []
            self._undo_words = "The conversation is cleared."
        await self._keep()
        self._tell()

    async def undo(self) -> None:
        """Bring back what was cleared or replaced last, unless another question was asked since."""
        self._refuse_while_writing()
        if self._undo_words:
            self._messages = self._before
            self._forget_undo()
            await self._keep()
        self._tell()

    async def change_settings(self, settings: ChatSettings) -> None:
        """Ask the next questions with other settings.

        Raises:
            UserError: a value is out of range.
        """
        _check(settings)
        self._settings = dataclasses.replace(settings, system=_clean(settings.system))
        await self._keep()
        self._tell()

    # ---- asking ------------------------------------------------------------------------------------------------

    def _refuse_while_writing(self) -> None:
        if self._done is not None:
            raise UserError("An answer is being written.", "Wait for its end, or stop it.")

    def _free_engine(self) -> Supervisor:
        """Return the run that can be asked now."""
        self._refuse_while_writing()
        run = self._runs.readable
        if run is None:
            raise UserError("No engine is ready.", "Start an engine to chat with it.")
        return run

    async def _ask(self, messages: list[ChatMessage]) -> ChatMessage:
        """Let the engine answer the last of `messages`, which then are the conversation; returns how that ended."""
        run = self._free_engine()
        self._forget_undo()
        self._messages = [*messages, ChatMessage("assistant", "")]
        return await self._answer(run, earlier=None)

    async def _ask_anew(self, messages: list[ChatMessage], words: str) -> None:
        """Ask in place of the messages there are; `words` say so to those who may want them back."""
        self._refuse_while_writing()
        old = self._messages
        self._replaced = old, words
        try:
            ended = await self._ask(messages)
        finally:
            self._replaced = None
        if self._messages is old and (ended.error or ended.note == _NOTES[Release.KEPT]):
            raise UserError(ended.error or ended.note)

    def _forget_undo(self) -> None:
        self._before, self._undo_words = [], ""

    async def _answer(self, run: Supervisor, *, earlier: ChatMessage | None) -> ChatMessage:
        """Stream into the last message, and return it; `earlier` is what it was when it is continued."""
        self._done, self._stopped, self._count_before = asyncio.Event(), False, None
        self._stream = stream = run.api.stream_chat(
            self._request(continues=earlier is not None),
            model=run.record.served_model_name,
            max_tokens=self._settings.max_tokens,
            temperature=self._settings.temperature,
            extra=self._extra(continues=earlier is not None),
        )
        self._api = run.api
        self._on_question()
        self._tell()
        keeping = asyncio.create_task(self._keep_what_streams())
        try:
            await self._keep()
            if not self._stopped:  # Stop may have been pressed before anything was sent
                await self._read(stream, earlier)
        finally:  # also when nobody waits for the answer any more
            keeping.cancel()
            if self._messages[-1].usage is None:
                self._end(stream.usage, "", earlier)
            ended = self._messages[-1]
            await self._finish()
        return ended

    async def _read(self, stream: ChatStream, earlier: ChatMessage | None) -> None:
        """Read the answer to its end, and find out what became of it when it was stopped."""
        error = ""
        try:
            async with stream:
                async for chunk in stream:
                    self._grow(_clean(chunk.text), _clean(chunk.reasoning), chunk.n_tokens)
        except EngineError as failure:
            error = str(failure)
        self._end(stream.usage, error, earlier)
        if self._stopped and stream.usage.finish_reason == "abort":
            await self._find_out()

    def _request(self, *, continues: bool) -> list[dict[str, str]]:
        """The messages for the engine; pairs without an answer are left out, since many templates want turns."""
        sent = [{"role": "system", "content": self._settings.system}] if self._settings.system.strip() else []
        for question, answer in zip(self._messages[:-2:2], self._messages[1:-2:2], strict=True):
            if answer.text:
                sent += [_as_sent(question), _as_sent(answer)]
        return [*sent, *(_as_sent(message) for message in self._messages[-2 : None if continues else -1])]

    def _extra(self, *, continues: bool) -> dict[str, Any]:
        chosen = {"top_p": self._settings.top_p, "seed": self._settings.seed}
        fields: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
        return fields | _CONTINUE if continues else fields

    def _grow(self, text: str, reasoning: str, n_tokens: int) -> None:
        last = self._messages[-1]
        self._messages[-1] = dataclasses.replace(last, text=last.text + text, reasoning=last.reasoning + reasoning)
        if text or reasoning or n_tokens:
            self._emit(ChatDelta(text, reasoning, n_tokens))

    def _end(self, usage: ChatUsage, error: str, earlier: ChatMessage | None) -> None:
        """Write down how the answer ended."""
        if earlier is not None and earlier.usage is not None:
            usage = _joined(earlier.usage, usage, failed=bool(error))
        self._messages[-1] = dataclasses.replace(self._messages[-1], usage=usage, error=error)
        self._stream = None

    async def _find_out(self) -> None:
        """Ask the engine whether it has let the stopped request go, and note what it shows."""
        self._messages[-1] = dataclasses.replace(self._messages[-1], note=_ASKING)
        self._tell()
        found = Release.UNKNOWN
        try:
            found = await release.watch(self._count, before=self._count_before)
        finally:
            self._messages[-1] = dataclasses.replace(self._messages[-1], note=_NOTES[found])

    async def _finish(self) -> None:
        done, self._done, self._api = self._done, None, None
        if self._replaced is not None:
            old, words = self._replaced
            if _came_to_nothing(self._messages[-1]):
                self._messages = old
            else:
                self._before, self._undo_words = old, words
            self._replaced = None
        await self._keep()
        self._tell()
        if done is not None:
            done.set()

    async def _count(self) -> float | None:
        """How many requests the engine runs or holds waiting, None when it does not say."""
        if self._api is None:
            return None
        try:
            page = await self._api.metrics(timeout_s=_COUNT_TIMEOUT_S)
        except EngineError:
            return None
        reading = await asyncio.to_thread(engine_metrics.parse, page)
        if reading is None or reading.requests_running is None:
            return None
        return reading.requests_running + (reading.requests_waiting or 0.0)

    # ---- keeping and telling -----------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._emit(self.view())

    async def _keep(self) -> None:
        """Write the conversation as it is now."""
        messages = self._messages
        if self._replaced is not None and not messages[-1].text and not messages[-1].reasoning:
            messages = self._replaced[0]
        self._n_writes += 1
        self._notice = await asyncio.to_thread(self._write, self._n_writes, tuple(messages), self._settings)

    def _write(self, number: int, messages: tuple[ChatMessage, ...], settings: ChatSettings) -> str:
        """Write, unless what is newer has been written: nobody knows in which order threads get their turn."""
        with self._writing:
            if number > self._newest_write:
                self._problem = chat_file.write(messages, settings)
                self._newest_write = number
            return self._problem

    async def _keep_what_streams(self) -> None:
        """Write now and then what has come, so that a window that is killed loses little."""
        kept = self._messages[-1]
        while True:
            await asyncio.sleep(_KEEP_EVERY_S)
            if self._messages[-1] is not kept:
                kept = self._messages[-1]
                await self._keep()


def _question(text: str) -> str:
    if not text.strip():
        raise UsageError("The message is empty.", "Write something first.")
    return _clean(text)


def _clean(text: str) -> str:
    """Text that can be sent and written: halves of a surrogate pair become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _came_to_nothing(answer: ChatMessage) -> bool:
    """Whether an answer failed or was stopped before its first token."""
    reason = answer.usage.finish_reason if answer.usage is not None else None
    return not answer.text and not answer.reasoning and (bool(answer.error) or reason in (None, "abort"))


def _as_sent(message: ChatMessage) -> dict[str, str]:
    return {"role": message.role, "content": message.text}


def _joined(earlier: ChatUsage, later: ChatUsage, *, failed: bool) -> ChatUsage:
    """Figures of an answer that came in two parts: its own prompt, all its tokens, the rate of the newer part."""
    parts = [usage.completion_tokens for usage in (earlier, later) if usage.completion_tokens is not None]
    return ChatUsage(
        prompt_tokens=earlier.prompt_tokens,
        completion_tokens=sum(parts) if parts else None,
        ttft_s=earlier.ttft_s,
        tokens_per_s=later.tokens_per_s or earlier.tokens_per_s,
        # What failed to be continued can be continued once more.
        finish_reason="length" if failed else later.finish_reason,
    )


def _check(settings: ChatSettings) -> None:
    """Refuse what no engine takes."""
    temperature, top_p, longest, seed = settings.temperature, settings.top_p, settings.max_tokens, settings.seed
    if temperature is not None and not (math.isfinite(temperature) and temperature >= 0):
        raise UsageError(f"A temperature of {temperature:g} is not possible.", "Give a number from 0 up.")
    if top_p is not None and not 0 < top_p <= 1:
        raise UsageError(f"A top-p of {top_p:g} is not possible.", "Give a number above 0, up to 1.")
    if longest is not None and longest < 1:
        raise UsageError(f"An answer of {longest} tokens is not possible.", "Give 1 or more.")
    if seed is not None and not -_SEED_LIMIT <= seed < _SEED_LIMIT:
        raise UsageError(f"The seed {seed} is too large.", "Give a smaller whole number.")
