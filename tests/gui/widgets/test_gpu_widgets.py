"""The parts that tell of GPUs: words, bars of memory, the strip of the status bar, the table of cells, the peaks."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFontMetrics, QImage, QPainter
from PySide6.QtTest import QSignalSpy, QTest
from pytestqt.qtbot import QtBot

from backend.hardware import GpuLink, GpuProcess, PeakSource, Why
from gui.theme import NOTE_PX, text_font, theme
from gui.widgets import figures, gpu_words, memory_bar
from gui.widgets.card_parts import Legend, LegendEntry
from gui.widgets.cell_rows import Cell, Column, Row
from gui.widgets.cell_table import CellTable
from gui.widgets.gpu_lines import shorter
from gui.widgets.gpu_peaks import GpuPeaks
from gui.widgets.gpu_strip import GpuStrip, summary
from gui.widgets.memory_bar import BarRow, MemoryBars, Shares, shares
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import GIB, STARTED

# ---- words ------------------------------------------------------------------------------------------------------


def test_slices_are_named_after_the_gpu_they_are_cut_from() -> None:
    first, second = scenes.info(0, mig_enabled=True), scenes.info(1, mig_enabled=True)
    slices = [replace(scenes.info(7), uuid=f"MIG-{n}", parent_uuid=parent.uuid) for n, parent in enumerate(
        (first, second, second)
    )]  # fmt: skip
    gpus = (first, second, *slices)
    assert [gpu_words.label(gpu, gpus) for gpu in gpus] == ["GPU 0", "GPU 1", "MIG 0:0", "MIG 1:0", "MIG 1:1"]
    snapshot = scenes.snapshot(0, gpus=gpus, readings=())
    assert [gpu.uuid for gpu in gpu_words.holders(snapshot)] == ["MIG-0", "MIG-1", "MIG-2"]


def test_the_gpus_of_the_engine_are_those_whose_memory_it_holds() -> None:
    readings = [
        scenes.reading(0, 0, engine_bytes=0.0),
        scenes.reading(0, 1),
        scenes.reading(0, 2, engine_bytes=None, processes=None),
    ]
    snapshot = scenes.snapshot(0, 3, readings=readings)
    assert [gpu.index for gpu in gpu_words.of_engine(snapshot)] == [1]
    nobody = [replace(each, engine_bytes=None) for each in readings]
    nobody = [replace(each, processes=None) for each in nobody]
    assert len(gpu_words.of_engine(scenes.snapshot(0, 3, readings=nobody))) == 3, "all of them where nobody knows"


def test_where_sizes_are_not_told_the_processes_say_which_gpu_is_the_engines() -> None:
    """WSL: the driver names processes and no sizes."""
    held = (GpuProcess(scenes.ENGINE_PID, None, "VLLM::Worker", is_engine=True),)
    readings = [
        scenes.reading(0, 0, engine_bytes=None, processes=(GpuProcess(1, None),)),
        scenes.reading(0, 1, engine_bytes=None, processes=held),
    ]
    assert [gpu.index for gpu in gpu_words.of_engine(scenes.snapshot(0, 2, readings=readings))] == [1]


def test_the_age_of_old_figures_is_that_of_the_newest_reading() -> None:
    made = scenes.old(scenes.snapshot(0, 2, readings=[scenes.reading(0, 0), scenes.lost(0, 1)]), 75)
    now = STARTED + 75
    assert gpu_words.trouble_words(made, now) == "The driver does not answer. The last figures are 1 min 15 s old."
    assert gpu_words.trouble_short(made, now) == "the last are 1 min 15 s old"
    assert gpu_words.trouble_words(scenes.snapshot(0, 2), STARTED + 75) == "", "it is slow, and not old"


@pytest.mark.parametrize(
    ("cost_s", "words"),
    [
        (None, "read every 0.5 s"),
        (0.0032, "read every 0.5 s, which takes 3 ms"),
        (0.0001, "read every 0.5 s, which takes less than 1 ms"),
        (1.2, "read every 0.5 s, which takes 1,200 ms"),
    ],
)
def test_what_reading_costs(cost_s: float | None, words: str) -> None:
    assert gpu_words.sampler_words(scenes.snapshot(0, 1, cost_s=cost_s)) == words


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (Why.NOT_SUPPORTED, "needs Hopper or newer"),
        (Why.NO_PERMISSION, "does not let this user"),
        (Why.NOT_READ, "while its chart is shown"),
        (Why.NOT_YET, "second reading"),
        (Why.ASLEEP, "sleeps"),
        (Why.ERROR, "failed"),
        (Why.LOST, "fallen off the bus"),
        (Why.HIDDEN, "container"),
    ],
)
def test_every_reason_is_said(why: Why, words: str) -> None:
    reading = scenes.without(scenes.reading(0), why, "dram_ratio")
    assert words in gpu_words.why_words("dram_ratio", reading)


def test_a_lost_gpu_is_lost_whatever_is_asked() -> None:
    assert "fallen off the bus" in gpu_words.why_words("power_w", scenes.lost(0, 0))
    assert gpu_words.short_why("power_w", scenes.lost(0, 0)) == "lost"
    assert gpu_words.state(scenes.info(), scenes.lost(0, 0))[0].startswith("lost")


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ([(True, "SYS"), (True, "SYS"), (True, "PIX")], "Every pair of GPUs is connected by NVLink"),
        ([(True, "PIX"), (False, "SYS"), (False, "SYS")], "Only some pairs have NVLink"),
        ([(False, "PIX"), (False, "SYS"), (False, "SYS")], "different processors"),
        ([(False, "PIX"), (False, "PHB"), (False, "PHB")], "over PCIe only"),
        ([(None, "PIX"), (None, ""), (None, "PHB")], "is not known"),
    ],
)
def test_what_connections_mean(links: Sequence[tuple[bool | None, str]], words: str) -> None:
    made = [GpuLink(str(n), str(n + 1), nvlink=nvlink, path=path) for n, (nvlink, path) in enumerate(links)]
    assert words in gpu_words.links_words(made)


def test_the_peak_says_where_it_is_from() -> None:
    assert gpu_words.peak_words(scenes.info()) == "3,352 GB/s, from memory clock x bus width"
    entered = scenes.info(peak_bytes_per_s=1.008e12, peak_source=PeakSource.USER)
    assert gpu_words.peak_words(entered) == "1,008 GB/s, entered by hand"
    assert gpu_words.peak_words(scenes.info(peak_bytes_per_s=None, peak_source=None)) == "not known"


# ---- bars -------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_memory_add_up() -> None:
    split = shares(scenes.info(), scenes.reading(0))
    assert [part.name for part, _ in split.parts] == ["this engine", "other", "reserved", "free"]
    assert sum(size for _, size in split.parts) == pytest.approx(scenes.TOTAL)
    assert {part.name: size for part, size in split.parts}["this engine"] == pytest.approx(70.2 * GIB)


def test_where_nobody_knows_who_holds_memory_it_is_in_use() -> None:
    reading = scenes.reading(0, engine_bytes=None, other_bytes=None, memory_free_bytes=None)
    split = shares(scenes.info(), reading)
    assert [part.name for part, _ in split.parts] == ["in use", "reserved", "free"]
    assert split.parts[-1][1] == pytest.approx(scenes.TOTAL - 70.65 * GIB - scenes.RESERVED)
    assert shares(scenes.info(), scenes.lost(0, 0)).parts == ()


def painted(split: Shares, width: int = 400) -> dict[str, int]:
    """How many pixels of a bar's middle line have the ground of each part."""
    image = QImage(width, 12, QImage.Format.Format_RGB32)
    image.fill(QColor("black"))
    painter = QPainter(image)
    memory_bar.paint_bar(painter, image.rect(), split)
    painter.end()
    line = [QColor(image.pixel(x, 6)).name() for x in range(width)]
    return {part.name: line.count(memory_bar.brush(part)[0].name()) for part, _ in split.parts}


