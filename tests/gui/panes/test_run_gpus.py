"""The cards of the run page that tell of GPUs: who holds memory, and bandwidth from one source at a time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PySide6.QtCore import QSettings, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from backend.desk.types import Reading
from backend.events import Bound, HostSample, RunState, Sample, Verdict
from backend.hardware import GpuSnapshot, Why, gpu_series
from gui.panes.run import RunPane
from gui.widgets import figures
from gui.widgets.gpu_run_cards import BandwidthCard, GpuMemoryCard
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import GIB, PEAK, STARTED
from tests.gui.panes.readings import READY, FakeBridge

MakePage = Callable[..., RunPane]
MEASURED, ESTIMATE, IMPLIED = range(3)
RUN = replace(READY, started_at=STARTED - 30, ready_at=STARTED - 1, memory_utilisation=0.92)


@pytest.fixture
def bridge() -> FakeBridge:
    return FakeBridge()


@pytest.fixture
def store(tmp_path: Path) -> QSettings:
    return QSettings(str(tmp_path / "window.ini"), QSettings.Format.IniFormat)


@pytest.fixture
def make_page(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> MakePage:
    made: list[RunPane] = []

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


def reading(
    second: float, gpus: GpuSnapshot | None, engine: Sample | None = None, verdict: Verdict | None = None
) -> Reading:
    return Reading(HostSample(STARTED + second, 0.1, 60 * GIB, 500 * GIB), engine, gpus, verdict)


def settle(qtbot: QtBot, page: RunPane) -> None:
    qtbot.waitUntil(lambda: not page.grid.is_drawing, timeout=10_000)


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


# ---- memory -----------------------------------------------------------------------------------------------------


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
    assert card.chart.level.name == "all of it, 79.7 GiB"
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
    show(qtbot, bridge, page, lambda second: scenes.snapshot(min(second, 9), 1, stale=second > 9))
    assert memory(page).figure.figure == figures.UNKNOWN
    assert memory(page).figure.words == "The driver does not answer; the last figures are 10 s old."
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


# ---- bandwidth --------------------------------------------------------------------------------------------------


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
        assert {line.name for line in card.chart._lines} == SERIES[index], "nothing else can be drawn there"
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
    assert line.accessibleName().startswith("bandwidth-bound: memory 60% of peak (measured)")
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
    chart = card.chart
    bridge.feed(reading(20, scenes.snapshot(20, 2), scenes.sample(20, 2)))
    settle(qtbot, page)
    assert card.chart is chart
    bridge.feed(reading(21, scenes.snapshot(21, 4), scenes.sample(21, 4)))
    settle(qtbot, page)
    assert card.chart is not chart
    assert list(card.legend.values()) == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
