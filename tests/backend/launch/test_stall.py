"""When a silent engine counts as unresponsive."""

import itertools
from dataclasses import replace

import pytest

from backend.launch.stall import Signs, StallDetector, Verdict

STALL_S = 30.0
QUIET = Signs(
    now_s=0.0, log_news=100, counters=("a", 1), cpu_s=5.0, processes=2, request_outstanding=False, suspicious=False
)


def _run(detector: StallDetector, signs: Signs, *, from_s: float, to_s: float) -> Verdict:
    verdict = Verdict.FINE
    second = from_s
    while second <= to_s:
        verdict = detector.look(replace(signs, now_s=second))
        second += 1.0
    return verdict


def _settled() -> StallDetector:
    detector = StallDetector(stall_s=STALL_S, now_s=0.0)
    detector.look(QUIET)
    return detector


def test_an_idle_engine_that_nobody_waits_for_is_fine() -> None:
    assert _run(_settled(), QUIET, from_s=1, to_s=3600) is Verdict.FINE


def test_an_outstanding_request_makes_it_stalled_only_after_the_whole_time() -> None:
    waiting = replace(QUIET, request_outstanding=True)
    assert _run(_settled(), waiting, from_s=1, to_s=29) is Verdict.FINE
    assert _run(_settled(), waiting, from_s=1, to_s=30) is Verdict.STALLED


@pytest.mark.parametrize(
    "moving",
    [
        {"log_news": 101},
        {"counters": ("a", 2)},
        {"cpu_s": 6.0},
        {"processes": 3},
    ],
)
def test_any_movement_starts_the_clock_anew(moving: dict[str, object]) -> None:
    waiting = replace(QUIET, request_outstanding=True)
    detector = _settled()
    assert _run(detector, waiting, from_s=1, to_s=20) is Verdict.FINE
    moved = replace(waiting, **moving)  # type: ignore[arg-type]
    assert _run(detector, moved, from_s=21, to_s=50) is Verdict.FINE
    assert _run(detector, moved, from_s=51, to_s=53) is Verdict.STALLED


def test_a_long_prefill_burns_cpu_and_is_no_stall() -> None:
    detector = _settled()
    for second in range(1, 600):
        busy = replace(QUIET, now_s=float(second), cpu_s=5.0 + second, request_outstanding=True)
        assert detector.look(busy) is Verdict.FINE


def test_suspicion_asks_once_and_a_failed_probe_is_a_stall() -> None:
    suspicious = replace(QUIET, suspicious=True)
    detector = _settled()
    assert _run(detector, suspicious, from_s=1, to_s=29) is Verdict.FINE
    assert _run(detector, suspicious, from_s=30, to_s=30) is Verdict.PROBE
    detector.probe_answered(answered=False, now_s=40.0)
    assert _run(detector, suspicious, from_s=41, to_s=41) is Verdict.STALLED
    # it moves again: fine at once
    assert _run(detector, replace(suspicious, counters=("a", 2)), from_s=42, to_s=42) is Verdict.FINE


def test_probes_of_an_answering_engine_become_rare() -> None:
    detector = _settled()
    asked: list[float] = []
    tokens = 1
    for second in range(1, 2000):
        signs = replace(QUIET, now_s=float(second), suspicious=True, counters=("a", tokens))
        if detector.look(signs) is Verdict.PROBE:
            asked.append(second)
            tokens += 1  # the probe's own token moves the counters
            detector.probe_answered(answered=True, now_s=float(second))
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert asked[0] == 30
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 480
    assert len(asked) < 10


def test_a_gap_in_the_counters_is_no_movement() -> None:
    waiting = replace(QUIET, request_outstanding=True)
    detector = _settled()
    _run(detector, waiting, from_s=1, to_s=10)
    _run(detector, replace(waiting, counters=None), from_s=11, to_s=20)
    assert _run(detector, waiting, from_s=21, to_s=31) is Verdict.STALLED


def test_a_stalled_engine_is_asked_again_and_returns_by_an_answer_alone() -> None:
    suspicious = replace(QUIET, suspicious=True)
    detector = _settled()
    assert _run(detector, suspicious, from_s=1, to_s=30) is Verdict.PROBE
    detector.probe_answered(answered=False, now_s=40.0)
    assert _run(detector, suspicious, from_s=41, to_s=69) is Verdict.STALLED
    assert _run(detector, suspicious, from_s=70, to_s=70) is Verdict.PROBE
    detector.probe_answered(answered=True, now_s=71.0)
    assert _run(detector, suspicious, from_s=72, to_s=72) is Verdict.FINE


def test_a_client_that_gives_up_does_not_mend_a_stall() -> None:
    waiting = replace(QUIET, request_outstanding=True)
    detector = _settled()
    assert _run(detector, waiting, from_s=1, to_s=31) is Verdict.STALLED
    assert _run(detector, QUIET, from_s=32, to_s=32) is Verdict.PROBE
    detector.probe_answered(answered=False, now_s=40.0)
    assert _run(detector, QUIET, from_s=41, to_s=60) is Verdict.STALLED
