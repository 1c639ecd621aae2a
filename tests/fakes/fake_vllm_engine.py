"""The fake engine itself: requests, steps with accepted drafts, and the counters that follow."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.fake_vllm_page import MetricsPage
from tests.fakes.fake_vllm_processes import BUSY, IGNORE_TERM, STEP, Children

# One entry is one token. Like the real detokenizer's, some are empty: the next one completes the character.
TOKENS = [
    "Hello", ",", " this", " is", " a", " made", "-up", " answer", " with", " café", "", " ☕", " and", "",
    "", " 👩", "\u200d", "💻", ".", "\n",
]  # fmt: skip


@dataclass(slots=True)
class Faults:
    """What goes wrong, switchable while the fake runs; see `fake_vllm.py` for the meaning of each."""

    health: str = "ok"
    metrics: str = "ok"
    metrics_text: str | None = None
    completions: str = "ok"
    freeze: bool = False
    error_after_tokens: int | None = None
    end_after_tokens: int | None = None
    cut_after_tokens: int | None = None
    step_s: float = 0.005
    prefill_s: float = 0.0
    log_lines_per_s: float = 0.0
    ignore_term: bool = False
    hang_on_term: bool = False
    exit_code: int | None = None


@dataclass(slots=True)
class Piece:
    """The tokens of one step of one request."""

    tokens: list[str]
    finish_reason: str | None


@dataclass(slots=True)
class Request:
    """One request in the engine; pieces arrive in `queue`, None means that the engine died."""

    prompt_tokens: int
    max_tokens: int
    answer_tokens: int
    engine: int
    started: float = field(default_factory=time.monotonic)
    queue: asyncio.Queue[Piece | None] = field(default_factory=asyncio.Queue)
    produced: int = 0
    steps: int = 0
    first_at: float | None = None
    last_at: float = 0.0
    aborted: bool = False
    finish_reason: str | None = None


class Engine:
    """Runs all requests in common steps; what it publishes changes only in a step, as in vLLM."""

    def __init__(self, *, args: Any, children: Children, faults: Faults) -> None:
        self.page = MetricsPage(model=args.served_model_name, engines=args.engines, speculation=args.spec_tokens > 0)
        self.faults = faults
        self.children = children
        self.dead = asyncio.Event()
        self.steps = 0
        self.aborted = 0
        self.finished = 0
        self._k = args.spec_tokens
        self._pattern = [min(int(word), self._k) for word in args.accept.split(",")]
        self._engines = args.engines
        self._max_running = args.max_num_seqs
        self._capacity = args.kv_tokens
        self._requests: list[Request] = []
        self._count = 0
        self._wake = asyncio.Event()
        self._echo: asyncio.Future[bool] | None = None
        children.socket.setblocking(False)
        asyncio.get_running_loop().add_reader(children.socket, self._on_echo)

    def submit(self, *, prompt_tokens: int, max_tokens: int, answer_tokens: int) -> Request:
        """Queue a request."""
        request = Request(prompt_tokens, max_tokens, answer_tokens, self._count % self._engines)
        self._count += 1
        if self.dead.is_set():
            request.queue.put_nowait(None)
        self._requests.append(request)
        self._wake.set()
        return request

    def abort(self, request: Request) -> None:
        """Ask the engine to drop a request; it does so in its next step."""
        request.aborted = True
        self._wake.set()

    def ignore_term(self) -> None:
        """Make the children ignore SIGTERM from now on."""
        self.children.socket.send(IGNORE_TERM)

    def stop(self) -> None:
        """Stop watching the children."""
        asyncio.get_running_loop().remove_reader(self.children.socket)

    def _on_echo(self) -> None:
        try:
            message = self.children.socket.recv(1)
        except ConnectionError:
            message = b""
        if message == b"":
            self.stop()
            self.dead.set()
            for request in self._requests:
                request.queue.put_nowait(None)
        if message != IGNORE_TERM and self._echo is not None and not self._echo.done():
            self._echo.set_result(bool(message))

    async def _step(self, kind: bytes) -> bool:
        """Send one step through EngineCore and Worker; hangs while either is stopped, False when dead."""
        if self.dead.is_set():
            return False
        self._echo = asyncio.get_running_loop().create_future()
        try:
            self.children.socket.send(kind)
        except OSError:
            return False
        return await self._echo

    async def run(self) -> None:
        """Step for ever."""
        while True:
            if not self._requests:
                self._wake.clear()
                await self._wake.wait()
            if self.faults.freeze:
                await asyncio.sleep(0.01)
                continue
            new = any(request.steps == 0 and not request.aborted for request in self._requests)
            if new and self.faults.prefill_s:
                end = time.monotonic() + self.faults.prefill_s
                while time.monotonic() < end:
                    if not await self._step(BUSY):
                        return
            await asyncio.sleep(self.faults.step_s)
            if not await self._step(STEP):
                return
            self._advance()

    def _advance(self) -> None:
        for request in [request for request in self._requests if request.aborted]:
            self._requests.remove(request)
            self._finish(request, "abort")
            self.aborted += 1
        running = self._requests[: self._max_running]
        for engine in range(self._engines):
            batch = [request for request in running if request.engine == engine]
            label = {"engine": str(engine)}
            if batch:
                tokens = sum(self._advance_one(request) for request in batch)
                self.page.observe("vllm:iteration_tokens_total", tokens, **label)
                self.steps += 1
        for request in [request for request in self._requests if request.finish_reason]:
            self._requests.remove(request)
        for engine in range(self._engines):
            label = {"engine": str(engine)}
            mine = [request for request in self._requests if request.engine == engine]
            active = [request for request in mine if request in running]
            used = sum(request.prompt_tokens + request.produced for request in active)
            self.page.set("vllm:num_requests_running", len(active), **label)
            self.page.set("vllm:num_requests_waiting", len(mine) - len(active), **label)
            self.page.set("vllm:kv_cache_usage_perc", min(1.0, used / self._capacity), **label)

    def _advance_one(self, request: Request) -> int:
        """One step of one request; returns the tokens that the step handled."""
        page, now, label = self.page, time.monotonic(), {"engine": str(request.engine)}
        left = min(request.max_tokens, request.answer_tokens) - request.produced
        handled = 0
        if request.steps == 0:
            count = 1
            handled = request.prompt_tokens
            page.add("vllm:prompt_tokens_total", request.prompt_tokens, **label)
            page.add("vllm:prompt_tokens_by_source_total", request.prompt_tokens, source="local_compute", **label)
            page.observe("vllm:time_to_first_token_seconds", now - request.started, **label)
            request.first_at = now
        else:
            accepted = self._pattern[(request.steps - 1) % len(self._pattern)]
            count = min(accepted + 1, left)
            page.observe("vllm:inter_token_latency_seconds", now - request.last_at, **label)
            if self._k:
                page.add("vllm:spec_decode_num_drafts_total", 1, **label)
                page.add("vllm:spec_decode_num_draft_tokens_total", self._k, **label)
                page.add("vllm:spec_decode_num_accepted_tokens_total", count - 1, **label)
                for position in range(count - 1):
                    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                    page.add(name, 1, position=str(position), **label)
        page.add("vllm:generation_tokens_total", count, **label)
        tokens = [TOKENS[(request.produced + i) % len(TOKENS)] for i in range(count)]
        request.steps += 1
        request.produced += count
        request.last_at = now
        finish = None
        if request.produced >= request.answer_tokens:
            finish = "stop"
        elif request.produced >= request.max_tokens:
            finish = "length"
        if finish:
            self._finish(request, finish)
            self.finished += 1
        request.queue.put_nowait(Piece(tokens, finish))
        return handled + count

    def _finish(self, request: Request, reason: str) -> None:
        request.finish_reason = reason
        page, label = self.page, {"engine": str(request.engine)}
        page.add("vllm:request_success_total", 1, finished_reason=reason, **label)
        page.observe("vllm:request_prompt_tokens", request.prompt_tokens, **label)
        page.observe("vllm:request_generation_tokens", request.produced, **label)
        page.observe("vllm:e2e_request_latency_seconds", time.monotonic() - request.started, **label)
