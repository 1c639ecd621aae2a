"""`specdeck watch` as a process of its own; what its figures are is tested with the sampler, in one process.

The server hands out what the test set last, and the test reads on until that shows: lines that a busy machine adds in
between change nothing.
"""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from backend.cli.watch import command
from backend.errors import UsageError
from tests.fakes import metric_pages as pages
from tests.fakes.counter_server import CounterServer, Step

COMMAND = [sys.executable, "-P", "-m", "backend.cli", "watch"]
LIMIT_S = 120

TWO = pages.recorded("v0.32_spec_dp2.txt")
AFTER = pages.grown(TWO)
NULLS = dict.fromkeys((*pages.RATES, *pages.GAUGES, "interval_s"))


@contextmanager
def watching(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The command, running; it has ended when the block ends."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def watch(*arguments: str) -> tuple[int, str, str]:
    with watching(*arguments) as process:
        out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


class Lines:
    """The JSON lines of a running command."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        assert text, "the command ended"
        line: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
        assert list(line) == pages.KEYS
        return line

    def until(self, wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        while not wanted(line := self.next()):
            pass
        return line


def figures(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in NULLS}


def assert_window(line: dict[str, Any], before: str, after: str) -> None:
    """Exact but for quantiles, whose value depends on the order of the arithmetic in the last digit."""
    assert line["state"] == "READY"
    for key, value in pages.expected(before, after, line["interval_s"]).items():
        if key.endswith(("p50_s", "p95_s")) and value is not None:
            assert math.isclose(line[key], value, rel_tol=1e-12), key
        else:
            assert line[key] == value, key


def assert_gauges_only(line: dict[str, Any], page: str) -> None:
    assert line["state"] == "READY"
    assert figures(line) == {**NULLS, **pages.gauges(page)}


def test_all_states_of_an_engine_one_after_the_other() -> None:
    later = pages.grown(TWO, 5)
    with (
        CounterServer([Step(TWO)]) as server,
        watching("--url", server.url, "--interval", "0.5", "--json") as process,
    ):
        lines = Lines(process)
        assert_gauges_only(lines.until(lambda line: line["state"] == "READY"), TWO)
        server.steps = [Step(AFTER)]
        assert_window(lines.until(lambda line: line["generation_tokens_per_s"]), TWO, AFTER)
        assert_window(lines.until(lambda line: line["state"] == "READY"), AFTER, AFTER)

        server.steps = [Step(hang=True)]
        for _ in range(2):
            line = lines.until(lambda line: line["state"] == "UNRESPONSIVE")
            assert figures(line) == NULLS
        server.steps = [Step(later)]
        assert_window(lines.until(lambda line: line["generation_tokens_per_s"]), AFTER, later)

        server.steps = [Step("no metrics at all")]
        line = lines.until(lambda line: line["state"] == "READY" and line["interval_s"] is None)
        assert figures(line) == NULLS
        server.steps = [Step(TWO)]  # counters that fell: a new start
        assert_gauges_only(lines.until(lambda line: line["requests_running"] is not None), TWO)

        server.stop()
        assert figures(lines.until(lambda line: line["state"] == "STOPPED")) == NULLS
        server.steps = [Step(AFTER)]
        server.start()
        assert_window(lines.until(lambda line: line["generation_tokens_per_s"]), TWO, AFTER)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0


def test_a_count_of_lines_is_a_count_of_scrapes() -> None:
    with CounterServer([Step(TWO), Step(AFTER)]) as server:
        code, out, err = watch("--url", server.url, "--interval", "2", "--count", "2", "--json")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 2
    assert server.asked["/metrics"] == server.asked["/health"] == 2


def test_nobody_there_is_stopped_on_every_line_and_ends_with_0() -> None:
    with CounterServer([Step()]) as server:
        url = server.url
    code, out, err = watch("--url", url, "--interval", "0.25", "--count", "3", "--json")
    assert (code, err) == (0, "")
    got = [json.loads(line) for line in out.splitlines()]
    assert [(line["state"], figures(line)) for line in got] == [("STOPPED", NULLS)] * 3


def test_text_lines_are_aligned_and_say_what_is_unknown() -> None:
    with (
        CounterServer([Step(pages.recorded("v0.32_spec_idle.txt"))]) as server,
        watching("--url", server.url, "--interval", "0.5") as process,
    ):
        assert process.stdout is not None
        header = process.stdout.readline()
        assert "tokens/s" in header
        while "READY" not in (first := process.stdout.readline()):
            assert first
        assert "\N{EN DASH}" in first
        server.steps = [Step(pages.recorded("v0.32_spec_load.txt"))]
        while "\N{EN DASH}" in (line := process.stdout.readline()):
            assert len(line) == len(header)
        assert "READY" in line
        assert len(line) == len(first) == len(header)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize(
    ("number", "hang"), [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGHUP, False), (signal.SIGINT, True)]
)
def test_a_signal_ends_it_quietly(number: signal.Signals, hang: bool) -> None:
    """Also SIGINT in a process whose shell had it ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with (
            CounterServer([Step(TWO), Step(TWO, hang=hang)]) as server,
            watching("--url", server.url, "--interval", "60", "--json") as process,
        ):
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(number)
            out, err = process.communicate(timeout=LIMIT_S)
            assert (process.returncode, out, err) == (0, "", "")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_closed_pipe_ends_it_quietly() -> None:
    with (
        CounterServer([Step(TWO)]) as server,
        watching("--url", server.url, "--interval", "0.25", "--json") as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(LIMIT_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8000", "localhost", "ftp://127.0.0.1:8000", "http://", "http://127.0.0.1:port"),
        *("http://127.0.0.1:99999", "http://127.0.0.1:0", "http://[::1", "http://127.0.0.1:8000?x", "http://a b"),
    ],
)
def test_a_wrong_address_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of an engine"):
        command()(url=url, count=1)


@pytest.mark.parametrize("interval", [0.2, 0.0, -1.0, math.nan, math.inf, 86_401.0])
def test_an_interval_that_cannot_be_is_a_usage_error(interval: float) -> None:
    with pytest.raises(UsageError, match="--interval"):
        command()(url="http://127.0.0.1:8000", interval=interval, count=1)


def test_without_an_address_somebody_must_know_one() -> None:
    with pytest.raises(UsageError, match="which engine"):
        command()(count=1)


@pytest.mark.parametrize(
    "arguments", [("--url", "localhost"), ("--interval", "soon"), ("--url", "http://127.0.0.1:8000", "--count", "0")]
)
def test_wrong_usage_exits_with_2_and_words(arguments: tuple[str, ...]) -> None:
    code, out, err = watch(*arguments)
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err
