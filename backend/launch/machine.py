"""Gathers what the install plan depends on: Pythons on this machine, free space, architecture."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from backend import bounded, paths
from backend.clean_env import clean_environment
from backend.hardware import NvidiaDriver
from backend.launch.install_plan import PYTHONS, MachineFacts, PythonFacts

_ASK = (
    "import importlib.util as u, json, sys; "
    "print(json.dumps([list(sys.version_info[:2]), all(u.find_spec(m) for m in ('venv', 'ensurepip'))]))"
)
_LIMIT_S = 15.0


def machine_facts(driver: NvidiaDriver | None, nvml_problem: str) -> MachineFacts:
    """Look at this machine; starts each Python found, which takes some 30 ms each.

    Args:
        driver: the NVIDIA driver, None if none answers.
        nvml_problem: why there is none.
    """
    found = (python for path in _interpreters() if (python := ask_python(path)) is not None)
    return MachineFacts(
        driver=driver,
        nvml_problem=nvml_problem,
        pythons=tuple(found),
        free_bytes=free_bytes(paths.folders().engines),
        architecture=platform.machine(),
    )


def free_bytes(folder: Path) -> int:
    """Return the free space in bytes where `folder` is or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def ask_python(path: Path) -> PythonFacts | None:
    """Ask an interpreter for its version and its venv module; None if it does not run."""
    try:
        done = bounded.run([str(path), "-I", "-c", _ASK], env=clean_environment(), limit_s=_LIMIT_S)
        if done.code != 0:
            return None
        (major, minor), has_venv = json.loads(done.stdout)
    except (OSError, ValueError):
        return None
    return PythonFacts(path, (major, minor), has_venv)


def _interpreters() -> Iterator[Path]:
    """The Python under the app's environment first, then others by name on PATH and where uv and pyenv put them."""
    seen: set[Path] = set()
    for path in _all_interpreters():
        real = path.resolve()
        if path.exists() and real not in seen:
            seen.add(real)
            yield path


def _all_interpreters() -> Iterator[Path]:
    names = [f"python{major}.{minor}" for major, minor in PYTHONS]
    yield Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    yield Path(sys.executable)
    for name in (*names, "python3"):
        if found := shutil.which(name):
            yield Path(found)
    homes = (
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions",
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python")),
    )
    for home in homes:
        for name in names:
            yield from sorted(home.glob(f"*/bin/{name}"))
