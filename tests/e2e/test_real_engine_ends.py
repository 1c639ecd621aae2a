"""Real engines that are killed, adopted and split over two ranks; each test says how often it starts one."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.backend.launch import runs as helpers
from tests.e2e.conftest import LIMIT_S, RealLine
from tests.e2e.test_real_engine import foreign_sockets

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.mark.parametrize("victim", ["VLLM::EngineCore", pytest.param("VLLM::Worker", marks=pytest.mark.full)])
def test_a_killed_inner_process_fails_the_run_and_leaves_nothing(line: RealLine, victim: str) -> None:
    """1 start each; the API server then ends with status 0, which is no success."""
    line.start()
    session, memory = line.session(), line.shared_memory()
    os.kill(line.pid(victim), signal.SIGKILL)
    assert line.process is not None
    assert line.process.wait(LIMIT_S) == 3, line.said()
    line.nothing_left(session, memory)
    record = line.record()
    assert record["state"] == "FAILED"
    assert "unexpectedly" in record["cause"] or "Error" in record["cause"], record["cause"]
    assert record["cause_line"] >= 1


def test_an_adopted_engine_whose_api_server_dies_leaves_nothing(line: RealLine) -> None:
    """1 start: the app is killed, the engine adopted, then its API server is killed."""
    line.start()
    session, memory = line.session(), line.shared_memory()
    assert line.process is not None
    line.process.kill()
    line.process.wait()
    assert helpers.listening(line.port)

    line.begin("run", "tiny", "--chat", "again")
    line.wait_for("Took over the engine")
    helpers.wait_for(lambda: line.said().count("tokens/s, first token") == 2, limit_s=LIMIT_S)
    assert line.session() == session

    os.kill(session, signal.SIGKILL)
    assert line.process.wait(LIMIT_S) == 3, line.said()
    line.nothing_left(session, memory)
    assert line.record()["state"] == "FAILED"


def test_orphans_of_a_killed_app_and_api_server_are_listed_and_ended_after_a_yes(line: RealLine) -> None:
    """1 start."""
    line.start()
    session, memory = line.session(), line.shared_memory()
    assert line.process is not None
    line.process.kill()
    line.process.wait()
    os.kill(session, signal.SIGKILL)
    helpers.wait_for(lambda: session not in helpers.session_members(session), limit_s=LIMIT_S)

    (run,) = json.loads(line.command("status", "--json").stdout)
    orphans = helpers.session_members(session)
    assert run["leftover"]
    assert {process["pid"] for process in run["processes"]} == set(orphans)
    assert {"VLLM::EngineCore", "VLLM::Worker"} <= {process["name"] for process in run["processes"]}
    assert run["memory_bytes"] > 500_000_000

    assert line.command("stop").returncode == 1
    assert set(helpers.session_members(session)) == set(orphans), "nothing is ended without a yes"
    assert line.command("stop", "--yes").returncode == 0
    line.nothing_left(session, memory)


def test_two_ranks_stay_on_loopback_and_end_clean(tmp_path_factory: pytest.TempPathFactory, tiny_models: Path) -> None:
    """1 start with tensor parallel 2."""
    line = RealLine(tmp_path_factory.mktemp("tp2") / "real", tiny_models, tp=2)
    try:
        line.start()
        session, memory = line.session(), line.shared_memory()
        line.pid("VLLM::Worker_TP0")
        line.pid("VLLM::Worker_TP1")
        assert foreign_sockets(session) == []
        stopped = line.command("stop")
        assert stopped.returncode == 0, stopped.stderr
        assert line.process is not None
        assert line.process.wait(LIMIT_S) == 0, line.said()
        line.nothing_left(session, memory)
    finally:
        line.close()
