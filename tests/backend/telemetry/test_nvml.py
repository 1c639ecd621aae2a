"""NVML in a child: answers, failures, crashes and hangs."""

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend import bounded
from backend.hardware import Gpu, NvidiaDriver
from backend.telemetry import nvml


class NVMLError(Exception):
    pass


def library(**changes: object) -> types.ModuleType:
    """A `pynvml` with one GPU, changed where a test wants it otherwise."""
    module = types.ModuleType("pynvml")
    calls = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13010,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: "GPU-1",
        "nvmlDeviceGetName": lambda handle: "H200",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=1000, free=900),
    }
    for name, value in {**calls, **changes}.items():
        setattr(module, name, value)
    return module


def fail(*args: object) -> None:
    raise NVMLError("Not Supported")


def test_driver_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    assert nvml.read_driver() == NvidiaDriver("580.95.05", (13, 1), (Gpu("GPU-1", "H200", 1000, 900),))


def test_memory_that_is_not_told_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlDeviceGetMemoryInfo=fail))
    driver = nvml.read_driver()
    assert isinstance(driver, NvidiaDriver)
    assert driver.gpus == (Gpu("GPU-1", "H200", None, None),)


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"])
def test_failure_is_told_in_words(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(**{call: fail}))
    problem = nvml.read_driver()
    assert isinstance(problem, str)
    assert "Not Supported" in problem


ANSWER = {
    "driver": {
        "version": "580.95.05",
        "cuda": [13, 0],
        "gpus": [{"uuid": "GPU-1", "name": "H200", "memory_total_bytes": 5, "memory_free_bytes": None}],
    },
    "problem": "",
}


def test_answer_of_the_child(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(json.dumps(ANSWER))
    driver = nvml.ask_child(argv=["cat", str(tmp_path / "answer")])
    assert driver == NvidiaDriver("580.95.05", (13, 0), (Gpu("GPU-1", "H200", 5, None),))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["sh", "-c", "kill -SEGV $$"], "crashed"),
        (["sh", "-c", "echo no json"], "no usable answer"),
        (["sh", "-c", "exit 3"], "exit code 3"),
        (["sh", "-c", "echo '{}'"], "no usable answer"),
        (["sh", "-c", """echo '{"driver": null, "problem": "why"}'"""], "why"),
        (["sleep", "600"], "within 1 s"),
    ],
)
def test_trouble_of_the_child_is_no_driver(argv: list[str], words: str) -> None:
    problem = nvml.ask_child(argv=argv, limit_s=1.0 if argv[0] == "sleep" else 30.0)
    assert isinstance(problem, str)
    assert words in problem


def test_child_that_no_kill_ends_is_no_driver_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill without effect stands for a process that hangs inside the driver."""
    monkeypatch.setattr(bounded, "GRACE_S", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", lambda self: None)
        problem = nvml.ask_child(argv=["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"], limit_s=2.0)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert problem == "NVML gave no answer within 2 s"


def test_real_child_answers_whatever_this_machine_has() -> None:
    assert nvml.ask_child(limit_s=60.0)
    assert "pynvml" not in sys.modules  # only the child loads it
