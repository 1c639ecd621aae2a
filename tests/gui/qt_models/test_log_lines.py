"""The model of log lines: what it keeps, what it shows, what it counts, all computed here a second time."""

import random
from collections.abc import Sequence

import pytest
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from backend.desk.types import LogLine
from gui.qt_models.line_filter import LineFilter
from gui.qt_models.log_lines import MAX_LINES, LogLines

ORDER = ["DEBUG", "INFO", "WARNING", "ERROR"]


def make(numbers: Sequence[int]) -> list[LogLine]:
    levels = ["INFO", "", "WARNING", "INFO", "ERROR", "ERROR", "DEBUG"]
    words = ["Worker started", "loading 50%", "cache is SMALL", "worker done"]
    return [LogLine(n, f"{words[n % 4]} {n}", levels[n % 7]) for n in numbers]


def rows(model: LogLines) -> list[str]:
    return [str(model.data(model.index(row))) for row in range(model.rowCount())]


def wanted(lines: Sequence[LogLine], level: str = "", text: str = "") -> list[str]:
    least = ORDER.index(level) if level else 0
    return [
        line.text
        for line in lines
        if ORDER.index(line.level or "INFO") >= least and text.casefold() in line.text.casefold()
    ]


def counts(lines: Sequence[LogLine]) -> tuple[int, int]:
    n_errors = sum(
        line.level == "ERROR" and (index == 0 or lines[index - 1].level != "ERROR") for index, line in enumerate(lines)
    )
    return sum(line.level == "WARNING" for line in lines), n_errors


@pytest.fixture
def model() -> LogLines:
    return LogLines()


def set_filter(qtbot: QtBot, model: LogLines, chosen: LineFilter) -> None:
    model.set_filter(chosen)
    qtbot.waitUntil(lambda: not model.is_scanning, timeout=30_000)


def test_a_batch_is_one_insertion_with_text_level_and_number(model: LogLines) -> None:
    inserted: list[tuple[int, int]] = []
    model.rowsInserted.connect(lambda _parent, first, last: inserted.append((first, last)))
    lines = make(range(1, 500))
    model.append(lines)
    assert inserted == [(0, 498)]
    index = model.index(3)
    assert index.data() == "Worker started 4"
    assert index.data(LogLines.LEVEL_ROLE) == "ERROR"
    assert index.data(LogLines.NUMBER_ROLE) == 4
    assert index.data(Qt.ItemDataRole.AccessibleTextRole) == "Line 4, error: Worker started 4"
    assert model.rowCount(index) == 0
    assert model.data(QModelIndex()) is None


def test_no_more_than_the_limit_and_the_newest_are_kept(model: LogLines) -> None:
    lines = make(range(1, 60_001))
    for start in range(0, 60_000, 1500):
        model.append(lines[start : start + 1500])
        assert model.n_lines <= MAX_LINES
    assert model.n_lines > MAX_LINES - 3000
    kept = lines[-model.n_lines :]
    assert rows(model) == [line.text for line in kept]
    assert (model.first_number, model.last_number) == (kept[0].number, 60_000)
    assert (model.n_warnings, model.n_errors) == counts(kept)


@pytest.mark.parametrize(
    ("level", "text"), [("INFO", ""), ("WARNING", ""), ("ERROR", ""), ("", "WORKER"), ("INFO", "5")]
)
def test_filter_over_what_is_there_and_what_comes(qtbot: QtBot, model: LogLines, level: str, text: str) -> None:
    lines = make(range(1, 9001))
    model.append(lines[:8000])
    set_filter(qtbot, model, LineFilter(level, text))
    assert rows(model) == wanted(lines[:8000], level, text)
    model.append(lines[8000:])
    assert rows(model) == wanted(lines, level, text)
    assert 0 < model.rowCount() < 9000
    set_filter(qtbot, model, LineFilter())
    assert rows(model) == [line.text for line in lines]


def test_lines_that_come_while_a_filter_is_applied(qtbot: QtBot, model: LogLines) -> None:
    lines = make(range(1, 52_001))
    model.append(lines[:50_000])
    model.set_filter(LineFilter("", "worker"))
    assert model.is_scanning
    model.append(lines[50_000:51_000])  # the oldest are dropped under the scan
    model.append([LogLine(51_000, "worker at last", "INFO")], replaces_last=True)
    model.append(lines[51_000:])
    qtbot.waitUntil(lambda: not model.is_scanning, timeout=30_000)
    held = [*lines[:50_999], LogLine(51_000, "worker at last", "INFO"), *lines[51_000:]][-model.n_lines :]
    assert held[0].number == model.first_number
    assert rows(model) == wanted(held, text="worker")


def test_a_filter_of_many_lines_gives_way_to_the_window(qtbot: QtBot, model: LogLines) -> None:
    model.append(make(range(1, 50_001)))
    turns: list[int] = []
    model.rowsInserted.connect(lambda *_: turns.append(model.rowCount()))
    model.set_filter(LineFilter("", "e"))
    assert model.rowCount() == 0
    qtbot.waitUntil(lambda: not model.is_scanning, timeout=30_000)
    assert len(turns) > 1
    assert model.rowCount() == sum("e" in line.text.lower() for line in make(range(1, 50_001)))


