"""The GPUs page: every GPU at a glance, charts of those that are chosen, processes, hardware, and the odd cases."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QObject, QSettings, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QLabel
from pytestqt.qtbot import QtBot

from backend.desk.types import Reading, SettingsView
from backend.errors import UserError
from backend.events import HostSample, RunState, Sample
from backend.hardware import GpuInfo, GpuProcess, GpuReading, GpuSnapshot, PeakSource, Why, gpu_series
from gui.panes.gpus import GpusPane
from gui.widgets import figures
from gui.widgets.chart_card import ChartCard
from gui.widgets.gpu_table import ALL
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import GIB, PEAK, STARTED
from tests.gui.panes.readings import READY, FakeBridge

MakePage = Callable[..., GpusPane]
RUN = replace(READY, started_at=STARTED - 30, ready_at=STARTED - 1)
GPU, NAME, UUID, MEMORY, BUSY, POWER, TEMPERATURE, CLOCK, STATE = range(9)


class SettingsBridge(FakeBridge):
    """A bridge whose desk keeps settings, in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[str, Any] = {"gpu_peak_bytes_per_s": {}}
        self.refusal: UserError | None = None
        self.desk = SimpleNamespace(
            settings=SimpleNamespace(gpu_profiling=True),
            settings_view=self._view,
            change_settings=self._change,
        )

    async def _view(self) -> SettingsView:
        return SettingsView(dict(self.saved), {})

    async def _change(self, **values: Any) -> SettingsView:
        if self.refusal is not None:
            raise self.refusal
        self.saved |= values
        return await self._view()

    def call(
        self,
        _owner: QObject,
        work: Coroutine[Any, Any, Any],
        *,
        done: Callable[[Any], None] | None = None,
        failed: Callable[[UserError], None] | None = None,
    ) -> None:
        """Do the work at once."""
        assert inspect.iscoroutine(work)
        try:
            result = asyncio.run(work)
        except UserError as error:
            assert failed is not None
            failed(error)
        else:
            if done is not None:
                done(result)


@pytest.fixture
def bridge() -> SettingsBridge:
    return SettingsBridge()


@pytest.fixture
def make_page(qtbot: QtBot, bridge: SettingsBridge, tmp_path: Path) -> MakePage:
    made: list[GpusPane] = []
    store = QSettings(str(tmp_path / "window.ini"), QSettings.Format.IniFormat)

    def make(width: int = 1330, height: int = 1400) -> GpusPane:
        page = GpusPane(bridge.as_bridge, store)
        made.append(page)
        qtbot.addWidget(page)
        page.resize(width, height)
        page.show()
        return page

    return make


@pytest.fixture
def page(make_page: MakePage) -> GpusPane:
    return make_page()


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


# ---- at a glance ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_gpus", [1, 2, 8])
def test_each_gpu_has_a_row_with_its_figures(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane, n_gpus: int) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, n_gpus))
    keys = [row.key for row in page.table.rows.rows]
    assert keys == ([ALL] if n_gpus > 1 else []) + [scenes.uuid(n) for n in range(n_gpus)]
    assert page.title.text() == ("1 GPU" if n_gpus == 1 else f"{n_gpus} GPUs")
    for number in range(n_gpus):
        made = scenes.reading(9, number)
        assert made.power_w is not None
        assert made.busy_ratio is not None
        assert cells(page, scenes.uuid(number)) == [
            f"GPU {number}",
            "NVIDIA H100 80GB HBM3",
            f"GPU-{number:08x}",
            f"{70.2 - 0.1 * number + 0.45:.1f} of 79.7 GiB",
            f"{made.busy_ratio * 100:.0f} %",
            f"{made.power_w:.0f} of 700 W",
            f"{made.temperature_c:.0f} °C",
            f"P0, {made.sm_clock_mhz:,.0f} MHz",
            "not throttled",
        ]
        assert tip(page, scenes.uuid(number), UUID) == scenes.uuid(number)
    assert page.note.text == "driver 580.95.05, CUDA 13.0  ·  read every 0.5 s, 3.20 ms each"
    assert page.table.height() >= page.table.height_for(len(keys)) - 2, "all rows are in sight"


def test_all_gpus_together(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    readings = [
        scenes.reading(0, n, power_w=300.0, busy_ratio=0.5 + 0.25 * n, temperature_c=60.0 + n, sm_clock_mhz=1900.0 - n)
        for n in range(2)
    ]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, readings=readings))
    assert cells(page, ALL) == [
        "All", "2 x NVIDIA H100 80GB HBM3", "", "141.2 of 159.3 GiB", "62 %", "600 of 1,400 W", "61 °C", "1,899 MHz",
        "not throttled",
    ]  # fmt: skip


