"""A stand-in for the Hugging Face hub on loopback: model descriptions and file headers, with its ways to refuse."""

import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class HubModel:
    """One repository: file sizes by name, and what is in those files that are served.

    `gated` wants a licence, and `token` is the only token that is let in.
    """

    files: Mapping[str, int]
    gated: bool = False
    accepted: bool = False
    token: str | None = None
    revisions: tuple[str, ...] = ("main",)
    contents: Mapping[str, bytes] = field(default_factory=dict)


@dataclass
class FakeHub:
    """A running hub: its address, its models by name, and the paths it was asked for.

    Attributes:
        status: when set, every request gets this status and nothing else.
    """

    url: str
    models: dict[str, HubModel]
    asked: list[str] = field(default_factory=list)
    status: int | None = None


@contextmanager
def serve_hub(models: Mapping[str, HubModel]) -> Iterator[FakeHub]:
    """Serve these models until the block ends."""

    class Handler(_Handler):
        pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = FakeHub(f"http://127.0.0.1:{server.server_address[1]}", dict(models))
    Handler.hub = hub
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: FakeHub

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = [urllib.parse.unquote(part) for part in urllib.parse.urlsplit(self.path).path.strip("/").split("/")]
        self.hub.asked.append("/".join(parts))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.hub.status is not None:
            self._refuse(self.hub.status)
            return
        describe = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if describe else parts[:2])
        revision = parts[5] if describe and len(parts) > 5 else ("main" if describe else parts[3])
        model = self.hub.models.get(name)
        # The real hub hides what is unknown or private behind 401 from those without a token.
        if token == "invalid":
            self._refuse(401, message="Invalid credentials in Authorization header")
        elif model is None or (model.token and token != model.token):
            self._refuse(404 if token else 401, code="RepoNotFound")
        elif revision not in model.revisions:
            self._refuse(404, code="RevisionNotFound")
        elif describe:
            self._send(self._description(name, model))
        elif model.gated and not model.accepted:
            self._refuse(403 if token else 401, code="GatedRepo")
        elif "/".join(parts[4:]) not in model.files:
            self._refuse(404, code="EntryNotFound")
        else:
            self._send_file(model.contents.get("/".join(parts[4:]), b""))

    def _send_file(self, content: bytes) -> None:
        headers = {"ETag": '"e"', "X-Repo-Commit": COMMIT}
        wanted = (self.headers.get("Range") or "").removeprefix("bytes=").split("-")
        if len(wanted) != 2:
            self._send(content, headers=headers)
            return
        part = content[int(wanted[0]) : int(wanted[1]) + 1]
        self._send(part, status=206, headers={**headers, "Content-Range": f"bytes {wanted[0]}-*/{len(content)}"})

    def _description(self, name: str, model: HubModel) -> bytes:
        files = [{"rfilename": file, "size": size, "blobId": "b"} for file, size in model.files.items()]
        gated = "manual" if model.gated else False
        content = {"id": name, "modelId": name, "sha": COMMIT, "private": False, "gated": gated, "siblings": files}
        return json.dumps(content).encode()

    def _refuse(self, status: int, *, code: str = "", message: str = "") -> None:
        named = {"X-Error-Code": code, "X-Error-Message": message}
        self._send(b"{}", status=status, headers={name: value for name, value in named.items() if value})

    def _send(self, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass
