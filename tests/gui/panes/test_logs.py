"""The Logs page on a real backend: runs on disk, lines as they are written, filter, pause, copy, a failure's line."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QAbstractSlider, QComboBox, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from backend import paths
from backend.desk.types import LogBatch, RunView
from backend.events import RunState
from backend.launch.diagnosis import find_cause
from backend.launch.engine_log import EngineLog
from backend.launch.run_folder import RunFolder
from gui.bridge import Bridge
from gui.panes.logs import LogsPane
from tests.backend.desk.test_logs import make_run
from tests.gui.panes.real_bridge import LIMIT_MS, open_bridge

LOGS = Path(__file__).parents[2] / "data" / "engine_logs"
OLD, NEW = "20261130-100000-mine-aaaaaa", "20261130-110000-other-bbbbbb"


@pytest.fixture
def bridge(qtbot: QtBot, no_leaks: None) -> Iterator[Bridge]:
    with open_bridge(qtbot) as bridge:
        yield bridge


@pytest.fixture
def pane(qtbot: QtBot, bridge: Bridge) -> LogsPane:
    pane = LogsPane(bridge)
    qtbot.addWidget(pane)
    pane.resize(948, 602)
    return pane


def become_current(bridge: Bridge, folder: RunFolder, state: RunState = RunState.READY) -> None:
    """Let a run on disk be the current one, as a start or a take-over does."""
    view = RunView(state=state, run_id=folder.run_id, profile="mine", title="Mine", log_file=folder.log_file)
    told = threading.Event()

    def tell() -> None:
        bridge.desk.logs.current_run_changed(folder.run_id, folder.log_file)
        told.set()

    bridge._loop.call_soon_threadsafe(tell)
    assert told.wait(30)
    bridge._from_backend(view)


def append(folder: RunFolder, text: str) -> None:
    with folder.log_file.open("a") as stream:
        stream.write(text)


def texts(pane: LogsPane) -> list[str]:
    return [str(pane.lines.index(row).data()) for row in range(pane.lines.rowCount())]


def wait(qtbot: QtBot, pane: LogsPane, *wanted: str) -> None:
    qtbot.waitUntil(lambda: texts(pane) == list(wanted), timeout=LIMIT_MS)


def labels(box: QComboBox) -> list[str]:
    return [box.itemText(row) for row in range(box.count())]


def test_without_any_run_it_says_what_to_do(qtbot: QtBot, pane: LogsPane) -> None:
    pane.show()
    qtbot.waitUntil(lambda: pane.empty.isVisible(), timeout=LIMIT_MS)
    assert "press Start" in pane.empty.text()
    assert not pane.toolbar.copy.isEnabled()
    assert not pane.toolbar.folder.isEnabled()
    assert not pane.show_all.isVisible()


def test_lines_of_the_current_run_come_as_they_are_written(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    folder = make_run(NEW, b"(APIServer pid=1) INFO 11-30 10:00:00 [a.py:1] one\nWARNING 11-30 10:00:00 [a.py:1] two\n")
    become_current(bridge, folder)
    pane.show()
    one, two = "(APIServer pid=1) INFO 11-30 10:00:00 [a.py:1] one", "WARNING 11-30 10:00:00 [a.py:1] two"
    wait(qtbot, pane, one, two)
    append(folder, "bar 1%\r")
    wait(qtbot, pane, one, two, "bar 1%")
    append(folder, "bar 2%\nTraceback (most recent call last):\n  File x\nKeyError: 1\n")
    wait(qtbot, pane, one, two, "bar 2%", "Traceback (most recent call last):", "  File x", "KeyError: 1")
    assert pane.counts.total.text() == "7 lines, 1 of them overwritten by a progress bar"
    assert pane.lines.last_number == 7
    assert (pane.counts.warnings.text(), pane.counts.errors.text()) == ("1 warning", "1 error")
    assert not pane.empty.isVisible()


def test_hidden_it_reads_nothing_and_then_goes_on_without_doubling(
    qtbot: QtBot, bridge: Bridge, pane: LogsPane
) -> None:
    folder = make_run(NEW, b"one\n")
    become_current(bridge, folder)
    pane.show()
    wait(qtbot, pane, "one")
    batches: list[LogBatch] = []
    pane.hide()
    qtbot.waitUntil(lambda: bridge.desk.logs._task is None, timeout=LIMIT_MS)
    bridge.log_lines.connect(batches.append)
    append(folder, "two\n")
    qtbot.wait(350)  # three readings, if there were any
    assert batches == []
    pane.show()
    wait(qtbot, pane, "one", "two")
    assert not any(batch.reset for batch in batches)


def test_another_run_takes_the_place_of_the_current_one(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    become_current(bridge, make_run(OLD, b"old\n"))
    pane.show()
    wait(qtbot, pane, "old")
    become_current(bridge, make_run(NEW, b"new\n"))
    wait(qtbot, pane, "new")


def test_earlier_runs_are_offered_with_profile_and_outcome(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    make_run(OLD, b"old\n", state=RunState.FAILED)
    become_current(bridge, make_run(NEW, b"new\n"))
    pane.show()
    wait(qtbot, pane, "new")
    qtbot.waitUntil(lambda: pane.toolbar.runs.count() == 2, timeout=LIMIT_MS)
    current, earlier = labels(pane.toolbar.runs)
    assert current == "Current run · Mine"
    assert earlier.endswith(" · mine · failed")
    pane.toolbar.runs.setCurrentIndex(1)
    pane.toolbar.runs.activated.emit(1)
    wait(qtbot, pane, "old")
    assert pane.toolbar.runs.currentIndex() == 1
    pane.toolbar.runs.setCurrentIndex(0)
    pane.toolbar.runs.activated.emit(0)
    wait(qtbot, pane, "new")


def test_a_run_that_was_deleted_is_said(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    old = make_run(OLD, b"old\n")
    become_current(bridge, make_run(NEW, b"new\n"))
    pane.show()
    qtbot.waitUntil(lambda: pane.toolbar.runs.count() == 2, timeout=LIMIT_MS)
    shutil.rmtree(old.path)
    pane.toolbar.runs.setCurrentIndex(1)
    pane.toolbar.runs.activated.emit(1)
    qtbot.waitUntil(lambda: "gone" in pane.empty.text() and pane.empty.isVisible(), timeout=LIMIT_MS)


def show_recorded(qtbot: QtBot, bridge: Bridge, pane: LogsPane, name: str) -> list[str]:
    """Let a recorded failure be the current run; returns its lines as the diagnosis counts them."""
    data = (LOGS / f"{name}.log").read_bytes()
    folder = make_run(NEW, data, state=RunState.FAILED)
    become_current(bridge, folder, RunState.FAILED)
    pane.show()
    counted, _ = EngineLog(folder.log_file, limit_bytes=10**9).lines()
    qtbot.waitUntil(lambda: pane.lines.last_number >= len(counted) - 1, timeout=LIMIT_MS)
    return counted


def test_filter_by_text_and_level(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    counted = [line.rstrip() for line in show_recorded(qtbot, bridge, pane, "weights_corrupt") if line]
    wanted = [line.expandtabs(8) for line in counted if "worker" in line.lower()]
    pane.activateWindow()
    pane.view.setFocus()
    QTest.keyClick(pane.view, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(pane.toolbar.filter.hasFocus, timeout=LIMIT_MS)
    QTest.keyClicks(pane.toolbar.filter, "WORKER")
    wait(qtbot, pane, *wanted)
    assert pane.counts.total.text() == f"{len(wanted)} of {len(counted)} lines"

    pane.toolbar.levels.setCurrentIndex(2)
    pane.toolbar.levels.activated.emit(2)
    warned = [line for line in wanted if " WARNING " in line or " ERROR " in line]
    # A bare traceback has no level of its own: its lines with the word in them count too.
    bare = counted.index("Traceback (most recent call last):")
    late = [line.expandtabs(8) for line in counted[bare:] if "worker" in line.lower() and " ERROR " not in line]
    wait(qtbot, pane, *warned, *late)

    QTest.keyClick(pane.toolbar.filter, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: pane.lines.rowCount() == len(counted), timeout=LIMIT_MS)
    assert pane.toolbar.text == ""
    assert pane.toolbar.level == ""


def test_the_counts_choose_the_level(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    become_current(bridge, make_run(NEW, b"INFO 11-30 10:00:00 a\nWARNING 11-30 10:00:00 b\nERROR 11-30 10:00:00 c\n"))
    pane.show()
    qtbot.waitUntil(lambda: pane.lines.n_lines == 3, timeout=LIMIT_MS)
    for button, level, n_shown in (
        (pane.counts.warnings, "WARNING", 2),
        (pane.counts.errors, "ERROR", 1),
        (pane.counts.errors, "", 3),
    ):
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        assert pane.toolbar.level == level
        assert pane.lines.rowCount() == n_shown or pane.lines.is_scanning
        qtbot.waitUntil(lambda n_shown=n_shown: pane.lines.rowCount() == n_shown, timeout=LIMIT_MS)  # type: ignore[misc]
        chips = {"WARNING": pane.counts.warnings, "ERROR": pane.counts.errors}
        assert {name for name, chip in chips.items() if chip.isChecked()} == {level} - {""}


def test_the_end_of_long_lines_is_reached_and_only_whole_lines_are_seen(
    qtbot: QtBot, bridge: Bridge, pane: LogsPane
) -> None:
    folder = make_run(NEW, b"short\n" * 200)
    become_current(bridge, folder)
    pane.show()
    qtbot.waitUntil(lambda: pane.lines.n_lines == 200, timeout=LIMIT_MS)
    view, bar = pane.view, pane.view.sideways
    assert not bar.isVisible()
    assert view.viewport().height() % view.delegate.row_height == 0
    append(folder, "x" * 400 + "\n")
    qtbot.waitUntil(bar.isVisible, timeout=LIMIT_MS)
    assert view.viewport().height() % view.delegate.row_height == 0
    assert view.geometry().bottom() < bar.geometry().top()
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()
    assert bar.maximum() == 400 - view.delegate.n_fitting(view.viewport().width())
    become_current(bridge, make_run(OLD, b"new\n"))
    wait(qtbot, pane, "new")
    assert not bar.isVisible()
    assert view.delegate.first == 0


def test_nothing_that_matches_has_a_way_out(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    counted = show_recorded(qtbot, bridge, pane, "unknown_flag")
    pane.toolbar.filter.setText("nothing like this")
    qtbot.waitUntil(lambda: pane.show_all.isVisible(), timeout=LIMIT_MS)
    assert "No line matches" in pane.empty.text()
    pane.show_all.click()
    assert pane.lines.rowCount() == len([line for line in counted if line])
    assert pane.view.isVisible()


def test_a_wrong_expression_is_said_and_hides_nothing(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    show_recorded(qtbot, bridge, pane, "unknown_flag")
    n_lines = pane.lines.rowCount()
    pane.toolbar.regex.click()
    pane.toolbar.filter.setText("(flag")
    qtbot.waitUntil(lambda: pane.toolbar.problem != "", timeout=LIMIT_MS)
    assert "No regular expression" in pane.toolbar.problem
    qtbot.waitUntil(lambda: pane.lines.rowCount() == n_lines, timeout=LIMIT_MS)
    pane.toolbar.filter.setText(r"^usage: \w+")
    qtbot.waitUntil(lambda: pane.lines.rowCount() == 1, timeout=LIMIT_MS)
    assert pane.toolbar.problem == ""


def test_pause_collects_and_end_follows_again(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    folder = make_run(NEW, b"".join(b"%d\n" % number for number in range(300)))
    become_current(bridge, folder)
    pane.show()
    qtbot.waitUntil(lambda: pane.lines.n_lines == 300, timeout=LIMIT_MS)
    assert pane.toolbar.follow.text() == "Pause"
    pane.view.verticalScrollBar().triggerAction(QAbstractSlider.SliderAction.SliderPageStepSub)
    assert pane.toolbar.follow.text() == "Follow"
    value = pane.view.verticalScrollBar().value()
    assert not pane.news.isVisible()
    append(folder, "new\n" * 12)
    qtbot.waitUntil(lambda: pane.news.isVisible(), timeout=LIMIT_MS)
    qtbot.waitUntil(lambda: pane.news.text() == "12 new lines", timeout=LIMIT_MS)
    assert pane.view.verticalScrollBar().value() == value
    QTest.keyClick(pane.view, Qt.Key.Key_End)
    assert not pane.news.isVisible()
    assert pane.toolbar.follow.text() == "Pause"
    assert pane.view.verticalScrollBar().value() == pane.view.verticalScrollBar().maximum()
    pane.toolbar.follow.click()
    append(folder, "one more\n")
    qtbot.waitUntil(lambda: pane.news.text() == "1 new line", timeout=LIMIT_MS)
    pane.news.click()
    assert pane.view.following


def test_copy_takes_what_is_selected_or_everything_shown(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    become_current(bridge, make_run(NEW, b"alpha\nbeta\ngamma\n"))
    pane.show()
    wait(qtbot, pane, "alpha", "beta", "gamma")
    clipboard = QGuiApplication.clipboard()
    pane.toolbar.copy.click()
    assert clipboard.text() == "alpha\nbeta\ngamma"
    pane.toolbar.filter.setText("m")
    wait(qtbot, pane, "gamma")
    QTest.keyClick(pane.view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert clipboard.text() == "gamma"
    pane.toolbar.filter.clear()
    wait(qtbot, pane, "alpha", "beta", "gamma")
    pane.view.show_row(1)
    assert pane.detail.text == "beta"
    assert pane.toolbar.copy.toolTip() == "Copy 1 selected line (Ctrl+C)"
    QTest.keyClick(pane.view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert clipboard.text() == "beta"
    assert pane.toolbar.copy.text() == "Copied"
    QTest.keyClick(pane.view, Qt.Key.Key_Escape)
    assert pane.detail.isHidden()


@pytest.mark.parametrize("name", ["weights_corrupt", "draft_tp_mismatch", "unknown_flag", "config_json_broken"])
def test_the_line_of_a_failure_is_shown(qtbot: QtBot, bridge: Bridge, pane: LogsPane, name: str) -> None:
    """Asked for before the page was ever seen, as "Show log" does, and with a filter that hides the line."""
    counted, _ = EngineLog(LOGS / f"{name}.log", limit_bytes=10**9).lines()
    cause = find_cause(counted)
    assert cause is not None
    pane.toolbar.filter.setText("no such words")
    become_current(bridge, make_run(NEW, (LOGS / f"{name}.log").read_bytes()), RunState.FAILED)
    pane.show()
    pane.show_line(cause[1])
    qtbot.waitUntil(lambda: len(pane.view.selected_rows()) == 1, timeout=LIMIT_MS)
    shown = pane.lines.line(pane.view.selected_rows()[0])
    assert shown.number == cause[1]
    assert shown.text == counted[cause[1] - 1].expandtabs(8).rstrip()
    assert pane.detail.text == shown.text
    where = pane.view.visualRect(pane.view.currentIndex())
    assert pane.view.viewport().rect().contains(where)


def test_the_line_of_a_failure_is_one_of_the_current_run(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    """Another run was being read, and its log has a line of that number too."""
    make_run(OLD, b"old 1\nold 2\nold 3\n")
    become_current(bridge, make_run(NEW, b"new 1\nnew 2\nnew 3\n"), RunState.FAILED)
    pane.show()
    qtbot.waitUntil(lambda: pane.toolbar.runs.count() == 2, timeout=LIMIT_MS)
    pane.toolbar.runs.setCurrentIndex(1)
    pane.toolbar.runs.activated.emit(1)
    wait(qtbot, pane, "old 1", "old 2", "old 3")
    pane.show_line(2)
    qtbot.waitUntil(lambda: pane.detail.text == "new 2", timeout=LIMIT_MS)
    assert pane.toolbar.runs.currentIndex() == 0


def test_the_folder_is_opened(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    folder = make_run(NEW, b"x\n")
    become_current(bridge, folder)
    pane.show()
    wait(qtbot, pane, "x")
    opened: list[QUrl] = []

    def open_url(url: QUrl) -> bool:
        opened.append(url)
        return True

    pane.open_url = open_url
    pane.toolbar.folder.click()
    assert [url.toLocalFile() for url in opened] == [str(paths.folders().runs / NEW)]


def test_every_control_has_a_name_a_tooltip_and_a_place_in_the_order(pane: LogsPane) -> None:
    controls = [w for kind in (QAbstractButton, QLineEdit, QComboBox) for w in pane.findChildren(kind)]
    assert len(controls) >= 9
    for control in controls:
        assert control.accessibleName(), control
        assert control.toolTip(), control
    order: list[QWidget] = []
    bar = pane.toolbar
    widget: QWidget | None = bar.runs
    while widget is not None and widget not in order:
        order.append(widget)
        widget = widget.nextInFocusChain()
    wanted = [bar.runs, bar.levels, bar.filter, bar.regex, bar.follow, bar.copy, bar.folder, pane.view]
    assert [w for w in order if w in wanted] == wanted


def test_a_log_that_cannot_be_read_is_said_until_it_can_be(qtbot: QtBot, bridge: Bridge, pane: LogsPane) -> None:
    folder = make_run(OLD, None)
    folder.log_file.mkdir()
    become_current(bridge, folder)
    pane.show()
    words = "The log cannot be read: Is a directory. It is tried again."
    qtbot.waitUntil(lambda: pane.empty.text() == words and pane.empty.isVisible(), timeout=LIMIT_MS)
    folder.log_file.rmdir()
    append(folder, "one\n")
    wait(qtbot, pane, "one")
    qtbot.waitUntil(lambda: "cannot" not in pane.counts.remark.text(), timeout=LIMIT_MS)
    folder.log_file.rename(folder.log_file.with_name("away"))
    folder.log_file.mkdir()
    qtbot.waitUntil(lambda: words in pane.counts.remark.text(), timeout=LIMIT_MS)
    assert texts(pane) == ["one"]
    folder.log_file.rmdir()
