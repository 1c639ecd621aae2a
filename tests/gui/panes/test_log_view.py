"""The list of log lines: following, pausing, steps by key and mouse."""

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSlider, QApplication
from pytestqt.qtbot import QtBot

from backend.desk.types import LogLine
from gui.panes.logs.view import LogView
from gui.qt_models import line_delegate
from gui.qt_models.line_filter import LineFilter
from gui.qt_models.log_lines import LogLines
from gui.theme import theme


def lines(first: int, last: int, level: str = "INFO") -> list[LogLine]:
    return [LogLine(number, f"text {number}", level) for number in range(first, last + 1)]


@pytest.fixture
def view(qtbot: QtBot) -> LogView:
    model = LogLines(max_lines=5000)
    view = LogView(model)
    model.setParent(view)
    qtbot.addWidget(view)
    view.resize(700, 400)
    view.show()
    return view


def model_of(view: LogView) -> LogLines:
    model = view.model()
    assert isinstance(model, LogLines)
    return model


def top(view: LogView) -> str:
    return str(view.indexAt(QPoint(5, 2)).data())


def bottom(view: LogView) -> str:
    """The last line that is wholly seen."""
    return str(view.indexAt(QPoint(5, view.viewport().height() - view.delegate.row_height)).data())


def test_the_newest_line_is_kept_in_sight(view: LogView) -> None:
    for start in range(1, 3000, 500):
        model_of(view).append(lines(start, start + 499))
        assert bottom(view) in (f"text {start + 499}", f"text {start + 498}")
    view.resize(700, 200)
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()
    assert view.following


def test_scrolling_up_pauses_and_down_to_the_end_follows(qtbot: QtBot, view: LogView) -> None:
    model_of(view).append(lines(1, 1000))
    bar = view.verticalScrollBar()
    with qtbot.waitSignal(view.following_changed) as told:
        bar.triggerAction(QAbstractSlider.SliderAction.SliderPageStepSub)
    assert told.args == [False]
    seen = top(view)
    model_of(view).append(lines(1001, 1500))
    assert top(view) == seen
    bar.triggerAction(QAbstractSlider.SliderAction.SliderToMaximum)
    assert view.following
    model_of(view).append(lines(1501, 1600))
    assert bar.value() == bar.maximum()


def test_what_is_read_stays_when_old_lines_go(view: LogView) -> None:
    model_of(view).append(lines(1, 5000))
    view.set_following(False)
    view.verticalScrollBar().setValue(4000)
    seen = top(view)
    model_of(view).append(lines(5001, 5500))
    assert model_of(view).first_number > 1
    assert top(view) == seen


def test_keys(view: LogView) -> None:
    model_of(view).append(lines(1, 1000))
    view.setFocus()
    told: list[bool] = []
    view.following_changed.connect(told.append)
    QTest.keyClick(view, Qt.Key.Key_Up)
    assert told == [False]
    assert view.selected_rows() == [998]
    QTest.keyClick(view, Qt.Key.Key_Up, Qt.KeyboardModifier.ShiftModifier)
    assert view.selected_rows() == [997, 998]
    QTest.keyClick(view, Qt.Key.Key_Home)
    assert view.verticalScrollBar().value() == 0
    assert view.selected_rows() == [0]
    QTest.keyClick(view, Qt.Key.Key_End)
    assert told == [False, True]
    assert view.selected_rows() == []
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()


def test_mouse_selects_lines_and_lets_them_stand_still(qtbot: QtBot, view: LogView) -> None:
    model_of(view).append(lines(1, 5))
    row = view.delegate.row_height
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(50, row + 3))
    assert not view.following
    QTest.mouseClick(
        view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier, QPoint(50, 3 * row + 3)
    )
    assert view.selected_rows() == [1, 2, 3]


def test_show_row_selects_and_centres(view: LogView) -> None:
    model_of(view).append(lines(1, 1000))
    view.show_row(499)
    assert view.selected_rows() == [499]
    assert not view.following
    middle = view.visualRect(model_of(view).index(499)).center().y()
    assert abs(middle - view.viewport().height() / 2) < 3 * view.delegate.row_height


def colours(view: LogView, row: int) -> set[str]:
    """Colours of the pixels of a row."""
    image = view.viewport().grab(view.visualRect(model_of(view).index(row))).toImage()
    return {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())}


