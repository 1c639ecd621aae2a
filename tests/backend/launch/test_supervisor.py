"""One run from the spawn to nothing, with real processes of a fake vLLM."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import EngineError
from backend.events import RunState
from backend.launch.run_folder import RunFolder
from backend.launch.supervisor import ENDED, Supervisor
from backend.settings import Settings
from tests.backend.launch import runs as helpers
from tests.backend.launch.runs import QUICK, Started, listening, session_members

LIMIT_S = helpers.LIMIT_S
DATA = Path(__file__).parents[2] / "data" / "engine_logs"
Start = Callable[..., Awaitable[Started]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start supervised fakes; whatever a failing test leaves of them is killed by pid."""
    started: list[Started] = []

    async def begin(*options: str, settings: Settings = QUICK, port: int | None = None) -> Started:
        engine = await helpers.start(tmp_path / "runs", tmp_path, *options, settings=settings, port=port)
        started.append(engine)
        return engine

    yield begin
    for engine in started:
        await engine.run.detach()
        with helpers.ended_afterwards(lambda engine=engine: engine.session):  # type: ignore[misc]
            pass


async def _until(engine: Started, *states: RunState) -> RunState:
    async with asyncio.timeout(LIMIT_S):
        state = await engine.run.until(frozenset(states) | ENDED)
    if state is RunState.READY and engine.shm is None:
        engine.shm = str(engine.fake("state", {})["shm"])
    return state


async def _wait(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(helpers.wait_for, condition)


def _nothing_left(engine: Started) -> None:
    assert session_members(engine.session) == {}
    assert not listening(engine.port)
    assert engine.shm not in helpers.shared_memory()
    assert not engine.temp_dir.exists()


async def test_start_ready_stop_leaves_nothing(start: Start) -> None:
    engine = await start()
    assert await _until(engine, RunState.READY) is RunState.READY
    assert len(session_members(engine.session)) >= 3
    assert listening(engine.port)
    assert engine.shm in helpers.shared_memory(), "the fake holds shared memory, else this test shows nothing"

    assert await engine.run.stop() is RunState.STOPPED

    _nothing_left(engine)
    assert engine.states[-2:] == ["STOPPING", "STOPPED"]
    record = engine.run.folder.record()
    assert record is not None
    assert record.state is RunState.STOPPED
    assert record.ended_at is not None
    assert record.phases
    assert engine.run.folder.owner_pid() is None


async def test_files_of_a_run_are_private(start: Start) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    assert engine.run.folder.path.stat().st_mode & 0o777 == 0o700
    for file in engine.run.folder.path.iterdir():
        if file.is_file():
            assert file.stat().st_mode & 0o077 == 0, file
    await engine.run.stop()


@pytest.mark.parametrize("victim", ["api", "core", "worker"])
async def test_a_killed_process_makes_the_run_fail_and_leaves_nothing(start: Start, victim: str) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    os.kill(engine.pid(victim), signal.SIGKILL)

    assert await _until(engine) is RunState.FAILED

    _nothing_left(engine)
    assert engine.run.diagnosis is not None
    # The API server's own death is a signal; the death of another one makes it exit with 0, which is no success.
    wanted = "killed (SIGKILL)" if victim == "api" else "although nobody asked"
    assert wanted in engine.run.diagnosis.exit_words


@pytest.mark.parametrize("name", ["weights_missing", "spec_unknown_field", "unknown_flag"])
async def test_a_failed_start_tells_the_cause(start: Start, name: str) -> None:
    engine = await start("--fail-log", str(DATA / f"{name}.log"), "--fail-exit", "2" if name == "unknown_flag" else "1")

    assert await _until(engine) is RunState.FAILED

    assert engine.run.diagnosis is not None
    cause = {
        "weights_missing": "RuntimeError: Cannot find any model weights with `/models/noweights`",
        "spec_unknown_field": "disable_by_batch_size Unexpected keyword argument",
        "unknown_flag": "api_server.py: error: unrecognized arguments: --turbo-mode",
    }[name]
    assert engine.run.diagnosis.cause == cause
    assert ("arguments" in engine.run.diagnosis.exit_words) == (name == "unknown_flag")


async def test_an_engine_that_ignores_term_is_killed_after_the_grace(start: Start) -> None:
    engine = await start("--ignore-term")
    await _until(engine, RunState.READY)
    began = time.monotonic()
    assert await engine.run.stop() is RunState.STOPPED
    assert time.monotonic() - began >= QUICK.stop_grace_s
    _nothing_left(engine)


async def test_hurry_kills_at_once(start: Start) -> None:
    engine = await start("--ignore-term", settings=QUICK.model_copy(update={"stop_grace_s": 1000.0}))
    await _until(engine, RunState.READY)
    stopping = asyncio.create_task(engine.run.stop())
    await _until(engine, RunState.STOPPING)
    engine.run.hurry()
    async with asyncio.timeout(LIMIT_S):
        assert await stopping is RunState.STOPPED
    assert session_members(engine.session) == {}


async def test_a_server_that_waits_for_an_open_stream_is_ended(start: Start) -> None:
    """TERM alone may never end vLLM's API server while somebody else's stream is open."""
    engine = await start("--hang-on-term", "--fault", "step_s=0.2")
    await _until(engine, RunState.READY)
    body = (
        b'{"model":"fake","stream":true,"max_tokens":4000,"ignore_eos":true,"messages":[{"role":"user","content":"x"}]}'
    )
    with socket.create_connection(("127.0.0.1", engine.port)) as client:
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
        )
        await _wait(lambda: engine.fake("state", {})["open_streams"] == 1)
        assert await engine.run.stop() is RunState.STOPPED
    _nothing_left(engine)


