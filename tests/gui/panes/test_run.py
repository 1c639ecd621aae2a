"""The run page, driven with readings: what its cards draw and say in every state, and what a person can change."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, QSettings, Qt
from PySide6.QtGui import QImage, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QListWidget
from pytestqt.qtbot import QtBot

from backend.desk.types import RunView
from backend.errors import UserError
from backend.events import Diagnosis, Mark, Phase, RunState, Sample, Speculation
from gui.panes.run import RunPane
from gui.widgets import figures
from gui.widgets.card import LEAST_HEIGHT, LEAST_WIDTH, Card
from gui.widgets.chart_card import ChartCard, PositionCard
from tests.gui import gpu_scenes
from tests.gui.panes.readings import READY, STARTED, FakeBridge, counting, drafting, idle, missing, reading

ENGINE_CARDS = ("tokens", "acceptance", "positions", "latency", "cache")
MakePage = Callable[..., RunPane]


@pytest.fixture
def bridge() -> FakeBridge:
    return FakeBridge()


@pytest.fixture
def store(tmp_path: Path) -> QSettings:
    return QSettings(str(tmp_path / "window.ini"), QSettings.Format.IniFormat)


@pytest.fixture
def make_page(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> MakePage:
    made: list[RunPane] = []  # a page that nobody holds would be collected while it is on screen

    def make(width: int = 1330, height: int = 776) -> RunPane:
        page = RunPane(bridge.as_bridge, store, QLabel("chat"))
        made.append(page)
        qtbot.addWidget(page)
        page.resize(width, height)
        page.show()
        return page

    return make


@pytest.fixture
def page(make_page: MakePage) -> RunPane:
    return make_page()


def settle(qtbot: QtBot, page: RunPane) -> None:
    qtbot.waitUntil(lambda: not page.grid.is_drawing, timeout=10_000)


def run_engine(qtbot: QtBot, bridge: FakeBridge, page: RunPane, samples: list[Sample]) -> None:
    """Show a running engine whose last sample comes while the page looks."""
    bridge.show(READY)
    for sample in samples[:-1]:
        bridge.record(reading(round(sample.t - STARTED), sample))
    bridge.feed(reading(round(samples[-1].t - STARTED), samples[-1]))
    settle(qtbot, page)


def chart_card(page: RunPane, key: str) -> ChartCard:
    card = page.grid.cards[key]
    assert isinstance(card, ChartCard)
    return card


def position_card(page: RunPane) -> PositionCard:
    card = page.grid.cards["positions"]
    assert isinstance(card, PositionCard)
    return card


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


def card_words(card: Card) -> str:
    return card.message.text() or card.figure.words


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


# ---- span, pause, read-out ---------------------------------------------------------------------------------------


def test_the_span_is_chosen_and_kept(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, store: QSettings, make_page: MakePage
) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(200)])
    chart = chart_card(page, "tokens").chart
    assert chart.span_s == 300
    assert len(chart.drawn["generation_tokens_per_s"][0]) == 200
    page.bar._spans.button(60).click()
    settle(qtbot, page)
    assert chart.span_s == 60
    assert chart.drawn["generation_tokens_per_s"][0] == pytest.approx(np.arange(-60, 1))
    assert chart.marks[0] == "now"
    assert make_page().bar._spans.checkedId() == 60
    store.setValue("run/span_s", "nonsense")
    assert make_page().bar._spans.checkedId() == 300


def test_on_a_long_span_the_plot_waits_but_not_the_figure(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(20)])
    page.bar._spans.button(86_400).click()
    settle(qtbot, page)
    tokens = chart_card(page, "tokens")
    drawn = tokens.chart.drawn["generation_tokens_per_s"][0]
    for second in range(20, 24):
        bridge.feed(reading(second, counting(second)))
        settle(qtbot, page)
        assert tokens.figure.figure == figures.rate(counting(second).generation_tokens_per_s)
    assert tokens.chart.drawn["generation_tokens_per_s"][0] is drawn, "it would move by a hundredth of a pixel"
    bridge.feed(reading(24, counting(24)))
    settle(qtbot, page)
    assert len(tokens.chart.drawn["generation_tokens_per_s"][0]) == 25


def test_pause_holds_the_drawing_but_not_the_recording(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(20)])
    tokens = chart_card(page, "tokens")
    held, redraws = tokens.figure.figure, tokens.n_redraws
    page.bar._pause.click()
    assert page.bar._live.text() == "Paused"
    for second in range(20, 25):
        bridge.feed(reading(second, counting(second)))
    assert not page.grid.is_drawing
    assert (tokens.figure.figure, tokens.n_redraws) == (held, redraws)
    page.bar._spans.button(60).click()  # another span of what is held
    settle(qtbot, page)
    x, y = tokens.chart.drawn["generation_tokens_per_s"]
    assert (x[-1], y[-1]) == (0.0, pytest.approx(counting(19).generation_tokens_per_s))
    page.bar._pause.click()
    settle(qtbot, page)
    assert page.bar._live.text() == "Live"
    assert tokens.figure.figure == figures.rate(counting(24).generation_tokens_per_s)
    assert len(tokens.chart.drawn["generation_tokens_per_s"][0]) == 25, "nothing was lost"


def test_what_is_held_stays_whole_however_long_and_whatever_runs_then(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    run_engine(qtbot, bridge, page, [drafting(n, n_drafts=10, rates=(0.9, 0.3)) for n in range(20)])
    page.bar._pause.click()
    shown = (page.grid.cards["acceptance"].figure.words, position_card(page).bars.ratios)
    assert shown[1] == pytest.approx([0.9, 0.3])
    for second in range(20, 800):  # more than is kept reading by reading
        bridge.record(reading(second, drafting(second, n_drafts=10, rates=(0.1, 0.1))))
    bridge.show(replace(READY, run_id="run-2", ready_at=STARTED + 700))
    page.bar._spans.button(60).click()
    settle(qtbot, page)
    assert (page.grid.cards["acceptance"].figure.words, position_card(page).bars.ratios) == shown
    page.bar._pause.click()
    settle(qtbot, page)


def test_latency_of_long_ago_is_marked_since_its_requests_are_not_known(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    samples = [replace(counting(n), ttft_count=50.0) for n in range(1500)]
    run_engine(qtbot, bridge, page, samples)
    page.bar._spans.button(1800).click()
    settle(qtbot, page)
    latency = page.grid.cards["latency"]
    page.grid.point_at(-60.0)
    assert latency.legend.values() == {"p50": "200", "p95": "300"}
    page.grid.point_at(-1200.0)
    assert latency.legend.values() == {"p50": "≈200", "p95": "≈300"}
    assert "no longer known" in latency.legend.toolTip()


def test_the_last_latency_is_marked_once_its_requests_are_not_known_any_more(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    samples = [replace(counting(0), ttft_count=50.0), *(idle(n) for n in range(1, 600))]
    page.bar._spans.button(1800).click()
    run_engine(qtbot, bridge, page, samples[:300])
    latency = page.grid.cards["latency"]
    assert latency.legend.values() == {"p50": "200", "p95": "300"}
    run_engine(qtbot, bridge, page, samples[300:])
    assert latency.legend.values() == {"p50": "≈200", "p95": "≈300"}


def test_the_read_out_shows_one_time_on_every_card(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    samples = [counting(n) for n in range(60)]
    run_engine(qtbot, bridge, page, samples)
    tokens = chart_card(page, "tokens")
    chart = tokens.chart
    box = chart._plot.getViewBox()
    there = chart._view.mapFromScene(box.mapViewToScene(QPointF(-20, chart.limit / 2)))
    QTest.mouseMove(chart._view.viewport(), there)
    at = tokens.cursor_at
    assert at is not None
    assert at == pytest.approx(-20, abs=1)
    then = samples[59 + round(at)]
    cards = page.grid.cards
    assert {card.cursor_at for card in page.grid.visible_cards} == {at}
    assert {card.source.text for card in page.grid.visible_cards} == {figures.ago(-at)}
    assert tokens.legend.values() == {"generated": figures.rate(then.generation_tokens_per_s)}
    recent = [sample.acceptance_rate or 0.0 for sample in samples[50 + round(at) : 60 + round(at)]]
    weights = [sample.draft_tokens or 0.0 for sample in samples[50 + round(at) : 60 + round(at)]]
    assert cards["acceptance"].legend.values() == {
        "last 10 s": figures.percent(float(np.average(recent, weights=weights)), 1)
    }
    assert position_card(page).bars.ratios == then.acceptance_per_position
    assert chart_card(page, "host").chart.cursor_at == at
    assert cards["host"].legend.values() == {"CPU": "25.0 %", "memory": "50.0 %"}
    QTest.mouseMove(chart._view.viewport(), QPoint(1, 1))
    assert {card.cursor_at for card in cards.values()} == {None}
    assert chart_card(page, "host").chart.cursor_at is None
    assert tokens.legend.values()["generated"] == figures.rate(samples[-1].generation_tokens_per_s)
    assert tokens.source.text == "engine counters"
    assert tokens.source.toolTip() == "From the engine's own counters. The newest reading tells of 1.0 s."


def test_the_read_out_says_a_gap_is_unknown(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [missing(n) if 10 <= n < 30 else counting(n) for n in range(60)])
    page.grid.point_at(-39.0)
    assert set(page.grid.cards["tokens"].legend.values().values()) == {figures.UNKNOWN}
    assert position_card(page).bars.ratios == (None, None, None)
    assert position_card(page).figure.figure == figures.UNKNOWN


def test_the_read_out_by_keyboard(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(60)])
    host, tokens = page.grid.cards["host"], page.grid.cards["tokens"]
    page.activateWindow()
    host.setFocus()
    QTest.keyClick(host, Qt.Key.Key_Left)
    assert tokens.cursor_at == 0
    QTest.keyClick(host, Qt.Key.Key_Left)
    QTest.keyClick(host, Qt.Key.Key_Left)
    assert tokens.cursor_at == -10
    assert tokens.legend.values() == {"generated": figures.rate(counting(49).generation_tokens_per_s)}
    QTest.keyClick(host, Qt.Key.Key_Right)
    assert tokens.cursor_at == -5
    QTest.keyClick(host, Qt.Key.Key_Home)
    assert tokens.cursor_at == -300
    QTest.keyClick(host, Qt.Key.Key_End)
    QTest.keyClick(host, Qt.Key.Key_Right)
    assert tokens.cursor_at == 0
    QTest.keyClick(host, Qt.Key.Key_Escape)
    assert tokens.cursor_at is None


# ---- which cards, in which order ----------------------------------------------------------------------------------


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_cards_are_hidden_and_reordered_by_keyboard_and_kept(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, make_page: MakePage
) -> None:
    run_engine(qtbot, bridge, page, [counting(0)])
    page.bar._cards.click()
    chooser = page.bar._chooser
    listed: QListWidget = chooser.list
    assert chooser.isVisible()
    assert not chooser.up.isEnabled()
    QTest.keyClick(listed, Qt.Key.Key_Down, Qt.KeyboardModifier.AltModifier)  # tokens behind acceptance
    assert page.grid.order[:2] == ("acceptance", "tokens")
    chooser.up.click()
    assert page.grid.order[:2] == ("tokens", "acceptance")
    chooser.down.click()
    QTest.keyClick(listed, Qt.Key.Key_Space)  # hides tokens
    chooser.close()
    shown = [card.key for card in page.grid.visible_cards]
    assert shown == ["acceptance", "positions", "bandwidth", "latency", "cache", "host"]
    assert page.grid.cards["tokens"].isHidden()
    again = make_page()
    again.grid.set_idle(False)
    assert [card.key for card in again.grid.visible_cards] == shown
    order = ("acceptance", "tokens", "positions", "gpu_memory", "bandwidth", "latency", "cache", "host")
    assert again.grid.order == order
    settle(qtbot, page)
    settle(qtbot, again)


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_cards_are_reordered_by_dragging(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(0)])
    page.bar._cards.click()
    model = page.bar._chooser.list.model()
    assert model.moveRow(model.index(0, 0).parent(), model.rowCount() - 1, model.index(0, 0).parent(), 0)
    page.bar._chooser.close()
    assert page.grid.order[0] == "host"
    first, second = page.grid.visible_cards[:2]
    page.grid._layout.activate()
    assert first.pos().x() < second.pos().x()
    assert first.pos().y() == second.pos().y()


def test_without_any_card_the_page_says_what_to_do(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(0)])
    page.grid.choose(page.grid.order, [])
    assert page.grid.hint.isVisible()
    page.grid.choose(page.grid.order, ["host"])
    assert not page.grid.hint.isVisible()


def test_one_card_is_enlarged_and_escape_goes_back(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(0)])
    host = page.grid.cards["host"]
    width = host.width()
    page.activateWindow()
    host.last_control.setFocus()
    QTest.keyClick(host.last_control, Qt.Key.Key_Space)
    assert [card.key for card in page.grid.visible_cards] == ["host"]
    qtbot.waitUntil(lambda: host.width() > 2 * width)
    QTest.keyClick(host, Qt.Key.Key_Escape)
    assert len(page.grid.visible_cards) == 7
    assert all(card.isVisible() for card in page.grid.visible_cards)
    settle(qtbot, page)


@pytest.mark.parametrize("n_gpus", [0, 2])
@pytest.mark.parametrize(("width", "height", "in_rows", "scrolls"), [
    (1330, 776, {0: [3, 2, 2], 2: [3, 3, 2]}, False),  # a window of 1440 x 900
    (990, 576, {0: [2, 2, 2, 1], 2: [2, 2, 2, 2]}, True),  # 1100 x 700
    (2450, 1316, {0: [3, 2, 2], 2: [3, 3, 2]}, False),  # 2560 x 1440
])  # fmt: skip
def test_cards_use_the_room_there_is(
    qtbot: QtBot,
    bridge: FakeBridge,
    make_page: MakePage,
    width: int,
    height: int,
    in_rows: dict[int, list[int]],
    scrolls: bool,
    n_gpus: int,
) -> None:
    page = make_page(width, height)
    bridge.show(READY)
    gpus = gpu_scenes.snapshot(0, n_gpus) if n_gpus else gpu_scenes.no_gpus()
    bridge.feed(replace(reading(0, counting(0)), gpus=gpus))
    settle(qtbot, page)
    cards = page.grid.visible_cards
    qtbot.waitUntil(lambda: cards[0].width() > LEAST_WIDTH and cards[-1].y() > 0)
    rows: dict[int, list[Card]] = {}
    for card in cards:
        rows.setdefault(card.y(), []).append(card)
    assert [len(row) for row in rows.values()] == in_rows[n_gpus]
    for row in rows.values():
        assert max(card.width() for card in row) - min(card.width() for card in row) <= 1
        assert row[-1].geometry().right() >= page.grid.viewport().width() - 10, "a row is filled by its cards"
        assert row[-1].geometry().right() <= page.grid.viewport().width()
    assert all(card.height() >= LEAST_HEIGHT for card in cards)
    qtbot.waitUntil(lambda: (page.grid.verticalScrollBar().maximum() > 0) == scrolls)


def test_the_wheel_over_a_plot_is_left_to_the_page(qtbot: QtBot, bridge: FakeBridge, make_page: MakePage) -> None:
    page = make_page(990, 576)
    run_engine(qtbot, bridge, page, [counting(n) for n in range(20)])
    chart = chart_card(page, "tokens").chart
    viewport, before = chart._view.viewport(), chart._plot.getViewBox().viewRange()
    at = QPointF(50, 50)
    event = QWheelEvent(
        at, viewport.mapToGlobal(at), QPoint(), QPoint(0, -120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(viewport, event)
    assert not event.isAccepted()
    assert chart._plot.getViewBox().viewRange() == before


def test_the_width_of_the_chat_is_kept(qtbot: QtBot, page: RunPane, store: QSettings, make_page: MakePage) -> None:
    assert 330 <= page._splitter.sizes()[1] <= 380
    store.setValue("run/chat_width", 500)
    assert make_page()._splitter.sizes()[1] == pytest.approx(500, abs=2)


# ---- states of the run -------------------------------------------------------------------------------------------


def test_a_start_takes_the_place_of_the_cards(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    bridge.show(replace(READY, state=RunState.PREFLIGHT, run_id="", activity="Checking the models"))
    assert page.startup.isVisible()
    assert not page.bar.isVisible()
    assert page.startup.activity.text().startswith("Checking the models")
    bridge.show(replace(READY, state=RunState.STARTING, phases=(Phase("Loading weights", 0.0),)))
    assert [step.name.text() for step in page.startup.steps] == ["Loading weights"]
    bridge.feed(reading(0, None))
    assert not page.grid.is_drawing, "nobody sees the cards"
    bridge.show(READY)
    assert page.grid.isVisible()
    assert page.bar.isVisible()
    settle(qtbot, page)


def test_a_failure_takes_the_place_of_the_cards(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    failed = replace(
        READY,
        state=RunState.FAILED,
        log_file=Path("engine.log"),
        ended_at=STARTED + 9,
        diagnosis=Diagnosis("RuntimeError: no memory", "exit code 1", 214),
    )
    # The end is written down a moment before the state changes, and a view may be told in between.
    bridge.show(replace(READY, state=RunState.STARTING, ended_at=STARTED + 9))
    bridge.show(failed)
    assert page.failure.isVisible()
    assert page.failure.cause.text() == "RuntimeError: no memory"
    with qtbot.waitSignal(page.retry_requested):
        page.failure.retry.click()
    with qtbot.waitSignal(page.log_requested) as asked:
        page.failure.show_log.click()
    assert asked.args == [214]
    page.failure.cause.setSelection(0, 7)
    bridge.show(failed)
    assert page.failure.cause.selectedText() == "Runtime", "the same news does not take a selection away"
    bridge.show(RunView())
    assert page.grid.isVisible()


def test_a_stall_is_told_while_it_lasts_and_after(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    stall = page.notices["stall"]
    bridge.show(READY)
    assert not stall.isVisible()
    bridge.show(replace(READY, state=RunState.UNRESPONSIVE, silent_s=65.0, stalled_s=60.0))
    assert stall.isVisible()
    assert stall.text.startswith("The engine has not moved for 1 min 5 s")
    bridge.show(replace(READY, stalled_s=92.0))
    assert stall.text == "The engine moves again; it stood still for 1 min 32 s."
    stall.clear()
    bridge.show(replace(READY, stalled_s=92.0, restart_needed=True))
    assert not stall.isVisible(), "one that was closed stays closed"
    bridge.show(replace(READY, stalled_s=120.0))
    assert stall.isVisible(), "another stall is news"
    bridge.show(replace(READY, state=RunState.STOPPED, stalled_s=120.0))
    assert not stall.isVisible()


def few(second: int, length: float) -> Sample:
    return drafting(second, n_drafts=40, rates=(length - 1, 0.0, 0.0))


def test_few_accepted_guesses_are_told(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    notice = page.notices["few"]
    run_engine(qtbot, bridge, page, [few(n, 1.0 + 0.04 * (n % 5)) for n in range(30)])
    assert notice.text == (
        "Few guesses are accepted (1.08 tokens per step): speculation probably costs more than it gives. "
        "Try fewer draft tokens or another draft."
    )
    for second in range(30, 37):
        bridge.feed(reading(second, few(second, 1.5)))
    assert not notice.isVisible()
    settle(qtbot, page)


@pytest.mark.parametrize("samples", [
    [few(n, 1.2) for n in range(30)],
    [drafting(n, n_drafts=1, rates=(0.0, 0.0, 0.0)) for n in range(19)],  # too few drafts to say so
    [replace(idle(n), speculation=Speculation.OFF) for n in range(30)],
])  # fmt: skip
def test_nothing_is_claimed_that_the_figures_do_not_show(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, samples: list[Sample]
) -> None:
    run_engine(qtbot, bridge, page, samples)
    assert not page.notices["few"].isVisible()


def test_an_earlier_run_says_nothing_about_this_one(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    for second in range(30):
        bridge.record(reading(second, few(second, 1.0)))
    bridge.show(replace(READY, run_id="run-2", ready_at=STARTED + 30))
    bridge.feed(reading(31, idle(31)))
    assert not page.notices["few"].isVisible()
    settle(qtbot, page)
    assert position_card(page).message.text() == "No drafts in the last 5 min"


def test_what_was_measured_is_told_while_the_profile_runs(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    assert not page.measured.isVisible()
    bridge.show(replace(READY, measured_note="0.88x the speed without speculation."))
    assert page.measured.isVisible()
    assert page.measured.text() == "Measured before: 0.88x the speed without speculation."
    bridge.show(replace(READY, state=RunState.STOPPED, measured_note="0.88x the speed without speculation."))
    assert not page.measured.isVisible()


# ---- cost and access ------------------------------------------------------------------------------------------------


def test_cards_are_drawn_one_by_one_and_only_where_they_are_seen(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    bridge.show(READY)
    bridge.feed(reading(0, None))
    settle(qtbot, page)
    cards = page.grid.visible_cards
    before = [card.n_redraws for card in cards]
    bridge.feed(reading(1, counting(1)))
    assert [card.n_redraws for card in cards] == before, "not in the turn of the reading"
    bridge.feed(reading(2, counting(2)))
    settle(qtbot, page)
    assert [card.n_redraws for card in cards] == [n + 1 for n in before], "two readings at once are drawn once"
    page.hide()
    bridge.feed(reading(3, counting(3)))
    assert not page.grid.is_drawing
    page.showMinimized()
    bridge.feed(reading(4, counting(4)))
    assert not page.grid.is_drawing
    assert [card.n_redraws for card in cards] == [n + 1 for n in before]
    page.hide()
    page.showNormal()
    settle(qtbot, page)
    assert page.grid.cards["tokens"].figure.figure == figures.rate(counting(4).generation_tokens_per_s)


def test_items_of_a_plot_are_made_once(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(5)])
    plot = chart_card(page, "tokens").chart._plot
    before = list(plot.items)
    for second in range(5, 8):
        bridge.feed(reading(second, counting(second)))
        settle(qtbot, page)
    assert list(plot.items) == before


def test_every_control_has_a_name_and_a_tooltip(page: RunPane) -> None:
    notices = [notice.findChildren(QAbstractButton) for notice in page.notices.values()]  # have a test of their own
    buttons = [button for button in page.findChildren(QAbstractButton) if button not in [*notices[0], *notices[1]]]
    assert len(buttons) > 15
    for button in buttons:
        assert button.accessibleName() or button.text(), button
        assert button.toolTip() or button.text(), button
    assert all(card.accessibleName() == card.title for card in page.grid.cards.values())
    assert all(card.focusPolicy() & Qt.FocusPolicy.TabFocus for card in page.grid.cards.values())


# ---- marks and export -------------------------------------------------------------------------------------------


def test_what_happens_is_marked_on_every_chart_and_told_by_the_read_out(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    bridge.show(READY)
    for second in range(200):
        bridge.record(reading(second, counting(second)))
    bridge.marks.extend([Mark(STARTED - 500, "start", "Started"), Mark(STARTED + 100, "chat", "Chat")])
    bridge.feed(replace(reading(200, counting(200)), marks=(Mark(STARTED + 199.5, "stall", "No sign of life"),)))
    settle(qtbot, page)
    for key in ("tokens", "acceptance", "latency", "cache"):
        chart = chart_card(page, key).chart
        wide = chart.plot_width
        assert [group.kind for group in chart.mark_groups] == ["chat", "stall"], (
            "what is older than the span is left out"
        )
        places = [group.x_px for group in chart.mark_groups]
        assert places == pytest.approx([wide * (300 - 100) / 300, wide * (300 - 0.5) / 300], abs=1)
    page.grid.point_at(-100.0)
    assert chart_card(page, "tokens").source.text == "Chat  \N{MIDDLE DOT}  1 min 40 s ago".replace("  ", " ")
    page.grid.point_at(-50.0)
    assert chart_card(page, "tokens").source.text == "50 s ago"


def test_readings_of_the_span_that_is_drawn_are_exported(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, tmp_path: Path
) -> None:
    asked: list[tuple[object, ...]] = []

    async def export_live(path: Path, kind: str, begin: float, end: float) -> None:
        asked.append((path, kind, begin, end))

    bridge.desk.history = SimpleNamespace(export_live=export_live)
    assert page.bar.export is not None
    page.bar.export.asked.emit()
    assert not page.bar.export.actions_by_kind["csv"].isEnabled(), "there is no run"
    run_engine(qtbot, bridge, page, [counting(n) for n in range(100)])
    page.bar.export.asked.emit()
    assert page.bar.export.actions_by_kind["csv"].isEnabled()
    assert page.bar.export.file_stem.startswith("Demo, 20")
    page.bar._spans.button(60).click()
    page.bar.export.chosen.emit("csv", tmp_path / "run.csv")
    end = STARTED + 99
    assert asked == [(tmp_path / "run.csv", "csv", end - 60, end)]
    assert page.notices["export"].text == f"Exported to {tmp_path / 'run.csv'}."
    page.bar._pause.setChecked(True)
    bridge.feed(reading(130, counting(130)))
    page.bar.export.chosen.emit("json", tmp_path / "run.json")
    assert asked[-1] == (tmp_path / "run.json", "json", end - 60, end), "what is held is what is exported"
    page.bar._pause.setChecked(False)
    bridge.refusal = UserError("Nothing of this run is recorded.", "Turn the recording on.")
    page.bar.export.chosen.emit("csv", tmp_path / "run.csv")
    assert page.notices["export"].text == "Nothing of this run is recorded. Turn the recording on."
    settle(qtbot, page)


def test_a_picture_of_the_cards_is_exported(qtbot: QtBot, bridge: FakeBridge, page: RunPane, tmp_path: Path) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(100)])
    assert page.bar.export is not None
    file = tmp_path / "run.png"
    areas = [card.geometry() for card in page.grid.visible_cards]
    right, bottom = max(area.right() for area in areas), max(area.bottom() for area in areas)
    page.bar.export.chosen.emit("png", file)
    qtbot.waitUntil(lambda: page.notices["export"].text != "", timeout=20_000)
    assert page.notices["export"].text == f"Exported to {file}."
    picture = QImage(str(file))
    assert picture.width() >= 2 * right
    assert picture.height() >= 2 * bottom
    settle(qtbot, page)
