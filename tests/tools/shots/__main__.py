"""Takes the pictures of every part, or of those that are named, at both sizes."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.tools.shots import real, scenes
from tests.tools.stage import private_home

_PARTS = ("real", "gpus")


def main() -> int:
    """Take the pictures; a second process takes those at 1.5 times the size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scaled", action="store_true", help="the second process")
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(_PARTS)}; all of them by default")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    parts = options.parts or _PARTS
    if options.scaled:
        if "real" in parts:
            return real.take_scaled(folder)
        with private_home() as home:
            scenes.take(folder, home, "-1.5x")
        return 0
    if "gpus" in parts:
        with private_home() as home:
            scenes.take(folder, home, "")
        if code := again_scaled(folder, "gpus"):
            return code
    if "real" in parts:
        with private_home(keep=("DATA", "CACHE")) as home:
            return real.take(folder, home, scaled=lambda: again_scaled(folder, "real"))
    return 0


def again_scaled(folder: Path, part: str) -> int:
    """Take the pictures of a part at 1.5 times the size; returns the exit status."""
    command = [sys.executable, "-m", "tests.tools.shots", "--scaled", str(folder), part]
    return subprocess.run(command, env=os.environ | {"QT_SCALE_FACTOR": "1.5"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
