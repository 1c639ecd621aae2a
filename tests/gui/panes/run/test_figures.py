"""What the cards of the Run page draw and say in every state."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QAbstractButton, QLabel
from pytestqt.qtbot import QtBot

from backend.events import RunState, Sample, Speculation
from gui.panes.run import RunPane
from gui.widgets import figures
from tests.gui.panes.readings import READY, STARTED, FakeBridge, counting, drafting, idle, missing, reading
from tests.gui.panes.run.run_page import (
    ENGINE_CARDS,
    MakePage,
    card_words,
    chart_card,
    position_card,
    run_engine,
    settle,
)


class Tally(NamedTuple):
    """Drafts added up by hand."""

    drafts: int
    drafted: int
    accepted: float
    at: list[float]


def tally(samples: list[Sample]) -> Tally:
    """Add up what samples say, token by token."""
    drafts, drafted, at = 0, 0, [0.0, 0.0]
    for sample in samples:
        assert sample.drafts is not None
        assert sample.acceptance_per_position is not None
        drafts += round(sample.drafts)
        drafted += 2 * round(sample.drafts)
        at = [so_far + rate * sample.drafts for so_far, rate in zip(at, sample.acceptance_per_position, strict=True)]
    return Tally(drafts, drafted, sum(at), at)


# ---- figures and curves ---------------------------------------------------------------------------------------


def test_curves_are_the_samples_with_their_gaps(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    samples = [missing(n) if 10 <= n < 15 else counting(n) for n in range(40)]
    run_engine(qtbot, bridge, page, samples)
    for key, name, scale in (
        ("tokens", "generation_tokens_per_s", 1),
        ("latency", "ttft_p95_s", 1000),
        ("cache", "kv_cache_usage_ratio", 100),
    ):
        x, y = chart_card(page, key).chart.drawn[name]
        wanted = [getattr(sample, name) for sample in samples]
        assert x == pytest.approx([sample.t - samples[-1].t for sample in samples])
        assert np.isnan(y).tolist() == [value is None for value in wanted]
        assert y[~np.isnan(y)] == pytest.approx([value * scale for value in wanted if value is not None])
    x, y = chart_card(page, "host").chart.drawn["memory_used_bytes"]
    assert len(x) == 40
    assert set(y.tolist()) == {50.0}


def test_the_big_figures_are_the_newest(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(20)])
    newest = counting(19)
    cards = page.grid.cards
    assert newest.generation_tokens_per_s is not None
    assert newest.mean_acceptance_length is not None
    assert newest.acceptance_per_position is not None
    assert newest.steps_per_s is not None
    assert cards["tokens"].figure.figure == figures.rate(newest.generation_tokens_per_s)
    assert cards["tokens"].figure.words == "tokens/s generated, 19.0 of prompts read"
    assert cards["tokens"].legend.values() == {"generated": figures.rate(newest.generation_tokens_per_s)}
    assert (cards["latency"].figure.figure, cards["latency"].legend.values()) == ("200", {"p50": "≈200", "p95": "≈300"})
    assert "Only 5 requests in that reading" in cards["latency"].legend.toolTip()
    assert (cards["cache"].figure.figure, cards["cache"].figure.words) == ("3.0 %", ", 2 running, 1 waiting")
    assert (cards["host"].figure.figure, cards["host"].figure.words) == ("25 %", "CPU, memory 8.0 of 16.0 GiB")
    assert page.bar._figures.text() == f"{newest.steps_per_s:.1f} steps/s"


def test_acceptance_is_that_of_the_last_ten_seconds_and_each_draft_counts_once(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    """Readings with many and with few drafts: shares are accepted over drafted tokens of all, not a mean of means."""
    samples = [drafting(n, n_drafts=10 + 13 * (n % 4), rates=(0.9, 0.2 * (n % 5))) for n in range(40)]
    run_engine(qtbot, bridge, page, samples)
    acceptance, positions = page.grid.cards["acceptance"], position_card(page)
    recent, all_of_them = tally(samples[-10:]), tally(samples)
    assert acceptance.figure.figure == f"{100 * recent.accepted / recent.drafted:.1f} %"
    length = 1 + recent.accepted / recent.drafts
    assert acceptance.figure.words == f", {length:.2f} tokens per step, {recent.drafts} drafts in 10 s"
    assert acceptance.legend.values() == {"last 10 s": acceptance.figure.figure}
    x, y = chart_card(page, "acceptance").chart.drawn["recent_acceptance_rate"]
    before = [tally(samples[max(0, n - 9) : n + 1]) for n in range(40)]
    assert x == pytest.approx(np.arange(-39, 1))
    assert y == pytest.approx([100 * each.accepted / each.drafted for each in before])
    assert positions.figure.figure == "2"
    assert positions.bars.ratios == pytest.approx([each / all_of_them.drafts for each in all_of_them.at])
    assert positions.figure.words == f"draft tokens, {all_of_them.drafts:,} drafts in the last 5 min"
    assert positions.legend.values() == {"tokens per step": f"{1 + all_of_them.accepted / all_of_them.drafts:.2f}"}


def test_what_a_read_out_says_is_one_reading(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    samples = [drafting(n, n_drafts=10, rates=(0.9, 0.1 * (n % 5))) for n in range(40)]
    run_engine(qtbot, bridge, page, samples)
    page.grid.point_at(-7.0)
    assert position_card(page).bars.ratios == samples[32].acceptance_per_position
    page.grid.point_at(None)
    assert position_card(page).bars.ratios == pytest.approx([0.9, 0.2])


def test_figures_fit_together(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    """Length = 1 + the sum over positions; tokens/s of one stream = steps/s x length."""
    run_engine(qtbot, bridge, page, [replace(counting(7), t=STARTED + n) for n in range(20)])
    cards = page.grid.cards
    length = float(cards["positions"].legend.values()["tokens per step"])
    steps = float(page.bar._figures.text().removesuffix("steps/s"))
    assert float(cards["tokens"].figure.figure) == pytest.approx(steps * length, rel=0.01)
    assert length == pytest.approx(1 + float(cards["acceptance"].figure.figure.removesuffix(" %")) / 100 * 3, abs=0.01)


def test_prompts_latency_and_cache_have_a_view_of_their_own(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, store: QSettings, make_page: MakePage
) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(20)])
    latency, cache = chart_card(page, "latency"), chart_card(page, "cache")
    button = next(each for each in latency.findChildren(QAbstractButton) if each.text() == "ITL")
    button.click()
    assert latency.figure.figure == "17.0"
    assert latency.legend.values() == {"p50": "17.0", "p95": "19.0"}
    assert latency.chart.drawn["itl_p95_s"][1][-1] == pytest.approx(19.0)
    tokens = chart_card(page, "tokens")
    next(each for each in tokens.findChildren(QAbstractButton) if each.text() == "Prompt").click()
    assert (tokens.figure.figure, tokens.figure.words) == ("19.0", "prompt tokens/s read")
    assert tokens.chart.drawn["prompt_tokens_per_s"][1].tolist() == [float(n) for n in range(20)]
    cache.choose_view(1)
    assert (cache.figure.figure, cache.figure.words) == ("2", "running, 1 waiting")
    again = make_page()
    assert chart_card(again, "latency").view_index == 1
    assert chart_card(again, "tokens").view_index == 1
    assert chart_card(again, "host").view_index == 0


def test_the_last_latency_stands_with_its_age(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(0), *(idle(n) for n in range(1, 13))])
    latency = page.grid.cards["latency"]
    assert latency.figure.figure == "200"
    assert latency.figure.words.endswith("12 s ago")
    assert latency.legend.values() == {"p50": "≈200", "p95": "≈300"}


def test_latency_is_marked_as_about_right_only_while_few_requests_are_behind_it(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    run_engine(qtbot, bridge, page, [replace(counting(n), ttft_count=19.0 if n < 10 else 20.0) for n in range(20)])
    latency = page.grid.cards["latency"]
    assert latency.legend.values() == {"p50": "200", "p95": "300"}
    page.grid.point_at(-15.0)
    assert latency.legend.values() == {"p50": "≈200", "p95": "≈300"}
    page.grid.point_at(-5.0)
    assert latency.legend.values() == {"p50": "200", "p95": "300"}


# ---- what is said where there is nothing ------------------------------------------------------------------------


def test_without_an_engine_the_machine_is_shown_and_the_rest_says_what_to_do(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    for second in range(3):
        bridge.feed(reading(second, None))
    settle(qtbot, page)
    assert not any(page.grid.cards[key].isVisible() for key in ENGINE_CARDS)
    assert page.grid.idle.isVisible()
    assert page.grid.idle.title.text() == "No engine is running"
    assert "press Start" in page.grid.idle.words.text()
    assert not page.bar.isVisible(), "nothing to choose a span of"
    assert page.grid.cards["host"].isVisible()
    assert page.grid.cards["host"].figure.figure == "25 %"
    assert not page.grid.cards["host"].message.text()
    assert not any("N/A" in label.text() for label in page.findChildren(QLabel))


def test_after_a_stop_the_curves_stay_until_they_leave_the_span(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(30)])
    bridge.show(replace(READY, state=RunState.STOPPED))
    bridge.feed(reading(31, Sample(t=STARTED + 31, interval_s=None, state=RunState.STOPPED)))
    settle(qtbot, page)
    tokens = chart_card(page, "tokens")
    assert (tokens.figure.figure, tokens.figure.words) == (figures.UNKNOWN, "No engine is running. Press Start.")
    assert math.isnan(tokens.chart.drawn["generation_tokens_per_s"][1][-1])
    assert tokens.legend.values()["generated"] == figures.UNKNOWN
    bridge.feed(reading(400, None))
    settle(qtbot, page)
    assert not tokens.isVisible(), "it has left the span"
    assert page.grid.idle.isVisible()
    assert "press Start" in page.grid.idle.words.text()
    assert page.bar.isVisible(), "a longer span still shows it"
    page.bar._spans.button(1800).click()
    settle(qtbot, page)
    assert tokens.isVisible()
    assert not page.grid.idle.isVisible()
    assert np.isfinite(tokens.chart.drawn["generation_tokens_per_s"][1]).sum() == 30
    assert "press Start" in page.bar._figures.text()


def test_waiting_for_readings(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    bridge.show(READY)
    bridge.feed(reading(0, None))
    settle(qtbot, page)
    assert card_words(page.grid.cards["tokens"]) == "Waiting for the first reading"
    first = Sample(t=STARTED + 1, interval_s=None, state=RunState.READY, kv_cache_usage_ratio=0.5, requests_running=0.0)
    bridge.feed(reading(1, first))
    settle(qtbot, page)
    for key in ("tokens", "acceptance", "positions", "latency"):
        assert card_words(page.grid.cards[key]) == "Waiting for the second reading"
    assert page.grid.cards["cache"].figure.figure == "50.0 %", "a gauge needs only one"
    bridge.feed(reading(2, missing(2)))
    settle(qtbot, page)
    assert card_words(page.grid.cards["tokens"]) == "The engine did not answer in time."


def test_speculation_off_idle_and_counting(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    off = replace(idle(0), speculation=Speculation.OFF)
    run_engine(qtbot, bridge, page, [off, replace(off, t=STARTED + 1)])
    acceptance, positions = page.grid.cards["acceptance"], position_card(page)
    for card in (acceptance, positions):
        assert card.message.text() == "Speculation is off in this profile"
    bridge.feed(reading(2, idle(2)))
    settle(qtbot, page)
    assert acceptance.message.text() == "No drafts in the last 10 s"
    assert positions.message.text() == "No drafts in the last 5 min"
    bridge.feed(reading(3, counting(3)))
    settle(qtbot, page)
    assert not acceptance.message.text()
    assert acceptance.figure.figure == figures.percent(counting(3).acceptance_rate, 1)
    bridge.feed(reading(4, idle(4)))
    settle(qtbot, page)
    assert acceptance.figure.figure == figures.percent(counting(3).acceptance_rate, 1)
    assert acceptance.legend.values() == {"last 10 s": acceptance.figure.figure}
    bridge.feed(reading(13, idle(13)))
    settle(qtbot, page)
    assert (acceptance.figure.figure, acceptance.figure.words) == (figures.UNKNOWN, "No drafts in the last 10 s")
    assert positions.bars.ratios == pytest.approx(counting(3).acceptance_per_position), "still in the span"
    bridge.feed(reading(400, idle(400)))
    settle(qtbot, page)
    assert positions.bars.ratios == (), "it has left the span"
