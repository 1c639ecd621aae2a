"""The verdict on what holds an engine back: each rule, and the figures that it names."""

from dataclasses import replace
from typing import Any

import pytest

from backend.events import Bound
from backend.planning.bound import Load, judge

H100 = Load(steps_per_s=52.0, bytes_per_s=2.0e12, source="measured", peak_bytes_per_s=3.35e12)


@pytest.mark.parametrize(
    ("changes", "bound", "said"),
    [
        ({}, Bound.BANDWIDTH, ["60 %", "measured"]),
        ({"tokens_per_step": 4.0, "busy_ratio": 0.3}, Bound.BANDWIDTH, ["60 %"]),  # what is read counts
        ({"bytes_per_s": 0.9e12, "compute_ratio": 0.7}, Bound.COMPUTE, ["70 %", "27 %"]),
        ({"bytes_per_s": 0.9e12, "compute_ratio": 0.1, "busy_ratio": 0.95}, Bound.HOST, ["10 %", "27 %"]),
        ({"bytes_per_s": 0.9e12, "busy_ratio": 0.35}, Bound.HOST, ["35 %", "27 %"]),
        ({"bytes_per_s": 0.9e12, "busy_ratio": 0.95, "tokens_per_step": 6.0}, Bound.HOST, ["6 tokens", "27 %"]),
        ({"bytes_per_s": 0.9e12, "busy_ratio": 0.95, "tokens_per_step": 64.0}, Bound.UNKNOWN, ["27 %", "arithmetic"]),
        ({"bytes_per_s": 0.9e12, "tokens_per_step": 6.0, "is_gpu": False}, Bound.UNKNOWN, ["arithmetic"]),
        ({"steps_per_s": 0.0}, Bound.UNKNOWN, ["no steps"]),
        ({"steps_per_s": None}, Bound.UNKNOWN, ["no steps"]),
        ({"bytes_per_s": None}, Bound.UNKNOWN, ["traffic"]),
        ({"peak_bytes_per_s": None}, Bound.UNKNOWN, ["Peak", "GPUs page"]),
        ({"peak_bytes_per_s": None, "is_gpu": False}, Bound.UNKNOWN, ["Peak", "Run the calibration"]),
    ],
)
def test_verdict(changes: dict[str, Any], bound: Bound, said: list[str]) -> None:
    verdict = judge(replace(H100, **changes))
    assert verdict.bound is bound
    for words in said:
        assert words in verdict.words
