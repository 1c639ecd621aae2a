"""The whole main job as a newcomer does it: `specdeck run` with the demo models on the real engine."""

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend.launch import runs as helpers
from tests.e2e.conftest import LIMIT_S, RealLine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

DEFAULT_PORT = 8000


@pytest.fixture
def demo_line(tmp_path: Path, engine_python: Path, no_leaks: None) -> Iterator[RealLine]:
    own = RealLine(tmp_path / "demo", tmp_path)
    yield own
    own.close()


def copy_demo(line: RealLine, name: str) -> None:
    """Make a profile of one's own from the demo, at a free port, as the person is told to."""
    copied = line.command("profiles", "copy", "demo", name)
    assert copied.returncode == 0, copied.stderr
    file = line.home / "config" / "specdeck" / "profiles" / f"{name}.toml"
    text = file.read_text()
    assert text.count("[server]\n") == 1
    file.write_text(text.replace("[server]\n", f"[server]\nport = {line.port}\n"))


def run_and_check(line: RealLine, *profile: str) -> int:
    """Run the main job from a folder with packages of our names; returns the engine's port."""
    for name in ("backend", "gui", "profiles"):
        (line.home / name).mkdir()
        (line.home / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    process = line.begin("run", *profile, "--yes-cpu", "--for", "3")
    line.wait_for("Ready after")
    line.port = int(line.record()["port"])
    session, memory = line.session(), line.shared_memory()
    assert memory, "the engine holds shared memory, else the check below shows nothing"
    assert helpers.listening(line.port)

    assert process.wait(LIMIT_S) == 0, line.said()

    out, err = line.out.read_text(), line.err.read_text()
    question, _, answer = out.partition("\n\n")
    assert question.startswith("> ")
    assert len(answer.split()) > 10
    assert re.search(r"\d+ tokens, [\d.]+ tokens/s", out)
    assert re.search(r"Draft acceptance \d+%, mean length [\d.]+", out)
    assert out.count("READY") >= 2
    # What was measured is said of the preset that ships, not of a copy.
    assert bool(re.search(r"[\d.]+x the speed without speculation", err)) == (not profile)
    assert "Loading weights" in err
    line.nothing_left(session, memory)
    return line.port


def test_run_alone_shows_the_demo(demo_line: RealLine) -> None:
    """1 start, at the port of the shipped demos; builds the demo models where they are missing."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError as error:
            pytest.fail(f"port {DEFAULT_PORT}, which the shipped demos use, is not free ({error}): free it first")
    assert run_and_check(demo_line) == DEFAULT_PORT


def test_a_copy_of_the_demo_runs_at_its_own_port(demo_line: RealLine, demo_models: None) -> None:
    """1 start, of the demo with a draft model."""
    port = demo_line.port
    copy_demo(demo_line, "mine")
    assert run_and_check(demo_line, "mine") == port


@pytest.mark.full
def test_a_long_prefill_is_no_stall(demo_line: RealLine, demo_models: None) -> None:
    """1 start: a step that reads long prompts takes many times `stall_s`; no counter and no log line moves in it."""
    (demo_line.home / "config" / "specdeck" / "settings.toml").write_text("stall_s = 1.0\nprobe_timeout_s = 60.0\n")
    copy_demo(demo_line, "mine")
    process = demo_line.begin("run", "mine", "--chat", "hello")
    demo_line.wait_for("tokens/s, first token")
    session, memory = demo_line.session(), demo_line.shared_memory()

    prompts = [[1000 + (i * 7 + number) % 20_000 for i in range(450)] for number in range(4)]
    demo_line.ask(model="smollm2-135m-instruct", prompt=prompts, max_tokens=2)

    assert "does not respond" not in demo_line.said()
    assert demo_line.record()["state"] == "READY"
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 0, demo_line.said()
    demo_line.nothing_left(session, memory)


def test_the_second_run_asks_nobody_outside(demo_line: RealLine, demo_models: None) -> None:
    """No start: with every index and hub out of reach, all that `run` needs is there (it stops at the port)."""
    demo_line.env |= {"PIP_INDEX_URL": "http://127.0.0.1:1", "HF_ENDPOINT": "http://127.0.0.1:1", "PIP_NO_INDEX": "1"}
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        demo_line.port = holder.getsockname()[1]
        copy_demo(demo_line, "mine")
        done = demo_line.command("run", "mine")
    assert done.returncode == 1
    assert f"Port {demo_line.port} is taken" in done.stderr
