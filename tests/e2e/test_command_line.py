"""`specdeck run`, `status` and `stop` as processes, with the fake vLLM behind them."""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend.launch import runs as helpers
from tests.backend.launch.runs import listening, session_members
from tests.e2e.fake_environment import LIMIT_S, CommandLine, Running, Traces, add_environment


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XDG folders in which the fake environment was added, once for all tests here."""
    return add_environment(tmp_path_factory.mktemp("added"))


@pytest.fixture
def specdeck(tmp_path: Path, homes: Path, no_leaks: None) -> Iterator[CommandLine]:
    """The command line; whatever a failing test leaves of its engines is killed by pid."""
    line = CommandLine(tmp_path / "line", homes)
    yield line
    line.kill_rest()


@pytest.fixture
def running(specdeck: CommandLine) -> Iterator[Running]:
    """`specdeck run mine`, ready and after its chat."""
    command = specdeck.begin("run", "mine", "--chat", "hello")
    command.wait_for("tokens/s, first token")
    yield command
    command.close()


def test_run_chats_shows_numbers_and_stops(specdeck: CommandLine) -> None:
    done = specdeck("run", "mine", "--chat", "hello", "--for", "2.5")
    assert done.returncode == 0, done.stderr
    assert "> hello" in done.stdout
    assert "Draft acceptance" in done.stdout
    assert done.stdout.count("READY") >= 2
    assert "Loading Python" in done.stderr
    assert not listening(specdeck.port)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_stop_the_engine(specdeck: CommandLine, running: Running, number: signal.Signals) -> None:
    traces = specdeck.traces()
    assert traces.shared_memory, "else the look below shows nothing"
    assert traces.temp_dir.is_dir()
    running.signal(number)
    assert running.end() == 0, running.err
    assert "nothing is left" in running.err or "is left of it" in running.err
    traces.assert_nothing_left()


def test_a_signal_during_the_start_stops_it(specdeck: CommandLine) -> None:
    command = specdeck.begin("run", "mine", fake="--start-delay 60")
    traces = Traces.of_child(specdeck.port, command.process.pid)
    command.signal(signal.SIGINT)
    assert command.end() == 0, command.err
    traces.assert_nothing_left()


def test_a_second_signal_does_not_wait_for_the_grace(specdeck: CommandLine) -> None:
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "specdeck" / "settings.toml"
    config.write_text("stop_grace_s = 1000\n")
    command = specdeck.begin("run", "mine", "--chat", "x", fake="--ignore-term")
    command.wait_for("tokens/s, first token")
    traces = specdeck.traces()
    command.signal(signal.SIGINT)
    command.wait_for("Stopping the engine")
    command.signal(signal.SIGINT)
    assert command.end() == 0, command.err
    traces.assert_nothing_left()


def test_a_closed_terminal_ends_the_engine(specdeck: CommandLine) -> None:
    """The window is closed: SIGHUP, and every further word to the terminal is an error."""
    master, slave = pty.openpty()
    try:
        command = specdeck.begin_on_terminal(slave, "run", "mine", "--chat", "hello")
    finally:
        os.close(slave)
    try:
        said = b""
        while b"tokens/s, first token" not in said:
            assert select.select([master], [], [], LIMIT_S)[0], said
            said += os.read(master, 65536)
        traces = specdeck.traces()
    finally:
        os.close(master)
    try:
        command.wait(LIMIT_S)
        traces.assert_nothing_left()
    finally:
        command.kill()
        command.wait()


def test_an_output_that_nobody_reads_any_more_ends_the_engine(specdeck: CommandLine) -> None:
    """As in `specdeck run mine | head -1`."""
    with specdeck.begin_in_pipe("run", "mine", "--chat", "hello") as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"> hello\n"
        traces = specdeck.traces()
        command.stdout.close()
        try:
            command.wait(LIMIT_S)
        finally:
            command.kill()
    traces.assert_nothing_left()
    assert "Traceback" not in (specdeck.folder / "err-pipe").read_text()


def test_a_failed_start_exits_with_3_and_the_cause(specdeck: CommandLine) -> None:
    log = Path(__file__).parents[1] / "data" / "engine_logs" / "weights_missing.log"
    done = specdeck("run", "mine", fake=f"--fail-log {log} --fail-exit 1")
    assert done.returncode == 3
    assert "Cannot find any model weights" in done.stderr
    assert "engine.log" in done.stderr
    assert not listening(specdeck.port)


def test_another_front_end_sees_and_stops_it(specdeck: CommandLine, running: Running) -> None:
    traces = specdeck.traces()
    (run,) = specdeck.status()
    assert run["state"] == "READY"
    assert run["owner_pid"] == running.process.pid
    assert {process["pid"] for process in run["processes"]} == set(session_members(traces.session))

    assert specdeck("watch", "--count", "2", "--json").stdout.count('"READY"') == 2
    stopped = specdeck("stop")

    assert stopped.returncode == 0, stopped.stderr
    assert running.end() == 0, running.err
    assert "Somebody else stopped the engine" in running.err
    traces.assert_nothing_left()
    assert specdeck.status() == []


def test_an_engine_outlives_a_killed_app_and_is_adopted(specdeck: CommandLine, running: Running) -> None:
    traces = specdeck.traces()
    running.signal(signal.SIGKILL)
    running.end()
    (run,) = specdeck.status()
    assert (run["owner_pid"], run["state"], run["leftover"]) == (None, "READY", False)

    again = specdeck("run", "mine", "--chat", "again", "--for", "0")

    assert again.returncode == 0, again.stderr
    assert "Took over" in again.stderr
    assert "> again" in again.stdout
    traces.assert_nothing_left()


def test_orphans_of_a_killed_app_and_server_are_listed_and_ended_only_after_a_yes(
    specdeck: CommandLine, running: Running
) -> None:
    traces = specdeck.traces()
    before = set(session_members(traces.session))
    running.signal(signal.SIGKILL)
    running.end()
    os.kill(traces.session, signal.SIGKILL)
    helpers.wait_for(lambda: traces.session not in session_members(traces.session))
    orphans = set(session_members(traces.session))
    assert orphans == before - {traces.session}
    assert orphans

    (run,) = specdeck.status()
    assert run["leftover"]
    assert {process["pid"] for process in run["processes"]} == orphans
    assert run["memory_bytes"] > 0

    refused = specdeck("stop")
    assert refused.returncode == 1
    assert "yes" in refused.stderr
    assert set(session_members(traces.session)) == orphans

    ended = specdeck("stop", "--yes")
    assert ended.returncode == 0, ended.stderr
    traces.assert_nothing_left()


def test_a_strange_engine_core_in_another_session_is_never_listed(specdeck: CommandLine, running: Running) -> None:
    rename = "import ctypes,sys; ctypes.CDLL(None).prctl(15, b'VLLM::EngineCore', 0, 0, 0); sys.stdin.read()"
    with subprocess.Popen(
        ["VLLM::EngineCore", "-c", rename], executable=sys.executable, stdin=subprocess.PIPE, start_new_session=True
    ) as stranger:
        helpers.wait_for(lambda: Path(f"/proc/{stranger.pid}/comm").read_text().strip() == "VLLM::EngineCor")
        (run,) = specdeck.status()
        assert stranger.pid not in {process["pid"] for process in run["processes"]}
        stopped = specdeck("stop", "--all", "--yes")
        assert stopped.returncode == 0
        assert running.end() == 0
        assert specdeck.status() == []
        assert stranger.poll() is None
        assert stranger.stdin is not None
        stranger.stdin.close()


def test_a_taken_port_is_found_before_the_start(specdeck: CommandLine, running: Running) -> None:
    traces = specdeck.traces()
    specdeck.write_profile("other")
    done = specdeck("run", "other")
    assert done.returncode == 1
    assert f"Port {specdeck.port} is taken" in done.stderr
    assert specdeck.traces() == traces
    running.signal(signal.SIGTERM)
    assert running.end() == 0


def test_missing_weights_are_named_with_their_size_and_need_a_yes(specdeck: CommandLine) -> None:
    specdeck.write_profile("big", model="someone/huge-model", download_bytes=141_000_000_000)
    os.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
    try:
        done = specdeck("run", "big")
    finally:
        del os.environ["HF_ENDPOINT"]
    assert done.returncode == 1
    assert "someone/huge-model" in done.stderr
    assert "about 141.0 GB" in done.stderr
    assert "--yes" in done.stderr
    assert not list((Path(os.environ["XDG_STATE_HOME"]) / "specdeck" / "runs").glob("*"))


def test_an_unknown_profile_is_wrong_usage(specdeck: CommandLine) -> None:
    done = specdeck("run", "nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_stop_with_nothing_to_stop_is_fine(specdeck: CommandLine) -> None:
    assert specdeck("stop").returncode == 0
    assert specdeck("stop", "no-such-run").returncode == 2


def test_a_profile_that_loads_code_needs_a_yes_of_its_own(specdeck: CommandLine) -> None:
    specdeck.write_profile("code", trust_remote_code=True)
    done = specdeck("run", "code", "--yes")
    assert done.returncode == 1
    assert "target.trust_remote_code" in done.stderr
    assert "--allow-code" in done.stderr
    assert not listening(specdeck.port)


def test_status_names_every_run_whole_in_a_narrow_terminal(specdeck: CommandLine, running: Running) -> None:
    run_id = running_run_id(specdeck)
    os.environ["COLUMNS"] = "20"
    assert run_id in specdeck("status").stdout
    stopped = specdeck("stop", "mine")
    assert stopped.returncode == 0, stopped.stderr
    assert running.end() == 0


def running_run_id(specdeck: CommandLine) -> str:
    """The one run's folder name, read from disk."""
    (folder,) = (Path(os.environ["XDG_STATE_HOME"]) / "specdeck" / "runs").iterdir()
    return folder.name


def test_an_empty_profile_name_is_no_wish_for_the_demo(specdeck: CommandLine) -> None:
    assert specdeck("run", "").returncode == 2


def test_a_port_of_an_engine_that_still_loads_is_not_given_twice(specdeck: CommandLine) -> None:
    first = specdeck.begin("run", "mine", "--chat", "x", fake="--start-delay 60")
    first.wait_for("Starting mine")
    specdeck.write_profile("other")
    done = specdeck("run", "other")
    assert done.returncode == 1
    assert "taken" in done.stderr or "which is STARTING" in done.stderr
    first.signal(signal.SIGTERM)
    assert first.end() == 0
