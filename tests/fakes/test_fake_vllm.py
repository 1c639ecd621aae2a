"""The fake vLLM server behaves as the measured one does: deaths, signals, frozen children, failed starts."""

import http.client
import json
import os
import signal
from pathlib import Path

from tests.fakes.fixtures import FakeVllm, StartFake, fake_vllm_fixture, wait_for  # noqa: F401


def _open_stream(fake: FakeVllm) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=30)
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    response = connection.getresponse()
    assert b"role" in response.readline()
    return connection, response


def _counter(fake: FakeVllm, name: str) -> float:
    lines = fake.request("GET", "/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


def test_processes_are_named_and_related_as_vllms_are(fake_vllm: StartFake) -> None:
    fake = fake_vllm(env={"MARK": "here", "SPT_NOENV": "1"})
    wiped = fake_vllm(env={"MARK": "here"})
    pids = fake.pids()
    assert fake.members() == sorted(pids.values())
    assert pids["api"] == fake.process.pid
    core = Path(f"/proc/{pids['core']}")
    assert (core / "cmdline").read_bytes().rstrip(b"\0") == b"VLLM::EngineCore"
    assert (core / "comm").read_text() == "VLLM::EngineCor\n"
    assert b"MARK=here" in (core / "environ").read_bytes()
    assert b"MARK=here" not in Path(f"/proc/{wiped.pids()['worker']}/environ").read_bytes()
    parent = Path(f"/proc/{pids['worker']}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) == pids["core"]
    shm = fake.state()["shm"]
    assert shm in (core / "maps").read_text()
    assert shm not in Path(f"/proc/{pids['api']}/maps").read_text()


def test_terminate_when_idle_leaves_nothing(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    state = fake.state()
    assert Path(state["shm"]).exists()
    assert Path(state["dist"]).exists()
    fake.process.terminate()
    assert fake.process.wait(30) == 0
    assert fake.members() == []
    assert not Path(state["shm"]).exists()
    assert not Path(state["dist"]).exists()


def test_terminate_with_a_stream_may_never_end(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--hang-on-term")
    connection, response = _open_stream(fake)
    os.killpg(fake.process.pid, signal.SIGTERM)
    wait_for(lambda: fake.members() == [fake.process.pid])
    fake.wait_log("Waiting for connections to close")
    fake.process.terminate()
    fake.process.send_signal(signal.SIGINT)
    response.close()
    connection.close()
    assert fake.process.poll() is None
    fake.process.kill()
    assert fake.process.wait(30) == -signal.SIGKILL


def test_terminate_with_a_stream_cuts_it_otherwise(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    connection, response = _open_stream(fake)
    fake.process.terminate()
    assert fake.process.wait(30) == 0
    try:
        assert b"[DONE]" not in response.read()
    except (http.client.IncompleteRead, ConnectionResetError):
        pass
    finally:
        response.close()
        connection.close()


def test_death_of_an_inner_process_ends_in_503_an_error_event_and_exit_0(fake_vllm: StartFake) -> None:
    for victim in ("core", "worker"):
        fake = fake_vllm("--death-delay", "0.5")
        connection, response = _open_stream(fake)
        os.kill(fake.pids()[victim], signal.SIGKILL)
        wait_for(lambda fake=fake: fake.request("GET", "/health")[0] == 503)
        rest = response.read().decode()
        connection.close()
        assert '"error"' in rest
        assert rest.rstrip().endswith("data: [DONE]")
        assert fake.process.wait(30) == 0
        wait_for(lambda fake=fake: fake.members() == [])


def test_death_of_the_api_server_leaves_the_rest(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    state = fake.state()
    fake.process.kill()
    fake.process.wait(30)
    assert fake.members() == sorted([state["pids"]["core"], state["pids"]["worker"]])
    assert Path(state["shm"]).exists()
    again = fake_vllm("--port", str(fake.port))  # the port is free again
    assert again.port == fake.port
    os.kill(state["pids"]["core"], signal.SIGTERM)
    wait_for(lambda: fake.members() == [])
    assert not Path(state["shm"]).exists()


def test_a_stopped_worker_freezes_the_counters_but_not_health(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    connection, response = _open_stream(fake)
    worker = fake.pids()["worker"]
    os.kill(worker, signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    before = _counter(fake, "vllm:generation_tokens_total")
    assert fake.request("GET", "/health")[0] == 200
    assert _counter(fake, "vllm:generation_tokens_total") <= before + 5  # the step that was under way
    os.kill(worker, signal.SIGCONT)
    wait_for(lambda: _counter(fake, "vllm:generation_tokens_total") > before + 5)
    response.close()
    connection.close()
    wait_for(lambda: fake.state()["aborted"] == 1 and _counter(fake, "vllm:num_requests_running") == 0)


def test_failed_start_prints_its_log_and_exits(fake_vllm: StartFake, tmp_path: Path) -> None:
    log = tmp_path / "broken.log"
    log.write_text("ValueError: no such thing\n")
    fake = fake_vllm("--fail-log", str(log), "--fail-exit", "2", wait=False)
    assert fake.process.wait(30) == 2
    assert fake.log_text().endswith("ValueError: no such thing\n")
    assert fake.members() == []


def test_taken_port_is_an_error(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    second = fake_vllm("--port", str(fake.port), wait=False)
    assert second.process.wait(30) == 1
    assert "OSError: [Errno 98] Address already in use" in second.log_text()


def test_start_up_log_has_progress_bars_with_carriage_returns(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    text = fake.log.read_bytes().decode()
    assert "\rLoading safetensors checkpoint shards:  50% Completed | 1/2" in text
    assert f"(EngineCore pid={fake.pids()['core']}) INFO" in text


def test_counters_add_up(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--engines", "2", "--accept", "2,0,1,4")
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "ignore_eos": True}
    for _ in range(2):
        status, answer = fake.request("POST", "/v1/chat/completions", body)
        assert status == 200
        assert json.loads(answer)["usage"]["completion_tokens"] == 12
    # By hand: 1, then 2+1, 0+1, 1+1, 4+1 = 12 tokens in 5 steps, 4 of them with 4 drafts each; twice.
    assert _counter(fake, "vllm:generation_tokens_total") == 24
    assert _counter(fake, "vllm:spec_decode_num_drafts_total") == 8
    assert _counter(fake, "vllm:spec_decode_num_draft_tokens_total") == 32
    assert _counter(fake, "vllm:spec_decode_num_accepted_tokens_total") == 14
    assert _counter(fake, "vllm:iteration_tokens_total_count") == 10
    assert _counter(fake, "vllm:time_to_first_token_seconds_count") == 2
    page = fake.request("GET", "/metrics")[1]
    for position, accepted in enumerate([3, 2, 1, 1]):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        for engine in (0, 1):
            labels = f'engine="{engine}",model_name="fake",position="{position}"'
            assert f"{name}{{{labels}}} {float(accepted)}" in page
