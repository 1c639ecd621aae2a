"""The whole main job as a newcomer does it: `specdeck run` with the demo models on the real engine."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend.launch import runs as helpers
from tests.e2e.conftest import LIMIT_S, RealLine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture
def demo_line(tmp_path: Path, engine_python: Path, no_leaks: None) -> Iterator[RealLine]:
    own = RealLine(tmp_path / "demo", tmp_path)
    yield own
    own.close()


@pytest.mark.parametrize("profile", ["", "demo"])
def test_the_demo_runs_from_a_folder_with_a_backend_of_its_own(demo_line: RealLine, profile: str) -> None:
    """1 start each; builds the demo models where they are missing."""
    for name in ("backend", "gui", "profiles"):
        (demo_line.home / name).mkdir()
        (demo_line.home / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    process = demo_line.begin("run", *profile.split(), "--yes-cpu", "--for", "3")
    demo_line.wait_for("Ready after")
    port, session = demo_line.record()["port"], demo_line.session()
    memory = demo_line.shared_memory()
    assert helpers.listening(port)
    demo_line.port = port

    assert process.wait(LIMIT_S) == 0, demo_line.said()

    out, err = demo_line.out.read_text(), demo_line.err.read_text()
    question, _, answer = out.partition("\n\n")
    assert question.startswith("> ")
    assert len(answer.split()) > 10
    assert re.search(r"\d+ tokens, [\d.]+ tokens/s", out)
    assert re.search(r"Draft acceptance \d+%, mean length [\d.]+", out)
    assert out.count("READY") >= 2
    assert re.search(r"[\d.]+x the speed without speculation", err)
    assert "Loading weights" in err
    demo_line.nothing_left(session, memory)


def test_the_second_run_asks_nobody_outside(demo_line: RealLine) -> None:
    """No start: with every index and hub out of reach, all that `run` needs is there (it stops at the port)."""
    demo_line.env |= {"PIP_INDEX_URL": "http://127.0.0.1:1", "HF_ENDPOINT": "http://127.0.0.1:1", "PIP_NO_INDEX": "1"}
    holder = (
        "import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1);"
        "s.bind(('127.0.0.1', 8000)); s.listen(); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holding:
        assert holding.stdout is not None
        holding.stdout.readline()
        done = demo_line.command("run")
        assert done.returncode == 1
        assert "Port 8000 is taken" in done.stderr
        holding.kill()
