"""An engine environment whose torch is the fake one, and how fast its devices are."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.launch import environments
from backend.launch.environments import EngineEnvironment
from tests.e2e.fake_environment import PROBE, make_environment

FAKE_TORCH = Path(__file__).parents[2] / "fakes" / "fake_torch.py"

GB = 1_000_000_000
MIB = 1024**2
CPU = {
    "free_bytes": 64 * GB,
    "copy": 40e9,
    "read": 50e9,
    "flops": {"bfloat16": 2e9, "float16": 3e9, "float32": 200e9},
}
FIRST, SECOND = "GPU-11111111-aaaa", "GPU-22222222-bbbb"


def gpu(uuid: str = FIRST, **other: Any) -> dict[str, Any]:
    """How one GPU is, as the fake torch is told."""
    flops = {"bfloat16": 700e12, "float16": 600e12, "float32": 50e12}
    known = {"name": "NVIDIA Fake", "uuid": uuid.removeprefix("GPU-"), "free_bytes": 80 * GB, "copy": 2.5e12}
    return known | {"read": 3e12, "flops": flops} | other


ALL_REDUCE = {"latency_s": 10e-6, "bytes_per_s": 200e9}


def tell_torch(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """Say how fast the devices are and what goes wrong, for processes that are started from now on."""
    monkeypatch.setenv("FAKE_TORCH", json.dumps({"cpu": CPU} | settings))


def make_torch_environment(folder: Path, platform: str = "cpu") -> Path:
    """Build an environment whose interpreter finds the fake torch, and says of itself that it is for `platform`."""
    make_environment(folder)
    (folder / "site").mkdir()
    shutil.copy(FAKE_TORCH, folder / "site" / "torch.py")
    answer = json.loads(PROBE.read_text())
    answer["platform"]["device_type"] = platform
    (folder / "probe.json").write_text(json.dumps(answer))
    (folder / "bin" / "python").write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec cat "{folder}/probe.json"\n'
        f'PYTHONPATH="{folder}/site" exec "{sys.executable}" "$@"\n'
    )
    return folder


def add_environment(folder: Path, platform: str = "cpu") -> EngineEnvironment:
    """Make such an environment known, probed."""
    return environments.add(make_torch_environment(folder, platform))