def test_a_bar_is_as_long_as_what_is_held(themed_app: object) -> None:
    split = Shares(80.0, ((memory_bar.ENGINE, 40.0), (memory_bar.FREE, 40.0)))
    assert painted(split)["this engine"] == pytest.approx(200, abs=3)
    little = Shares(8000.0, ((memory_bar.ENGINE, 1.0), (memory_bar.FREE, 7999.0)))
    assert painted(little)["this engine"] >= 1, "what is there is seen, however little it is"


@given(st.integers(1, 8), st.integers(60, 500), st.floats(0.05, 1.0))
def test_bars_stand_below_each_other_and_the_limit_is_where_it_says(n_rows: int, height: int, limit: float) -> None:
    bars = MemoryBars()
    bars.resize(320, height)
    split = Shares(80.0, ((memory_bar.ENGINE, 40.0), (memory_bar.FREE, 40.0)))
    bars.show_rows([BarRow(f"GPU {n}", split, "") for n in range(n_rows)], limit)
    rects = [bars.bar_rect(n) for n in range(n_rows)]
    assert all(upper.bottom() < lower.top() for upper, lower in itertools.pairwise(rects))
    assert {(rect.left(), rect.width()) for rect in rects} == {(rects[0].left(), rects[0].width())}
    assert bars.limit_x == pytest.approx(rects[0].left() + limit * rects[0].width(), abs=1)


