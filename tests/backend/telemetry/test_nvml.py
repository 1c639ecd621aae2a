"""NVML in a child: answers, failures, crashes and hangs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backend import bounded
from backend.hardware import Gpu, GpuInfo, GpuReading, GpuSnapshot, NvidiaDriver
from backend.telemetry import nvml
from backend.telemetry.gpu_messages import Encoder

ANSWER = GpuSnapshot(
    t=1.0,
    driver="580.95.05",
    cuda=(13, 0),
    gpus=(GpuInfo("GPU-1", "H200", 0, memory_total_bytes=5), GpuInfo("MIG-1", "H200 MIG", 0, parent_uuid="GPU-1")),
    readings=(GpuReading("GPU-1", 1.0), GpuReading("MIG-1", 1.0, memory_free_bytes=3.0)),
)


def say(tmp_path: Path, snapshot: GpuSnapshot) -> list[str]:
    """A command that answers like a sampler."""
    (tmp_path / "answer").write_text(Encoder().line(snapshot))
    return ["cat", str(tmp_path / "answer")]


def test_answer_of_the_child(tmp_path: Path) -> None:
    driver = nvml.ask_child(argv=say(tmp_path, ANSWER))
    assert driver == NvidiaDriver("580.95.05", (13, 0), (Gpu("GPU-1", "H200", 5, None),))


def test_a_driver_without_gpus_is_a_driver(tmp_path: Path) -> None:
    driver = nvml.ask_child(argv=say(tmp_path, GpuSnapshot(1.0, problem="no GPU", driver="580", cuda=(13, 0))))
    assert driver == NvidiaDriver("580", (13, 0), ())


def test_why_there_is_no_driver(tmp_path: Path) -> None:
    assert nvml.ask_child(argv=say(tmp_path, GpuSnapshot(1.0, problem="why"))) == "why"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["sh", "-c", "kill -SEGV $$"], "crashed"),
        (["sh", "-c", "echo no json"], "no usable answer"),
        (["sh", "-c", "exit 3"], "exit code 3"),
        (["sh", "-c", "echo '{}'"], "no usable answer"),
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


def test_only_the_child_loads_nvml() -> None:
    script = "import sys, backend.desk.desk, backend.cli, backend.telemetry.nvml as n; n.ask_child(limit_s=60); "
    done = subprocess.run(
        [sys.executable, "-P", "-c", script + "sys.exit('pynvml' in sys.modules)"], check=False, timeout=120
    )
    assert done.returncode == 0