@pytest.mark.parametrize("seed", range(5))
def test_progress_bars_and_counts_by_chance(qtbot: QtBot, seed: int) -> None:
    """Any order of batches, replaced lines, drops and filters ends in what the lines themselves say."""
    chance = random.Random(seed)
    model = LogLines(max_lines=3000)
    QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal, model)
    held: list[LogLine] = []
    number = 0
    level, text = "", ""
    for _ in range(60):
        batch = []
        for _ in range(chance.randrange(1, 200)):
            number += chance.randrange(1, 3)
            batch.append(
                LogLine(number, f"{chance.choice(['worker', 'Cache', 'x'])} {number}", chance.choice([*ORDER, ""]))
            )
        replaces = bool(held) and chance.random() < 0.5
        model.append(batch, replaces_last=replaces)
        held = [*(held[:-1] if replaces else held), *batch]
        held = held[len(held) - model.n_lines :]
        if chance.random() < 0.2:
            level, text = chance.choice(["", *ORDER[1:]]), chance.choice(["", "WORK", "5"])
            set_filter(qtbot, model, LineFilter(level, text))
        assert model.n_lines <= 3000
        assert (model.n_warnings, model.n_errors) == counts(held)
        assert rows(model) == wanted(held, level, text)
    assert number > 3000


def test_a_replaced_line_appears_changes_and_goes_with_the_filter(qtbot: QtBot, model: LogLines) -> None:
    model.append([LogLine(1, "first", ""), LogLine(2, "bar 1", "")])
    set_filter(qtbot, model, LineFilter("", "bar"))
    changed: list[int] = []
    model.dataChanged.connect(lambda first, _last: changed.append(first.row()))
    model.append([LogLine(3, "bar 2", "")], replaces_last=True)
    assert (rows(model), changed) == (["bar 2"], [0])
    model.append([LogLine(4, "done", "")], replaces_last=True)
    assert rows(model) == []
    model.append([LogLine(5, "bar 3", ""), LogLine(6, "bar 4", "")], replaces_last=True)
    assert rows(model) == ["bar 3", "bar 4"]
    assert model.n_lines == 3


def test_row_of_a_number(qtbot: QtBot, model: LogLines) -> None:
    model.append([LogLine(1, "a", ""), LogLine(4, "bar 100%", ""), LogLine(5, "b", "ERROR")])
    assert [model.row_of(number) for number in (1, 2, 4, 5, 6)] == [0, 1, 1, 2, None]
    set_filter(qtbot, model, LineFilter("ERROR"))
    assert model.row_of(1) == 0


def test_clear(model: LogLines) -> None:
    model.append(make(range(1, 100)))
    model.clear()
    assert (model.rowCount(), model.n_lines, model.n_warnings, model.n_errors) == (0, 0, 0, 0)
    model.append(make(range(1, 3)))
    assert model.rowCount() == 2


def test_regular_expressions(qtbot: QtBot, model: LogLines) -> None:
    model.append(make(range(1, 1001)))
    set_filter(qtbot, model, LineFilter("", r"WORKER \w+ 1\d$", is_regex=True))
    assert rows(model) == [
        f"{w} {n}" for n in range(10, 20) for w in [["Worker started", "", "", "worker done"][n % 4]] if w
    ]
    bad = LineFilter("", "multi(proc", is_regex=True)
    assert "parenthesis" in bad.problem
    assert bad.passes(LogLine(1, "anything", ""))
    plain = LineFilter("", "50% (", is_regex=False)
    assert plain.problem == ""
    assert plain.passes(LogLine(1, "loading 50% (of it)", ""))


def test_an_expression_that_takes_for_ever_is_given_up(qtbot: QtBot, model: LogLines) -> None:
    said: list[str] = []
    model.filter_failed.connect(said.append)
    model.append([LogLine(1, "a" * 3000 + "b", "ERROR"), LogLine(2, "x", "INFO")])
    set_filter(qtbot, model, LineFilter("ERROR", "(a+)+$", is_regex=True))
    assert len(said) == 1
    assert "too long" in said[0]
    assert model.rowCount() == 1  # the level still counts
    assert model.filter.text == ""


def test_spans_are_where_the_text_stands() -> None:
    text = "Worker 😀 worker"
    spans = LineFilter("", "WORKER").spans(text)
    units = text.encode("utf-16-le")
    assert [units[2 * a : 2 * b].decode("utf-16-le") for a, b in spans] == ["Worker", "worker"]
    assert LineFilter().spans(text) == []
    assert LineFilter("", "x*", is_regex=True).spans("abc") == []


def test_what_a_progress_bar_has_overwritten_is_counted(model: LogLines) -> None:
    assert model.n_overwritten == 0
    lines = make([1, 2, 5, 6, 9])
    model.append(lines)
    assert (model.n_lines, model.n_overwritten) == (5, 4)
    model.append(make([12]), replaces_last=True)
    assert model.n_overwritten == 12 - 5
    model.append(make([13]))
    assert model.n_overwritten == 13 - 6


def test_the_longest_line_is_known_in_columns(model: LogLines) -> None:
    model.append([LogLine(1, "x" * 10), LogLine(2, "漢" * 7), LogLine(3, "é" * 12)])
    assert model.longest == 14
    model.append([LogLine(3, "x" * 20)], replaces_last=True)
    assert model.longest == 20
    model.clear()
    assert model.longest == 0


def test_a_progress_bar_in_the_first_line_is_counted_too(model: LogLines) -> None:
    model.append([LogLine(1, "1 %")])
    model.append([LogLine(50, "100 %"), LogLine(51, "done")], replaces_last=True)
    assert (model.oldest_number, model.n_lines, model.n_overwritten) == (1, 2, 49)
    model.clear()
    model.append([LogLine(7, "the tail of a long log")])
    assert (model.oldest_number, model.n_overwritten) == (7, 0)
