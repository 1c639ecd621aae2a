"""Pytest fixtures around the fake vLLM server: start it, steer it, and end all of it whatever the test did."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

FAKE_VLLM = Path(__file__).resolve().parent / "fake_vllm.py"
LIMIT_S = 30.0


class FakeVllm:
    """One fake server in a session of its own; `log` holds its standard output and error."""

    def __init__(self, folder: Path, args: tuple[str, ...], env: Mapping[str, str]) -> None:
        self.log = folder / "engine.log"
        self.port = 0
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(FAKE_VLLM), "--port", "0", *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(folder), **env},
            )
        self._shm: str | None = None

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://127.0.0.1:{self.port}"

    def wait_ready(self) -> None:
        """Wait until the server listens."""
        self.wait_log("Application startup complete.")
        match = re.search(r"Starting vLLM server on http://[^ ]+:(\d+)", self.log_text())
        assert match is not None
        self.port = int(match[1])
        self._shm = self.state()["shm"]

    def log_text(self) -> str:
        """The log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_log(self, text: str) -> None:
        """Wait until the log holds `text`."""
        wait_for(lambda: text in self.log_text() or self.process.poll() is not None)
        assert text in self.log_text(), self.log_text()

    def faults(self, **changes: object) -> None:
        """Switch faults, see `fake_vllm.py`."""
        status, body = self.request("POST", "/fake/faults", changes)
        assert status == 200, body

    def state(self) -> dict[str, Any]:
        """The server's own account of what happened."""
        status, body = self.request("POST", "/fake/state", {})
        assert status == 200, body
        state: dict[str, Any] = json.loads(body)
        return state

    def pids(self) -> dict[str, int]:
        """The pids of "api", "core" and "worker"."""
        pids: dict[str, int] = self.state()["pids"]
        return pids

    def request(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Send one request, without any of the product's code; returns status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def members(self) -> list[int]:
        """Living processes of the server's session; the session's id is the pid we started."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    found.append(int(entry.name))
        return sorted(found)

    def kill(self, name: str) -> None:
        """Kill one of "api", "core" and "worker", and wait until its sockets are closed too."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: pid not in self.members())

    def end(self) -> None:
        """End every process of the session, and remove what a killed server leaves behind."""
        while members := self.members():
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)
        self.process.wait(LIMIT_S)
        if self._shm is not None:
            Path(self._shm).unlink(missing_ok=True)


class StartFake(Protocol):
    """Start a fake server with the given options; `wait` until it listens."""

    def __call__(self, *args: str, wait: bool = True, env: Mapping[str, str] | None = None) -> FakeVllm: ...


def wait_for(condition: Any, *, limit_s: float = LIMIT_S) -> None:
    """Wait until `condition()` holds, and fail after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


@pytest.fixture(name="fake_vllm")
def fake_vllm_fixture(tmp_path: Path, no_leaks: None) -> Iterator[StartFake]:
    """A function that starts fake servers; all of them end with the test, before its leak check."""
    started: list[FakeVllm] = []

    def start(*args: str, wait: bool = True, env: Mapping[str, str] | None = None) -> FakeVllm:
        folder = tmp_path / f"fake-{len(started)}"
        folder.mkdir()
        fake = FakeVllm(folder, args, env or {})
        started.append(fake)
        if wait:
            fake.wait_ready()
        return fake

    yield start
    for fake in started:
        fake.end()
