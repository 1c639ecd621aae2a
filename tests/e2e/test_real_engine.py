"""The one shared real engine: chat, counters, sockets, stalls, other front ends; nothing here ends it."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from backend.engine_api import EngineApi
from tests.backend.launch import runs as helpers
from tests.e2e.conftest import LIMIT_S, RealLine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

TOKENS = "vllm:generation_tokens_total"
FINISHED = "vllm:request_success_total"


async def test_tokens_of_a_chat_equal_the_growth_of_the_counter(tiny_engine: RealLine) -> None:
    await asyncio.to_thread(tiny_engine.settle)
    finished, before = tiny_engine.counter(FINISHED), tiny_engine.counter(TOKENS)
    api = EngineApi(f"http://127.0.0.1:{tiny_engine.port}")
    messages = [{"role": "user", "content": "Count with me."}]
    async with api.stream_chat(messages, model="tiny", max_tokens=48, extra={"ignore_eos": True}) as stream:
        chunks = [chunk async for chunk in stream]
    usage = stream.usage
    await api.aclose()

    helpers.wait_for(lambda: tiny_engine.counter(FINISHED) > finished, limit_s=LIMIT_S)
    grown = tiny_engine.counter(TOKENS) - before
    assert tiny_engine.counter(FINISHED) - finished == 1, "the chat was not alone: these figures show nothing"
    assert grown == 48
    assert usage.completion_tokens == 48
    assert sum(chunk.n_tokens for chunk in chunks) == 48
    assert usage.finish_reason == "length"
    assert len("".join(chunk.text for chunk in chunks)) > 0


async def test_stopping_a_chat_ends_it_in_the_engine(tiny_engine: RealLine) -> None:
    api = EngineApi(f"http://127.0.0.1:{tiny_engine.port}")
    messages = [{"role": "user", "content": "Never end."}]
    async with api.stream_chat(messages, model="tiny", max_tokens=3000, extra={"ignore_eos": True}) as stream:
        async for _ in stream:
            break
    await api.aclose()
    helpers.wait_for(lambda: tiny_engine.counter("vllm:num_requests_running") == 0, limit_s=LIMIT_S)


def test_watch_shows_what_the_counters_did(tiny_engine: RealLine) -> None:
    names = [TOKENS, "vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"]
    tiny_engine.settle()
    with subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "backend.cli", "watch", "--json", "--interval", "0.5"),
            *("--url", f"http://127.0.0.1:{tiny_engine.port}"),
        ],
        env=tiny_engine.env,
        stdout=subprocess.PIPE,
        text=True,
    ) as watch:
        assert watch.stdout is not None
        lines = [json.loads(watch.stdout.readline())]
        before = [tiny_engine.counter(name) for name in names]
        tiny_engine.ask(prompt="abc", max_tokens=150)
        helpers.wait_for(lambda: tiny_engine.counter("vllm:num_requests_running") == 0, limit_s=LIMIT_S)
        while len(lines) < 3 or lines[-1]["generation_tokens_per_s"] != 0 or sum(_tokens(lines)) < 149.5:
            lines.append(json.loads(watch.stdout.readline()))
        grown = [tiny_engine.counter(name) - value for name, value in zip(names, before, strict=True)]
        watch.send_signal(signal.SIGINT)
        assert watch.wait(LIMIT_S) == 0

    assert lines[0]["generation_tokens_per_s"] is None
    assert sum(_tokens(lines)) == pytest.approx(grown[0], abs=1e-6)
    assert grown[0] == 150
    busy = [line for line in lines if line["acceptance_rate"] is not None]
    assert busy
    for line in busy:
        assert line["mean_acceptance_length"] == pytest.approx(1 + sum(line["acceptance_per_position"]))
        assert line["mean_acceptance_length"] == pytest.approx(1 + 4 * line["acceptance_rate"])
        assert len(line["acceptance_per_position"]) == 4
    assert 0 < grown[1] < grown[2]
    idle = lines[-1]
    assert idle["acceptance_rate"] is None
    assert idle["ttft_p50_s"] is None


def _tokens(lines: list[dict[str, float | None]]) -> list[float]:
    return [
        (line["generation_tokens_per_s"] or 0.0) * (line["interval_s"] or 0.0)
        for line in lines
        if line["generation_tokens_per_s"] is not None
    ]


def test_another_front_end_sees_the_same_processes(tiny_engine: RealLine) -> None:
    (run,) = json.loads(tiny_engine.command("status", "--json").stdout)
    members = helpers.session_members(tiny_engine.session())
    assert tiny_engine.process is not None
    assert run["owner_pid"] == tiny_engine.process.pid
    assert {process["pid"] for process in run["processes"]} == set(members)
    assert {"VLLM::EngineCore", "VLLM::Worker"} <= {process["name"] for process in run["processes"]}
    assert run["memory_bytes"] > 500_000_000
    # Someone who starts the same profile again is told, and nothing happens to the engine.
    again = tiny_engine.command("run", "tiny")
    assert again.returncode == 1
    assert f"Port {tiny_engine.port} is taken" in again.stderr


def test_every_socket_of_the_session_is_on_loopback(tiny_engine: RealLine) -> None:
    assert foreign_sockets(tiny_engine.session()) == []


def test_no_secret_or_url_of_ours_is_in_the_command_line(tiny_engine: RealLine) -> None:
    record = tiny_engine.record()
    assert record["argv"][0].endswith("python")
    environ = Path(f"/proc/{tiny_engine.pid('VLLM::EngineCore')}/environ").read_bytes().split(b"\0")
    assert f"SPECDECK_RUN_ID={record['run_id']}".encode() in environ, "the second proof of ownership"


@pytest.mark.parametrize("victim", ["VLLM::EngineCore", "VLLM::Worker"])
def test_a_frozen_process_makes_it_unresponsive_until_it_moves(tiny_engine: RealLine, victim: str) -> None:
    pid = tiny_engine.pid(victim)
    before = tiny_engine.said().count("moves again")
    answers: list[object] = []
    os.kill(pid, signal.SIGSTOP)
    try:
        request = threading.Thread(target=lambda: answers.append(tiny_engine.ask(prompt="x", max_tokens=4)))
        request.start()
        helpers.wait_for(lambda: tiny_engine.record()["state"] == "UNRESPONSIVE", limit_s=LIMIT_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    helpers.wait_for(lambda: tiny_engine.record()["state"] == "READY", limit_s=LIMIT_S)
    request.join(LIMIT_S)
    assert len(answers) == 1
    helpers.wait_for(lambda: tiny_engine.said().count("moves again") == before + 1, limit_s=LIMIT_S)


def foreign_sockets(session: int) -> list[str]:
    """Sockets of a session that are bound to or connected with anything but loopback, from /proc."""
    inodes = set()
    for pid in helpers.session_members(session):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    foreign = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            address = fields[1].split(":")[0]
            loopback = address.endswith("7F") if len(address) == 8 else address.endswith(("01000000", "0100007F"))
            if fields[9] in inodes and not loopback:
                foreign.append(f"{table} {fields[1]} {fields[3]}")
    return foreign