def test_throttled_lost_and_unknown_are_said_with_their_reason(
    qtbot: QtBot, bridge: SettingsBridge, page: GpusPane
) -> None:
    readings = [
        scenes.reading(0, 0, throttle=("power cap", "thermal limit")),
        scenes.lost(0, 1),
        scenes.without(scenes.reading(0, 2), Why.NOT_SUPPORTED, "temperature_c", "throttle"),
        scenes.without(scenes.reading(0, 3), Why.NO_PERMISSION, "power_w"),
    ]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 4, readings=readings))
    assert cells(page, scenes.uuid(0))[STATE] == "throttled: power cap, thermal limit"
    assert cells(page, scenes.uuid(1))[MEMORY:] == [*[figures.UNKNOWN] * 5, "lost: fell off the bus"]
    assert "fallen off the bus" in tip(page, scenes.uuid(1), POWER)
    assert cells(page, scenes.uuid(2))[TEMPERATURE] == figures.UNKNOWN
    assert tip(page, scenes.uuid(2), TEMPERATURE) == "This GPU does not tell its temperature."
    assert cells(page, scenes.uuid(2))[STATE] == figures.UNKNOWN
    assert "does not let this user read its power" in tip(page, scenes.uuid(3), POWER)
    assert cells(page, ALL)[STATE] == "1 lost"
    assert says(page, "gpu_temperature") == f"{scenes.reading(0, 3).temperature_c:.0f} °C, highest on GPU 3"


def test_old_figures_are_marked_as_old(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(min(second, 4), 2, stale=second > 4))
    for key in (ALL, scenes.uuid(0), scenes.uuid(1)):
        assert cells(page, key)[STATE] == "old figures"
    assert tip(page, scenes.uuid(0), POWER) == "The driver does not answer; the last figures are 5 s old."
    assert says(page, "gpu_power") == f"{figures.UNKNOWN} The driver does not answer; the last figures are 5 s old."


def test_slices_stand_below_their_gpu_and_are_not_counted_twice(
    qtbot: QtBot, bridge: SettingsBridge, page: GpusPane
) -> None:
    parent = scenes.info(0, mig_enabled=True)
    slices = [
        GpuInfo(f"MIG-{n}", "NVIDIA H100 MIG 3g.40gb", n, memory_total_bytes=40 * GIB, parent_uuid=parent.uuid)
        for n in range(2)
    ]
    of_slices = [
        GpuReading(each.uuid, STARTED, memory_total_bytes=40.0 * GIB, memory_used_bytes=n * 10.0 * GIB, engine_bytes=0,
                   other_bytes=n * 10.0 * GIB, why={"power_w": Why.NOT_SUPPORTED})
        for n, each in enumerate(slices)
    ]  # fmt: skip
    readings = [scenes.reading(0, 0), *of_slices]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, gpus=[parent, *slices], readings=readings))
    assert [cells(page, row.key)[GPU] for row in page.table.rows.rows] == ["GPU 0", "MIG 0:0", "MIG 0:1"]
    assert page.title.text() == "1 GPU"
    assert cells(page, parent.uuid)[STATE] == "cut into MIG slices"
    assert cells(page, "MIG-1")[MEMORY] == "10.0 of 40.0 GiB"
    assert cells(page, "MIG-1")[POWER] == figures.UNKNOWN
    assert says(page, "gpu_memory") == "70.7 GiB used, of 79.7 GiB", "a slice is part of its GPU"
    assert list(card(page, "gpu_memory").legend.values()) == ["GPU 0", "MIG 0:0", "MIG 0:1"]
    page.table.choose("MIG-1")
    settle(qtbot, page)
    assert says(page, "gpu_memory") == "10.0 GiB used, of 40.0 GiB"


def test_unified_memory_says_so(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    spark = scenes.info(0, name="NVIDIA GB10", unified_memory=True)
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, gpus=[spark], readings=[scenes.reading(second)]))
    assert cells(page, spark.uuid)[MEMORY] == "70.7 of 79.7 GiB"
    assert cells(page, spark.uuid)[STATE] == "memory shared with system"
    assert tip(page, spark.uuid, MEMORY).startswith("70.7 of 79.7 GiB, shared with system")


def test_without_nvidia_the_page_says_why_and_shows_the_rest(
    qtbot: QtBot, bridge: SettingsBridge, page: GpusPane
) -> None:
    bridge.show(RUN)
    show(qtbot, bridge, page, scenes.no_gpus, lambda second: scenes.sample(second, 1))
    assert page.absent.isVisible()
    assert page.absent.words.text() == scenes.no_gpus().problem
    assert not page.table.isVisible()
    assert [each.key for each in page.grid.visible_cards] == ["bandwidth", "cache", "host"]
    implied = scenes.sample(9, 1).implied_bytes_per_s
    assert implied is not None
    assert says(page, "bandwidth") == f"{implied / 1e9:,.0f} GB/s implied"
    assert says(page, "host") == "25 % CPU, memory 8.0 of 16.0 GiB"
    assert bridge.measured_for == set()
    bridge.feed(reading(20, scenes.snapshot(20, 1), scenes.sample(20, 1)))  # a driver has come
    settle(qtbot, page)
    assert not page.absent.isVisible()
    assert page.table.isVisible()
    assert page.grid.cards["gpu_memory"].isVisible()


