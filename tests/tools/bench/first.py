"""How soon the window shows something, from the start of its process."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from backend.events import RunState
from tests.tools.bench.figure import Figure
from tests.tools.stage import Stage

_WATCH_FIRST = """
import sys, time
born = float(sys.argv[1])
from gui import app, main_window
original = main_window.MainWindow._on_sampled
def watch(self, reading):
    original(self, reading)
    engine = reading.engine
    known = {"gauge": engine and engine.requests_running is not None, "rate": engine and engine.interval_s}
    for name in known:
        if known[name] and name not in seen:
            seen[name] = time.time() - born
            print(name, seen[name], flush=True)
    if len(seen) == 2:
        self.close_now()
seen = {}
main_window.MainWindow._on_sampled = watch
sys.exit(app.main([]))
"""


def figures(home: Path) -> Iterator[Figure]:
    """Start the window beside an engine that runs, several times."""
    stage = Stage(home)
    stage.open()
    stage.start("mine")
    stage.wait_for(RunState.READY)
    stage.close(leave_running=True)
    gauges, rates = [], []
    for _ in range(5):
        said = subprocess.run(
            # The kernel's own start time of a process is only exact to a second in wall-clock terms.
            [sys.executable, "-P", "-c", _WATCH_FIRST, str(time.time())],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.split()
        found = dict(zip(said[::2], map(float, said[1::2]), strict=True))
        gauges.append(found["gauge"])
        rates.append(found["rate"])
    for name, values, limit in (("gauge", gauges, 1.5), ("rate", rates, 2.5)):
        middle = statistics.median(values)
        yield Figure(
            f"first {name} after the start of the process, engine up (median of 5)",
            f"{middle:.2f} s",
            f"{limit} s",
            middle <= limit,
        )
