"""Processes, hardware and peaks on the GPUs page."""

from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from backend.errors import UserError
from backend.hardware import GpuInfo, GpuProcess, GpuReading, PeakSource, Why
from gui.panes.gpus import GpusPane
from gui.widgets import figures
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import GIB, STARTED
from tests.gui.panes.gpus.gpus_page import card, process_rows, reading, section, settle, show
from tests.gui.panes.readings import FakeBridge


def test_processes_are_listed_the_engines_first(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
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
        ["50", "python", "GPU 0", "3.0 GiB", "another program"],
        ["1337", "jupyter-lab", "GPU 1", "0.5 GiB", "another program"],
        ["60", "not seen from here", "GPU 0", figures.UNKNOWN, figures.UNKNOWN],
    ]
    assert "WSL" in page.processes.table.rows.rows[-1].cells[3].tip
    assert "container" in page.processes.table.rows.rows[-1].cells[1].tip
    page.table.choose(scenes.uuid(1))
    assert [row[2] for row in process_rows(page)] == ["GPU 1", "GPU 1"]
    assert not page.processes.words.isVisible()


def test_processes_keep_their_places_while_their_sizes_change(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    def told(second: float, first: int, *more: GpuProcess) -> None:
        held = (GpuProcess(50, first * GIB, "a"), GpuProcess(60, 3 * GIB, "b"), *more)
        made = scenes.reading(second, 0, processes=held)
        bridge.feed(reading(second, scenes.snapshot(second, 1, readings=[made])))

    section(page, "Processes")
    told(0, 4)
    section(page, "Processes")
    assert [row[0] for row in process_rows(page)] == ["50", "60"]
    told(1, 2)
    assert [row[0] for row in process_rows(page)] == ["50", "60"], "rows that jump cannot be read"
    assert process_rows(page)[0][3] == "2.0 GiB"
    told(2, 2, GpuProcess(70, GIB, "c"))
    assert [row[0] for row in process_rows(page)] == ["60", "50", "70"], "the greatest first when another one comes"


def test_old_processes_are_said_to_be_old(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    made = scenes.snapshot(9, 1)
    show(qtbot, bridge, page, lambda _second: made)
    section(page, "Processes")
    bridge.feed(reading(30, scenes.old(made, 30, "NVML crashed (signal 11). It is started again after 5 s.")))
    assert page.processes.words.text().endswith("The last figures are 21 s old.")
    assert len(process_rows(page)) == 2


def test_where_no_processes_are_known_words_say_so(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
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


def test_connections_are_a_matrix_with_plain_words(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
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


def test_facts_of_the_hardware(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
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


def test_a_peak_is_entered_here(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
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


def test_a_peak_that_was_entered_elsewhere_is_not_lost(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    section(page, "Hardware")
    page.hide()
    bridge.saved["gpu_peak_bytes_per_s"] = {scenes.uuid(0): 2e12}  # on the Settings page
    page.show()
    field = page.hardware.peaks.fields[scenes.uuid(1)]
    field.setText("1008")
    field.editingFinished.emit()
    assert bridge.saved["gpu_peak_bytes_per_s"] == {scenes.uuid(0): 2e12, scenes.uuid(1): 1.008e12}