def test_before_the_first_reading(page: GpusPane) -> None:
    assert page.absent.words.text() == "Waiting for the first reading of the GPUs"


# ---- charts -----------------------------------------------------------------------------------------------------

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


def test_every_chart_draws_what_was_read(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
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
    ("gpu_memory", 0, "141.2 GiB used, 2 GPUs together, of 159.3 GiB"),
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


def test_what_stands_for_all_gpus(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
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


def test_time_is_never_called_bandwidth(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 1))
    for key in ("gpu_busy", "gpu_memory_busy"):
        found = card(page, key)
        assert found.source.text == "NVML, time"
        assert "GB/s" not in f"{found.figure.words} {found.title}"
        assert found.chart.limit == 100


def test_energy_of_a_token(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
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


def test_stretches_of_throttling_are_marked_on_the_clocks(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
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


def test_one_gpu_is_chosen_by_keyboard(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
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


def test_lines_of_one_colour_are_told_apart(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 8))
    lines = card(page, "gpu_busy").chart._lines
    assert len({(line.colour, line.dashed) for line in lines}) == 8


def test_what_a_gpu_cannot_tell_has_no_line(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    cannot = scenes.without(scenes.reading(0, 1), Why.NOT_SUPPORTED, "memory_temperature_c")
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, readings=[scenes.reading(second), cannot]))
    card(page, "gpu_temperature").choose_view(1)
    assert list(card(page, "gpu_temperature").legend.values()) == ["GPU 0"]
    neither = [scenes.without(scenes.reading(20, n), Why.NOT_SUPPORTED, "memory_temperature_c") for n in range(2)]
    bridge.feed(reading(400, scenes.snapshot(400, 2, readings=neither)))
    settle(qtbot, page)
    assert says(page, "gpu_temperature") == "This GPU does not tell the temperature of its memory."


def test_there_is_no_card_of_links_that_do_not_exist(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, gpus=[scenes.info(0, nvlinks=0)], readings=[
        scenes.reading(second)
    ]))  # fmt: skip
    assert not page.grid.cards["gpu_nvlink"].isVisible()
    assert page.grid.cards["gpu_pcie"].isVisible()


def test_span_view_and_cards_are_kept(
    qtbot: QtBot, bridge: SettingsBridge, page: GpusPane, make_page: MakePage
) -> None:
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


# ---- processes and hardware ---------------------------------------------------------------------------------------


def section(page: GpusPane, name: str) -> None:
    next(button for button in page.sections.buttons() if button.text() == name).click()


def process_rows(page: GpusPane) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in page.processes.table.rows.rows]


def test_processes_are_listed_the_engines_first(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    others = (
        GpuProcess(50, 3 * GIB, "python"),
        GpuProcess(60, None, ""),
        GpuProcess(70, 2 * GIB, "VLLM::EngineCore", is_engine=True),
    )
    readings = [scenes.reading(0, 0, processes=others), scenes.reading(0, 1)]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, readings=readings))
    section(page, "Processes")
    assert process_rows(page) == [
        ["4712", "VLLM::Worker", "GPU 1", "70.1 GiB", "this engine"],
        ["70", "VLLM::EngineCore", "GPU 0", "2.0 GiB", "this engine"],
        ["50", "python", "GPU 0", "3.0 GiB", ""],
        ["1337", "jupyter-lab", "GPU 1", "0.5 GiB", ""],
        ["60", "not seen from here", "GPU 0", figures.UNKNOWN, ""],
    ]
    assert "WSL" in page.processes.table.rows.rows[-1].cells[3].tip
    assert "container" in page.processes.table.rows.rows[-1].cells[1].tip
    page.table.choose(scenes.uuid(1))
    assert [row[2] for row in process_rows(page)] == ["GPU 1", "GPU 1"]
    assert not page.processes.words.isVisible()


def test_where_no_processes_are_known_words_say_so(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    container = "Inside a container the driver names the processes of the host."
    cases: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"processes": ()}, "", "No process holds memory of these GPUs."),
        ({"processes": None, "why": {"processes": Why.NOT_SUPPORTED}}, "", "does not tell which processes hold"),
        ({"processes": None, "why": {"processes": Why.NO_PERMISSION}}, "", "does not let this user read which"),
        ({}, container, container),
    )
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 1))
    section(page, "Processes")
    for second, (changes, note, words) in enumerate(cases, start=10):
        made = scenes.reading(second, 0, **changes)
        bridge.feed(reading(second, scenes.snapshot(second, 1, readings=[made], note=note)))
        assert words in page.processes.words.text()
        assert page.processes.words.isVisible()


