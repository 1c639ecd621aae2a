"""The chart: limits and marks of its axes, what reaches the plot, gaps, thinning and the read-out."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from gui import theme
from gui.widgets.chart import Chart, nice_limit, value_marks
from gui.widgets.chart_lines import Line, Shape, other_pen, pen, unbroken
from gui.widgets.thinning import thinned
from gui.widgets.time_axis import time_marks


@pytest.fixture
def chart(qtbot: QtBot) -> Chart:
    made = Chart([Line("a", 0, fill=True), Line("b", 1)])
    qtbot.addWidget(made)
    made.resize(400, 300)
    made.show()
    return made


@given(st.floats(1e-6, 1e9))
def test_limits_are_round_and_close(highest: float) -> None:
    limit = nice_limit(highest)
    assert highest <= limit * (1 + 1e-9)
    assert limit <= highest * 2
    marks = value_marks(limit)
    assert marks[0] == 0
    assert marks[-1] == pytest.approx(limit)
    assert len(marks) in range(2, 7)
    assert np.diff(marks) == pytest.approx(marks[1])


@pytest.mark.parametrize(
    ("span_s", "first", "last"),
    [
        (60, "−15", "−60 s"),  # noqa: RUF001
        (300, "−1", "−5 min"),  # noqa: RUF001
        (1800, "−10", "−30 min"),  # noqa: RUF001
        (7200, "−0.5", "−2 h"),  # noqa: RUF001
        (21600, "−1", "−6 h"),  # noqa: RUF001
        (86400, "−4", "−24 h"),  # noqa: RUF001
    ],
)
def test_marks_of_time_have_the_unit_of_the_span(span_s: int, first: str, last: str) -> None:
    marks = time_marks(span_s)
    assert [marks[0], marks[-1]] == [(0.0, "now"), (-span_s, last)]
    assert marks[1][1] == first
    assert len(marks) <= 7


def painted(chart: Chart, name: str, *, other: bool = False) -> tuple[list[list[tuple[float, float]]], list[object]]:
    """Strokes and dots of a line as (seconds before the right end, value): the pixels turned back."""
    box = chart._box
    shape: Shape = chart._painted.shape_of(name, other=other)

    def place(point: QPointF) -> tuple[float, float]:
        seconds, value = (point.x() / box.width() - 1) * chart.span_s, (1 - point.y() / box.height()) * chart.limit
        return round(seconds, 6), round(value, 6)

    return [[place(point) for point in stroke.toList()] for stroke in shape.strokes], [place(dot) for dot in shape.dots]


def test_the_plot_gets_the_values_with_their_gaps(chart: Chart) -> None:
    x = np.array([-4.0, -3, -2, -1, 0])
    y = np.array([5.0, 6, math.nan, 7, 8])
    chart.draw({"a": (x, y), "b": (x, y * 0)})
    assert chart._box.width() > 300
    assert painted(chart, "a") == ([[(-4, 5), (-3, 6)], [(-1, 7), (0, 8)]], [])
    assert painted(chart, "b") == ([[(-4, 0), (-3, 0)], [(-1, 0), (0, 0)]], [])


def test_lines_follow_the_size_of_the_chart(chart: Chart, qtbot: QtBot) -> None:
    chart.draw({"a": (np.array([-300.0, 0]), np.array([1.0, 0.5]))})
    before = chart._box.width()
    assert [point.x() for point in chart._painted.shape_of("a").strokes[0].toList()] == [0, before]
    chart.resize(800, 400)
    qtbot.waitUntil(lambda: chart._box.width() > before + 300)
    assert [point.x() for point in chart._painted.shape_of("a").strokes[0].toList()] == [0, chart._box.width()]
    assert painted(chart, "a") == ([[(-300, 1), (0, 0.5)]], [])


@given(st.lists(st.sampled_from([math.nan, 1.0, 2.0]), max_size=40))
def test_strokes_are_the_values_between_gaps(values: list[float]) -> None:
    parts = unbroken(np.array(values))
    inside = [number for part in parts for number in range(part.start, part.stop)]
    assert inside == [number for number, value in enumerate(values) if not math.isnan(value)]
    assert all(before.stop < after.start for before, after in itertools.pairwise(parts)), "a gap is between any two"


def test_extremes_have_no_area_and_readings_have_one(chart: Chart) -> None:
    for n_points, filled in ((100, {"a"}), (1000, set()), (200, {"a"})):
        x = np.linspace(-300, 0, n_points)
        chart.draw({"a": (x, np.ones(n_points)), "b": (x, np.ones(n_points))})
        assert chart._painted.filled == filled
        assert chart.drawn["a"][0].size <= max(chart.width(), 320)


def test_an_area_reaches_down_to_the_axis_and_not_over_a_gap(chart: Chart, qtbot: QtBot) -> None:
    chart.draw({"a": (np.array([-300.0, -150, -149, -100, 0]), np.array([1.0, 1.0, math.nan, 1.0, 1.0]))})
    surface, colour = theme.theme.tokens.surface, theme.theme.tokens.series[0]
    area = QColor(theme.mix(surface, colour, 0.16))

    def colour_at(x: float) -> QColor:
        there = chart._view.mapFromScene(chart._box.mapViewToScene(QPointF(x, 0.1)))
        return QColor(chart._view.grab().toImage().pixelColor(there))

    qtbot.waitUntil(lambda: [colour_at(x) for x in (-200, -125, -50)] == [area, QColor(surface), area])


def test_a_value_between_gaps_is_a_dot(chart: Chart) -> None:
    x = np.arange(-5.0, 1)
    y = np.array([1.0, math.nan, 2, math.nan, 3, 4])
    chart.draw({"a": (x, y)})
    assert painted(chart, "a") == ([[(-1, 3), (0, 4)]], [(-5, 1), (-3, 2)])
    chart.draw({"a": (x, np.ones(6))})
    assert chart._painted.shape_of("a").dots == ()


def test_a_value_that_thinning_doubled_is_a_dot(chart: Chart) -> None:
    x = np.arange(-300.0, 1, 0.25)
    y = np.full(x.size, math.nan)
    y[200], y[800:840] = 2.0, 3.0
    chart.draw({"a": (x, y)})
    assert chart.drawn["a"][0].size < x.size
    shape = chart._painted.shape_of("a")
    assert [round(dot.x() / chart._box.width() * 300 - 300) for dot in shape.dots] == [-250], "no line of no length"
    assert len(shape.strokes) == 1


def test_other_lines_take_the_place_of_those_before(chart: Chart) -> None:
    x = np.array([-1.0, 0])
    chart.draw({"a": (x, np.array([0.0, 90])), "b": (x, np.array([0.0, 1]))})
    chart.set_lines([Line("c", 2)])
    chart.draw({"c": (x, np.array([0.0, 7]))}, anew=True)
    assert set(chart.drawn) == {"c"}
    assert chart.limit == 8, "the value axis has nothing to be steady for"
    assert painted(chart, "c") == ([[(-1, 0), (0, 7)]], [])
    assert chart._painted.shape_of("a") == ((), ())


def test_the_upper_limit_rises_at_once_and_falls_late(chart: Chart) -> None:
    def limit_after(highest: float) -> float:
        chart.draw({"a": (np.array([-1.0, 0]), np.array([0, highest]))})
        return chart.limit

    assert limit_after(90) == 100
    assert limit_after(110) == 150
    assert limit_after(90) == 150, "no jitter"
    assert limit_after(110) == 150
    assert limit_after(70) == 80
    assert limit_after(0) == 1, "never an axis without height"
    assert chart._box.viewRange()[1] == pytest.approx([0, 1])


def test_a_fixed_limit_stays(qtbot: QtBot) -> None:
    chart = Chart([Line("a", 0)], limit=100)
    qtbot.addWidget(chart)
    chart.draw({"a": (np.array([0.0]), np.array([3.0]))})
    assert chart._box.viewRange()[1] == pytest.approx([0, 100])


def test_the_unit_stands_at_the_top(qtbot: QtBot) -> None:
    chart = Chart([Line("a", 0)], limit=100, unit="%")
    qtbot.addWidget(chart)
    labels = [label for _, label in chart._axes["left"]._tickLevels[0]]
    assert labels == ["0", "20", "40", "60", "80", "100 %"]


def test_a_dot_at_the_very_edge_is_whole(qtbot: QtBot) -> None:
    chart = Chart([Line("a", 0)], limit=100)
    qtbot.addWidget(chart)
    chart.resize(400, 300)
    with qtbot.waitExposed(chart):
        chart.show()
    chart.draw({"a": (np.array([-3.0, -2, 0]), np.array([1.0, math.nan, 100.0]))})
    corner = chart._view.mapFromScene(chart._box.mapViewToScene(QPointF(0, 100)))
    colour, ground = QColor(theme.theme.tokens.series[0]), QColor(theme.theme.tokens.surface)

    def is_dot(x: int, y: int) -> bool:
        shown = chart._view.grab().toImage().pixelColor(corner.x() + x, corner.y() + y)
        return bool(abs(shown.blue() - colour.blue()) < abs(shown.blue() - ground.blue()))

    qtbot.waitUntil(lambda: is_dot(1, 0))  # right of the newest moment
    qtbot.waitUntil(lambda: is_dot(-1, -1))  # above the upper limit


def test_what_is_older_than_the_span_is_not_drawn(chart: Chart) -> None:
    chart.draw({"a": (np.array([-301.0, -300.0, -1.0]), np.array([90.0, 1.0, 2.0]))})
    assert chart.drawn["a"][0].tolist() == [-300.0, -1.0]
    assert chart.limit < 10


def test_time_stands_still(chart: Chart) -> None:
    chart.set_span(1800)
    for end in (0.0, -0.3):
        chart.draw({"a": (np.array([-1800.0, end]), np.array([1.0, 2]))})
        assert chart._box.viewRange()[0] == pytest.approx([-1800, 0])


@given(st.lists(st.one_of(st.just(math.nan), st.floats(-1e6, 1e6)), min_size=1, max_size=300), st.integers(2, 100))
def test_thinning_keeps_extremes_and_empty_stretches(values: list[float], most: int) -> None:
    x, y = np.arange(len(values), dtype=float), np.array(values)
    thin_x, thin_y = thinned(x, y, most)
    assert len(thin_x) <= max(most, 2) + 2
    assert np.all(np.diff(thin_x) >= 0)
    for at, value in zip(thin_x, thin_y, strict=True):
        original = y[min(int(at), len(values) - 1)]
        assert (math.isnan(value) and (math.isnan(original) or at == x[-1])) or value == original
    known = y[np.isfinite(y)]
    if known.size:
        assert np.nanmax(thin_y) == known.max()
        assert np.nanmin(thin_y) == known.min()
    else:
        assert np.isnan(thin_y).all()


def test_the_line_of_the_read_out(chart: Chart) -> None:
    chart.set_cursor(-38)
    assert chart.cursor_at == -38
    chart.set_cursor(None)
    assert chart.cursor_at is None


def test_the_pointer_says_its_time(chart: Chart, qtbot: QtBot) -> None:
    chart.draw({"a": (np.array([-300.0, 0]), np.array([1.0, 1]))})
    viewport = chart._view.viewport()
    box = chart._box
    middle = chart._view.mapFromScene(box.mapViewToScene(QPointF(-150, chart.limit / 2)))
    with qtbot.waitSignal(chart.pointed) as pointed:
        QTest.mouseMove(viewport, middle)
    assert pointed.args[0] == pytest.approx(-150, abs=2)
    with qtbot.waitSignal(chart.pointed) as pointed:
        QTest.mouseMove(viewport, QPoint(2, 2))
    assert pointed.args == [None]


def test_nothing_is_moved_by_hand(chart: Chart) -> None:
    before = chart._box.viewRange()
    viewport = chart._view.viewport()
    QTest.mousePress(viewport, Qt.MouseButton.LeftButton, pos=QPoint(200, 100))
    QTest.mouseMove(viewport, QPoint(100, 150))
    QTest.mouseRelease(viewport, Qt.MouseButton.LeftButton, pos=QPoint(100, 150))
    assert chart._box.viewRange() == before


def test_colours_follow_the_theme(chart: Chart) -> None:
    try:
        for choice, tokens in (("light", theme.LIGHT), ("dark", theme.DARK)):
            theme.theme.apply(choice)
            assert pen(Line("b", 1)).color() == QColor(tokens.series[1])
            assert chart._view.backgroundBrush().color() == QColor(tokens.surface)
    finally:
        theme.theme.apply("dark")


# ---- a second run, and pauses -----------------------------------------------------------------------------------


def test_a_second_run_lies_dashed_and_paler_over_the_first(chart: Chart) -> None:
    x = np.array([-4.0, -3, -2, -1, 0])
    first, second = np.array([5.0, 6, 7, 8, 9]), np.array([50.0, math.nan, 70, 71, math.nan])
    chart.draw({"a": (x, first), "b": (x, first)}, {"a": (x, second), "b": (x, second)})
    assert painted(chart, "a", other=True) == ([[(-2, 70), (-1, 71)]], [(-4, 50)]), "gaps stay gaps"
    assert chart.limit == 80, "the value axis reaches over both"
    line = Line("a", 0)
    assert other_pen(line).dashPattern() == [4, 3]
    assert pen(line).style() == Qt.PenStyle.SolidLine
    ground = QColor(theme.theme.tokens.surface)
    assert abs(other_pen(line).color().blue() - ground.blue()) < abs(pen(line).color().blue() - ground.blue())
    assert chart._painted.filled == set(), "an area would hide the other run"
    chart.draw({"a": (x, first), "b": (x, first)})
    assert painted(chart, "a", other=True) == ([], [])
    assert chart._painted.filled == {"a"}


def test_another_run_has_a_value_axis_of_its_own(chart: Chart) -> None:
    x = np.array([-1.0, 0])
    chart.draw({"a": (x, np.array([0.0, 90]))})
    chart.draw({"a": (x, np.array([0.0, 60]))})
    assert chart.limit == 100, "it would jitter"
    chart.draw({"a": (x, np.array([0.0, 60]))}, anew=True)
    assert chart.limit == 80
    chart.draw({"a": (x, np.array([0.0, 0]))}, anew=True)
    assert chart.limit == 1


def test_the_axis_of_a_run_of_the_past_has_the_labels_it_is_given(chart: Chart) -> None:
    chart.set_span(60, ((0.0, "end"), (-45.0, "0 s")))
    assert chart.marks == ("end", "0 s")
    assert [label for _, label in chart._axes["bottom"]._tickLevels[0]] == ["end", "0 s"]
    chart.set_span(60)
    labels = list(chart.marks)
    assert labels[0] == "now"


@given(
    st.lists(st.floats(0, 100), min_size=60, max_size=300),
    st.sets(st.integers(5, 50), min_size=1, max_size=4),
    st.integers(4, 40),
)
def test_thinning_keeps_the_time_in_which_nobody_was_reading(values: list[float], at: set[int], most: int) -> None:
    """A pause is one unknown value amid a long time without readings, as the history writes it."""
    x, y = np.arange(len(values), dtype=float), np.array(values)
    for place in sorted(at):
        x[place:] += 500.0
        x[place + 1 :] += 500.0
        y[place] = math.nan
    thin_x, thin_y = thinned(x, y, most)
    assert np.all(np.diff(thin_x) >= 0)
    for place in at:
        assert math.isnan(thin_y[np.flatnonzero(thin_x == x[place])[0]]), "a line would be drawn over the pause"
    assert np.nanmax(thin_y) == np.nanmax(y)
    assert np.nanmin(thin_y) == np.nanmin(y)