def test_levels_and_matches_are_seen(qtbot: QtBot, view: LogView) -> None:
    for number, level in enumerate(("INFO", "WARNING", "ERROR"), start=1):
        model_of(view).append(lines(number, number, level))
    model_of(view).append([LogLine(4, "ünïcode ▄█ text", "INFO"), LogLine(5, "w" * 4000, "INFO")])
    assert theme.tokens.text in colours(view, 0)
    assert theme.tokens.warn in colours(view, 1)
    assert theme.tokens.bad in colours(view, 2)
    assert theme.tokens.warn not in colours(view, 0)
    before = [colours(view, row) for row in range(5)]
    view.show_matches(LineFilter("", "text"))
    after = [colours(view, row) for row in range(5)]
    assert [a != b for a, b in zip(before, after, strict=True)] == [True, True, True, True, False]


def painted(view: LogView, row: int) -> bytes:
    """What is seen of a row."""
    image = view.viewport().grab(view.visualRect(model_of(view).index(row))).toImage()
    return bytes(image.constBits())


def test_sideways_by_keys_and_wheel_shows_the_end_of_a_line(view: LogView) -> None:
    n_seen = view.delegate.n_fitting(view.viewport().width())
    text = "".join(chr(ord("a") + n % 26) for n in range(3 * n_seen))
    model_of(view).append([LogLine(1, text, "INFO"), LogLine(2, text[: n_seen // 2], "INFO")])
    assert view.sideways.maximum() == 2 * n_seen
    at_start = painted(view, 0)
    view.setFocus()
    QTest.keyClick(view, Qt.Key.Key_Right)
    assert view.delegate.first == 8
    # What is seen is the text from there on, under the number that stays where it is.
    moved = painted(view, 0)
    assert moved != at_start
    model_of(view).append([LogLine(1, text[8:], "INFO")])
    view.sideways.setValue(0)
    assert painted(view, 2) == moved
    view.sideways.setValue(8)
    QTest.keyClick(view, Qt.Key.Key_Left)
    assert painted(view, 0) == at_start
    QTest.keyClick(view, Qt.Key.Key_Right, Qt.KeyboardModifier.ControlModifier)
    assert view.delegate.first == 2 * n_seen
    model_of(view).append([LogLine(1, text[-n_seen:], "INFO")])
    at_end = painted(view, 0)
    view.sideways.setValue(0)
    assert painted(view, 3) == at_end
    for delta, modifier in (
        (QPoint(-120, 0), Qt.KeyboardModifier.NoModifier),
        (QPoint(0, -120), Qt.KeyboardModifier.ShiftModifier),
    ):
        before = view.delegate.first
        event = QWheelEvent(
            QPointF(9, 9), QPointF(9, 9), QPoint(0, 0), delta, Qt.MouseButton.NoButton, modifier,
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(view.viewport(), event)
        assert view.delegate.first == before + 8
    before = view.delegate.first
    for _ in range(15):  # a touchpad: less than a character at once
        event = QWheelEvent(
            QPointF(9, 9), QPointF(9, 9), QPoint(0, 0), QPoint(-4, 0), Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(view.viewport(), event)
    assert view.delegate.first == before + 4
    assert view.following


def test_matches_are_marked_where_they_stand_also_sideways(view: LogView) -> None:
    model_of(view).append([LogLine(1, "x" * 300 + "needle" + "y" * 300, "INFO"), LogLine(2, "needle" + "x" * 600)])
    view.show_matches(LineFilter("", "needle"))
    mark = view.delegate._match.name()
    assert [mark in colours(view, row) for row in (0, 1)] == [False, True]
    view.sideways.setValue(290)
    assert [mark in colours(view, row) for row in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(EngineCore pid=7) INFO 11-30 10:00:00 [core.py:1] loading", "loading"),
        ('INFO:     127.0.0.1:57424 - "POST /v1/chat/completions HTTP/1.1" 200 OK', '"POST'),
        ("INFO:     Application startup complete.", "INFO:"),
        ("loading INFO:     127.0.0.1:57424 - x", "loading"),
    ],
)
def test_what_stands_before_the_message_is_known(line: str, message: str) -> None:
    found = line_delegate._PREFIX.match(line)
    assert found is not None
    assert line[found.end() :].split(" ")[0] == message