def test_connections_are_a_matrix_with_plain_words(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    gpus = [scenes.info(n) for n in range(3)]
    links = scenes.links(gpus, nvlink=False, path="PHB")
    links = (replace(links[0], nvlink=True), *links[1:])
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 3, links=links))
    section(page, "Hardware")
    matrix = page.hardware.matrix
    assert matrix is not None
    assert [[cell.text for cell in row.cells] for row in matrix.rows.rows] == [
        ["GPU 0", "·", "NVLink", "PHB"],
        ["GPU 1", "NVLink", "·", "PHB"],
        ["GPU 2", "PHB", "PHB", "·"],
    ]
    assert page.hardware.links_words.text().startswith("Only some pairs have NVLink")
    assert "PHB: the PCIe host bridge of the processor between them." in page.hardware.meanings.text()
    bridge.feed(reading(11, scenes.snapshot(11, 3, links=links)))
    assert page.hardware.matrix is matrix, "it is made anew only when it changes"


def test_facts_of_the_hardware(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    made = scenes.reading(0, 0, pcie_generation=1.0)
    bare = GpuInfo("GPU-x", "Something", 1)
    show(qtbot, bridge, page, lambda second: scenes.snapshot(
        second, gpus=[scenes.info(0), bare], readings=[made, GpuReading("GPU-x", STARTED)]
    ))  # fmt: skip
    section(page, "Hardware")
    first, second = ([cell.text for cell in row.cells] for row in page.hardware.facts.rows.rows)
    assert first == [
        "GPU 0", "NVIDIA H100 80GB HBM3", "GPU-00000000", "00000000:17:00.0", "9.0", "79.7 GiB", "5,120 bit",
        "gen 1 x16 of gen 5 x16", "18",
    ]  # fmt: skip
    assert second == ["GPU 1", "Something", "GPU-x", *[figures.UNKNOWN] * 6]


def test_a_peak_is_entered_here(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    bridge.saved = {"gpu_peak_bytes_per_s": {"GPU-elsewhere": 5e11}}
    unknown = scenes.info(0, peak_bytes_per_s=None, peak_source=None)
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, gpus=[unknown], readings=[scenes.reading(second)]))
    assert card(page, "gpu_bandwidth").chart.level is None
    section(page, "Hardware")
    peaks = page.hardware.peaks
    assert "not known" in peaks.known[scenes.uuid(0)].text()
    field = peaks.fields[scenes.uuid(0)]
    field.setFocus()
    QTest.keyClicks(field, "1008")
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert bridge.saved["gpu_peak_bytes_per_s"] == {"GPU-elsewhere": 5e11, scenes.uuid(0): 1.008e12}
    assert peaks.said == "Saved"
    known = scenes.info(0, peak_bytes_per_s=1.008e12, peak_source=PeakSource.USER)
    bridge.feed(reading(11, scenes.snapshot(11, gpus=[known], readings=[scenes.reading(11)])))
    assert peaks.fields[scenes.uuid(0)] is field
    assert "1,008 GB/s, entered by hand" in peaks.known[scenes.uuid(0)].text()
    bridge.refusal = UserError("The file cannot be written.", "Check the disk.")
    field.setText("2000")
    field.editingFinished.emit()
    assert peaks.problem == "The file cannot be written. Check the disk."
    section(page, "Charts")
    settle(qtbot, page)
    level = card(page, "gpu_bandwidth").chart.level
    assert level is not None
    assert level.value == pytest.approx(1008)


# ---- cost and access ----------------------------------------------------------------------------------------------


def test_gpus_are_measured_only_while_charts_of_it_are_seen(
    qtbot: QtBot, bridge: SettingsBridge, page: GpusPane
) -> None:
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


def test_nothing_is_drawn_that_nobody_sees(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
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
    qtbot: QtBot, bridge: SettingsBridge, make_page: MakePage
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


def test_items_are_made_once(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 8))
    charts = [card(page, key).chart for key in ("gpu_memory", "gpu_bandwidth", "gpu_clocks")]
    items = [list(chart._plot.items) for chart in charts]
    for second in range(10, 13):
        bridge.feed(reading(second, scenes.snapshot(second, 8)))
        settle(qtbot, page)
    assert [card(page, key).chart for key in ("gpu_memory", "gpu_bandwidth", "gpu_clocks")] == charts
    assert [list(chart._plot.items) for chart in charts] == items


def test_every_control_has_a_name_and_a_tooltip(qtbot: QtBot, bridge: SettingsBridge, page: GpusPane) -> None:
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
