"""The Run page as a test works with it."""

from collections.abc import Callable

from pytestqt.qtbot import QtBot

from backend.events import Sample
from gui.panes.run import RunPane
from gui.widgets.card import Card
from gui.widgets.chart_card import ChartCard, PositionCard
from tests.gui.panes.readings import READY, STARTED, FakeBridge, reading

MakePage = Callable[..., RunPane]
ENGINE_CARDS = ("tokens", "acceptance", "positions", "latency", "cache")


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


def card_words(card: Card) -> str:
    return card.message.text() or card.figure.words
