"""The real engine for end-to-end tests: one start serves every test that does not kill it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backend.launch import runs as helpers
from tests.conftest import MARK, USER_ENVIRONMENT

LIMIT_S = 300.0  # a start takes 40 s on a quiet machine
STALL_S = 4.0

PROFILE = """\
schema = 1
[target]
model = "{models}/tiny-target"
dtype = "float32"
max_model_len = {context}
served_model_name = "tiny"
[speculation]
method = "draft_model"
model = "{models}/tiny-draft"
num_speculative_tokens = 4
[parallel]
tensor_parallel_size = {tp}
[memory]
enforce_eager = true
cpu_kv_cache_gib = 1
[scheduler]
max_num_seqs = 8
[server]
port = {port}
"""


class RealLine:
    """`specdeck` with the real engine: the user's data folder, its own config, state and cache."""

    def __init__(self, home: Path, models: Path, *, tp: int = 1, context: int = 2048) -> None:
        self.home = home
        self.port = helpers.free_port()
        self.out, self.err = home / "out", home / "err"
        mark, value = MARK.split("=")
        self.env = USER_ENVIRONMENT | {
            mark: value,
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
        }
        profiles = home / "config" / "specdeck" / "profiles"
        profiles.mkdir(parents=True)
        (profiles / "tiny.toml").write_text(PROFILE.format(models=models, port=self.port, tp=tp, context=context))
        (profiles.parent / "settings.toml").write_text(f"stall_s = {STALL_S}\nprobe_timeout_s = 4.0\n")
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self, *args: str) -> subprocess.Popen[bytes]:
        """Start a command in the background, its output in `out` and `err`."""
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "backend.cli", *args],
                cwd=self.home,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        return self.process

    def start(self) -> None:
        """Run the tiny pair and wait until its first chat is over."""
        self.begin("run", "tiny", "--chat", "hello")
        self.wait_for("tokens/s, first token")

    def wait_for(self, text: str) -> None:
        """Wait until the running command has said `text`."""
        process = self.process
        assert process is not None
        helpers.wait_for(lambda: text in self.said() or process.poll() is not None, limit_s=LIMIT_S)
        assert text in self.said(), self.said()

    def said(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "backend.cli", *args],
            cwd=self.home,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def record(self) -> dict[str, Any]:
        """`run.json` of the newest run."""
        newest = max((self.home / "state" / "specdeck" / "runs").iterdir())
        record: dict[str, Any] = json.loads((newest / "run.json").read_text())
        return record

    def session(self) -> int:
        return int(self.record()["pid"])

    def pid(self, title: str) -> int:
        """Pid of the process of the newest run whose command line begins with `title`."""
        for pid in helpers.session_members(self.session()):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_text().startswith(title):
                    return pid
        raise AssertionError(f"no process {title}")

    def shared_memory(self) -> set[str]:
        """Shared memory that the processes of the newest run hold, read from /proc by the test."""
        files = {path.stat().st_ino: str(path) for path in Path("/dev/shm").iterdir()}
        held = set()
        for pid in helpers.session_members(self.session()):
            with contextlib.suppress(OSError):  # by inode: semaphores are mapped under a name that is gone
                maps = Path(f"/proc/{pid}/maps").read_text()
                held |= {int(inode) for inode in re.findall(r" (\d+) +/dev/shm/", maps)}
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(entry).startswith("/dev/shm/"):
                        held.add(entry.stat().st_ino)
        return {path for inode, path in files.items() if inode in held}

    def counter(self, name: str) -> float:
        """Sum of a counter over all its series, fetched and parsed here."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=LIMIT_S) as page:
            lines = page.read().decode().splitlines()
        values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{")]
        assert values, name
        return sum(values)

    def settle(self) -> None:
        """Keep the engine busy for a moment and wait until it rests.

        Its supervisor asks a silent engine for a token of its own. One that it was about to send is answered while
        these 150 are made, and the next one is due only after further seconds of silence.
        """
        self.ask(prompt="abc", max_tokens=150)
        helpers.wait_for(lambda: self.counter("vllm:num_requests_running") == 0, limit_s=LIMIT_S)

    def ask(self, **body: object) -> dict[str, Any]:
        """One completion, not streamed, without the product's client."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            data=json.dumps({"model": "tiny", "temperature": 0, "ignore_eos": True} | body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
            answer: dict[str, Any] = json.loads(response.read())
        return answer

    def nothing_left(self, session: int, shared_memory: set[str]) -> None:
        """Fail if a process, the port, shared memory or a temporary file of the run is left."""
        assert helpers.session_members(session) == {}
        assert not helpers.listening(self.port)
        assert not [name for name in shared_memory if Path(name).exists()]
        assert not Path(self.record()["temp_dir"]).exists()

    def close(self) -> None:
        """End whatever is left, by pid; only a failing test leaves something."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ProcessLookupError):
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    environ = (entry / "environ").read_bytes().split(b"\0")
                    if f"XDG_STATE_HOME={self.home / 'state'}".encode() in environ:
                        os.kill(int(entry.name), signal.SIGKILL)


@pytest.fixture
def line(tmp_path: Path, tiny_models: Path, no_leaks: None) -> Iterator[RealLine]:
    """A command line of its own for a test that starts and kills its engine."""
    own = RealLine(tmp_path / "real", tiny_models)
    yield own
    own.close()


@pytest.fixture(scope="session")
def demo_models(engine_python: Path) -> None:
    """The demo models are in the user's own data folder: built there now if no run has done it yet."""
    build = (
        "import sys, pathlib; from backend import paths; from backend.checkpoints import demo; f = paths.folders();"
        "demo.ensure(models=f.models, cache=f.cache, engine_python=pathlib.Path(sys.argv[1]))"
    )
    built = subprocess.run(
        [sys.executable, "-P", "-c", build, str(engine_python)],
        env=USER_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, f"the demo models cannot be built: {built.stderr}"


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory, tiny_models: Path) -> Iterator[RealLine]:
    """The one running engine (1 start); at the end it must stop clean."""
    shared = RealLine(tmp_path_factory.mktemp("shared") / "real", tiny_models, context=4096)
    try:
        shared.start()
        yield shared
        session, memory = shared.session(), shared.shared_memory()
        assert memory, "the engine holds shared memory, else the check below shows nothing"
        assert shared.process is not None
        shared.process.send_signal(signal.SIGINT)
        assert shared.process.wait(LIMIT_S) == 0, shared.said()
        shared.nothing_left(session, memory)
    finally:
        shared.close()
