"""The fake engine's answers: one document, or an event stream with vLLM's fields and the wanted faults."""

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from tests.fakes.fake_vllm_engine import Piece, Request

if TYPE_CHECKING:
    from tests.fakes.fake_vllm_http import Exchange

_KINDS = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class HttpError(Exception):
    """An answer with vLLM's error body."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": _KINDS[status], "param": param, "code": status}}


class Answer:
    """Turns the pieces of one request into JSON: one document, or an event stream."""

    def __init__(self, exchange: "Exchange", request: Request, body: dict[str, Any], *, chat: bool) -> None:
        self.exchange, self.request, self.body, self.chat = exchange, request, body, chat
        self.args, self.faults = exchange.api.args, exchange.api.faults
        options = body.get("stream_options") or {}
        self.include_usage = bool(options.get("include_usage"))
        self.continuous = self.include_usage and bool(options.get("continuous_usage_stats"))
        self.head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{id(request):016x}",
            "object": "text_completion" if not chat else "chat.completion.chunk",
            "created": int(time.time()),
            "model": self.args.served_model_name,
        }
        self.sent = 0
        self.text = ""
        self.reasoning = ""
        self.finish_reason: str | None = None

    def record(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "completion_tokens": self.sent,
            "finish_reason": self.finish_reason,
        }

    def usage(self) -> dict[str, int]:
        prompt = self.request.prompt_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + self.sent, "completion_tokens": self.sent}

    def _take(self, piece: Piece) -> tuple[str, str]:
        """Count a piece; returns its answer text and its reasoning text."""
        reasoning_left = max(0, (self.args.reasoning_tokens if self.chat else 0) - self.sent)
        reasoning = "".join(piece.tokens[:reasoning_left])
        text = "".join(piece.tokens[reasoning_left:])
        self.sent += len(piece.tokens)
        self.text += text
        self.reasoning += reasoning
        self.finish_reason = piece.finish_reason
        return text, reasoning

    def _reasoning_fields(self, reasoning: str) -> dict[str, str]:
        names = {"both": ["reasoning", "reasoning_content"]}.get(self.args.reasoning_field, [self.args.reasoning_field])
        return dict.fromkeys(names, reasoning) if reasoning else {}

    async def whole(self) -> None:
        """Answer with one document."""
        while self.finish_reason is None:
            piece = await self.request.queue.get()
            if piece is None:
                raise HttpError(500, DEAD)
            self._take(piece)
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason, "stop_reason": None}
        if self.chat:
            fields = self._reasoning_fields(self.reasoning)
            choice["message"] = {"role": "assistant", "content": self.text, **fields}
        else:
            choice["text"] = self.text
        kind = "chat.completion" if self.chat else "text_completion"
        await self.exchange.send_json({**self.head, "object": kind, "choices": [choice], "usage": self.usage()})

    async def _event(self, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        await self._raw(f"data: {text}\n\n".encode())

    async def _raw(self, content: bytes) -> None:
        self.exchange.writer.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        await self.exchange.writer.drain()

    async def _chunk(self, choices: list[dict[str, Any]], *, usage: bool) -> None:
        await self._event({**self.head, "choices": choices, **({"usage": self.usage()} if usage else {})})

    async def stream(self) -> None:
        """Answer with an event stream, faults included."""
        self.exchange.log(200)
        self.exchange.writer.write(
            b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        if self.chat:
            delta = {"role": "assistant", "content": ""}
            await self._chunk([{"index": 0, "delta": delta, "finish_reason": None}], usage=self.continuous)
        if await self._pieces():
            await self._event("[DONE]")
        await self._raw(b"")

    async def _pieces(self) -> bool:
        """Send the answer; False when the stream is to end without [DONE]."""
        while self.finish_reason is None:
            piece = await self._next()
            if piece is None or _reached(self.faults.error_after_tokens, self.sent):
                error = {"message": DEAD, "type": "InternalServerError", "param": None, "code": 500}
                await self._event({"error": error})
                return True
            text, reasoning = self._take(piece)
            choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason}
            if self.chat:
                choice["delta"] = self._reasoning_fields(reasoning) | (
                    {"content": text} if text or not reasoning else {}
                )
            else:
                choice["text"] = text
            await self._chunk([choice], usage=self.continuous)
            if _reached(self.faults.end_after_tokens, self.sent):
                return False
            if _reached(self.faults.cut_after_tokens, self.sent):
                self.exchange.writer.transport.abort()
                return False
        if self.include_usage:
            await self._chunk([], usage=True)
        return True

    async def _next(self) -> Piece | None:
        """The next piece, with comment lines while it takes long."""
        while True:
            try:
                return await asyncio.wait_for(self.request.queue.get(), self.args.sse_keep_alive_interval or None)
            except TimeoutError:
                await self._raw(b": keep-alive\n\n")


def _reached(limit: int | None, sent: int) -> bool:
    return limit is not None and sent >= limit
