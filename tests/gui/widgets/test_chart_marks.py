"""Marks of what happened on the axis of a chart: where they stand, which are joined, and what is said."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF
from PySide6.QtGui import QColor, QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip
from pytestqt.qtbot import QtBot

from backend.events import Mark
from gui.theme import theme
from gui.widgets.chart import Chart
from gui.widgets.chart_lines import Line
from gui.widgets.chart_marks import SYMBOL_PX, grouped

KINDS = ("start", "ready", "chat", "bench", "crash", "stop", "stall", "version", "unheard of")


def mark(kind: str, text: str = "") -> Mark:
    return Mark(0.0, kind, text or kind)


@pytest.fixture
def chart(qtbot: QtBot) -> Chart:
    made = Chart([Line("a", 0)])
    qtbot.addWidget(made)
    made.resize(400, 300)
    with qtbot.waitExposed(made):
        made.show()
    return made


def test_marks_stand_at_their_time_and_close_ones_are_one() -> None:
    marks = [
        (-300.0, mark("start")),
        (-298.0, mark("ready")),
        (-150.0, mark("chat", "first")),
        (-149.0, mark("crash")),
        (-148.0, mark("chat", "second")),
        (0.0, mark("stop")),
    ]
    groups = grouped(marks, 300.0, 300)
    assert [(group.x_px, group.kind) for group in groups] == [(2, "ready"), (151, "crash"), (300, "stop")]
    assert [group.words for group in groups] == ["start, ready", "first, crash, second", "stop"]


@given(
    st.lists(st.tuples(st.floats(-700, 100), st.sampled_from(KINDS)), max_size=40),
    st.floats(10, 600),
    st.integers(50, 900),
)
def test_every_mark_of_the_span_is_told_once(placed: list[tuple[float, str]], span_s: float, width_px: int) -> None:
    marks = [(x, mark(kind, f"{number}")) for number, (x, kind) in enumerate(placed)]
    groups = grouped(marks, span_s, width_px)
    told = [each.text for group in groups for _, each in group.marks]
    assert sorted(told) == sorted(str(number) for number, (x, _) in enumerate(placed) if -span_s <= x <= 0)
    assert all(group.kind in {each.kind for _, each in group.marks} for group in groups)
    firsts = [group.marks[0][0] for group in groups]
    least_s = (SYMBOL_PX + 1) * span_s / width_px
    assert all(b - a >= least_s * (1 - 1e-9) for a, b in itertools.pairwise(firsts))


QUARTERS = st.integers(-2200, -200).map(lambda quarters: quarters / 4)  # exact, also after they have moved


@given(st.lists(QUARTERS, min_size=2, max_size=20), st.integers(-200, 200).map(lambda quarters: quarters / 4))
def test_marks_that_move_stay_joined_as_they_were(places: list[float], moved: float) -> None:
    """Else symbols would jump every second."""
    marks = [(x, mark("chat", str(number))) for number, x in enumerate(places)]
    before = [group.words for group in grouped(marks, 600.0, 300)]
    assert [group.words for group in grouped([(x + moved, each) for x, each in marks], 600.0, 300)] == before


def test_nothing_is_painted_anew_before_a_mark_has_moved_by_a_pixel(chart: Chart) -> None:
    item = chart._marks
    chart.show_marks([(-100.0, mark("chat"))])
    at, changes = chart.mark_groups[0].x_px, item.n_changes
    pixel_s = chart.span_s / chart.plot_width
    centre = at / chart.plot_width * chart.span_s - chart.span_s
    for share in (0.4, 0.1, -0.4):
        chart.show_marks([(centre + share * pixel_s, mark("chat"))])
    assert item.n_changes == changes
    chart.show_marks([(centre + 1.1 * pixel_s, mark("chat"))])
    assert item.n_changes == changes + 1
    chart.show_marks([(centre + 1.1 * pixel_s, mark("crash"))])
    assert item.n_changes == changes + 2, "another symbol"
    chart.show_marks([])
    assert chart.mark_groups == ()
    assert item.n_changes == changes + 3


def test_symbol_and_line_stand_at_the_pixel_of_the_time(chart: Chart, qtbot: QtBot) -> None:
    box = chart._box
    before = chart._view.grab().toImage()
    chart.show_marks([(-120.0, mark("crash"))])
    there = chart._view.mapFromScene(box.mapViewToScene(QPointF(-120.0, chart.limit)))

    def changed(x: int, y: int) -> bool:
        now = chart._view.grab().toImage()
        return any(now.pixelColor(x, y + step) != before.pixelColor(x, y + step) for step in (0, 1, 2))

    qtbot.waitUntil(lambda: changed(there.x(), there.y() + 60))  # the line, which is dotted
    assert not changed(there.x() - 3, there.y() + 60)
    assert not changed(there.x() + 3, there.y() + 60)
    now = chart._view.grab().toImage()
    over = [
        now.pixelColor(there.x() + x, there.y() - y) for x in range(-SYMBOL_PX // 2, SYMBOL_PX // 2) for y in range(12)
    ]
    assert QColor(theme.tokens.bad).red() > 200, "else the next line means nothing"
    assert any(each.red() > each.blue() + 40 for each in over), "the symbol"


def test_marks_follow_the_size_of_the_chart(chart: Chart, qtbot: QtBot) -> None:
    chart.show_marks([(-150.0, mark("chat"))])
    chart.resize(800, 300)
    qtbot.waitUntil(lambda: chart.plot_width > 600)
    assert chart.mark_groups[0].x_px == pytest.approx(chart.plot_width / 2, abs=1)


def test_what_happened_is_told_by_tooltip_and_to_assistive_technology(chart: Chart) -> None:
    chart.show_marks([(-200.0, mark("start", "Started")), (-100.0, mark("crash", "Failed (signal 9)"))])
    assert chart.accessibleDescription() == "Started. Failed (signal 9)"
    near = chart.mark_near(-102.0)
    assert near is not None
    assert near.words == "Failed (signal 9)"
    assert chart.mark_near(-150.0) is None
    viewport = chart._view.viewport()
    box = chart._box
    there = chart._view.mapFromScene(box.mapViewToScene(QPointF(-100.0, chart.limit / 2)))

    def tooltip_at(point: QPoint) -> str:
        QApplication.sendEvent(viewport, QHelpEvent(QHelpEvent.Type.ToolTip, point, viewport.mapToGlobal(point)))
        return QToolTip.text()

    assert tooltip_at(there) == "Failed (signal 9)"
    QToolTip.hideText()