def test_the_line_of_the_limit_is_painted_there(qtbot: QtBot) -> None:
    bars = MemoryBars()
    qtbot.addWidget(bars)
    bars.resize(320, 120)
    split = Shares(80.0, ((memory_bar.ENGINE, 20.0), (memory_bar.FREE, 60.0)))
    bars.show_rows([BarRow("GPU 0", split, ""), BarRow("GPU 1", split, "", is_limited=False)], 0.75)
    assert bars.limit_words == "profile limit 0.75"
    assert bars.limit_words in bars.accessibleDescription()
    image, colour = bars.grab().toImage(), QColor(theme.tokens.warn)
    bar = bars.bar_rect(0)
    at = bar.left() + round(0.75 * bar.width())
    column = [image.pixelColor(at, y) for y in range(bar.top(), bar.bottom())]
    assert sum(each == colour for each in column) >= bar.height() // 3
    other = bars.bar_rect(1)
    assert all(image.pixelColor(at, y) != colour for y in range(other.top(), other.bottom())), "not the engine's"


# ---- legend -----------------------------------------------------------------------------------------------------


def test_a_legend_without_room_says_less(qtbot: QtBot) -> None:
    legend = Legend()
    qtbot.addWidget(legend)
    entries = [LegendEntry(f"GPU {n}", "2,000", n) for n in range(8)]
    numbers = [LegendEntry(str(n), "2,000", n) for n in range(8)]
    ends = [LegendEntry("highest", "2,000")]
    legend.show_entries(entries, shorter=[numbers, ends])
    for width, shown in ((900, entries), (300, numbers), (120, ends)):
        legend.resize(width, 28)
        assert legend.shown() == tuple(shown), width
    assert "GPU 7 2,000" in legend.toolTip(), "the tooltip has all"


# ---- the strip of the status bar ----------------------------------------------------------------------------------


def test_eight_gpus_fit_beside_the_figures(qtbot: QtBot) -> None:
    strip = GpuStrip()
    qtbot.addWidget(strip)
    strip.show_snapshot(scenes.snapshot(0, 8), STARTED)
    n_wide, wide, whole = strip.layout_for(900)
    assert (n_wide, whole) == (8, True)
    n_narrow, narrow, whole = strip.layout_for(380)  # what is left in a window of 1100 px
    assert (n_narrow, whole) == (8, False)
    assert 16 <= narrow <= wide
    assert strip.layout_for(120)[0] < 8, "the rest is counted"
    assert strip.bars[3].used_ratio == pytest.approx((70.2 - 0.3 + 0.45) / 79.65)
    assert "GPU 3, NVIDIA H100 80GB HBM3: 70.4 of 79.7 GiB in use" in strip.toolTip()


def test_a_strip_is_there_only_with_gpus(qtbot: QtBot) -> None:
    strip = GpuStrip()
    qtbot.addWidget(strip)
    assert strip.isHidden()
    strip.show_snapshot(scenes.snapshot(0, 1), STARTED)
    assert not strip.isHidden()
    strip.show_snapshot(scenes.no_gpus(), STARTED)
    assert strip.isHidden()


