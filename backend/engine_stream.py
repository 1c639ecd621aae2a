"""One streamed chat answer, and what goes wrong with an engine's answers in words; used through `engine_api`."""

import asyncio
import errno
import json
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import httpx2

from backend.errors import EngineError, EngineUnreachableError
from backend.events import ChatUsage, TokenChunk

CONNECT_S = 5.0
# What a machine without IPv6 says of ::1, which its own list of names may still give for localhost.
_NO_WAY = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})
_PATH = "/v1/chat/completions"
_SEE_LOG = "Look at the end of the engine's log for the cause, then start it again."


class ChatStream:
    """One streamed answer: enter with `async with`, then iterate over its chunks.

    A task of its own reads the connection, so arrival times are right even when the reader is slow. Leaving the
    block, in whatever way, closes the connection, and the engine then drops the request. Iterating raises
    `EngineUnreachableError` (nobody there, or silence for too long) and `EngineError` (the engine refused the
    request, failed, or stopped before the end).

    Args:
        open_client: gives the client of the running loop.
        body: the request.
        url: base address of the engine, for messages.
        silence_s: give up when the engine sends nothing for so long.
        registry: where the stream is listed while it is entered.

    Attributes:
        text: the answer so far, `reasoning` likewise.
    """

    def __init__(
        self,
        open_client: Callable[[], httpx2.AsyncClient],
        body: dict[str, Any],
        *,
        url: str,
        silence_s: float,
        registry: "set[ChatStream]",
    ) -> None:
        self.text = ""
        self.reasoning = ""
        self._open_client = open_client
        self._body = body
        self._url = url
        self._silence_s = silence_s
        self._registry = registry
        self._queue: asyncio.Queue[TokenChunk | EngineError | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._sent_at = 0.0
        self._first_at: float | None = None
        self._last_at = 0.0
        self._first_tokens = 0
        self._prompt_tokens: int | None = None
        self._tokens: int | None = None
        self._finish_reason: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the engine may still be working on the answer."""
        return self._task is not None and not self._task.done() and not self._ended

    @property
    def usage(self) -> ChatUsage:
        """Figures of the answer as far as it has come; final once the iteration has ended."""
        ttft_s = rate = None
        if self._first_at is not None:
            ttft_s = self._first_at - self._sent_at
            tokens, after_s = (self._tokens or 0) - self._first_tokens, self._last_at - self._first_at
            if tokens > 0 and after_s > 0:
                rate = tokens / after_s
        return ChatUsage(self._prompt_tokens, self._tokens, ttft_s, rate, self._finish_reason)

    async def __aenter__(self) -> Self:
        self._registry.add(self)
        self._sent_at = time.monotonic()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; an answer that was not finished gets the finish reason "abort"."""
        if not self._ended and self._finish_reason is None:
            self._finish_reason = "abort"
        self._end(None)
        self._registry.discard(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TokenChunk:
        item = await self._queue.get()
        if item is None:
            self._queue.put_nowait(None)  # a second iteration ends too, instead of waiting for ever
            raise StopAsyncIteration
        if isinstance(item, EngineError):
            raise item
        return item

    def _end(self, error: EngineError | None) -> None:
        """Close the queue, once."""
        if self._ended:
            return
        self._ended = True
        if error is not None:
            self._queue.put_nowait(error)
        self._queue.put_nowait(None)

    async def _read(self) -> None:
        """Read the connection to its end, also past [DONE], which lets it be used again."""
        timeout = httpx2.Timeout(self._silence_s, connect=CONNECT_S)
        try:
            async with self._open_client().sse(_PATH, method="POST", json=self._body, timeout=timeout) as source:
                if source.response.status_code != 200:
                    await source.response.aread()
                    self._end(refusal(self._url, _PATH, source.response))
                    return
                async for event in source:
                    if not self._ended:
                        self._take(event.data)
            self._end(EngineError("The engine stopped before the answer was complete.", _SEE_LOG))
        except httpx2.SSEError:
            self._end(not_an_engine(self._url, _PATH))
        except (httpx2.ConnectError, httpx2.TimeoutException) as error:
            self._end(unreachable(self._url, error, limit_s=self._silence_s))
        except httpx2.HTTPError:
            self._end(EngineError("The engine stopped before the answer was complete.", _SEE_LOG))
        except Exception as error:  # a bug here must reach the reader, who would wait for ever
            self._end(EngineError(f"The answer could not be read: {error!r}.", "This is a fault of Specdeck."))
            raise

    def _take(self, data: str) -> None:
        """Turn one event into a chunk, the end, or an error."""
        if data == "[DONE]":
            self._end(None)
            return
        try:
            event = json.loads(data)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            self._end(EngineError("The engine sent something that is no answer.", _SEE_LOG))
        elif "error" in event or event.get("object") == "error":
            # This ends the answer even though [DONE] follows it.
            self._end(EngineError(f"The engine failed while answering: {_said(event)}", _SEE_LOG))
        else:
            self._count(event)

    def _count(self, event: dict[str, Any]) -> None:
        """Count one event and pass it on; the last one carries usage only and has no choices."""
        usage = event.get("usage") or {}
        before = self._tokens or 0
        self._tokens = usage.get("completion_tokens", self._tokens)
        self._prompt_tokens = usage.get("prompt_tokens", self._prompt_tokens)
        choices = event.get("choices") or []
        if not choices:
            return
        tokens = max(0, (self._tokens or 0) - before)
        delta = choices[0].get("delta") or {}
        text = delta.get("content") or ""
        # vLLM renamed the field in 0.16; the versions just before it send both, with the same text.
        reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
        if tokens or text or reasoning:
            self._last_at = time.monotonic()
            if self._first_at is None:
                self._first_at, self._first_tokens = self._last_at, tokens or 1
        self.text += text
        self.reasoning += reasoning
        reason = choices[0].get("finish_reason")
        self._finish_reason = reason or self._finish_reason
        self._queue.put_nowait(TokenChunk(text, reasoning, tokens, reason))


def unreachable(url: str, error: Exception, *, limit_s: float) -> EngineUnreachableError:
    """Words for a request that got no answer."""
    if isinstance(error, httpx2.ConnectError):
        reason = _reason(error)
        if _is_refused(reason):
            message = f"Nothing answers at {url}."
            return EngineUnreachableError(message, "Start the engine, or check the address.", refused=True)
        message = f"No connection to {url} could be made ({reason})."
        todo = "The engine itself may be well: check the address, and whether this machine has run out of something."
        return EngineUnreachableError(message, todo, refused=False)
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        message = f"The engine at {url} sent nothing for {limit_s:g} s."
        return EngineUnreachableError(message, "It may be busy or stuck; try again, or restart it.", refused=False)
    message = f"The engine at {url} broke off the connection."
    return EngineUnreachableError(message, "It may be ending; try again in a moment.", refused=False)


def _reason(error: BaseException) -> BaseException:
    """What stands behind an error: the first cause that carries a number of the system, or a group of causes.

    Not simply the last of the chain: behind it may stand whatever error the caller is just handling.
    """
    while getattr(error, "errno", None) is None and not isinstance(error, BaseExceptionGroup):
        behind = error.__cause__ or error.__context__
        if behind is None:
            break
        error = behind
    return error


def _is_refused(reason: BaseException) -> bool:
    """Whether the other side refused the connection, which proves that nothing listens there.

    A name with several addresses (localhost) is refused if one is and this machine has no way to the others; too
    many open files or the like prove nothing.
    """
    if isinstance(reason, BaseExceptionGroup):
        reasons = [_reason(each) for each in reason.exceptions]
        without_way = [isinstance(each, OSError) and each.errno in _NO_WAY for each in reasons]
        refused = [_is_refused(each) for each in reasons]
        return any(refused) and all(a or b for a, b in zip(refused, without_way, strict=True))
    return isinstance(reason, OSError) and reason.errno == errno.ECONNREFUSED


def not_an_engine(url: str, path: str) -> EngineError:
    """Words for an answer that no vLLM would give."""
    return EngineError(f"What answers at {url} is no vLLM engine: it has no {path}.", "Check the address.")


def refusal(url: str, path: str, response: httpx2.Response) -> EngineError:
    """Words for an answer other than 200, from the engine's own error text."""
    status = response.status_code
    try:
        body = response.json()
    except ValueError:
        body = None
    said = _said(body)
    if status == 401:
        return EngineError(f"The engine at {url} asks for another API key.", "Give the key it was started with.")
    if status == 404 and not (isinstance(body, dict) and "error" in body):
        return not_an_engine(url, path)
    if status == 404:
        return EngineError(f"The engine refused: {said}", "Use one of the model names it serves.")
    if status == 400 and ("maximum context length" in said or "max_model_len" in said):
        todo = "Shorten the conversation or the answer, or start the engine with a longer context."
        return EngineError(f"This does not fit into the engine's context: {said}", todo)
    if status < 500:
        return EngineError(f"The engine refused the request ({status}): {said}", "Change the request and try again.")
    return EngineError(f"The engine failed ({status}): {said}", _SEE_LOG)


def _said(body: object) -> str:
    """What an error body says; vLLM has used several shapes."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail")
        if inner:
            return str(inner)
    return "it gave no reason."
