"""What drawing the Run page costs, and who can use it."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from gui.panes.run import RunPane
from gui.widgets import figures
from tests.gui.panes.readings import READY, FakeBridge, counting, reading
from tests.gui.panes.run.run_page import MakePage, chart_card, run_engine, settle

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
    chart = chart_card(page, "tokens").chart
    before = chart._view.items()
    for second in range(5, 8):
        bridge.feed(reading(second, counting(second)))
        settle(qtbot, page)
    assert chart_card(page, "tokens").chart is chart
    assert chart._view.items() == before


def test_every_control_has_a_name_and_a_tooltip(page: RunPane) -> None:
    notices = [notice.findChildren(QAbstractButton) for notice in page.notices.values()]  # have a test of their own
    buttons = [button for button in page.findChildren(QAbstractButton) if button not in [*notices[0], *notices[1]]]
    assert len(buttons) > 15
    for button in buttons:
        assert button.accessibleName() or button.text(), button
        assert button.toolTip() or button.text(), button
    assert all(card.accessibleName() == card.title for card in page.grid.cards.values())
    assert all(card.focusPolicy() & Qt.FocusPolicy.TabFocus for card in page.grid.cards.values())


def test_a_page_that_is_made_late_shows_what_is_known(qtbot: QtBot, bridge: FakeBridge, make_page: MakePage) -> None:
    """The next reading may be a minute away."""
    bridge.run = READY
    for second in range(20):
        bridge.record(reading(second, counting(second)))
    page = make_page()
    words = "tokens/s generated, 19.0 of prompts read"
    qtbot.waitUntil(lambda: chart_card(page, "tokens").figure.words == words, timeout=10_000)
    assert page.bar._figures.text() != ""