def test_a_strip_says_how_old_figures_are_and_does_not_show_unknown_as_empty(qtbot: QtBot) -> None:
    strip = GpuStrip()
    qtbot.addWidget(strip)
    made = scenes.snapshot(0, 1)
    for seconds in (5, 65):
        strip.show_snapshot(scenes.old(made, seconds), STARTED + seconds)
    assert strip.toolTip().endswith("The last figures are 1 min 5 s old.")

    def ground(used: float | None) -> str:
        """Colour in the middle of the bar."""
        unknown = scenes.reading(0, 0, memory_used_bytes=used)
        strip.show_snapshot(scenes.snapshot(0, 1, readings=[unknown]), STARTED)
        strip.resize(300, 20)
        picture = strip.grab().toImage()
        label = QFontMetrics(text_font(NOTE_PX)).horizontalAdvance("GPU 0")
        return str(picture.pixelColor(label + 6 + 50, 10).name())

    assert ground(0.0) == theme.tokens.line
    assert ground(None) != theme.tokens.line


def test_the_gpus_in_a_few_words() -> None:
    readings = [scenes.reading(0, n, power_w=300.0 + n, temperature_c=60.0 + n) for n in range(2)]
    assert summary(scenes.snapshot(0, 2, readings=readings), STARTED)[0] == "601 W  ·  61 °C  ·  no throttling"
    hot = [readings[0], replace(readings[1], throttle=("thermal limit",))]
    words, more, tone = summary(scenes.snapshot(0, 2, readings=hot), STARTED)
    assert (words, tone) == ("601 W  ·  61 °C  ·  GPU 1 throttled", "warn")
    assert "GPU 1 is throttled: thermal limit" in more
    words, _, tone = summary(scenes.snapshot(0, 2, readings=[readings[0], scenes.lost(0, 1)]), STARTED)
    assert (words, tone) == ("300 W  ·  60 °C  ·  GPU 1 lost", "bad")
    words, more, _ = summary(scenes.snapshot(0, 2, readings=[readings[0], scenes.lost(0, 1)]), STARTED)
    assert "Power of 1 of 2 GPUs" in more
    words, more, tone = summary(scenes.old(scenes.snapshot(0, 2), 12), STARTED + 12)
    assert (words, tone) == ("GPU figures are old", "warn")
    assert "12 s old" in more
    silent = scenes.without(readings[0], Why.NOT_SUPPORTED, "power_w", "throttle")
    assert summary(scenes.snapshot(0, 1, readings=[silent]), STARTED)[0] == "60 °C", "what is unknown is left out"


# ---- the table --------------------------------------------------------------------------------------------------


@pytest.fixture
def table(qtbot: QtBot) -> CellTable:
    columns = [(Column("GPU"), 60), (Column("Name"), 200), (Column("State"), 100)]
    made = CellTable("GPUs", columns, dispensable=[1], selectable=True)
    qtbot.addWidget(made)
    made.resize(420, 200)
    made.show()
    return made


def rows(*texts: tuple[str, str, str]) -> list[Row]:
    return [Row(key, (Cell(key), Cell(name), Cell(state))) for key, name, state in texts]


def test_only_what_changes_is_painted_anew(table: CellTable) -> None:
    table.show_rows(rows(("a", "x", "1"), ("b", "y", "2")))
    changes, resets = QSignalSpy(table.rows.dataChanged), QSignalSpy(table.rows.modelReset)
    table.show_rows(rows(("a", "x", "1"), ("b", "y", "3")))
    assert changes.count() == 1
    index = changes.at(0)[0]
    assert (index.row(), index.column(), index.data()) == (1, 2, "3")
    assert resets.count() == 0
    table.show_rows(rows(("a", "x", "1"), ("b", "y", "3")))
    assert changes.count() == 1


def test_the_chosen_row_stays_chosen(table: CellTable) -> None:
    table.show_rows(rows(("a", "x", "1"), ("b", "y", "2")))
    table.choose("b")
    table.show_rows(rows(("c", "z", "0"), ("a", "x", "1"), ("b", "y", "2")))
    assert table.chosen_key == "b"
    table.show_rows(rows(("a", "x", "1")))
    assert table.chosen_key == ""


