"""Who holds the memory of the GPUs, on the Run page."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QSettings
from pytestqt.qtbot import QtBot

from backend.hardware import GpuSnapshot, gpu_series
from gui.panes.run import RunPane
from gui.widgets import figures
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import GIB
from tests.gui.panes.readings import FakeBridge
from tests.gui.panes.run.run_gpus import RUN, bandwidth, memory, reading, show
from tests.gui.panes.run.run_page import MakePage, settle


def test_the_memory_of_each_gpu_is_split_by_who_holds_it(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    card = memory(page)
    assert card.isVisible()
    assert [row.label for row in card.bars.rows] == ["GPU 0", "GPU 1"]
    sizes = {part.name: size / GIB for part, size in card.bars.rows[1].split.parts}
    assert sizes == pytest.approx(
        {"this engine": 70.1, "other": 0.45, "reserved": 0.62, "free": 79.65 - 0.62 - 70.1 - 0.45}
    )
    assert (card.figure.figure, card.figure.words) == ("70.7", "of 79.7 GiB on GPU 0, the fullest")
    assert card.legend.values() == {"this engine": "70.2", "other": "0.5", "reserved": "0.6", "free": "8.4"}
    assert card.source.text == "NVML · by owner"


def test_the_fullest_gpu_is_one_that_the_engine_uses(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    full = scenes.reading(0, 2, engine_bytes=0.0, other_bytes=78 * GIB, memory_used_bytes=78 * GIB)
    readings = [scenes.reading(0, 0), scenes.reading(0, 1, engine_bytes=71 * GIB, memory_used_bytes=71.45 * GIB), full]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 3, readings=readings))
    assert memory(page).figure.words == "of 79.7 GiB on GPU 1, the fullest"
    assert [row.is_limited for row in memory(page).bars.rows] == [True, True, False]


def test_the_limit_of_the_profile_is_marked(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    card = memory(page)
    assert card.bars.limit_words == "profile limit 0.92"
    bar = card.bars.bar_rect(0)
    assert card.bars.limit_x == pytest.approx(bar.left() + 0.92 * bar.width(), abs=1)
    card.choose_view(1)
    assert card.chart.level is not None
    assert card.chart.level.value == pytest.approx(0.92 * 79.65, abs=0.01)
    assert card.chart.level.name == "profile limit 0.92"
    bridge.show(replace(RUN, memory_utilisation=None))
    bridge.feed(reading(21, scenes.snapshot(21, 2), scenes.sample(21, 2)))
    settle(qtbot, page)
    assert card.chart.level is not None
    assert card.chart.level.name == "total 79.7 GiB"
    card.choose_view(0)
    assert card.bars.limit_x is None


def test_memory_over_time_is_a_line_for_each_gpu(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    def gpus(second: float) -> GpuSnapshot:
        used = [(10 + second) * GIB, 20 * GIB]
        return scenes.snapshot(
            second, 2, readings=[scenes.reading(second, n, memory_used_bytes=used[n]) for n in range(2)]
        )

    show(qtbot, bridge, page, gpus)
    card = memory(page)
    card.choose_view(1)
    drawn = {name: y.tolist() for name, (_, y) in card.chart.drawn.items()}
    assert drawn[gpu_series(scenes.uuid(0), "memory_used_bytes")] == pytest.approx([10 + n for n in range(20)])
    assert drawn[gpu_series(scenes.uuid(1), "memory_used_bytes")] == pytest.approx([20.0] * 20)
    assert card.legend.values() == {"GPU 0": "29.0", "GPU 1": "20.0"}


def test_the_read_out_goes_back_for_the_bars_too(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    def gpus(second: float) -> GpuSnapshot:
        held = (10 + second) * GIB
        made = scenes.reading(
            second, 0, engine_bytes=held, memory_used_bytes=held + 0.45 * GIB, memory_free_bytes=60 * GIB
        )
        return scenes.snapshot(second, 1, readings=[made])

    show(qtbot, bridge, page, gpus)
    card = memory(page)
    assert card.legend.values()["this engine"] == "29.0"
    page.grid.point_at(-12.0)
    assert card.legend.values()["this engine"] == "17.0"
    assert card.source.text == "12 s ago"
    page.grid.point_at(-200.0)
    assert card.bars.rows[0].unknown == "not read then"
    page.grid.point_at(None)
    assert card.legend.values()["this engine"] == "29.0"


def test_a_lost_gpu_has_no_bar_and_the_others_stay(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    readings = [scenes.reading(0, 0), scenes.lost(0, 1)]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, readings=readings))
    first, second = memory(page).bars.rows
    assert first.split.parts
    assert not second.split.parts
    assert second.unknown == "lost"
    assert "fallen off the bus" in second.tip


def test_old_figures_are_not_said_to_be_those_of_now(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    crashed = "NVML crashed (signal 11). It is started again after 5 s."

    def snapshot(second: float) -> GpuSnapshot:
        made = scenes.snapshot(min(second, 9), 1)
        return scenes.old(made, second, crashed) if second > 9 else made

    show(qtbot, bridge, page, snapshot)
    assert memory(page).figure.figure == figures.UNKNOWN
    assert memory(page).figure.words == f"{crashed} The last figures are 10 s old."
    assert memory(page).bars.is_old
    assert memory(page).bars.accessibleDescription().startswith("Old figures. GPU 0: ")
    assert set(memory(page).legend.values().values()) == {""}, "what each part is, and no figure"
    card = bandwidth(page)
    assert (card.figure.figure, card.legend.values()) == (figures.UNKNOWN, {"GPU 0": figures.UNKNOWN})


def test_unified_memory_is_said_to_be_shared(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    spark = scenes.info(0, name="NVIDIA GB10", unified_memory=True, measures_bandwidth=False)
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 1, gpus=[spark]))
    assert memory(page).figure.words == "of 79.7 GiB used, shared with system"


def test_without_a_gpu_there_is_no_card_of_its_memory(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, store: QSettings, make_page: MakePage
) -> None:
    show(qtbot, bridge, page, lambda second: scenes.no_gpus(second))
    keys = [card.key for card in page.grid.visible_cards]
    assert keys == ["tokens", "acceptance", "positions", "bandwidth", "latency", "cache", "host"]
    page.grid.choose(["host", "tokens"], ["host", "tokens"])  # what a person hides and moves meanwhile
    bridge.feed(reading(30, scenes.snapshot(30, 1), scenes.sample(30)))
    settle(qtbot, page)
    assert [card.key for card in page.grid.visible_cards] == ["host", "tokens", "gpu_memory"]
    again = make_page()
    assert again.grid.shown == {"host", "tokens", "gpu_memory"}


def test_an_order_that_was_kept_before_there_were_gpu_cards(
    bridge: FakeBridge, store: QSettings, make_page: MakePage
) -> None:
    store.setValue("run/cards", "host,tokens,acceptance,positions,latency,cache")
    store.setValue("run/cards_hidden", "cache")
    page = make_page()
    assert page.grid.order == (
        "host", "tokens", "acceptance", "positions", "gpu_memory", "bandwidth", "latency", "cache",
    )  # fmt: skip
    assert page.grid.cards.keys() - page.grid.shown == {"cache"}
