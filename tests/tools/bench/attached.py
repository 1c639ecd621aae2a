"""What the panel costs the engine: throughput of a real engine with the window attached and without, in pairs."""

import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.tools.bench.figure import Figure
from tests.tools.stage import private_home

_SLICE_S = 8.0
_SETTLE_S = 1.0
_START_LIMIT_S = 600.0
_GENERATED = re.compile(r"^vllm:generation_tokens_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
# Two-sided 95 % of Student's distribution by degrees of freedom; what lies between two rows takes the one before.
_STUDENT = {9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 14: 2.145, 16: 2.12, 19: 2.093, 24: 2.064, 29: 2.045}

_LOAD = """
import json, os, sys, urllib.request
url, model, parent = sys.argv[1:]
body = {"model": model, "prompt": "Tell a long story.", "max_tokens": 1500, "ignore_eos": True, "temperature": 0}
while os.getppid() == int(parent):
    request = urllib.request.Request(f"{url}/v1/completions", data=json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=600).read()
"""


def figures(n_pairs: int) -> Iterator[Figure]:
    """Start the demo in a window of its own, and stop and continue that window in turn while the engine works."""
    with private_home(keep=("DATA", "CACHE")) as home:
        window = subprocess.Popen([sys.executable, "-P", "-m", "gui", "--start", "demo"], cwd=home)
        try:
            record = _ready(home, window)
            url, model = record["url"], record["served_model_name"]
            load = subprocess.Popen([sys.executable, "-P", "-c", _LOAD, url, model, str(os.getpid())])
            try:
                time.sleep(2 * _SLICE_S)  # the first answers warm the engine up
                ratios = [_ratio(window, url, attached_first=number % 2 == 0) for number in range(n_pairs)]
            finally:
                load.kill()
                load.wait()
        finally:
            window.send_signal(signal.SIGCONT)
            window.kill()
            window.wait()
    low, middle, high = interval(ratios)
    yield Figure(
        f"engine throughput with the panel over without, {n_pairs} pairs (95 %)",
        f"{middle:.3f} ({low:.3f} to {high:.3f})",
        ">= 0.95",
        low >= 0.95,
    )


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the mean ratio with the ends of its 95 % interval, from the logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    freedom = len(logs) - 1
    student = _STUDENT[max(row for row in _STUDENT if row <= max(freedom, 9))]
    middle, reach = statistics.fmean(logs), student * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle - reach), math.exp(middle), math.exp(middle + reach)


def _ratio(window: "subprocess.Popen[bytes]", url: str, *, attached_first: bool) -> float:
    """One pair: a stretch with the window, one in which it stands still; which comes first alternates."""
    speeds: dict[bool, float] = {}
    for attached in (attached_first, not attached_first):
        window.send_signal(signal.SIGCONT if attached else signal.SIGSTOP)
        time.sleep(_SETTLE_S)
        tokens, began = _tokens(url), time.monotonic()
        time.sleep(_SLICE_S)
        speeds[attached] = (_tokens(url) - tokens) / (time.monotonic() - began)
    window.send_signal(signal.SIGCONT)
    return speeds[True] / speeds[False]


def _tokens(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as page:
        return sum(float(value) for value in _GENERATED.findall(page.read().decode()))


def _ready(home: Path, window: "subprocess.Popen[bytes]") -> dict[str, str]:
    """Wait until the engine of the window is ready; returns its record."""
    end = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < end and window.poll() is None:
        for file in (home / "state" / "specdeck" / "runs").glob("*/run.json"):
            record: dict[str, str] = json.loads(file.read_text())
            if record["state"] == "READY":
                return record
        time.sleep(0.5)
    raise TimeoutError("the engine did not become ready")
