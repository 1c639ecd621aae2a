"""Phases read from real start-up logs."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.launch import startup_log
from backend.launch.startup_log import StartupTracker, read_line

LOG = Path(__file__).parents[2] / "data" / "engine_logs" / "weights_corrupt.log"

START = """\
(APIServer pid=1) INFO 11-30 13:51:59 [api_utils.py:286] non-default args: {'port': 8133}
(APIServer pid=1) INFO 11-30 13:51:59 [compilation.py:317] Enabled custom fusions: norm_quant, act_quant
(EngineCore pid=2) INFO 11-30 13:52:09 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: x
(Worker pid=3) INFO 11-30 13:52:19 [cpu_model_runner.py:1] Starting to load model /models/tiny-target...
\rLoading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  9.00it/s]\
"""


def test_phases_follow_the_log_and_keep_their_times() -> None:
    tracker = StartupTracker({startup_log.LOADING_WEIGHTS: 3.0})
    for second, line in enumerate(START.splitlines(keepends=True)[:4], start=10):
        tracker.feed(line, at_s=float(second))

    assert [(phase.name, phase.started_s, phase.ended_s) for phase in tracker.phases] == [
        (startup_log.LOADING_SERVER, 0.0, 10.0),
        (startup_log.READING_CONFIG, 10.0, 11.0),
        (startup_log.LOADING_CORE, 11.0, 12.0),
        (startup_log.LOADING_WORKERS, 12.0, 13.0),
        (startup_log.LOADING_WEIGHTS, 13.0, None),
    ]
    assert tracker.phases[-1].usual_s == 3.0
    assert tracker.phases[0].usual_s is None


def test_a_progress_bar_gives_a_fraction_before_its_line_ends() -> None:
    tracker = StartupTracker({})
    tracker.feed(START, at_s=1.0)
    assert tracker.phases[-1].fraction == 0.5
    assert tracker.phases[-1].detail == "1 of 2"


@given(st.lists(st.integers(0, len(START)), max_size=8))
def test_however_the_text_is_cut_the_phases_are_the_same(cuts: list[int]) -> None:
    whole, cut = StartupTracker({}), StartupTracker({})
    whole.feed(START, at_s=1.0)
    edges = [0, *sorted(cuts), len(START)]
    for begin, end in itertools.pairwise(edges):
        cut.feed(START[begin:end], at_s=1.0)
    assert [(phase.name, phase.fraction) for phase in cut.phases] == [
        (phase.name, phase.fraction) for phase in whole.phases
    ]


def test_late_lines_of_an_earlier_phase_change_nothing() -> None:
    tracker = StartupTracker({})
    tracker.feed("Starting to load model x...\n", at_s=1.0)
    tracker.feed("Using max model len 1024\nnon-default args: {}\nInitializing a V1 LLM engine\n", at_s=2.0)
    assert tracker.phases[-1].name == startup_log.LOADING_WEIGHTS


@pytest.mark.parametrize(
    ("line", "phase", "fraction", "detail"),
    [
        ("(Worker pid=1) INFO x Loading drafter model...", startup_log.LOADING_DRAFT, None, ""),
        (
            "Capturing CUDA graphs (decode, FULL):  50%|#####     | 3/6 [00:01<00:01]",
            "Capturing CUDA graphs",
            0.5,
            "3 of 6",
        ),
        ("INFO x GPU KV cache size: 524,288 tokens, Maximum", startup_log.SIZING_CACHE, None, "524,288 tokens"),
        ("INFO x Checkpoint size: 0.02 GiB. Available RAM: 21.63 GiB.", None, None, "0.02 GiB"),
        ("\x1b[32mINFO\x1b[0m Starting vLLM server on http://127.0.0.1:8100", startup_log.STARTING_SERVER, None, ""),
        ("INFO nothing to see", None, None, ""),
    ],
)
def test_lines_of_cpu_and_gpu_builds(line: str, phase: str | None, fraction: float | None, detail: str) -> None:
    read = read_line(line)
    assert (read.phase, read.fraction, read.detail) == (phase, fraction, detail)


def test_a_real_log_of_a_failed_start_reaches_the_weights() -> None:
    tracker = StartupTracker({})
    tracker.feed(LOG.read_text(encoding="utf-8", errors="replace"), at_s=5.0)
    names = [phase.name for phase in tracker.phases]
    assert names[-1] == startup_log.LOADING_WEIGHTS
    assert names == sorted(names, key=names.index)
    tracker.finish(at_s=9.0)
    assert tracker.phases[-1].ended_s == 9.0
