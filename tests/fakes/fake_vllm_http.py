"""The fake engine's HTTP side: a small HTTP/1.1 server with vLLM's routes, errors and event streams."""

import asyncio
import dataclasses
import json
import os
import time
from collections import Counter, deque
from typing import Any

from tests.fakes.fake_vllm_answer import DEAD, Answer, HttpError
from tests.fakes.fake_vllm_engine import Engine, Faults

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Reader(asyncio.StreamReader):
    """A stream reader that tells when the client has gone, also while nobody reads."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)  # type: ignore[arg-type]  # the stub asks for less than the base class passes
        self.gone.set()


class Api:
    """Routes and open connections of the fake server."""

    def __init__(self, *, args: Any, engine: Engine, faults: Faults) -> None:
        self.args = args
        self.engine = engine
        self.faults = faults
        self.open_streams = 0
        self.writers: set[asyncio.StreamWriter] = set()
        self.requests: Counter[str] = Counter()
        self.answers: deque[dict[str, Any]] = deque(maxlen=50)
        self._tasks: set[asyncio.Task[None]] = set()

    def protocol(self) -> asyncio.StreamReaderProtocol:
        """A protocol for one connection, for `create_server`."""
        return asyncio.StreamReaderProtocol(Reader(), self._on_connection)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, Reader)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                request_line, *lines = head.rstrip().split("\r\n")
                method, target, _ = request_line.split(" ")
                headers = {key.strip().lower(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await Exchange(self, reader, writer, method, target.partition("?")[0], headers, body).run()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    def cut(self) -> None:
        """Close every connection without a word."""
        for writer in list(self.writers):
            writer.transport.abort()


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        api: Api,
        reader: Reader,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        self.api, self.reader, self.writer = api, reader, writer
        self.method, self.path, self.headers, self.body = method, path, headers, body

    async def run(self) -> None:
        self.api.requests[self.path] += 1
        try:
            await self._dispatch()
        except HttpError as error:
            await self.send_json(error.body, status=error.status)

    async def _send(self, content: bytes, *, status: int = 200, kind: str = "application/json") -> None:
        self.log(status)
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nserver: uvicorn\r\ncontent-type: {kind}\r\n"
        self.writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        await self.writer.drain()

    async def send_json(self, content: object, *, status: int = 200) -> None:
        await self._send(json.dumps(content, ensure_ascii=False).encode(), status=status)

    def log(self, status: int) -> None:
        if not self.path.startswith("/fake/"):
            peer = self.writer.get_extra_info("peername") or ("", 0)
            line = f'INFO:     {peer[0]}:{peer[1]} - "{self.method} {self.path} HTTP/1.1" {status} {_REASONS[status]}'
            print(line, flush=True)

    async def _fault(self, value: str) -> bool:
        """Act out a fault that hangs or answers with a status; False when there is none."""
        if value == "hang":
            await self.reader.gone.wait()
            return True
        if value.isdigit():
            await self.send_json({"detail": _REASONS[int(value)]}, status=int(value))
            return True
        return False

    async def _dispatch(self) -> None:
        api, faults, args = self.api, self.api.faults, self.api.args
        route = (self.method, self.path)
        wrong_key = args.api_key and self.headers.get("authorization") != f"Bearer {args.api_key}"
        if self.path.startswith("/v1/") and wrong_key:
            return await self.send_json({"error": "Unauthorized"}, status=401)
        if route == ("GET", "/health"):
            if not await self._fault("503" if api.engine.dead.is_set() else faults.health):
                await self._send(b"")
        elif route == ("GET", "/metrics"):
            if not await self._fault(faults.metrics):
                page = api.engine.page.render() if faults.metrics_text is None else faults.metrics_text
                page = {"empty": "", "garbage": "<html>\x00{{ not metrics }} 12 x\n"}.get(faults.metrics, page)
                await self._send(page.encode(), kind="text/plain; version=1.0.0; charset=utf-8")
        elif route == ("GET", "/version"):
            await self.send_json({"version": args.version})
        elif route == ("GET", "/v1/models"):
            card = {
                "id": args.served_model_name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": "vllm",
                "root": args.model,
                "parent": None,
                "max_model_len": args.max_model_len,
            }
            await self.send_json({"object": "list", "data": [card]})
        elif route == ("POST", "/tokenize"):
            request = self._read()
            count = _count_prompt(request)
            await self.send_json({"count": count, "max_model_len": args.max_model_len, "tokens": list(range(count))})
        elif route in {("POST", "/v1/completions"), ("POST", "/v1/chat/completions")}:
            if not await self._fault(faults.completions):
                await self._complete(self._read(), chat="chat" in self.path)
        elif route == ("POST", "/fake/faults"):
            await self._set_faults(self._read())
        elif route in {("POST", "/fake/state"), ("GET", "/fake/state")}:
            await self.send_json(self._state())
        else:
            await self.send_json({"detail": "Not Found"}, status=404)
        return None

    def _read(self) -> dict[str, Any]:
        try:
            request = json.loads(self.body or b"{}")
        except json.JSONDecodeError as error:
            raise HttpError(400, f"JSON decode error: {error}") from None
        if not isinstance(request, dict):
            raise HttpError(400, "the body is not an object")
        return request

    async def _set_faults(self, changes: dict[str, Any]) -> None:
        known = {field.name for field in dataclasses.fields(Faults)}
        for name, value in changes.items():
            if name not in known:
                raise HttpError(400, f"unknown fault {name}")
            setattr(self.api.faults, name, value)
        if changes.get("ignore_term"):
            self.api.engine.ignore_term()
        await self.send_json(dataclasses.asdict(self.api.faults))
        if self.api.faults.exit_code is not None:
            os._exit(self.api.faults.exit_code)

    def _state(self) -> dict[str, Any]:
        engine, children = self.api.engine, self.api.engine.children
        names = {
            "generation_tokens": "vllm:generation_tokens_total",
            "prompt_tokens": "vllm:prompt_tokens_total",
            "drafts": "vllm:spec_decode_num_drafts_total",
            "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
            "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
            "requests_running": "vllm:num_requests_running",
        }
        return {
            "open_streams": self.api.open_streams,
            "connections": len(self.api.writers),
            "steps": engine.steps,
            "aborted": engine.aborted,
            "finished": engine.finished,
            "requests": dict(self.api.requests),
            "answers": list(self.api.answers),
            "pids": {"api": os.getpid(), "core": children.core_pid, "worker": children.worker_pid},
            "shm": str(children.options.shm_file),
            "dist": str(children.options.dist_file),
            "faults": dataclasses.asdict(self.api.faults),
            **{key: engine.page.total(name) for key, name in names.items()},
        }

    async def _complete(self, body: dict[str, Any], *, chat: bool) -> None:
        api, args = self.api, self.api.args
        model = body.get("model", args.served_model_name)
        if model != args.served_model_name:
            message = f"The model `{model}` does not exist. Valid aliases: {args.served_model_name}."
            raise HttpError(404, message, "model")
        prompt = _count_prompt(body)
        limit = args.max_model_len
        if prompt >= limit:
            raise HttpError(
                400,
                f"This model's maximum context length is {limit} tokens. However, your prompt contains at least "
                f"{prompt} input tokens, which exceeds this limit even without any output tokens. Please reduce "
                "the length of the input prompt.",
            )
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or (limit - prompt if chat else 16)
        if wanted > limit:
            raise HttpError(
                400,
                f"max_tokens={wanted} cannot be greater than max_model_len={limit}. Please request fewer output "
                f"tokens. (parameter=max_tokens, value={wanted})",
                "max_tokens",
            )
        temperature = body.get("temperature") or 0
        if temperature < 0:
            message = f"temperature must be non-negative, got {temperature}."
            raise HttpError(400, f"{message} (parameter=temperature, value={temperature})", "temperature")
        answer = limit if body.get("ignore_eos") else args.answer_tokens
        if api.engine.dead.is_set():
            raise HttpError(500, DEAD)
        request = api.engine.submit(prompt_tokens=prompt, max_tokens=min(wanted, limit - prompt), answer_tokens=answer)
        writer = Answer(self, request, body, chat=chat)
        api.open_streams += 1
        work = asyncio.ensure_future(writer.stream() if body.get("stream") else writer.whole())
        gone = asyncio.ensure_future(self.reader.gone.wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        finally:
            api.open_streams -= 1
            gone.cancel()
            work.cancel()
            if request.finish_reason is None:
                api.engine.abort(request)
            api.answers.append(writer.record())


def _count_prompt(body: dict[str, Any]) -> int:
    """Tokens of the prompt: one for each word, and four around each chat message."""
    prompt = body.get("prompt", "")
    if isinstance(prompt, list):
        return len(prompt)
    words = len(str(prompt).split())
    for message in body.get("messages") or []:
        words += 4 + len(str(message.get("content", "")).split())
    return max(1, words)
