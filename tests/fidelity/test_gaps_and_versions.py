"""Several engines, restarts, silence, the metric names of each version, and the recorded run: what the window draws."""

import csv
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot
from typer.testing import CliRunner

from backend.cli import app
from backend.desk.types import Reading
from gui.widgets.chart_card import ChartCard
from tests.fakes import metric_pages as pages
from tests.fakes.fake_nvml import FakeNvml
from tests.fidelity.stand import Stand, plain, stand

TWO = pages.recorded("v0.32_spec_dp2.txt")
UNKNOWN = "\N{EN DASH}"
# The lines of the Run page that come from the engine: card, view, series, the key of `pages.expected`, factor.
LINES = (
    ("tokens", 0, "generation_tokens_per_s", 1),
    ("tokens", 1, "prompt_tokens_per_s", 1),
    ("latency", 0, "ttft_p50_s", 1000),
    ("latency", 0, "ttft_p95_s", 1000),
    ("latency", 1, "itl_p50_s", 1000),
    ("latency", 1, "itl_p95_s", 1000),
    ("cache", 0, "kv_cache_usage_ratio", 100),
    ("cache", 1, "requests_running", 1),
    ("cache", 1, "requests_waiting", 1),
)
RATES = ("generation_tokens_per_s", "prompt_tokens_per_s")


@pytest.fixture
def made(qtbot: QtBot, tmp_path: Path, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    with stand(qtbot, tmp_path, fake_nvml, monkeypatch) as one:
        yield one


def drawn(made: Stand, card: str, view: int, series: str) -> tuple[list[float], list[float]]:
    """Times, as seconds before the right end, and values of a line."""
    grid = made.show("run")
    chart = grid.cards[card]
    assert isinstance(chart, ChartCard)
    grid.ensureWidgetVisible(chart)
    chart.choose_view(view)
    made.panel.wait(lambda: series in chart.chart.drawn)
    times, values = chart.chart.drawn[series]
    return times.tolist(), values.tolist()


def expect_drawn(made: Stand, spanning: Reading, before: str, after: str) -> dict[str, Any]:
    """Fail unless every line has the value of the step between two pages; returns what the pages say."""
    assert spanning.engine is not None
    assert spanning.engine.interval_s is not None
    expected = pages.expected(before, after, spanning.engine.interval_s)
    for card, view, series, factor in LINES:
        truth = expected[series]
        assert truth is not None
        made.panel.wait(
            lambda at=(card, view, series), value=truth * factor: any(  # type: ignore[misc]
                each == pytest.approx(value, rel=1e-9) for each in drawn(made, *at)[1]
            )
        )
    return expected


def test_several_engines_a_restart_and_silence(made: Stand) -> None:
    first, second, third = TWO, pages.grown(TWO), pages.grown(TWO, 2)
    expected = expect_drawn(made, made.step(first, second), first, second)
    assert len(pages.series(second, "vllm:num_requests_running")) == 2, "two engines"
    status = made.window.status
    assert plain(status.acceptance.text()) == f"{100 * expected['acceptance_rate']:.1f} %"
    assert status.length.text() == f"{expected['mean_acceptance_length']:.2f}"

    # A restart: counters fall. That reading says nothing, none is negative, and the next step counts from there.
    n_before = len(made.readings)
    expect_drawn(made, made.step(first, third), first, third)
    fell = [
        reading.engine
        for reading in made.readings[n_before:]
        if reading.engine is not None and reading.engine.interval_s is None
    ]
    assert len(fell) == 1
    assert fell[0].generation_tokens_per_s is None
    for rate in RATES:
        _, values = drawn(made, "tokens", RATES.index(rate), rate)
        assert all(math.isnan(value) or value >= 0 for value in values)
        assert sum(1 for value in values if not math.isnan(value) and value > 0) == 2

    # Silence: a gap in the lines, dashes in the status bar, and nothing is 0.
    n_gaps = gaps(drawn(made, "tokens", 0, RATES[0])[1])
    made.serve(third, metrics="503")
    made.panel.wait(lambda: status.tokens.text() == UNKNOWN)
    made.next_readings(3)
    shown = (status.tokens, status.acceptance, status.length, status.cache, status.queue)
    assert {label.text() for label in shown} == {UNKNOWN}
    assert made.show("run").cards["cache"].figure.figure in (UNKNOWN, "")
    made.serve(third, metrics="ok")
    made.panel.wait(lambda: status.tokens.text() != UNKNOWN)
    made.next_readings(3)
    made.panel.wait(lambda: gaps(drawn(made, "tokens", 0, RATES[0])[1]) == n_gaps + 1)


def gaps(values: list[float]) -> int:
    """How often a line breaks between two of its values."""
    known = [number for number, value in enumerate(values) if not math.isnan(value)]
    return sum(later - earlier > 1 for earlier, later in itertools.pairwise(known))


def test_names_of_each_version_and_the_recorded_run(made: Stand, tmp_path: Path) -> None:
    truths = []
    for version in pages.OLDER:
        before, after = pages.older(TWO, version), pages.older(pages.grown(TWO, 3), version)
        spanning = made.step(before, after)
        expect_drawn(made, spanning, before, after)
        assert spanning.engine is not None
        truths.append(spanning.engine.t)
    both = pages.both_names(TWO), pages.both_names(pages.grown(TWO, 3))
    spanning = made.step(*both)
    expected = expect_drawn(made, spanning, TWO, pages.grown(TWO, 3))
    assert spanning.engine is not None

    # What was recorded is what was read, on the page and in the file.
    run_id = made.panel.bridge.run.run_id
    grid = made.show("history")
    chart = grid.cards["tokens"]
    assert isinstance(chart, ChartCard)

    def shown() -> list[float]:
        return [value for value in chart.chart.drawn.get(RATES[0], ((), ()))[1] if value > 0]

    made.panel.wait(lambda: len(shown()) == len(truths) + 1)
    assert shown()[-1] == pytest.approx(expected[RATES[0]], rel=1e-9)
    file = tmp_path / "run.csv"
    done = CliRunner().invoke(app, ["history", "export", run_id, str(file)])
    assert done.exit_code == 0, done.output
    with file.open() as lines:
        rows = {float(row["unix_s"]): row for row in csv.DictReader(lines) if row[RATES[0]]}
    row = rows[spanning.engine.t]
    for name in (*RATES, "ttft_p50_s", "itl_p95_s", "kv_cache_usage_ratio", "requests_running", "steps_per_s"):
        assert float(row[name]) == pytest.approx(expected[name], rel=1e-9), name
    assert all(t in rows for t in truths)
