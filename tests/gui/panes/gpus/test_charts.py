"""The charts of the GPUs page: which GPUs they tell of, what they say, and what they cost."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QLabel
from pytestqt.qtbot import QtBot

from backend.events import RunState
from backend.hardware import GpuSnapshot, Why, gpu_series
from gui.panes.gpus import GpusPane
from gui.widgets.gpu_table import ALL
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import GIB, PEAK, STARTED
from tests.gui.panes.gpus.gpus_page import RUN, MakePage, card, reading, says, section, settle, show
from tests.gui.panes.readings import FakeBridge

VALUES = (  # card, view, figure, factor, its words for one GPU with the value 0.5, 2, ... of the scene
    ("gpu_memory", 0, "memory_used_bytes", 1 / GIB),
    ("gpu_memory", 1, "engine_bytes", 1 / GIB),
    ("gpu_bandwidth", 0, "dram_bytes_per_s", 1e-9),
    ("gpu_bandwidth", 1, "dram_ratio", 100),
    ("gpu_busy", 0, "busy_ratio", 100),
    ("gpu_activity", 0, "sm_ratio", 100),
    ("gpu_activity", 1, "tensor_ratio", 100),
    ("gpu_memory_busy", 0, "memory_busy_ratio", 100),
    ("gpu_power", 0, "power_w", 1),
    ("gpu_temperature", 0, "temperature_c", 1),
    ("gpu_temperature", 1, "memory_temperature_c", 1),
    ("gpu_clocks", 0, "sm_clock_mhz", 1),
    ("gpu_clocks", 1, "memory_clock_mhz", 1),
    ("gpu_pcie", 0, "pcie_rx_bytes_per_s", 1e-9),
    ("gpu_pcie", 1, "pcie_tx_bytes_per_s", 1e-9),
    ("gpu_nvlink", 0, "nvlink_rx_bytes_per_s", 1e-9),
    ("gpu_nvlink", 1, "nvlink_tx_bytes_per_s", 1e-9),
)


def test_every_chart_draws_what_was_read(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    for key, view, figure, factor in VALUES:
        found = card(page, key)
        found.choose_view(view)
        assert len(found.chart.drawn) == 2
        for number in range(2):
            _, drawn = found.chart.drawn[gpu_series(scenes.uuid(number), figure)]
            wanted = [getattr(scenes.reading(second, number), figure) * factor for second in range(10)]
            assert drawn.tolist() == pytest.approx(wanted), figure


TOGETHER = (
    ("gpu_memory", 0, "141.2 GiB used of 159.3 GiB, 2 GPUs together"),
    ("gpu_bandwidth", 0, "2,011 GB/s per GPU, mean of 2 GPUs, 60 % of peak"),
    ("gpu_bandwidth", 1, "60 % of peak bandwidth, mean of 2 GPUs"),
    ("gpu_busy", 0, "90 % of the time a kernel ran, mean of 2 GPUs"),
    ("gpu_memory_busy", 0, "70 % of the time memory was in use, mean of 2 GPUs"),
    ("gpu_power", 0, "601 W, 2 GPUs together"),
    ("gpu_temperature", 0, "61 °C, highest on GPU 1"),
    ("gpu_clocks", 0, "1,900 MHz, lowest on GPU 0, 1 throttled: power cap"),
    ("gpu_pcie", 0, "0.50 GB/s in, 2 GPUs together"),
    ("gpu_nvlink", 1, "40.0 GB/s out, 2 GPUs together"),
)


def test_what_stands_for_all_gpus(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    readings = [
        scenes.reading(
            0, n, dram_ratio=share, dram_bytes_per_s=share * PEAK, busy_ratio=0.8 + 0.2 * n, memory_busy_ratio=0.7,
            power_w=300.0 + n, temperature_c=60.0 + n, sm_clock_mhz=1900.0 + n, pcie_rx_bytes_per_s=0.25e9,
            nvlink_tx_bytes_per_s=20e9, throttle=("power cap",) if n == 0 else (),
        )
        for n, share in enumerate((0.5, 0.7))
    ]  # fmt: skip
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, readings=readings))
    for key, view, words in TOGETHER:
        card(page, key).choose_view(view)
        assert says(page, key) == words


def test_time_is_never_called_bandwidth(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 1))
    for key in ("gpu_busy", "gpu_memory_busy"):
        found = card(page, key)
        assert found.source.text == "NVML, time"
        assert "GB/s" not in f"{found.figure.words} {found.title}"
        assert found.chart.limit == 100


def test_energy_of_a_token(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    bridge.show(RUN)
    show(
        qtbot, bridge, page, lambda second: scenes.snapshot(second, 1),
        lambda second: scenes.sample(second, 1, joules_per_token=0.5),
    )  # fmt: skip
    power = card(page, "gpu_power")
    power.choose_view(1)
    assert says(page, "gpu_power") == "0.50 J per token"
    bridge.show(replace(RUN, state=RunState.STOPPED))
    bridge.feed(reading(400, scenes.snapshot(400, 1)))
    settle(qtbot, page)
    assert says(page, "gpu_power") == "No engine is running. Press Start."


def test_stretches_of_throttling_are_marked_on_the_clocks(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    def gpus(second: float) -> GpuSnapshot:
        held = ("power cap",) if 100 <= second < 200 else ()
        return scenes.snapshot(
            second, 2, readings=[scenes.reading(second, 0), scenes.reading(second, 1, throttle=held)]
        )

    show(qtbot, bridge, page, gpus, seconds=300)
    chart = card(page, "gpu_clocks").chart
    ((begin, end),) = chart.bands
    wide = chart.plot_width
    assert begin == pytest.approx(wide * (100 + 1) / 300, abs=wide / 150)
    assert end == pytest.approx(wide * (199 + 1) / 300, abs=wide / 150)
    page.table.choose(scenes.uuid(0))
    settle(qtbot, page)
    assert card(page, "gpu_clocks").chart.bands == (), "the other one was throttled"


def test_one_gpu_is_chosen_by_keyboard(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 8))
    assert page.table.chosen_key == ALL
    page.activateWindow()
    page.table.setFocus()
    for _ in range(3):
        QTest.keyClick(page.table, Qt.Key.Key_Down)
    settle(qtbot, page)
    assert page.table.chosen_key == scenes.uuid(2)
    assert list(card(page, "gpu_power").legend.values()) == ["GPU 2"]
    assert page.bar._figures.text() == "GPU 2 only; choose All above for all of them"
    bridge.feed(reading(10, scenes.snapshot(10, 8)))
    settle(qtbot, page)
    assert page.table.chosen_key == scenes.uuid(2), "a reading does not take it away"
    page.table.choose(ALL)
    settle(qtbot, page)
    assert len(card(page, "gpu_power").legend.values()) == 8
    assert page.bar._figures.text() == ""


def test_a_sum_of_one_of_several_says_which_one(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    readings = [scenes.lost(9, 0), scenes.reading(9, 1, power_w=300.0, busy_ratio=0.5, dram_bytes_per_s=2e12)]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, readings=readings))
    assert says(page, "gpu_power") == "300 W, GPU 1"
    assert says(page, "gpu_busy") == "50 % of the time a kernel ran, GPU 1"
    assert says(page, "gpu_temperature").endswith("°C, GPU 1")
    assert says(page, "gpu_bandwidth").startswith("2,000 GB/s, GPU 1, ")
    page.table.choose(scenes.uuid(1))
    settle(qtbot, page)
    assert says(page, "gpu_power") == "300 W", "that it is GPU 1 stands above"


def test_a_source_says_how_often_gpus_are_read(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 1, interval_s=2.0))
    assert card(page, "gpu_power").source.toolTip() == "From the NVIDIA driver. Read every 2 s."


def test_while_paused_another_gpu_can_be_chosen_but_none_that_came_later(
    qtbot: QtBot, bridge: FakeBridge, page: GpusPane
) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    page.bar._pause.click()
    bridge.feed(reading(30, scenes.snapshot(30, 4)))
    page.table.choose(scenes.uuid(1))
    settle(qtbot, page)
    power = scenes.reading(9, 1).power_w
    assert power is not None
    assert says(page, "gpu_power") == f"{power:.0f} W", "as it was when the drawing was held"
    assert list(card(page, "gpu_power").legend.values()) == ["GPU 1"]
    page.table.choose(ALL)
    settle(qtbot, page)
    assert list(card(page, "gpu_power").legend.values()) == ["GPU 0", "GPU 1"]
    page.bar._pause.click()
    settle(qtbot, page)
    assert list(card(page, "gpu_power").legend.values()) == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]


def test_lines_of_one_colour_are_told_apart(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 8))
    lines = card(page, "gpu_busy").chart._lines
    assert len({(line.colour, line.dashed) for line in lines}) == 8


def test_what_a_gpu_cannot_tell_has_no_line(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    cannot = scenes.without(scenes.reading(0, 1), Why.NOT_SUPPORTED, "memory_temperature_c")
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, readings=[scenes.reading(second), cannot]))
    card(page, "gpu_temperature").choose_view(1)
    assert list(card(page, "gpu_temperature").legend.values()) == ["GPU 0"]
    neither = [scenes.without(scenes.reading(20, n), Why.NOT_SUPPORTED, "memory_temperature_c") for n in range(2)]
    bridge.feed(reading(400, scenes.snapshot(400, 2, readings=neither)))
    settle(qtbot, page)
    assert says(page, "gpu_temperature") == "This GPU does not tell the temperature of its memory."


def test_there_is_no_card_of_links_that_do_not_exist(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, gpus=[scenes.info(0, nvlinks=0)], readings=[
        scenes.reading(second)
    ]))  # fmt: skip
    assert not page.grid.cards["gpu_nvlink"].isVisible()
    assert page.grid.cards["gpu_pcie"].isVisible()


def test_span_view_and_cards_are_kept(qtbot: QtBot, bridge: FakeBridge, page: GpusPane, make_page: MakePage) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 1))
    page.bar._spans.button(1800).click()
    card(page, "gpu_clocks").choose_view(1)
    page.grid.choose(page.grid.order, [key for key in page.grid.cards if key != "gpu_busy"])
    settle(qtbot, page)
    again = make_page()
    assert again.bar._spans.checkedId() == 1800
    assert card(again, "gpu_clocks").view_index == 1
    assert "gpu_busy" not in again.grid.shown
    settle(qtbot, again)


# ---- cost and access ----------------------------------------------------------------------------------------------


def test_gpus_are_measured_only_while_charts_of_it_are_seen(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 1))
    assert bridge.measured_for == {"gpus"}
    section(page, "Processes")
    assert bridge.measured_for == set()
    section(page, "Charts")
    assert bridge.measured_for == {"gpus"}
    page.grid.choose(page.grid.order, [key for key in page.grid.cards if key not in ("gpu_bandwidth", "gpu_activity")])
    assert bridge.measured_for == set()
    page.grid.choose(page.grid.order, list(page.grid.cards))
    page.hide()
    assert bridge.measured_for == set()
    page.show()
    assert bridge.measured_for == {"gpus"}
    settle(qtbot, page)


def test_nothing_is_drawn_that_nobody_sees(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    redraws = [each.n_redraws for each in page.grid.cards.values()]
    shown = page.table.rows.rows
    page.hide()
    bridge.feed(reading(10, scenes.snapshot(10, 2)))
    assert not page.grid.is_drawing
    assert page.table.rows.rows is shown
    page.show()
    settle(qtbot, page)
    assert page.table.rows.rows != shown
    section(page, "Processes")
    redraws = [each.n_redraws for each in page.grid.cards.values()]
    bridge.feed(reading(11, scenes.snapshot(11, 2)))
    assert not page.grid.is_drawing
    assert [each.n_redraws for each in page.grid.cards.values()] == redraws


def test_cards_that_are_scrolled_away_wait_until_they_come_into_sight(
    qtbot: QtBot, bridge: FakeBridge, make_page: MakePage
) -> None:
    page = make_page(1330, 500)
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 8))
    bridge.feed(reading(10, scenes.snapshot(10, 8)))
    settle(qtbot, page)
    seen, unseen = card(page, "gpu_memory"), card(page, "gpu_nvlink")
    qtbot.waitUntil(lambda: unseen.visibleRegion().isEmpty())
    before = seen.n_redraws, unseen.n_redraws
    bridge.feed(reading(11, scenes.snapshot(11, 8)))
    settle(qtbot, page)
    assert (seen.n_redraws, unseen.n_redraws) == (before[0] + 1, before[1])
    page.grid.verticalScrollBar().setValue(page.grid.verticalScrollBar().maximum())
    qtbot.waitUntil(lambda: unseen.n_redraws == before[1] + 1)
    assert unseen.moment is not None
    assert unseen.moment.now == STARTED + 11
    settle(qtbot, page)


def test_items_are_made_once(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 8))
    charts = [card(page, key).chart for key in ("gpu_memory", "gpu_bandwidth", "gpu_clocks")]
    items = [chart._view.items() for chart in charts]
    for second in range(10, 13):
        bridge.feed(reading(second, scenes.snapshot(second, 8)))
        settle(qtbot, page)
    assert [card(page, key).chart for key in ("gpu_memory", "gpu_bandwidth", "gpu_clocks")] == charts
    assert [chart._view.items() for chart in charts] == items


def test_every_control_has_a_name_and_a_tooltip(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    section(page, "Hardware")
    for button in page.findChildren(QAbstractButton):
        if type(button) is not QAbstractButton:  # the corner of a table, which nobody sees
            assert button.accessibleName() or button.text(), button
            assert button.toolTip() or button.text(), button
    for table in (page.table, page.processes.table, page.hardware.facts, page.hardware.matrix):
        assert table is not None
        assert table.accessibleName()
    assert not any("N/A" in label.text() for label in page.findChildren(QLabel))
    section(page, "Charts")
    settle(qtbot, page)
