"""The History page: what it shows of recorded runs, alone and over each other, and what a person can do with them."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QSettings, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QFrame
from pytestqt.qtbot import QtBot

from backend.desk.types import RunView
from backend.errors import UserError
from backend.events import Mark, RunState
from backend.hardware import GpuInfo, gpu_series
from gui.widgets.past_bar import WHOLE
from tests.gui.panes.history_page import FakeBridge, Page, T, past_run, recorded
from tests.gui.test_layout import cut

TOKENS = "generation_tokens_per_s"
N = math.nan
LEFT = Qt.MouseButton.LeftButton
SIXTY = [float(n) for n in range(1, 61)]


@pytest.fixture
def bridge() -> FakeBridge:
    return FakeBridge()


@pytest.fixture
def store(tmp_path: Path) -> QSettings:
    return QSettings(str(tmp_path / "window.ini"), QSettings.Format.IniFormat)


def ready(values: list[float]) -> dict[str, list[float]]:
    """Series of an engine that was read: tokens, and what they rest on."""
    return {TOKENS: values, "interval_s": [1.0] * len(values), "requests_running": [1.0] * len(values)}


# ---- the list ---------------------------------------------------------------------------------------------------


def test_without_runs_it_says_what_to_do(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    page = Page(qtbot, bridge, store)
    message = page.pane.message
    assert message.isVisible()
    assert (message.title.text(), message.words.text()) == (
        "No run was recorded yet", "Start an engine; each run is kept here.",
    )  # fmt: skip
    assert not page.pane.list.delete.isEnabled()
    assert not page.pane.list.compare.isEnabled()
    bridge.records = False
    page.pane.refresh()
    assert "Turn it on in Settings" in message.words.text()
    assert page.pane.list._note.isVisible()
    bridge.history.problem = "The disk is full. Free some space."
    page.pane.refresh()
    assert message.words.text() == "The disk is full. Free some space."


def test_a_store_that_cannot_be_read_says_so(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    bridge.history.refusal = UserError("The store is damaged.", "Set it aside.")
    page = Page(qtbot, bridge, store)
    assert page.pane.message.words.text() == "The store is damaged. Set it aside."


def test_the_newest_run_opens_first_and_keys_go_through_the_list(
    qtbot: QtBot, bridge: FakeBridge, store: QSettings
) -> None:
    runs = [past_run(each, started_at=T + at, ready_at=T + at + 20, ended_at=T + at + 120) for each, at in
            (("old", 0), ("new", 4000), ("middle", 2000))]  # fmt: skip
    bridge.add(*(recorded(run, ready(SIXTY)) for run in runs))
    page = Page(qtbot, bridge, store)
    assert page.opened == ["new"]
    view = page.pane.list.view
    view.setFocus()
    QTest.keyClick(view, Qt.Key.Key_Down)
    QTest.keyClick(view, Qt.Key.Key_Down)
    page.settle()
    assert page.pane.list.chosen == ("old",)
    assert page.opened == ["new", "old"], "not those that were only passed"
    QTest.keyClicks(page.pane.list.search, "middle")
    assert [run.run_id for run in page.pane.model.shown] == ["middle"]
    assert page.pane.list.chosen == ("old",), "a search only hides it"
    page.pane.list.search.setText("nothing at all")
    assert page.pane.list.empty.isVisible()
    assert "Clear the search" in page.pane.list.empty.text()
    page.pane.list.search.clear()
    page.pane.list.order.setCurrentIndex(page.pane.list.order.findData("name"))
    assert [run.run_id for run in page.pane.model.shown] == ["middle", "new", "old"]
    assert Page(qtbot, bridge, store).pane.list.order.currentData() == "name", "it is kept"


def test_a_run_that_ends_is_read_again(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    going_on = past_run("a", ended_at=None, outcome="runs now")
    bridge.add(recorded(going_on, ready(SIXTY[:10])))
    page = Page(qtbot, bridge, store)
    assert page.card("tokens").chart.drawn[TOKENS][1].size == 10
    assert not page.pane.list.delete.isEnabled()
    assert "stop it first" in page.pane.list.delete.toolTip()
    bridge.add(recorded(replace(going_on, ended_at=T + 80, outcome="stopped"), ready(SIXTY)))
    bridge.run_changed.emit(RunView(RunState.STOPPED, run_id="a"))
    page.settle()
    assert page.card("tokens").chart.drawn[TOKENS][1].size == 60
    assert page.pane.list.delete.isEnabled()


# ---- one run ----------------------------------------------------------------------------------------------------


def test_a_run_is_drawn_over_its_whole_length_with_its_gaps(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    values = [10.0, 20.0, N, 30.0, 0.0, *[N] * 3, 40.0]
    bridge.add(recorded(past_run("a"), ready(values)))
    page = Page(qtbot, bridge, store)
    chart = page.card("tokens").chart
    x, y = chart.drawn[TOKENS]
    assert np.array_equal(y, values, equal_nan=True)
    assert x == pytest.approx([20 + 1 + n - 120 for n in range(9)])
    assert chart.span_s == pytest.approx(120)
    assert chart.marks[0] == "end"
    assert chart.marks[-1] == "0:00 min"
    assert "now" not in chart.marks
    tokens = page.card("tokens")
    assert (tokens.figure.figure, tokens.figure.words) == ("25.0", "tokens/s while generating")
    assert tokens.legend.values() == {"generated": "25.0"}
    assert tokens.source.text == "mean, engine counters"
    assert page.pane.summary.rows() == [["20.0", "50.0 %", "–", "–", "1 min"]]  # noqa: RUF001
    latency = page.card("latency")
    assert latency.message.text() == "Not recorded in this part of the run"
    assert "engine is running" not in latency.message.text()


def test_a_run_that_never_got_ready_shows_the_machine_and_says_why(
    qtbot: QtBot, bridge: FakeBridge, store: QSettings
) -> None:
    run = past_run(
        "a", ready_at=None, outcome="failed: no memory", failed=True, tokens_per_s=None, acceptance_rate=None
    )
    host = {"cpu_ratio": [0.5] * 60, "memory_used_bytes": [4.0] * 60, "memory_total_bytes": [16.0] * 60}
    bridge.add(recorded(run, host))
    page = Page(qtbot, bridge, store)
    assert page.pane.grid.idle.isVisible()
    assert page.pane.grid.idle.title.text() == "The engine was never read"
    assert page.pane.grid.idle.words.text() == "It did not get ready: no memory."
    assert not page.card("tokens").isVisible()
    assert page.card("host").figure.figure == "50 %"
    assert page.card("host").legend.values() == {"CPU": "50.0 %", "memory": "25.0 %"}


def test_acceptance_counts_every_draft_of_the_stretch(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    series = {
        **ready([50.0] * 4),
        "drafts": [10.0, 20.0, 30.0, 40.0],
        "draft_tokens": [20.0, 40.0, 60.0, 80.0],
        "acceptance_rate": [0.9, 0.6, 0.3, 0.1],
        "mean_acceptance_length": [2.8, 2.2, 1.6, 1.2],
        "recent_acceptance_rate": [0.9, 0.7, 0.5, 0.3],
        "acceptance_position_0": [1.0, 0.8, 0.4, 0.2],
        "acceptance_position_1": [0.8, 0.4, 0.2, 0.0],
    }
    bridge.add(recorded(past_run("a"), series))
    page = Page(qtbot, bridge, store)
    accepted = 0.9 * 20 + 0.6 * 40 + 0.3 * 60 + 0.1 * 80
    acceptance, positions = page.card("acceptance"), page.pane.grid.cards["positions"]
    assert acceptance.figure.figure == f"{100 * accepted / 200:.1f} %"
    assert acceptance.figure.words == f", {1 + accepted / 100:.2f} tokens per step, 100 drafts"
    assert acceptance.legend.values() == {"last 10 s": acceptance.figure.figure}
    at = [(1.0 * 10 + 0.8 * 20 + 0.4 * 30 + 0.2 * 40) / 100, (0.8 * 10 + 0.4 * 20 + 0.2 * 30) / 100]
    assert positions.bars.ratios == pytest.approx(at)  # type: ignore[attr-defined]
    assert page.pane.summary.rows()[0][2] == f"{1 + accepted / 100:.2f}"


def test_the_read_out_tells_when_it_was_and_what_happened(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    run = recorded(past_run("a"), ready(SIXTY))
    bridge.add(replace(run, marks=(*run.marks, Mark(T + 50, "chat", "Chat"))))
    page = Page(qtbot, bridge, store)
    page.pane.grid.point_at(-70.0)
    tokens = page.card("tokens")
    assert tokens.source.text.endswith("50 s after the start")
    assert tokens.source.text.startswith("Chat  ·  "[:5])
    assert tokens.legend.values() == {"generated": "30.0"}
    page.pane.grid.point_at(-100.0)
    assert "Ready" in tokens.source.text
    page.pane.grid.point_at(-85.0)
    assert "Chat" not in tokens.source.text
    assert "Ready" not in tokens.source.text
    page.pane.grid.point_at(None)
    assert tokens.source.text == "mean, engine counters"


def test_each_run_has_a_value_axis_of_its_own(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    bridge.add(recorded(past_run("fast", started_at=T + 1), ready([100.0])), recorded(past_run("slow"), ready([80.0])))
    page = Page(qtbot, bridge, store)
    assert page.card("tokens").chart.limit == 150
    page.choose("slow")
    assert page.card("tokens").chart.limit == 100, "the higher one says nothing about this run"


def test_marks_stand_where_they_happened(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    run = recorded(past_run("a"), ready(SIXTY))
    bridge.add(replace(run, marks=(*run.marks, Mark(T + 60, "crash", "Crashed"))))
    page = Page(qtbot, bridge, store)
    chart = page.card("tokens").chart
    wide = chart.plot_width
    assert [group.kind for group in chart.mark_groups] == ["start", "ready", "crash", "stop"]
    places = [group.x_px for group in chart.mark_groups]
    assert places == pytest.approx([seconds / 120 * wide for seconds in (0, 20, 60, 120)], abs=1)


def test_a_stretch_is_chosen_and_moved(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    run = past_run("a", ended_at=T + 1220)
    values = [float(n) for n in range(1200)]
    bridge.add(recorded(run, ready(values)))
    page = Page(qtbot, bridge, store)
    pane, chart = page.pane, page.card("tokens").chart
    chips = {key: pane.bar._spans.button(key) for key in (WHOLE, 60, 300, 1800)}
    assert [chip.isEnabled() for chip in chips.values()] == [True, True, True, False]
    assert chips[1800].toolTip() == "The run is shorter"
    QTest.mouseClick(chips[60], LEFT)
    page.settle()
    middle = T + 1220 / 2
    _, y = chart.drawn[TOKENS]
    assert chart.span_s == 60
    assert (y[0], y[-1]) == (pytest.approx(middle - 30 - T - 21), pytest.approx(middle + 30 - T - 21))
    mean = page.card("tokens").figure.figure
    assert mean == f"{(y[1:].sum()) / (y.size - 1):,.0f}", "a reading at the very begin tells of the time before"
    pane.strip.setFocus()
    QTest.keyClick(pane.strip, Qt.Key.Key_Home)
    page.settle()
    assert chart.drawn[TOKENS][1].tolist() == values[:40], "20 s of the start are before the first reading"
    assert chart.marks[0] != "end"
    QTest.keyClick(pane.strip, Qt.Key.Key_End)
    page.settle()
    assert chart.drawn[TOKENS][1].tolist() == values[-61:]
    assert chart.marks[0] == "end"
    QTest.mouseClick(chips[WHOLE], LEFT)
    page.settle()
    assert chart.span_s == pytest.approx(1220)
    assert not pane.strip.can_move


def test_a_day_of_readings_reaches_the_plot_in_few_points(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    n = 86_400
    rng = np.random.default_rng(0)
    tokens = (rng.random(n) * 100).tolist()
    bridge.add(recorded(past_run("a", ended_at=T + n + 20), ready(tokens)))
    page = Page(qtbot, bridge, store)
    chart = page.card("tokens").chart
    x, y = chart.drawn[TOKENS]
    assert x.size <= max(chart.width(), 320)
    assert y.max() == pytest.approx(max(tokens))
    opened = page.pane._opened["a"].curves
    times, _ = opened.curve(TOKENS, n, T + n + 20)
    assert times.size < 10_000, "what the main thread thins"


def test_a_run_with_gpus_shows_their_cards_and_one_without_does_not(
    qtbot: QtBot, bridge: FakeBridge, store: QSettings
) -> None:
    gpu = GpuInfo("GPU-1", "H100", 0, memory_total_bytes=80 * 1024**3, peak_bytes_per_s=3e12, measures_bandwidth=True)
    series = {
        **ready([50.0] * 4),
        gpu_series("GPU-1", "power_w"): [400.0, 500.0, 600.0, 700.0],
        gpu_series("GPU-1", "dram_bytes_per_s"): [1e12, 2e12, 1e12, 2e12],
        gpu_series("GPU-1", "dram_ratio"): [0.25, 0.5, 0.25, 0.5],
    }
    bridge.add(
        recorded(past_run("gpu", started_at=T + 1, tokens_per_s=None), series, gpus=(gpu,)),
        recorded(past_run("cpu"), ready([50.0] * 4)),
    )
    page = Page(qtbot, bridge, store)
    grid = page.pane.grid
    shown = {card.key for card in grid.visible_cards}
    assert {"bandwidth", "gpu_power"} <= shown
    assert not {"gpu_temperature", "gpu_nvlink"} & shown, "nothing of them was recorded"
    power, bandwidth = page.card("gpu_power"), page.card("bandwidth")
    grid.verticalScrollBar().setValue(grid.verticalScrollBar().maximum())
    page.settle()
    assert power.figure.figure == "550"
    assert power.chart.drawn[gpu_series("GPU-1", "power_w")][1].tolist() == [400, 500, 600, 700]
    assert bandwidth.figure.figure == "1,500"
    assert bandwidth.figure.words.endswith("38 % of peak")
    page.choose("cpu")
    assert not {"bandwidth", "gpu_power"} & {card.key for card in grid.visible_cards}


# ---- two runs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def two(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> Page:
    """A, and B that took 30 s longer to get ready and was twice as fast."""
    first = past_run("a", started_at=T + 10_000, ready_at=T + 10_020, ended_at=T + 10_080)
    second = past_run("b", ready_at=T + 50, ended_at=T + 150, tokens_per_s=40.0, acceptance_rate=None)
    bridge.add(
        recorded(first, {**ready(SIXTY), "ttft_p50_s": [0.2] * 60, "ttft_count": [1.0] * 60}),
        recorded(second, {**ready([2 * n for n in SIXTY]), "ttft_p50_s": [0.1] * 60, "ttft_count": [2.0] * 60}),
    )
    page = Page(qtbot, bridge, store)
    page.choose("a", "b")
    return page


def test_two_runs_are_aligned_at_ready(two: Page) -> None:
    assert two.pane.list.chosen == ("a", "b")
    chart = two.card("tokens").chart
    x, y = chart.drawn[TOKENS]
    other_x, other_y = chart.drawn_other[TOKENS]
    assert x == pytest.approx(other_x), "n seconds after READY stand at one place"
    assert other_y == pytest.approx(2 * y)
    # B began 50 s before its READY, and went on for 100 s after it.
    assert chart.span_s == pytest.approx(150)
    assert x[0] == pytest.approx(1 - 100)
    assert chart.marks == ("end", "1:00", "0:30", "0:00", "−0:30 min")  # noqa: RUF001
    kinds = [(group.kind, group.words) for group in chart.mark_groups]
    assert kinds == [
        ("start", "B: Started"),
        ("start", "A: Started"),
        ("ready", "A: Ready, B: Ready"),
        ("stop", "A: Stopped"),
        ("stop", "B: Stopped"),
    ]
    assert two.pane.bar.words == "A and B aligned at READY"


def test_two_runs_have_a_legend_and_a_read_out_of_their_own(two: Page) -> None:
    tokens = two.card("tokens")
    mean = sum(SIXTY) / 60
    assert tokens.legend.values() == {"generated A": f"{mean:.1f}", "generated B": f"{2 * mean:.1f}"}
    assert [entry.is_other for entry in tokens.legend.entries] == [False, True]
    two.pane.grid.point_at(-90.0)
    assert tokens.legend.values() == {"generated A": "10.0", "generated B": "20.0"}
    assert tokens.source.text == "10 s after READY", "the clocks of the two are not one"


def test_the_table_compares_what_is_known_of_both(two: Page) -> None:
    assert two.pane.summary.rows() == [
        ["20.0", "50.0 %", "–", "≈200 ms", "1 min"],  # noqa: RUF001
        ["40.0", "–", "–", "≈100 ms", "1 min"],  # noqa: RUF001
        ["2.00x", "–", "–", "0.50x", "1.67x"],  # noqa: RUF001
    ]


def test_without_ready_runs_are_aligned_at_the_start(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    bridge.add(
        recorded(past_run("a", started_at=T + 5000, ready_at=T + 5020, ended_at=T + 5120), ready(SIXTY)),
        recorded(past_run("b", ready_at=None), ready(SIXTY)),
    )
    page = Page(qtbot, bridge, store)
    page.choose("a", "b")
    chart = page.card("tokens").chart
    assert chart.drawn[TOKENS][0][0] - chart.drawn_other[TOKENS][0][0] == pytest.approx(20)
    assert page.pane.bar.words == "A and B aligned at the start"


def test_acceptance_by_position_stands_side_by_side(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    def drafts(at: list[float]) -> dict[str, list[float]]:
        return {
            **ready([1.0]), "drafts": [10.0], "draft_tokens": [20.0], "acceptance_rate": [0.5],
            **{f"acceptance_position_{n}": [ratio] for n, ratio in enumerate(at)},
        }  # fmt: skip

    bridge.add(
        recorded(past_run("a", started_at=T + 1), drafts([0.9, 0.5])), recorded(past_run("b"), drafts([0.7, 0.4, 0.2]))
    )
    page = Page(qtbot, bridge, store)
    page.choose("a", "b")
    card = page.pane.grid.cards["positions"]
    assert (card.bars.ratios, card.bars.others) == ((0.9, 0.5), (0.7, 0.4, 0.2))  # type: ignore[attr-defined]
    assert card.legend.values() == {"tokens per step A": "2.40", "B": "2.30"}
    page.choose("b")
    assert (card.bars.ratios, card.bars.others) == ((0.7, 0.4, 0.2), ())  # type: ignore[attr-defined]


def test_the_second_run_goes_and_comes_by_button_and_by_keys(two: Page) -> None:
    pane = two.pane
    assert pane.list.compare.isChecked()
    QTest.mouseClick(pane.list.compare, LEFT)
    two.settle()
    assert list(pane.list.chosen) == ["a"]
    assert two.card("tokens").chart.drawn_other == {}
    assert two.card("tokens").legend.values() == {"generated": "30.5"}
    QTest.mouseClick(pane.list.compare, LEFT)
    assert pane.list.hint.text() == "Choose the run to lay over this one."
    QTest.mouseClick(
        pane.list.view.viewport(), LEFT, pos=pane.list.view.visualRect(pane.model.index_of("b")).center()
    )  # a plain click adds now
    two.settle()
    assert list(pane.list.chosen) == ["a", "b"]
    assert not pane.list.hint.isVisible()
    QTest.mouseClick(pane.list.view.viewport(), LEFT, pos=pane.list.view.visualRect(pane.model.index_of("b")).center())
    two.settle()
    assert list(pane.list.chosen) == ["b"], "a plain click chooses one again"
    pane.list.view.setFocus()
    QTest.keyClick(pane.list.view, Qt.Key.Key_Up, Qt.KeyboardModifier.ShiftModifier)
    two.settle()
    assert list(pane.list.chosen) == ["b", "a"]
    assert two.opened.count("a") <= 2


def test_at_most_two_runs_are_chosen(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    bridge.add(*(recorded(past_run(each, started_at=T - n), ready(SIXTY)) for n, each in enumerate("abcd")))
    page = Page(qtbot, bridge, store)
    page.choose("b", "c", "d")
    assert page.pane.list.chosen == ("b", "d"), "the first stays, the newest choice takes the place of the second"
    chosen = [index.row() for index in page.pane.list.view.selectionModel().selectedIndexes()]
    assert sorted(chosen) == [1, 3]
    QTest.keyClick(page.pane.list.view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    page.settle()
    assert len(page.pane.list.chosen) == 2


# ---- export and delete ------------------------------------------------------------------------------------------


def test_readings_of_the_visible_stretch_are_exported(
    qtbot: QtBot, bridge: FakeBridge, store: QSettings, tmp_path: Path
) -> None:
    bridge.add(recorded(past_run("a", ended_at=T + 1220), ready([1.0] * 1200)))
    page = Page(qtbot, bridge, store)
    QTest.mouseClick(page.pane.bar._spans.button(60), LEFT)
    QTest.keyClick(page.pane.strip, Qt.Key.Key_End)
    assert page.pane.bar.export.file_stem.startswith("Run a, 20")
    for kind in ("csv", "json"):
        page.pane.bar.export.chosen.emit(kind, tmp_path / f"run.{kind}")
        assert bridge.history.calls[-1] == ("export", "a", tmp_path / f"run.{kind}", kind, T + 1160, T + 1220)
    assert page.pane.notice.text == f"Exported to {tmp_path / 'run.json'}."
    bridge.history.refusal = UserError("The disk is full.", "Free some space.")
    page.pane.bar.export.chosen.emit("csv", tmp_path / "run.csv")
    assert page.pane.notice.text == "The disk is full. Free some space."
    page.settle()


def test_a_picture_has_all_cards_twice_as_sharp(
    qtbot: QtBot, bridge: FakeBridge, store: QSettings, tmp_path: Path
) -> None:
    bridge.add(recorded(past_run("a"), ready(SIXTY)))
    page = Page(qtbot, bridge, store, size=(900, 560))
    file = tmp_path / "run.png"
    page.pane.bar.export.chosen.emit("png", file)
    page.settle()
    assert page.pane.notice.text == f"Exported to {file}."
    picture = QImage(str(file))
    cards = page.pane.grid.visible_cards
    below = max(card.geometry().bottom() for card in cards)
    assert below > page.pane.grid.viewport().height(), "some are scrolled away"
    assert picture.width() >= 2 * max(card.geometry().right() for card in cards)
    assert picture.height() >= 2 * (below + page.pane.summary.height())
    card = cards[-1]
    at = picture.height() - 2 * 16 - 2 * (below - card.geometry().top()) + 2
    assert card.moment is page.pane.grid._moment, "also those that are out of sight are up to date"
    colours = {picture.pixelColor(2 * (16 + card.x()) + x, at + 40).name() for x in range(0, 2 * card.width(), 2)}
    assert len(colours) > 3, "the title of the last card is there"
    page.pane.bar.export.chosen.emit("png", tmp_path / "missing" / "run.png")
    page.settle()
    assert "cannot be written" in page.pane.notice.text


def test_deleting_asks_and_shows_the_next_run(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    bridge.add(*(recorded(past_run(each, started_at=T - n), ready(SIXTY)) for n, each in enumerate("abc")))
    page = Page(qtbot, bridge, store)
    page.choose("b")
    page.pane.list.view.setFocus()
    QTest.keyClick(page.pane.list.view, Qt.Key.Key_Delete)
    dialog = page.pane.question.dialog
    assert dialog is not None
    assert "Run b" in dialog.text
    assert "for good" in dialog.text
    QTest.mouseClick(dialog.buttons["keep"], LEFT)
    assert "b" in bridge.history.runs
    qtbot.waitUntil(lambda: page.pane.question.dialog is None)
    QTest.mouseClick(page.pane.list.delete, LEFT)
    dialog = page.pane.question.dialog
    assert dialog is not None
    QTest.mouseClick(dialog.buttons["delete"], LEFT)
    page.settle()
    assert list(bridge.history.runs) == ["a", "c"]
    assert page.pane.list.chosen == ("c",)
    assert page.card("tokens").isVisible()
    qtbot.waitUntil(lambda: page.pane.question.dialog is None)


def test_after_the_last_run_is_deleted_the_page_says_what_to_do(
    qtbot: QtBot, bridge: FakeBridge, store: QSettings
) -> None:
    bridge.add(recorded(past_run("a"), ready(SIXTY)))
    page = Page(qtbot, bridge, store)
    QTest.mouseClick(page.pane.list.delete, LEFT)
    dialog = page.pane.question.dialog
    assert dialog is not None
    QTest.mouseClick(dialog.buttons["delete"], LEFT)
    page.settle()
    assert page.pane.message.isVisible()
    assert page.pane.message.title.text() == "No run was recorded yet"
    qtbot.waitUntil(lambda: page.pane.question.dialog is None)


def test_what_cannot_be_opened_is_told_and_the_rest_stays(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    bridge.add(recorded(past_run("a"), ready(SIXTY)), recorded(past_run("b", started_at=T - 1), ready(SIXTY)))
    page = Page(qtbot, bridge, store)
    bridge.history.refusal = UserError("The run is damaged.", "Delete it.")
    page.choose("a", "b")
    assert page.pane.notice.text == "The run is damaged. Delete it."
    assert page.pane.list.chosen == ("a",)
    assert page.card("tokens").isVisible()


# ---- access -----------------------------------------------------------------------------------------------------


def test_every_control_has_a_name_and_a_tooltip(two: Page) -> None:
    own = [*two.pane.bar.findChildren(QAbstractButton), two.pane.list.compare, two.pane.list.delete]
    popups = [button for frame in two.pane.bar.findChildren(QFrame) for button in frame.findChildren(QAbstractButton)]
    for button in own:
        assert button.accessibleName(), button
        assert button.toolTip() or button in popups, button.accessibleName()
    for widget in (two.pane.list.search, two.pane.list.order, two.pane.list.view, two.pane.strip):
        assert widget.accessibleName()
        assert widget.toolTip()
        assert widget.focusPolicy() & Qt.FocusPolicy.TabFocus


def test_cards_and_views_are_kept(qtbot: QtBot, bridge: FakeBridge, store: QSettings) -> None:
    bridge.add(recorded(past_run("a"), ready(SIXTY)))
    page = Page(qtbot, bridge, store)
    page.card("tokens").choose_view(1)
    order = ["cache", *(key for key in page.pane.grid.order if key != "cache")]
    page.pane.grid.choose(order, [key for key in order if key != "latency"])
    again = Page(qtbot, bridge, store)
    assert again.pane.grid.order[0] == "cache"
    assert not again.card("latency").isVisible()
    assert again.card("tokens").view_index == 1


@pytest.mark.parametrize("size", [(991, 569), (1331, 769)], ids=["1100x700", "1440x900"])
@pytest.mark.parametrize("what", ["none", "one", "two"])
def test_nothing_is_cut(qtbot: QtBot, bridge: FakeBridge, store: QSettings, size: tuple[int, int], what: str) -> None:
    """With long names and large figures, in the room that the page has in a window of these sizes."""
    outcome = "failed: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB"
    runs = [
        past_run(
            each, started_at=T - 4000 * n, ready_at=T - 4000 * n + 20, ended_at=T - 4000 * n + 90_000, outcome=outcome,
            title="Qwen2.5 Coder 32B Instruct + 0.5B Instruct draft model, four GPUs", tokens_per_s=123_456.0,
            engine="vllm 0.32.0.post1", failed=True,
        )
        for n, each in enumerate("ab")
    ]  # fmt: skip
    bridge.records = False
    if what != "none":
        bridge.add(*(recorded(run, ready(SIXTY)) for run in runs))
    page = Page(qtbot, bridge, store, size=size)
    if what == "two":
        page.choose("a", "b")
    qtbot.waitUntil(lambda: cut(page.pane) == [], timeout=15_000)
    assert (page.pane.width(), page.pane.height()) == size
