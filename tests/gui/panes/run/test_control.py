"""What a person can change on the Run page: span, pause, read-out, which cards in which order."""

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, QSettings, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QListWidget
from pytestqt.qtbot import QtBot

from gui.panes.run import RunPane
from gui.widgets import figures
from gui.widgets.card import LEAST_HEIGHT, LEAST_WIDTH, Card
from tests.gui import gpu_scenes
from tests.gui.panes.readings import READY, STARTED, FakeBridge, counting, drafting, idle, missing, reading
from tests.gui.panes.run.run_page import MakePage, chart_card, position_card, run_engine, settle

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
    box = chart._box
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
    viewport, before = chart._view.viewport(), chart._box.viewRange()
    at = QPointF(50, 50)
    event = QWheelEvent(
        at, viewport.mapToGlobal(at), QPoint(), QPoint(0, -120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(viewport, event)
    assert not event.isAccepted()
    assert chart._box.viewRange() == before


def test_the_width_of_the_chat_is_kept(qtbot: QtBot, page: RunPane, store: QSettings, make_page: MakePage) -> None:
    assert 330 <= page._splitter.sizes()[1] <= 380
    store.setValue("run/chat_width", 500)
    assert make_page()._splitter.sizes()[1] == pytest.approx(500, abs=2)
