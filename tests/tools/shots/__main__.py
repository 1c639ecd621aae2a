"""Takes the pictures of every part, or of those that are named."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.tools.shots import gpus, real, recorded
from tests.tools.stage import private_home

_PARTS: dict[str, str] = {
    "real": "a real run: every page but History, and how a start goes or fails",
    "gpus": "the GPUs page with 0, 1, 2 and 8 GPUs, the Run page with some",
    "recorded": "the History page, and the settings of a machine with GPUs",
}


def main() -> int:
    """Take the pictures; with --all a second process takes those at 1.5 times the size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="also in other sizes: small, large, and scaled by 1.5")
    parser.add_argument("--scaled", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("folder", type=Path)
    words = ", ".join(f"{name} ({what})" for name, what in _PARTS.items())
    parser.add_argument("parts", nargs="*", default=list(_PARTS), help=f"{words}; all of them by default")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(_PARTS):
        parser.error(f"there is no part {', '.join(unknown)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    return next((code for part in options.parts if (code := _take(part, options))), 0)


def _take(part: str, options: argparse.Namespace) -> int:
    """Take the pictures of a part; returns the exit status."""
    folder: Path = options.folder
    if part == "real":
        if options.scaled:  # within the folders, and on the engine, of the first process
            return real.take_scaled(folder)
        with private_home(keep=("DATA", "CACHE")) as home:
            return real.take(folder, home, scaled=_again_scaled(folder, part) if options.all else None)
    take = gpus.take if part == "gpus" else recorded.take
    with private_home() as home:
        take(folder, home, "-1.5x" if options.scaled else "", every_size=options.all)
    return _again_scaled(folder, part)() if options.all else 0


def _again_scaled(folder: Path, part: str) -> Callable[[], int]:
    """Return what takes the pictures of a part at 1.5 times the size, and returns the exit status."""
    command = [sys.executable, "-m", "tests.tools.shots", "--scaled", str(folder), part]
    return lambda: subprocess.run(command, env=os.environ | {"QT_SCALE_FACTOR": "1.5"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