async def test_stop_during_the_start_leaves_nothing(start: Start) -> None:
    engine = await start("--start-delay", "60")
    await _wait(lambda: engine.run.folder.log_file.stat().st_size > 0)
    assert await engine.run.stop() is RunState.STOPPED
    _nothing_left(engine)


async def test_a_stop_that_another_front_end_asked_for_is_no_failure(start: Start) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    other = RunFolder(engine.run.folder.path)
    other.request_stop()
    assert await _until(engine) is RunState.STOPPED


async def test_an_end_right_after_a_wish_to_stop_is_no_failure(start: Start) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    RunFolder(engine.run.folder.path).request_stop()
    os.kill(engine.session, signal.SIGTERM)
    assert await _until(engine) is RunState.STOPPED


async def _returns_from_a_stall(engine: Started) -> None:
    assert await _until(engine, RunState.UNRESPONSIVE) is RunState.UNRESPONSIVE
    engine.fake("faults", {"freeze": False})
    assert await _until(engine, RunState.READY) is RunState.READY
    assert engine.run.stalled_s is not None
    assert engine.run.stalled_s >= QUICK.stall_s


async def test_a_frozen_engine_that_keeps_us_waiting_is_unresponsive(start: Start) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    engine.fake("faults", {"freeze": True})
    messages = [{"role": "user", "content": "x"}]
    async with engine.run.api.stream_chat(messages, model="fake", max_tokens=3) as stream:
        await _returns_from_a_stall(engine)
        assert [chunk async for chunk in stream][-1].finish_reason == "length"
    await engine.run.stop()


async def test_a_frozen_engine_that_keeps_another_program_waiting_is_unresponsive(start: Start) -> None:
    """The engine's counters say nothing: vLLM does not count a request that its hung engine never took."""
    engine = await start()
    await _until(engine, RunState.READY)
    engine.fake("faults", {"freeze": True})
    ask = (
        "import sys, urllib.request as u;"
        "u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode(), {'Content-Type': 'application/json'})).read()"
    )
    url = f"http://127.0.0.1:{engine.port}/v1/completions"
    body = '{"model":"fake","prompt":"x","max_tokens":3}'
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", ask, url, body)
    await _returns_from_a_stall(engine)
    assert await client.wait() == 0
    await engine.run.stop()


async def test_a_stopped_worker_is_found_without_any_request(start: Start) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    worker = engine.pid("worker")
    os.kill(worker, signal.SIGSTOP)
    assert await _until(engine, RunState.UNRESPONSIVE) is RunState.UNRESPONSIVE
    os.kill(worker, signal.SIGCONT)
    assert await _until(engine, RunState.READY) is RunState.READY
    await engine.run.stop()


async def test_an_idle_engine_is_left_in_peace(start: Start) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    ticks = engine.fake("state", {})["requests"]
    await _wait(lambda: engine.run.silent_s > 2 * QUICK.stall_s)
    assert engine.run.state is RunState.READY
    asked = engine.fake("state", {})["requests"]
    assert asked.get("/v1/completions", 0) == ticks.get("/v1/completions", 0) == 0
    await engine.run.stop()


