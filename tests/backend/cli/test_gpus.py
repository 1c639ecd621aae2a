"""`specdeck gpus`: what the sampler knows, for people and for programs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from backend.cli import gpu_table, gpus
from backend.hardware import GpuInfo, GpuLink, GpuProcess, GpuReading, GpuSnapshot, PeakSource, Why
from backend.telemetry import gpus as telemetry
from tests.backend.telemetry.scripted_sampler import Script
from tests.fakes.fake_nvml import FakeNvml, uuid

LIMIT_S = 120
DASH = "\N{EN DASH}"
COMMAND = (
    "from backend.telemetry import gpus as telemetry; from backend.cli import main; import sys;"
    "telemetry.ARGV = {argv!r}; sys.argv = ['specdeck', 'gpus', *{options!r}]; main()"
)
# Rates come with the second reading.
SPEAKS = """
from backend.hardware import Why
options = json.loads(sys.stdin.readline())
reading = GpuReading("GPU-1", 1.0, memory_used_bytes=5e9, why={"pcie_rx_bytes_per_s": Why.NOT_YET})
say("GPU-1", readings=(reading,), driver="580.95.05", links=())
while True:
    time.sleep(0.05)
    reading = GpuReading(
        "GPU-1", 1.0, memory_used_bytes=5e9, pcie_rx_bytes_per_s=7e6, dram_ratio=0.5 if options["activity"] else None,
        processes=(GpuProcess(os.getpid(), 2_000_000_000, "python"),),
    )
    say("GPU-1", readings=(reading,), driver="580.95.05", links=(), cost_s=0.004)
