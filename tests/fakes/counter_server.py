"""An HTTP server with the pages that a test gives it: `/metrics` and `/health`, one scripted step per request."""

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

RELEASE_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """What one scrape gets: the n-th request of each path gets the n-th step, the last step goes on for ever.

    Attributes:
        page: body of `/metrics`.
        status: status of `/metrics`.
        health: status of `/health`.
        hang: never answer `/metrics`.
        health_hang: never answer `/health`.
        drip_s: send `/metrics` in ten parts with this pause before each.
        reset: close the connection of `/metrics` without an answer.
    """

    page: str | bytes = ""
    status: int = 200
    health: int = 200
    hang: bool = False
    health_hang: bool = False
    drip_s: float = 0.0
    reset: bool = False


class CounterServer:
    """Serves `steps` on a port of its own until the block ends; `stop` and `start` refuse and take it again."""

    def __init__(self, steps: Iterable[Step], *, keep_alive: bool = False) -> None:
        self.steps = list(steps)
        self.asked: Counter[str] = Counter()
        self._keep_alive = keep_alive
        self._released = threading.Event()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if owner._keep_alive else "HTTP/1.0"
            timeout = RELEASE_LIMIT_S

            def do_GET(self) -> None:
                owner._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = False
            block_on_close = not owner._keep_alive

            def handle_error(self, request: object, client_address: object) -> None:
                return  # a client that gave up is what these tests are about

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Refuse from now on; ends what hangs."""
        assert self._server is not None
        assert self._thread is not None
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = None
        self._released.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self.stop()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        step = self.steps[min(self.asked[handler.path], len(self.steps) - 1)]
        self.asked[handler.path] += 1
        if handler.path == "/health":
            if step.health_hang:
                self._released.wait(RELEASE_LIMIT_S)
            self._send(handler, step.health, b"")
        elif handler.path == "/metrics":
            if step.hang:
                self._released.wait(RELEASE_LIMIT_S)
            if step.reset:
                handler.close_connection = True
                return
            body = step.page if isinstance(step.page, bytes) else step.page.encode()
            self._send(handler, step.status, body, drip_s=step.drip_s)
        else:
            self._send(handler, 404, b"")

    def _send(self, handler: BaseHTTPRequestHandler, status: int, body: bytes, *, drip_s: float = 0.0) -> None:
        try:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body)))
            handler.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            handler.end_headers()
            if not drip_s:
                handler.wfile.write(body)
                return
            size = len(body) // 10 + 1
            for start in range(0, len(body), size):
                self._released.wait(drip_s)
                handler.wfile.write(body[start : start + size])
                handler.wfile.flush()
        except OSError:
            handler.close_connection = True  # the client gave up
