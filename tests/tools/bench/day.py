"""What a day of history costs: of an engine, the machine and eight GPUs."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
from PySide6.QtTest import QTest

from backend.desk.types import Reading
from backend.events import HostSample, RunState, Sample, Speculation
from backend.hardware import GPU_FIGURES, GpuInfo, GpuReading, GpuSnapshot
from tests.tools.bench.figure import Figure
from tests.tools.bench.window import open_beside_engine
from tests.tools.stage import Stage

_DAY_S = 86_400
_N_GPUS = 8


def figures(home: Path) -> Iterator[Figure]:
    """Fill the history of a window beside a running engine, and draw all charts."""
    stage = open_beside_engine(home)
    stage.live(2)
    yield from _history_cost(stage)
    stage.close(leave_running=True)


def _history_cost(stage: Stage) -> Iterator[Figure]:
    """What a refresh of all charts costs with five minutes of history, and with a day of it."""
    process = psutil.Process()
    _fill(stage, 300)
    short = _refresh(stage, 300)
    _fill(stage, _DAY_S)
    day = _refresh(stage, 300)
    day_span = _refresh(stage, _DAY_S)
    grown = process.memory_info().rss
    yield Figure("chart refresh, 5 min shown", f"{short * 1000:.1f} ms", "", None)
    yield Figure(
        "chart refresh with 24 h of history against 5 min of it", f"{day / short:.2f}x", "1.2x", day / short <= 1.2
    )
    yield Figure("chart refresh, 24 h shown against 5 min", f"{day_span / short:.2f}x", "1.2x", day_span / short <= 1.2)
    yield Figure("memory after a simulated day", f"{grown / 1e6:.0f} MB", "300 MB", grown <= 300e6)
    _fill(stage, _DAY_S)
    again = process.memory_info().rss
    yield Figure("memory after a second day", f"{(again - grown) / 1e6:+.1f} MB", "flat", again - grown < 5e6)


def _fill(stage: Stage, seconds: int) -> None:
    """Put readings of the past into the history, as if the window had been open all the time."""
    now = time.time()
    sample = Sample(
        t=0.0,
        interval_s=1.0,
        state=RunState.READY,
        generation_tokens_per_s=100.0,
        prompt_tokens_per_s=10.0,
        acceptance_rate=0.7,
        mean_acceptance_length=3.8,
        acceptance_per_position=(0.9, 0.8, 0.6, 0.5),
        drafts=30.0,
        draft_tokens=120.0,
        ttft_count=5.0,
        ttft_p50_s=0.1,
        ttft_p95_s=0.2,
        itl_p50_s=0.01,
        itl_p95_s=0.02,
        kv_cache_usage_ratio=0.2,
        requests_running=2.0,
        requests_waiting=0.0,
        steps_per_s=30.0,
        estimated_bytes_per_s=1e12,
        estimated_flops_per_s=1e13,
        implied_bytes_per_s=1e12,
        joules_per_token=3.0,
        speculation=Speculation.COUNTING,
    )
    for second in range(seconds):
        t = now - seconds + second
        wave = 1 + 0.2 * ((second * 7919) % 101) / 101
        stage.bridge.history.append(
            replace(sample, t=t, generation_tokens_per_s=100 * wave, acceptance_rate=0.7 * wave)
        )
        stage.bridge.history.append_host(HostSample(t, 0.5 * wave, 2**33, 2**34))
        stage.bridge.history.append_gpus(_snapshot(t, wave))


_GPUS = tuple(GpuInfo(f"GPU-{number}", "H100", number) for number in range(_N_GPUS))


def _snapshot(t: float, wave: float) -> GpuSnapshot:
    """Eight GPUs with every figure there is."""
    return GpuSnapshot(t, gpus=_GPUS, readings=_readings(wave))


@lru_cache
def _readings(wave: float) -> tuple[GpuReading, ...]:
    values: dict[str, Any] = dict.fromkeys(GPU_FIGURES, 1e9 * wave)
    return tuple(GpuReading(gpu.uuid, 0.0, **values) for gpu in _GPUS)


def _refresh(stage: Stage, span_s: int) -> float:
    """Median seconds of CPU for drawing all charts once."""
    pane = stage.window.run_pane
    pane.bar.span_chosen.emit(span_s)
    QTest.qWait(800)
    took = []
    for _ in range(15):
        now = time.time()
        reading = Reading(HostSample(now, 0.5, 2**33, 2**34), None, _snapshot(now, 1.0))
        before = time.thread_time()
        pane._on_sampled(reading)
        QTest.qWait(250)
        took.append(time.thread_time() - before)
    return statistics.median(took)
