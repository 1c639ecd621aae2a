"""`make soak`: many starts and stops of a real engine, a third with a SIGKILL of a random process of it."""

import contextlib
import os
import random
import signal
import subprocess
import time

import pytest

from tests.backend.launch import runs as helpers
from tests.e2e.conftest import LIMIT_S, RealLine

LEFT_LIMIT_S = 10.0
HARMLESS_S = 45.0


@pytest.mark.engine
@pytest.mark.full
@pytest.mark.timeout(0)
def test_soak(line: RealLine, request: pytest.FixtureRequest) -> None:
    """As many starts as --soak-starts says."""
    starts = request.config.getoption("--soak-starts")
    seed = request.config.getoption("--soak-seed")
    dice = random.Random(seed)
    for number in range(1, starts + 1):
        began = time.monotonic()
        line.start()
        ready_s = time.monotonic() - began
        session, memory = line.session(), line.shared_memory()
        assert line.process is not None
        if number % 3 == 0:
            victim = dice.choice(sorted(helpers.session_members(session)))
            what = f"SIGKILL of {helpers.session_members(session)[victim]}"
            os.kill(victim, signal.SIGKILL)
        else:
            what = "stop"
            line.process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            line.process.wait(HARMLESS_S)
        if line.process.poll() is None:  # some processes (Python's resource tracker) are not missed
            what += ", then stop"
            line.process.send_signal(signal.SIGTERM)
            asked = time.monotonic()
        code = line.process.wait(LIMIT_S)
        ended_s = time.monotonic() - asked
        assert code == (0 if what.endswith("stop") else 3), line.said()
        while helpers.session_members(session) and time.monotonic() - asked < ended_s + LEFT_LIMIT_S:
            time.sleep(0.05)
        line.nothing_left(session, memory)
        print(
            f"{number}/{starts}: ready after {ready_s:.1f} s; {what}: exit {code} after {ended_s:.1f} s; nothing left"
        )
        line.out.unlink()
        line.err.unlink()
