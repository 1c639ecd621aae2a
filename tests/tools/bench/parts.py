"""What the sampler of GPUs and the recorder cost by themselves, with eight GPUs."""

import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from backend import settings
from backend.hardware import GPU_FIGURES, gpu_series
from backend.telemetry.gpu_messages import Decoder, SamplerOptions
from backend.telemetry.recorder import Recorder
from backend.telemetry.run_writer import RunFacts
from tests.tools.bench.figure import Figure

_N_GPUS = 8
_N_READINGS = 3600


def figures(home: Path, seconds: float) -> Iterator[Figure]:
    """Measure both."""
    for activity in (False, True):
        yield from _sampler(seconds, activity=activity)
    yield from _recorder(home)


def _sampler(seconds: float, *, activity: bool) -> Iterator[Figure]:
    argv = [sys.executable, "-P", "-m", "backend.telemetry.gpu_sampler"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(SamplerOptions(interval_s=0.5, activity=activity).line())
        child.stdin.flush()
        decoder, costs = Decoder(), []
        for _ in range(3):
            decoder.snapshot(child.stdout.readline())
        process, began = psutil.Process(child.pid), time.monotonic()
        before = process.cpu_times()
        while time.monotonic() < began + seconds:
            snapshot = decoder.snapshot(child.stdout.readline())
            assert len(snapshot.gpus) == _N_GPUS
            costs.append(snapshot.cost_s or 0.0)
        after, took = process.cpu_times(), time.monotonic() - began
        child.stdin.close()
    used = (after.user + after.system - before.user - before.system) / took
    what = "with activity" if activity else "without activity"
    tick = statistics.median(costs)
    yield Figure(f"sampler, 8 GPUs at 0.5 s, {what}: CPU of a core", f"{used:.2%}", "", None)
    yield Figure(
        f"sampler, 8 GPUs, {what}: a tick (20 % of its interval)", f"{tick * 1000:.1f} ms", "100 ms", tick <= 0.1
    )


def _recorder(home: Path) -> Iterator[Figure]:
    """An hour of readings with every figure of eight GPUs, each as the desk hands it over."""
    file = home / "bench-history.sqlite"
    problems: list[str] = []
    recorder = Recorder(
        file, settings=settings.Settings, fate=lambda _: None, on_problem=problems.append, on_notice=problems.append
    )
    engine = {f"engine_{number}": float(number) for number in range(24)}
    values = engine | {gpu_series(f"GPU-{number}", figure): 1e9 for number in range(_N_GPUS) for figure in GPU_FIGURES}
    recorder.start()
    recorder.begin(RunFacts("bench", "bench", "Bench", "vllm 0.32.0", time.time(), None))
    began, handed = time.process_time(), 0.0
    for second in range(_N_READINGS):
        before = time.thread_time()
        recorder.reading("bench", 1e9 + second, values, interval_s=1.0)
        handed += time.thread_time() - before
        if second % 60 == 59 and not recorder.flush(limit_s=60):
            raise TimeoutError("the recorder does not keep up")
    used = time.process_time() - began
    recorder.close()
    with sqlite3.connect(file) as connection:
        (pages,), (size,) = (
            connection.execute("pragma page_count").fetchone(),
            connection.execute("pragma page_size").fetchone(),
        )
    assert not problems, problems
    each = used / _N_READINGS
    yield Figure("recorder, 8 GPUs: CPU for each reading, both threads", f"{each * 1000:.2f} ms", "", None)
    yield Figure("recorder, 8 GPUs: of that on the backend's loop", f"{handed / _N_READINGS * 1000:.3f} ms", "", None)
    yield Figure("recorder, 8 GPUs: disk for a day at 1 Hz", f"{pages * size * 24 / 1e6:.0f} MB", "", None)
