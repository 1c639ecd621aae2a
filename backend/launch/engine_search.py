"""Where a vLLM that somebody else installed may lie: active environments, PATH, or a path that a person names."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from backend.errors import EngineEnvironmentError
from backend.launch import engine_folder


def resolve(path: Path) -> tuple[Path, Path]:
    """Return interpreter and top folder of what a person named; links are kept, since a venv's python is one.

    Raises:
        EngineEnvironmentError: there is no environment.
    """
    path = Path(os.path.abspath(path.expanduser()))
    if path.is_dir():
        for folder in (path, path / ".venv", path / "venv"):
            if engine_folder.interpreter(folder).exists():
                return engine_folder.interpreter(folder), folder
        raise EngineEnvironmentError(
            f"There is no Python environment in {path}.", "Name the folder that holds bin/python."
        )
    if not path.exists():
        raise EngineEnvironmentError(f"{path} does not exist.", "Name an environment's folder or interpreter.")
    if not os.access(path, os.X_OK) or path.parent.name != "bin":
        raise EngineEnvironmentError(
            f"{path} is no interpreter of an environment.", "Name the folder or its bin/python."
        )
    return path, path.parent.parent


def candidates() -> Iterator[tuple[Path, Path]]:
    """Yield interpreter and top folder of every place where a vLLM may lie; starts nothing."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if value := os.environ.get(variable):
            yield engine_folder.interpreter(Path(value)), Path(value)
    scripts = [shutil.which("vllm"), shutil.which("python3")]
    for script in filter(None, scripts):
        python = _shebang(Path(script)) if script.endswith("vllm") else Path(script)
        if python is not None and python.exists():
            folder = python.parent.parent
            yield python, folder
            yield python, python.resolve().parent.parent  # a system's python3 may be a link into another prefix


def _shebang(script: Path) -> Path | None:
    """The interpreter that a console script names in its first line, None if it is no Python."""
    try:
        with script.open("rb") as file:
            first = file.readline(1024).decode(errors="replace").strip()
    except OSError:
        return None
    words = first.removeprefix("#!").split()
    python = Path(words[0]) if first.startswith("#!") and words else None
    return python if python is not None and python.name.startswith("python") else None