async def test_a_long_prefill_is_no_stall(start: Start) -> None:
    engine = await start("--fault", "prefill_s=5")
    await _until(engine, RunState.READY)
    messages = [{"role": "user", "content": "long"}]
    async with engine.run.api.stream_chat(messages, model="fake", max_tokens=2) as stream:
        async for _ in stream:
            assert engine.run.state is RunState.READY
    assert "UNRESPONSIVE" not in engine.states
    await engine.run.stop()


async def test_an_engine_outlives_its_front_end_and_is_adopted(start: Start, tmp_path: Path) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    await engine.run.detach()
    assert len(session_members(engine.session)) >= 3

    adopted = await Supervisor.adopt(engine.run.folder, settings=QUICK, usual={}, on_change=lambda _run: None)
    assert adopted is not None
    assert adopted.state is RunState.READY
    assert await Supervisor.adopt(engine.run.folder, settings=QUICK, usual={}, on_change=lambda _run: None) is None
    assert await adopted.stop() is RunState.STOPPED
    _nothing_left(engine)


async def test_the_end_of_an_adopted_engine_is_seen(start: Start) -> None:
    engine = await start()
    await _until(engine, RunState.READY)
    await engine.run.detach()
    adopted = await Supervisor.adopt(engine.run.folder, settings=QUICK, usual={}, on_change=lambda _run: None)
    assert adopted is not None
    os.kill(engine.session, signal.SIGKILL)
    async with asyncio.timeout(LIMIT_S):
        assert await adopted.until(ENDED) is RunState.FAILED
    await adopted.stop()
    assert adopted.diagnosis is not None
    assert "killed" in adopted.diagnosis.exit_words or "unknown" in adopted.diagnosis.exit_words
    assert session_members(engine.session) == {}


async def test_a_foreign_server_on_the_port_is_not_taken_for_ours(start: Start) -> None:
    first = await start()
    await _until(first, RunState.READY)
    second = await start(port=first.port)
    assert await _until(second, RunState.READY) is RunState.FAILED
    assert second.run.diagnosis is not None
    assert "Address already in use" in second.run.diagnosis.cause
    assert first.run.state is RunState.READY
    await first.run.stop()


async def test_an_interpreter_that_is_gone_is_told_in_words(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs", "fake")
    launch = replace(helpers.fake_launch(folder, tmp_path), argv=("/nowhere/python",))
    with pytest.raises(EngineError, match="could not be started"):
        await Supervisor.start(
            folder, launch, temp_dir=tmp_path / "t", settings=QUICK, usual={}, on_change=lambda _run: None
        )
    record = folder.record()
    assert record is not None
    assert record.state is RunState.FAILED
    assert folder.owner_pid() is None


async def test_a_huge_log_is_cut_and_says_so(start: Start) -> None:
    limit = 1_000_000
    engine = await start(
        "--fault", "log_lines_per_s=20000", settings=QUICK.model_copy(update={"engine_log_limit_bytes": limit})
    )
    await _until(engine, RunState.READY)
    await _wait(lambda: b"[specdeck] The log grew" in engine.run.folder.log_file.read_bytes())
    assert engine.run.folder.log_file.stat().st_size < 8 * limit
    await engine.run.stop()


async def test_a_server_that_never_listens_has_lost_its_port(tmp_path: Path) -> None:
    """VLLM hangs after "startup complete" when another server began to listen while it loaded."""
    folder = RunFolder.create(tmp_path / "runs", "fake")
    script = "import time; print('INFO:     Application startup complete.', flush=True); time.sleep(600)"
    launch = replace(helpers.fake_launch(folder, tmp_path), argv=(sys.executable, "-c", script))
    run = await Supervisor.start(
        folder, launch, temp_dir=tmp_path / "specdeck-x", settings=QUICK, usual={}, on_change=lambda _run: None
    )
    async with asyncio.timeout(LIMIT_S):
        assert await run.until(ENDED) is RunState.FAILED
    await run.stop()
    assert run.diagnosis is not None
    assert f"Port {launch.port} was taken" in run.diagnosis.cause
    assert session_members(run.record.pid or 0) == {}
