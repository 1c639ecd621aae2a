"""The cards of the Run page that tell of GPUs, as a test works with them."""

from collections.abc import Callable
from dataclasses import replace

from pytestqt.qtbot import QtBot

from backend.desk.types import Reading
from backend.events import HostSample, Sample, Verdict
from backend.hardware import GpuSnapshot
from gui.panes.run import RunPane
from gui.widgets.gpu_run_cards import BandwidthCard, GpuMemoryCard
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import GIB, STARTED
from tests.gui.panes.readings import READY, FakeBridge
from tests.gui.panes.run.run_page import settle

MEASURED, ESTIMATE, IMPLIED = range(3)
RUN = replace(READY, started_at=STARTED - 30, ready_at=STARTED - 1, memory_utilisation=0.92)


def reading(
    second: float, gpus: GpuSnapshot | None, engine: Sample | None = None, verdict: Verdict | None = None
) -> Reading:
    return Reading(HostSample(STARTED + second, 0.1, 60 * GIB, 500 * GIB), engine, gpus, verdict)


def show(
    qtbot: QtBot,
    bridge: FakeBridge,
    page: RunPane,
    gpus: Callable[[float], GpuSnapshot | None],
    engine: Callable[[float], Sample | None] = lambda second: scenes.sample(second, 2),
    *,
    seconds: int = 20,
) -> None:
    """Show a run whose last reading comes while the page looks."""
    bridge.show(RUN)
    for second in range(seconds - 1):
        bridge.record(reading(second, gpus(second), engine(second)))
    bridge.feed(reading(seconds - 1, gpus(seconds - 1), engine(seconds - 1), scenes.BANDWIDTH_BOUND))
    settle(qtbot, page)


def memory(page: RunPane) -> GpuMemoryCard:
    card = page.grid.cards[GpuMemoryCard.KEY]
    assert isinstance(card, GpuMemoryCard)
    return card


def bandwidth(page: RunPane) -> BandwidthCard:
    card = page.grid.cards[BandwidthCard.KEY]
    assert isinstance(card, BandwidthCard)
    return card