"""


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Script]:
    def start_this(code: str) -> Script:
        script = Script(tmp_path, code)
        monkeypatch.setattr(telemetry, "ARGV", script.argv)
        return script

    return start_this


def as_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    gpus.gpus(as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_json_holds_everything_with_rates(use: Callable[[str], Script], capsys: pytest.CaptureFixture[str]) -> None:
    use(SPEAKS)
    found = as_json(capsys)
    assert set(found) == set(asdict(GpuSnapshot(t=1.0)))
    assert (found["problem"], found["stale"], found["driver"]) == ("", False, "580.95.05")
    assert found["cost_s"] == 0.004
    assert found["gpus"][0]["name"] == "Test GPU"
    reading = found["readings"][0]
    assert (reading["pcie_rx_bytes_per_s"], reading["dram_ratio"]) == (7e6, 0.5)
    assert (reading["engine_bytes"], reading["other_bytes"]) == (0.0, 5e9)
    assert reading["processes"][0]["name"] == "python"
    assert reading["processes"][0]["is_engine"] is False


def test_settings_are_followed(use: Callable[[str], Script], capsys: pytest.CaptureFixture[str], xdg: Path) -> None:
    use(SPEAKS)
    (xdg / "config" / "specdeck").mkdir(parents=True)
    (xdg / "config" / "specdeck" / "settings.toml").write_text("gpu_profiling = false\n")
    assert as_json(capsys)["readings"][0]["dram_ratio"] is None


def test_a_machine_without_nvidia_is_told_in_words_and_is_no_failure(
    use: Callable[[str], Script], capsys: pytest.CaptureFixture[str]
) -> None:
    use("say(problem='There is no NVIDIA driver. Install one.'); hang()")
    gpus.gpus()
    assert capsys.readouterr().out == "There is no NVIDIA driver. Install one.\n"
    assert as_json(capsys)["problem"] == "There is no NVIDIA driver. Install one."


def test_a_crash_of_the_sampler_is_told_in_words(
    use: Callable[[str], Script], capsys: pytest.CaptureFixture[str]
) -> None:
    use("os.kill(os.getpid(), signal.SIGSEGV)")
    gpus.gpus()
    assert capsys.readouterr().out.startswith("NVML crashed (signal 11).")


def test_a_rate_that_never_comes_is_not_waited_for(
    use: Callable[[str], Script], capsys: pytest.CaptureFixture[str]
) -> None:
    code = """
    from backend.hardware import Why
    go_on(gpus=(GpuInfo("GPU-1", "Test GPU", 0),), readings=(
        GpuReading("GPU-1", 1.0, why={"pcie_rx_bytes_per_s": Why.NOT_YET, "dram_ratio": Why.NOT_READ}),
    ))
    """
    use(code)
    assert as_json(capsys)["readings"][0]["why"]["pcie_rx_bytes_per_s"] == "not yet"


def test_a_reader_that_goes_away_is_no_failure(use: Callable[[str], Script]) -> None:
    script = use(SPEAKS)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", COMMAND.format(argv=script.argv, options=["--watch"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "NVIDIA driver" in process.stdout.readline()
        process.stdout.close()
        assert process.wait(LIMIT_S) == 0
        assert process.stderr.read() == ""


def test_people_see_tables(use: Callable[[str], Script], capsys: pytest.CaptureFixture[str]) -> None:
    use(SPEAKS)
    gpus.gpus()
    shown = capsys.readouterr().out
    assert "NVIDIA driver 580.95.05" in shown
    assert "Test GPU" in shown


def test_watching_goes_on_until_it_is_told_to_end(use: Callable[[str], Script]) -> None:
    script = use(SPEAKS)
    code = COMMAND.format(argv=script.argv, options=["--json", "--watch"])
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        times = [json.loads(process.stdout.readline())["t"] for _ in range(4)]
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(LIMIT_S) == 0
        assert process.stderr.read() == ""
    assert sorted(set(times)) == times
    assert all(json.loads(line)["problem"] == "" for line in rest.splitlines())


def test_the_command_is_there_and_a_machine_without_a_sampler_reads_like_one_without_gpus() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "backend.cli", "gpus", "--help"], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0
    assert "--json" in done.stdout


def test_an_interval_that_would_slow_gpus_down_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "backend.cli", "gpus", "--interval", "0.1"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2


def test_the_real_sampler(fake_nvml: FakeNvml) -> None:
    fake_nvml.say("memory_used 0 31e9", f"process 1 compute {os.getpid()} 5e9")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "backend.cli", "gpus", "--json"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **fake_nvml.environment},
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [gpu["uuid"] for gpu in found["gpus"]] == [uuid(0), uuid(1)]
    first, second = found["readings"]
    assert first["memory_used_bytes"] == 31e9
    assert first["dram_ratio"] == 0.62
    assert first["pcie_rx_bytes_per_s"] > 0
    assert [process["pid"] for process in second["processes"]] == [os.getpid()]
    assert found["links"][0]["first"] == uuid(0)
    assert found["cost_s"] > 0


# ---- tables ----------------------------------------------------------------------------------------------------


def shown(snapshot: GpuSnapshot) -> str:
    console = Console(width=160, highlight=False, color_system=None)
    with console.capture() as capture:
        for part in gpu_table.parts(snapshot):
            console.print(part, soft_wrap=True)
    return capture.get()


def words(text: str, line_with: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line_with in line]
    return line.split()


FIRST = GpuInfo("GPU-1", "NVIDIA H200", 0, peak_bytes_per_s=4.8e12, peak_source=PeakSource.TABLE, power_limit_w=700.0)
SECOND = GpuInfo("GPU-2", "NVIDIA H200", 1, memory_total_bytes=150_000_000_000)
BUSY = GpuReading(
    "GPU-1",
    1.0,
    memory_total_bytes=150e9,
    memory_used_bytes=120e9,
    memory_reserved_bytes=1e9,
    memory_free_bytes=29e9,
    engine_bytes=110e9,
    other_bytes=10e9,
    busy_ratio=0.99,
    memory_busy_ratio=0.8,
    dram_ratio=0.5,
    dram_bytes_per_s=2.4e12,
    power_w=612.4,
    throttle=("power limit",),
    processes=(GpuProcess(7, None), GpuProcess(4242, 110_000_000_000, "VLLM::Worker", True)),
)


def test_tables_show_each_figure_in_its_unit() -> None:
    text = shown(GpuSnapshot(1.0, driver="580.95.05", nvml="13.0", cuda=(13, 0), gpus=(FIRST,), readings=(BUSY,)))
    assert "NVIDIA driver 580.95.05, CUDA up to 13.0, NVML 13.0" in text
    assert words(text, "120.0") == ["0", "120.0", "150.0", "110.0", "10.0", "1.0", "29.0"]
    assert words(text, "2,400") == ["0", "99%", "80%", DASH, DASH, "2,400", "50%", "4,800", "table"]
    assert words(text, "612")[:3] == ["0", "612", "700"]
    assert "power limit" in text
    assert words(text, "VLLM::Worker") == ["0", "VLLM::Worker", "engine", "4242", "110.0"]
    assert words(text, " 7 ") == ["0", DASH, "7", DASH]


def test_a_lost_gpu_and_reasons_of_what_is_unknown() -> None:
    lost = GpuReading("GPU-2", 1.0, lost=True, why={"power_w": Why.LOST})
    known = GpuReading(
        "GPU-1", 1.0, why={"dram_ratio": Why.NOT_SUPPORTED, "sm_ratio": Why.NOT_SUPPORTED, "power_w": Why.NO_PERMISSION}
    )
    text = shown(GpuSnapshot(1.0, gpus=(FIRST, SECOND), readings=(known, lost)))
    assert words(text, "GPU-2")[-1] == "lost"
    assert "\N{EN DASH} not supported: bandwidth, SM\n" in text
    assert "\N{EN DASH} no permission: power\n" in text
    assert "\N{EN DASH} lost" not in text


def test_a_reason_that_holds_for_some_gpus_names_them() -> None:
    readings = (
        GpuReading("GPU-1", 1.0, dram_ratio=0.1),
        GpuReading("GPU-2", 1.0, why={"dram_ratio": Why.NOT_SUPPORTED}),
    )
    assert "\N{EN DASH} not supported: bandwidth (GPU 1)\n" in shown(
        GpuSnapshot(1.0, gpus=(FIRST, SECOND), readings=readings)
    )


def test_links() -> None:
    third = GpuInfo("GPU-3", "NVIDIA H200", 2)
    links = (
        GpuLink("GPU-1", "GPU-2", nvlink=True),
        GpuLink("GPU-1", "GPU-3", nvlink=False, peer_access=False, path="SYS"),
        GpuLink("GPU-2", "GPU-3", nvlink=False, peer_access=False, path="SYS"),
    )
    text = shown(GpuSnapshot(1.0, gpus=(FIRST, SECOND, third), readings=(), links=links))
    assert "GPUs 0-1: NVLink" in text
    assert "GPUs 0-2, 1-2: connected over the link between CPUs, no direct access" in text


def test_problem_note_and_old_figures_are_said() -> None:
    text = shown(
        GpuSnapshot(
            1.0, problem="It hangs.", note="WSL tells less.", gpus=(FIRST,), readings=(BUSY,), cost_s=0.01, stale=True
        )
    )
    assert text.startswith("It hangs.\n")
    assert "WSL tells less." in text
    assert "These figures are old." in text


def test_a_driver_without_a_gpu() -> None:
    assert "The driver shows no GPU." in shown(GpuSnapshot(1.0, driver="580.95.05"))
