"""Memory bandwidth on the Run page, from one source at a time, and what it is measured for."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from backend.events import Bound, RunState, Sample, Verdict
from backend.hardware import GpuSnapshot, Why, gpu_series
from gui.panes.run import RunPane
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import PEAK, STARTED
from tests.gui.panes.readings import FakeBridge
from tests.gui.panes.run.run_gpus import ESTIMATE, IMPLIED, MEASURED, RUN, bandwidth, reading, show
from tests.gui.panes.run.run_page import MakePage, settle


def test_measured_bandwidth_is_shown_with_its_peak(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    def gpus(second: float) -> GpuSnapshot:
        shares = (0.5, 0.7)
        readings = [
            scenes.reading(second, n, dram_ratio=share, dram_bytes_per_s=share * PEAK) for n, share in enumerate(shares)
        ]
        return scenes.snapshot(second, 2, readings=readings)

    show(qtbot, bridge, page, gpus)
    card = bandwidth(page)
    assert card.view_index == MEASURED
    assert card.source.text == "measured · GPM"
    assert card.figure.figure == "2,011"  # 0.6 x 3352.3
    assert card.figure.words == "GB/s per GPU, mean of 2 GPUs, 60 % of peak"
    assert card.legend.values() == {"GPU 0": "1,676", "GPU 1": "2,347"}
    level = card.chart.level
    assert level is not None
    assert level.value == pytest.approx(3352.3)
    assert level.name == "peak 3,352 GB/s"
    assert card.chart.limit >= 3352.3, "the axis reaches up to the peak"


def test_gpus_with_different_peaks_have_no_common_line(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    gpus = [scenes.info(0), scenes.info(1, peak_bytes_per_s=2e12)]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, gpus=gpus))
    assert bandwidth(page).chart.level is None


def test_implied_bandwidth_is_bytes_per_step_times_steps(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    show(qtbot, bridge, page, scenes.no_gpus, lambda second: scenes.sample(second, 1))
    card = bandwidth(page)
    assert card.view_index == IMPLIED
    assert card.source.text == "implied"
    steps = float(page.bar._figures.text().removesuffix(" steps/s"))
    assert float(card.figure.figure.replace(",", "")) == pytest.approx(16.06 * steps, rel=0.005)
    assert card.figure.words == "GB/s implied"


SERIES = {
    MEASURED: {gpu_series(scenes.uuid(n), "dram_bytes_per_s") for n in range(2)},
    ESTIMATE: {"estimated_bytes_per_s"},
    IMPLIED: {"implied_bytes_per_s"},
}


def test_no_plot_has_two_sources(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    """With everything known, each view draws its own figures, in a colour of its own, and names them."""

    def engine(second: float) -> Sample:
        return scenes.sample(second, 2, estimated_bytes_per_s=1.5e12, implied_bytes_per_s=1.0e12)

    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2), engine)
    card = bandwidth(page)
    colours = set()
    for index, word, newest in (
        (MEASURED, "measured · GPM", None),
        (ESTIMATE, "engine estimate", "1,500"),
        (IMPLIED, "implied", "1,000"),
    ):
        card.menu.actions()[index].trigger()
        assert card.view_index == index
        assert card.source.text == word
        assert set(card.chart.drawn) == SERIES[index]
        assert {line.name for line in card.chart.lines} == SERIES[index], "nothing else can be drawn there"
        assert card.button.text() == card.views[index].label
        assert [action.isChecked() for action in card.menu.actions()] == [n == index for n in range(3)]
        if newest is not None:
            assert card.figure.figure == newest
            assert f"{float(newest.replace(',', '')) / 3352.3 * 100:.0f} % of peak" in card.figure.words
            colours.add(card.views[index].series[0].colour)
    assert len(colours) == 2


def test_the_best_source_is_chosen_until_a_person_does(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, make_page: MakePage
) -> None:
    ada = scenes.info(0, measures_bandwidth=False)

    def gpus(second: float) -> GpuSnapshot:
        made = scenes.without(scenes.reading(second), Why.NOT_SUPPORTED, "dram_ratio", "dram_bytes_per_s")
        return scenes.snapshot(second, 1, gpus=[ada], readings=[made])

    show(qtbot, bridge, page, gpus, lambda second: scenes.sample(second, 1))
    card = bandwidth(page)
    assert card.view_index == IMPLIED
    bridge.feed(reading(20, gpus(20), scenes.sample(20, 1, estimated_bytes_per_s=9e11)))
    settle(qtbot, page)
    assert (card.view_index, card.figure.figure) == (ESTIMATE, "900"), "an estimate has come"
    card.choose_view(IMPLIED)
    bridge.feed(reading(21, gpus(21), scenes.sample(21, 1, estimated_bytes_per_s=9e11)))
    settle(qtbot, page)
    assert card.view_index == IMPLIED, "a person's choice stays"
    assert bandwidth(make_page()).wanted == IMPLIED, "also in the next window"
    card.choose_view(ESTIMATE)
    assert card.wanted is None, "the best one again: the card chooses by itself"
    assert bandwidth(make_page()).wanted is None
    settle(qtbot, page)


@pytest.mark.parametrize(
    ("why", "words"),
    [(Why.NOT_SUPPORTED, "This GPU does not measure its bandwidth (GPM needs Hopper or newer)."),
     (Why.NO_PERMISSION, "The driver does not let this user read its memory bandwidth.")],
)  # fmt: skip
def test_where_nothing_is_measured_words_say_why(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, why: Why, words: str
) -> None:
    def gpus(second: float) -> GpuSnapshot:
        made = scenes.without(scenes.reading(second), why, "dram_ratio", "dram_bytes_per_s")
        return scenes.snapshot(second, 1, readings=[made])

    show(qtbot, bridge, page, gpus, lambda second: scenes.sample(second, 1))
    card = bandwidth(page)
    assert card.view_index == IMPLIED
    card.choose_view(MEASURED)
    assert card.message.text().startswith(words)
    card.choose_view(ESTIMATE)
    assert "--enable-mfu-metrics" in card.message.text()


def test_what_an_earlier_run_estimated_does_not_choose_the_source(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    plain = replace(scenes.info(0), measures_bandwidth=False)

    def snapshot(second: float) -> GpuSnapshot:
        return scenes.snapshot(second, 1, gpus=[plain])

    show(qtbot, bridge, page, snapshot, lambda second: scenes.sample(second, 1, estimated_bytes_per_s=1e12))
    assert bandwidth(page).view_index == ESTIMATE
    bridge.feed(reading(20, snapshot(20), scenes.sample(20, 1, estimated_bytes_per_s=None)))
    settle(qtbot, page)
    assert bandwidth(page).view_index == ESTIMATE, "a reading without one is a gap"
    bridge.show(replace(RUN, run_id="another", ready_at=STARTED + 20.5))
    bridge.feed(reading(21, snapshot(21), scenes.sample(21, 1)))
    settle(qtbot, page)
    assert bandwidth(page).view_index == IMPLIED, "this engine was started without --enable-mfu-metrics"


def test_without_nvidia_the_reason_stands_in_the_measured_view(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    show(qtbot, bridge, page, scenes.no_gpus, lambda second: scenes.sample(second, 1))
    card = bandwidth(page)
    card.choose_view(MEASURED)
    assert card.message.text() == scenes.no_gpus().problem


def test_what_the_settings_turn_off_is_not_chosen_and_is_said(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    bridge.desk.settings = SimpleNamespace(gpu_profiling=False)

    def gpus(second: float) -> GpuSnapshot:
        made = scenes.without(scenes.reading(second), Why.NOT_READ, "dram_ratio", "dram_bytes_per_s")
        return scenes.snapshot(second, 1, readings=[made])

    show(qtbot, bridge, page, gpus, lambda second: scenes.sample(second, 1))
    card = bandwidth(page)
    assert card.view_index == IMPLIED
    card.choose_view(MEASURED)
    assert card.message.text() == "Measuring is turned off. Turn it on under GPUs in Settings."


def test_the_verdict_stands_under_the_figure(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 1), lambda second: scenes.sample(second, 1))
    line = bandwidth(page).verdict
    assert line.isVisible()
    assert line.accessibleName().startswith("bandwidth-bound: memory 60 % of peak (measured)")
    assert line.toolTip() == line.accessibleName()
    unknown = Verdict(Bound.UNKNOWN, "The engine makes no steps now.")
    bridge.feed(reading(20, scenes.snapshot(20, 1), scenes.sample(20), unknown))
    settle(qtbot, page)
    assert line.accessibleName() == "The engine makes no steps now."
    bridge.feed(reading(21, scenes.snapshot(21, 1), scenes.sample(21)))
    settle(qtbot, page)
    assert not line.isVisible()


def test_a_gap_of_the_measuring_is_a_gap(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    def gpus(second: float) -> GpuSnapshot:
        made = scenes.reading(second)
        if 5 <= second < 10:
            made = scenes.without(made, Why.NOT_READ, "dram_ratio", "dram_bytes_per_s")
        return scenes.snapshot(second, 1, readings=[made])

    show(qtbot, bridge, page, gpus, lambda second: scenes.sample(second, 1))
    _, values = bandwidth(page).chart.drawn[gpu_series(scenes.uuid(0), "dram_bytes_per_s")]
    assert np.isnan(values).tolist() == [5 <= n < 10 for n in range(20)]


# ---- when GPUs are measured ---------------------------------------------------------------------------------------


def test_gpus_are_measured_only_while_it_is_seen(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    assert bridge.measured_for == set()
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    assert bridge.measured_for == {"run"}
    card = bandwidth(page)
    card.choose_view(IMPLIED)
    assert bridge.measured_for == set()
    card.choose_view(MEASURED)
    assert bridge.measured_for == {"run"}
    page.grid.choose(page.grid.order, list(page.grid.shown - {"bandwidth"}))
    assert bridge.measured_for == set()
    page.grid.choose(page.grid.order, list(page.grid.cards))
    assert bridge.measured_for == {"run"}
    page.grid.enlarge("host")
    bridge.feed(reading(30, scenes.snapshot(30, 2), scenes.sample(30, 2)))
    assert bridge.measured_for == set()
    page.grid.enlarge(None)
    bridge.feed(reading(31, scenes.snapshot(31, 2), scenes.sample(31, 2)))
    assert bridge.measured_for == {"run"}
    page.hide()
    assert bridge.measured_for == set()
    page.show()
    assert bridge.measured_for == {"run"}
    bridge.show(replace(RUN, state=RunState.STOPPED))
    assert bridge.measured_for == set()
    settle(qtbot, page)


def test_a_start_does_not_need_it(bridge: FakeBridge, page: RunPane) -> None:
    bridge.show(replace(RUN, state=RunState.STARTING))
    bridge.feed(reading(0, scenes.snapshot(0, 1)))
    assert bridge.measured_for == set()


# ---- access -----------------------------------------------------------------------------------------------------


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_the_source_is_chosen_by_keyboard(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    card = bandwidth(page)
    page.activateWindow()
    card.button.setFocus()
    QTest.keyClick(card.button, Qt.Key.Key_Space)
    assert card.menu.isVisible()
    for _ in range(3):
        QTest.keyClick(card.menu, Qt.Key.Key_Down)
    QTest.keyClick(card.menu, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: card.view_index == IMPLIED)
    assert card.button.accessibleName() == "Source of the bandwidth: Implied"
    settle(qtbot, page)


def test_lines_are_made_anew_only_for_other_gpus(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    card = bandwidth(page)
    chart, items = card.chart, card.chart._view.items()
    bridge.feed(reading(20, scenes.snapshot(20, 2), scenes.sample(20, 2)))
    settle(qtbot, page)
    assert card.chart is chart
    bridge.feed(reading(21, scenes.snapshot(21, 4), scenes.sample(21, 4)))
    settle(qtbot, page)
    assert [line.name for line in chart.lines] == [f"{scenes.uuid(n)}/dram_bytes_per_s" for n in range(4)]
    assert chart._view.items() == items, "nothing is made anew for other lines"
    assert list(card.legend.values()) == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
