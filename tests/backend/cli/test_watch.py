"""`specdeck watch` as a process of its own against a server whose counters the test knows."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.fakes import metric_pages as pages
from tests.fakes.counter_server import CounterServer, Step

COMMAND = [sys.executable, "-P", "-m", "backend.cli", "watch"]
# Long enough for a busy machine to answer within it.
INTERVAL = 0.75
LIMIT_S = 60

TWO = pages.recorded("v0.32_spec_dp2.txt")
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


def lines(steps: list[Step], *, interval: float = INTERVAL, count: int | None = None) -> list[dict[str, Any]]:
    """One line for each step."""
    with CounterServer(steps) as server:
        n = count or len(steps)
        code, out, err = watch("--url", server.url, "--interval", str(interval), "--count", str(n), "--json")
    assert (code, err) == (0, "")
    parsed = [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]
    assert len(parsed) == n
    assert all(list(line) == pages.KEYS for line in parsed)
    assert server.asked["/metrics"] == n
    return parsed


def figures(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in NULLS}


def assert_window(line: dict[str, Any], before: str, after: str) -> None:
    """Exact but for quantiles, whose value depends on the order of the arithmetic in the last digit."""
    assert line["state"] == "READY"
    wanted = pages.expected(before, after, line["interval_s"])
    for key, value in wanted.items():
        if key.endswith(("p50_s", "p95_s")) and value is not None:
            assert math.isclose(line[key], value, rel_tol=1e-12), key
        else:
            assert line[key] == value, key


def assert_gauges_only(line: dict[str, Any], page: str) -> None:
    assert line["state"] == "READY"
    assert figures(line) == {**NULLS, **pages.gauges(page)}


def test_first_counting_idle_and_restart_with_two_engines() -> None:
    busy = pages.with_gauges(
        pages.grown(TWO),
        kv_cache_usage_perc_0=0.25,
        kv_cache_usage_perc_1=0.5,
        num_requests_running_0=3.0,
        num_requests_running_1=2.0,
        num_requests_waiting_1=7.0,
    )
    first, counting, idle, fell, again = lines([Step(page) for page in (TWO, busy, busy, TWO, pages.grown(TWO))])
    assert_gauges_only(first, TWO)
    assert_window(counting, TWO, busy)
    assert (counting["kv_cache_usage_ratio"], counting["requests_running"]) == (0.375, 5)
    assert counting["requests_waiting"] == 7
    assert None not in counting.values()
    assert_window(idle, busy, busy)
    assert [idle[key] for key in ("generation_tokens_per_s", "prompt_tokens_per_s", "steps_per_s")] == [0, 0, 0]
    assert {key for key, value in idle.items() if value is None} == {
        *("acceptance_rate", "mean_acceptance_length", "acceptance_per_position"),
        *("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s"),
    }
    assert_gauges_only(fell, TWO)
    assert_window(again, TWO, pages.grown(TWO))


def test_intervals_are_the_time_between_the_lines() -> None:
    steps = [Step(pages.grown(TWO, factor), drip_s=0.02) for factor in range(6)]
    got = lines(steps)
    for before, after in pairwise(got):
        assert math.isclose(after["interval_s"], after["t"] - before["t"], abs_tol=0.02)
    # No drift: five intervals, although each answer takes 0.2 s.
    assert math.isclose(got[-1]["t"] - got[0]["t"], 5 * INTERVAL, abs_tol=0.8 * INTERVAL)


def test_one_engine_of_two_that_falls_is_a_restart_though_the_sum_grows() -> None:
    before = pages.small_page(per_engine={"0": {"generation": 100}, "1": {"generation": 100}})
    after = pages.small_page(per_engine={"0": {"generation": 900}, "1": {"generation": 99}})
    _, fell, again = lines([Step(before), Step(after), Step(after)])
    assert_gauges_only(fell, after)
    assert again["generation_tokens_per_s"] == 0


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (Step(hang=True), "UNRESPONSIVE"),
        (Step("Service Unavailable", status=503, health=503), "UNRESPONSIVE"),
        (Step(TWO, health=503), "UNRESPONSIVE"),
        (Step(TWO, health=500), "UNRESPONSIVE"),
        (Step(TWO, health_hang=True), "UNRESPONSIVE"),
        (Step("", status=500), "UNRESPONSIVE"),
        (Step(TWO, drip_s=0.4), "UNRESPONSIVE"),
        (Step(reset=True), "UNRESPONSIVE"),
        (Step(""), "READY"),
        (Step("<html><body>It works!</body></html>"), "READY"),
        (Step(bytes(range(256)) * 10), "READY"),
        (Step(TWO[: TWO.index("vllm:generation_tokens_total{") + 40]), "READY"),
        (Step("process_start_time_seconds 1.0\n"), "READY"),
    ],
)
def test_a_gap_is_one_line_of_nulls_each_and_then_spanned(fault: Step, state: str) -> None:
    after = pages.grown(TWO)
    first, gap, more, back = lines([Step(TWO), fault, fault, Step(after)])
    for line in (gap, more):
        assert line["state"] == state
        assert figures(line) == NULLS
    assert_window(back, TWO, after)
    assert math.isclose(back["interval_s"], back["t"] - first["t"], abs_tol=0.02)
    assert back["interval_s"] > 2.2 * INTERVAL
    # Answers or not, the lines keep their rhythm.
    assert back["t"] - first["t"] < 5 * INTERVAL


def test_a_restart_during_a_gap_is_seen() -> None:
    _, _, back, again = lines([Step(pages.grown(TWO)), Step(hang=True), Step(TWO), Step(TWO)])
    assert_gauges_only(back, TWO)
    assert_window(again, TWO, TWO)


def test_a_server_without_health_is_judged_by_its_metrics() -> None:
    first, second = lines([Step(TWO, health=404), Step(pages.grown(TWO), health=404)])
    assert_gauges_only(first, TWO)
    assert_window(second, TWO, pages.grown(TWO))


def test_the_first_answer_after_silence_has_no_rates() -> None:
    silent, first, second = lines([Step(hang=True), Step(TWO), Step(pages.grown(TWO))])
    assert (silent["state"], figures(silent)) == ("UNRESPONSIVE", NULLS)
    assert_gauges_only(first, TWO)
    assert_window(second, TWO, pages.grown(TWO))


@pytest.mark.parametrize("keep_alive", [False, True])
def test_refused_is_stopped_and_comes_back(keep_alive: bool) -> None:
    after = pages.grown(TWO)
    with (
        CounterServer([Step(TWO)], keep_alive=keep_alive) as server,
        watching("--url", server.url, "--interval", str(INTERVAL), "--json") as process,
    ):
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert_gauges_only(first, TWO)
        server.stop()
        last = first
        while (line := json.loads(process.stdout.readline()))["state"] != "STOPPED":
            assert line["t"] - first["t"] < 6 * INTERVAL
            last = line if line["interval_s"] else last
        assert figures(line) == NULLS
        server.steps = [Step(after)]
        server.start()
        while (line := json.loads(process.stdout.readline()))["state"] == "STOPPED":
            assert figures(line) == NULLS
        assert_window(line, TWO, after)
        assert math.isclose(line["interval_s"], line["t"] - last["t"], abs_tol=0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0


def test_every_recorded_page_growing_and_at_rest() -> None:
    recorded = [pages.recorded(name) for name in pages.RECORDED]
    older = [pages.older(TWO, version) for version in pages.OLDER]
    every = [*recorded, *older, pages.both_names(pages.recorded("v0.32_spec_load.txt"))]
    # Each from a start time of its own, as if one engine followed the other.
    every = [
        page.replace("\nprocess_start_time_seconds ", f"\nprocess_start_time_seconds {number}")
        for number, page in enumerate(every, 1)
    ]
    got = lines([Step(each) for page in every for each in (page, pages.grown(page), pages.grown(page))])
    for number, page in enumerate(every):
        first, counting, idle = got[3 * number : 3 * number + 3]
        assert_gauges_only(first, page)
        assert_window(counting, page, pages.grown(page))
        assert_window(idle, pages.grown(page), pages.grown(page))
        assert counting["ttft_p50_s"] is not None
        assert counting["itl_p95_s"] is not None
        speculates = bool(pages.series(page, pages.COUNTERS["drafts"]))
        assert (counting["acceptance_rate"] is not None) == speculates
        assert (counting["acceptance_per_position"] is not None) == speculates


def test_two_recorded_pages_of_one_run() -> None:
    idle, load = (pages.recorded(f"v0.32_spec_{name}.txt") for name in ("idle", "load"))
    _, window = lines([Step(idle), Step(load)])
    assert window["generation_tokens_per_s"] > 0
    assert_window(window, idle, load)


def test_the_shortest_interval_keeps_its_rhythm_while_the_server_hangs() -> None:
    with CounterServer([Step(hang=True, health_hang=True)]) as server:
        code, out, _ = watch("--url", server.url, "--interval", "0.25", "--count", "12", "--json")
    assert code == 0
    times = [json.loads(line)["t"] for line in out.splitlines()]
    assert len(times) == 12
    assert 10.5 * 0.25 < times[-1] - times[0] < 14 * 0.25


def test_nobody_there_is_stopped_on_every_line_and_ends_with_0() -> None:
    with CounterServer([Step()]) as server:
        url = server.url
    code, out, err = watch("--url", url, "--interval", "0.25", "--count", "3", "--json")
    assert (code, err) == (0, "")
    got = [json.loads(line) for line in out.splitlines()]
    assert [(line["state"], figures(line)) for line in got] == [("STOPPED", NULLS)] * 3


def test_text_lines_are_aligned_and_say_what_is_unknown() -> None:
    idle = pages.recorded("v0.32_spec_idle.txt")
    steps = [Step(idle), Step(pages.recorded("v0.32_spec_load.txt"))]
    with CounterServer(steps) as server:
        code, out, err = watch("--url", server.url, "--interval", str(INTERVAL), "--count", "2")
    assert (code, err) == (0, "")
    header, first, second = out.splitlines()
    assert "tokens/s" in header
    assert "\N{EN DASH}" in first
    assert "READY" in second
    assert "\N{EN DASH}" not in second
    assert len(first) == len(second) == len(header)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("hang", [False, True])
def test_a_signal_ends_it_quietly(number: signal.Signals, hang: bool) -> None:
    with (
        CounterServer([Step(TWO), Step(TWO, hang=hang)]) as server,
        watching("--url", server.url, "--interval", "60", "--json") as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out, err) == (0, "", "")


def test_sigint_ends_it_although_a_shell_had_it_ignored() -> None:
    with CounterServer([Step(TWO)]) as server:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with watching("--url", server.url, "--interval", "60", "--json") as process:
                assert process.stdout is not None
                assert process.stdout.readline()
                process.send_signal(signal.SIGINT)
                assert process.wait(LIMIT_S) == 0
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
    "arguments",
    [
        ("--url", ""),
        ("--url", "127.0.0.1:8000"),
        ("--url", "localhost"),
        ("--url", "ftp://127.0.0.1:8000"),
        ("--url", "http://"),
        ("--url", "http://127.0.0.1:port"),
        ("--url", "http://127.0.0.1:99999"),
        ("--url", "http://[::1"),
        ("--url", "http://127.0.0.1:8000", "--interval", "0.2"),
        ("--url", "http://127.0.0.1:8000", "--interval", "nan"),
        ("--url", "http://127.0.0.1:8000", "--interval", "inf"),
        ("--url", "http://127.0.0.1:8000", "--interval", "-1"),
        ("--url", "http://127.0.0.1:8000", "--interval", "soon"),
        ("--url", "http://127.0.0.1:8000", "--count", "0"),
    ],
)
def test_a_wrong_request_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    code, out, err = watch(*arguments)
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err
