"""Helpers for tests that supervise the fake vLLM: launches, and the truth read from /proc by the test itself."""

import contextlib
import json
import os
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backend.launch.command import Launch
from backend.launch.run_folder import RunFolder
from backend.launch.supervisor import Supervisor
from backend.settings import Settings

FAKE = Path(__file__).parents[2] / "fakes" / "fake_vllm.py"
LIMIT_S = 60.0
QUICK = Settings(stall_s=1.5, probe_timeout_s=1.0, stop_grace_s=4.0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fake_launch(folder: RunFolder, temp_dir: Path, *options: str, port: int | None = None) -> Launch:
    port = port or free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPECDECK_")}
    return Launch(
        argv=(sys.executable, str(FAKE), "--port", str(port), *options),
        env=env | {"SPECDECK_RUN_ID": folder.run_id, "TMPDIR": str(temp_dir)},
        host="127.0.0.1",
        port=port,
        served_model_name="fake",
        profile_name="fake",
        environment_id="fake",
    )


class Started:
    """One supervised fake engine and what its supervisor said on the way."""

    def __init__(self, run: Supervisor, temp_dir: Path, states: list[str]) -> None:
        self.run = run
        self.temp_dir = temp_dir
        self.states = states
        self.shm: str | None = None  # the fake's own account of its shared memory, once it was ready

    @property
    def port(self) -> int:
        return self.run.record.port

    @property
    def session(self) -> int:
        assert self.run.record.pid is not None
        return self.run.record.pid

    def fake(self, path: str, body: object) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/fake/{path}", data=json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
            answer: dict[str, Any] = json.loads(response.read() or b"{}")
        return answer

    def pid(self, name: str) -> int:
        return int(self.fake("state", {})["pids"][name])


async def start(
    runs: Path, tmp_path: Path, *options: str, settings: Settings = QUICK, port: int | None = None
) -> Started:
    folder = RunFolder.create(runs, "fake")
    temp_dir = tmp_path / f"specdeck-{folder.run_id[-6:]}"
    temp_dir.mkdir()
    states: list[str] = []
    run = await Supervisor.start(
        folder,
        fake_launch(folder, temp_dir, *options, port=port),
        temp_dir=temp_dir,
        settings=settings,
        usual={},
        on_change=lambda run: states.append(run.state.value),
    )
    return Started(run, temp_dir, states)


def session_members(session: int) -> dict[int, str]:
    """Living processes of a session, with their names, read here and not by the product."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "stat").read_text()
                fields = text.rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found[int(entry.name)] = text.partition("(")[2].rpartition(")")[0]
    return found


def listening(port: int) -> bool:
    """Whether any socket listens on the port, from /proc/net/tcp."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(int(row.split()[1].split(":")[1], 16) == port and row.split()[3] == "0A" for row in rows)


def shared_memory() -> set[str]:
    """All shared-memory files of this machine; tests look for their own, since others make some too."""
    return {str(path) for path in Path("/dev/shm").glob("psm_*")}


def wait_for(condition: Callable[[], object], *, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@contextlib.contextmanager
def ended_afterwards(session: Callable[[], int | None]) -> Iterator[None]:
    """Whatever a failing test leaves of its own session is killed by pid."""
    try:
        yield
    finally:
        leader = session()
        if leader is not None:
            for pid in session_members(leader):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