def test_a_row_is_chosen_by_keyboard_and_tab_leaves_the_table(table: CellTable) -> None:
    table.show_rows(rows(("a", "x", "1"), ("b", "y", "2")))
    table.choose("a")
    table.setFocus()
    spy = QSignalSpy(table.chosen)
    QTest.keyClick(table, Qt.Key.Key_Down)
    assert spy.count() == 1
    assert spy.at(0) == ["b"]
    assert not table.tabKeyNavigation()


def test_a_dispensable_column_gives_way(table: CellTable, qtbot: QtBot) -> None:
    assert not table.isColumnHidden(1)
    table.resize(200, 200)
    qtbot.waitUntil(lambda: table.isColumnHidden(1))
    assert table.columnWidth(0) + table.columnWidth(2) == table.viewport().width()
    table.resize(420, 200)
    qtbot.waitUntil(lambda: not table.isColumnHidden(1))


# ---- peaks ------------------------------------------------------------------------------------------------------


def test_a_peak_is_entered_and_taken_back(qtbot: QtBot) -> None:
    peaks = GpuPeaks()
    qtbot.addWidget(peaks)
    peaks.show_value({"GPU-elsewhere": 5e11})
    peaks.show_gpus([scenes.info(0), scenes.info(1, peak_bytes_per_s=None, peak_source=None)])
    first, second = peaks.fields[scenes.uuid(0)], peaks.fields[scenes.uuid(1)]
    assert (first.text(), first.placeholderText()) == ("", "3,352")
    assert (second.text(), second.placeholderText()) == ("", "")
    assert "not known" in peaks.known[scenes.uuid(1)].text()
    told = QSignalSpy(peaks.changed)
    second.setText("936.5")
    second.editingFinished.emit()
    assert told.at(0) == ["gpu_peak_bytes_per_s", {"GPU-elsewhere": 5e11, scenes.uuid(1): 936.5e9}]
    for wrong in ("much", "0", "-3", "1e9"):
        second.setText(wrong)
        second.editingFinished.emit()
        assert "Give a number of GB/s" in peaks.problem
        assert second.property("state") == "bad"
    assert told.count() == 1
    second.setText("")
    second.editingFinished.emit()
    assert told.at(1) == ["gpu_peak_bytes_per_s", {"GPU-elsewhere": 5e11}]
    assert not peaks.problem
    for typed, peak in (("3,352", 3352e9), ("1,5", 1.5e9), ("1,008.5", 1008.5e9)):
        second.setText(typed)
        second.editingFinished.emit()
        assert told.at(told.count() - 1)[1][scenes.uuid(1)] == peak, typed
    peaks.show_problem("The file cannot be written. Check the disk.")
    n_told = told.count()
    second.editingFinished.emit()
    assert told.count() == n_told + 1, "Enter tries it again"


def test_many_gpus_are_said_in_fewer_words_the_least_and_the_greatest_last() -> None:
    amounts = (980.0, 1010.0, None, 99.0)
    entries = [LegendEntry(f"GPU {n}", figures.number(amount), n, amount=amount) for n, amount in enumerate(amounts)]
    numbers, ends, highest = shorter(entries)
    assert [(entry.label, entry.value) for entry in numbers] == [
        ("0", "980"), ("1", "1,010"), ("2", figures.UNKNOWN), ("3", "99"),
    ]  # fmt: skip
    assert [(entry.label, entry.value) for entry in ends] == [("lowest", "99"), ("highest", "1,010")]
    assert list(highest) == [ends[1]]
    unknown = [replace(entry, value=figures.UNKNOWN, amount=None) for entry in entries]
    assert list(shorter(unknown)[1]) == []
    assert shorter(entries[:2]) == ()


def test_a_field_stays_while_someone_types_and_the_peak_changes(qtbot: QtBot) -> None:
    peaks = GpuPeaks()
    qtbot.addWidget(peaks)
    peaks.show_gpus([scenes.info(0)])
    field = peaks.fields[scenes.uuid(0)]
    peaks.show_gpus([scenes.info(0, peak_bytes_per_s=9e11, peak_source=PeakSource.USER)])
    assert peaks.fields[scenes.uuid(0)] is field
    assert "900 GB/s, entered by hand" in peaks.known[scenes.uuid(0)].text()
