"""The GPUs page as a test works with it."""

from collections.abc import Callable
from dataclasses import replace

from pytestqt.qtbot import QtBot

from backend.desk.types import Reading
from backend.events import HostSample, Sample
from backend.hardware import GpuSnapshot
from gui.panes.gpus import GpusPane
from gui.widgets.chart_card import ChartCard
from tests.gui.gpu_scenes import GIB, STARTED
from tests.gui.panes.readings import READY, FakeBridge

MakePage = Callable[..., GpusPane]
RUN = replace(READY, started_at=STARTED - 30, ready_at=STARTED - 1)
GPU, NAME, UUID, MEMORY, BUSY, POWER, TEMPERATURE, CLOCK, STATE = range(9)


def reading(second: float, gpus: GpuSnapshot | None, engine: Sample | None = None) -> Reading:
    return Reading(HostSample(STARTED + second, 0.25, 8 * GIB, 16 * GIB), engine, gpus)


def settle(qtbot: QtBot, page: GpusPane) -> None:
    qtbot.waitUntil(lambda: not page.grid.is_drawing, timeout=10_000)


def show(
    qtbot: QtBot,
    bridge: FakeBridge,
    page: GpusPane,
    gpus: Callable[[float], GpuSnapshot | None],
    engine: Callable[[float], Sample | None] = lambda _second: None,
    *,
    seconds: int = 10,
) -> None:
    for second in range(seconds - 1):
        bridge.record(reading(second, gpus(second), engine(second)))
    bridge.feed(reading(seconds - 1, gpus(seconds - 1), engine(seconds - 1)))
    settle(qtbot, page)


def cells(page: GpusPane, key: str) -> list[str]:
    """What a row of the table says."""
    row = page.table.rows.row_of(key)
    assert row is not None
    return [cell.text.strip() for cell in page.table.rows.rows[row].cells]


def tip(page: GpusPane, key: str, column: int) -> str:
    row = page.table.rows.row_of(key)
    assert row is not None
    return page.table.rows.rows[row].cells[column].tip


def card(page: GpusPane, key: str) -> ChartCard:
    found = page.grid.cards[key]
    assert isinstance(found, ChartCard)
    return found


def says(page: GpusPane, key: str) -> str:
    """Figure and words of a card, or what it says in their place."""
    found = card(page, key)
    return found.message.text() or f"{found.figure.figure} {found.figure.words}".replace(" ,", ",")


def section(page: GpusPane, name: str) -> None:
    next(button for button in page.sections.buttons() if button.text() == name).click()


def process_rows(page: GpusPane) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in page.processes.table.rows.rows]
