"""What several rooms' tests share."""

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

BASE = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"


@pytest.fixture(scope="session")
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter whose `-m venv FOLDER` copies an environment made once, since each pip in one takes seconds."""
    folder = tmp_path_factory.mktemp("quick-python")
    template = folder / "template"
    subprocess.run([str(BASE), "-I", "-m", "venv", "--without-pip", str(template)], check=True)
    (site,) = template.glob("lib/python3*/site-packages")
    pip = metadata.distribution("pip")
    for name in ("pip", f"pip-{pip.version}.dist-info"):
        shutil.copytree(str(pip.locate_file(name)), site / name)
    script = folder / "python"
    script.write_text(
        f'#!/bin/sh\n[ "$1 $2 $3" = "-I -m venv" ] || exec {BASE} "$@"\nmkdir -p "$4" && cp -a {template}/. "$4"\n'
    )
    script.chmod(0o755)
    return script
