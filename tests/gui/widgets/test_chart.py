"""The chart: limits and marks of its axes, what reaches the plot, gaps, thinning and the read-out."""

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
from gui.widgets.chart import Chart, Line, nice_limit, value_marks
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


def test_the_plot_gets_the_values_with_their_gaps(chart: Chart) -> None:
    x = np.array([-4.0, -3, -2, -1, 0])
    y = np.array([5.0, 6, math.nan, 7, 8])
    chart.draw({"a": (x, y), "b": (x, y * 0)})
    drawn_x, drawn_y = chart._items["a"].getData()
    assert list(drawn_x) == list(x)
    assert np.array_equal(drawn_y, y, equal_nan=True)
    assert chart._items["a"].opts["connect"] == "finite"
    assert list(chart._items["b"].getData()[1][[0, 4]]) == [0, 0]


def test_extremes_have_no_area_and_readings_have_one(chart: Chart) -> None:
    item = chart._items["a"]
    for n_points, level in ((100, 0), (1000, None), (200, 0)):
        chart.draw({"a": (np.linspace(-300, 0, n_points), np.ones(n_points))})
        assert item.opts["fillLevel"] == level
        assert len(item.getData()[0]) <= max(chart.width(), 320)
    assert chart._items["b"].opts["fillLevel"] is None


def test_a_value_between_gaps_is_a_dot(chart: Chart) -> None:
    x = np.arange(-5.0, 1)
    y = np.array([1.0, math.nan, 2, math.nan, 3, 4])
    chart.draw({"a": (x, y)})
    assert list(chart._dots["a"].getData()[1]) == [1, 2]
    chart.draw({"a": (x, np.ones(6))})
    dots = chart._dots["a"].getData()[0]
    assert dots is None or not len(dots)


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
    assert chart._plot.getViewBox().viewRange()[1] == pytest.approx([0, 1])


def test_a_fixed_limit_stays(qtbot: QtBot) -> None:
    chart = Chart([Line("a", 0)], limit=100)
    qtbot.addWidget(chart)
    chart.draw({"a": (np.array([0.0]), np.array([3.0]))})
    assert chart._plot.getViewBox().viewRange()[1] == pytest.approx([0, 100])


def test_the_unit_stands_at_the_top(qtbot: QtBot) -> None:
    chart = Chart([Line("a", 0)], limit=100, unit="%")
    qtbot.addWidget(chart)
    labels = [label for _, label in chart._plot.getAxis("left")._tickLevels[0]]
    assert labels == ["0", "20", "40", "60", "80", "100 %"]


def test_a_dot_at_the_very_edge_is_whole(qtbot: QtBot) -> None:
    chart = Chart([Line("a", 0)], limit=100)
    qtbot.addWidget(chart)
    chart.resize(400, 300)
    with qtbot.waitExposed(chart):
        chart.show()
    chart.draw({"a": (np.array([-3.0, -2, 0]), np.array([1.0, math.nan, 100.0]))})
    corner = chart._view.mapFromScene(chart._plot.getViewBox().mapViewToScene(QPointF(0, 100)))
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
        assert chart._plot.getViewBox().viewRange()[0] == pytest.approx([-1800, 0])


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


def test_the_read_out_gives_the_nearest_value_and_no_gap(chart: Chart) -> None:
    x = np.array([-40.0, -39, -38, -10])
    chart.draw({"a": (x, np.array([1.0, math.nan, 3, 4]))})
    assert chart.value_at("a", -39.6) == 1
    assert chart.value_at("a", -38.9) is None, "a gap"
    assert chart.value_at("a", -37) == 3
    assert chart.value_at("a", -25) is None, "nothing was read near that time"
    assert chart.value_at("b", -38) is None
    chart.set_cursor(-38)
    assert chart.cursor_at == -38
    chart.set_cursor(None)
    assert chart.cursor_at is None


def test_the_pointer_says_its_time(chart: Chart, qtbot: QtBot) -> None:
    chart.draw({"a": (np.array([-300.0, 0]), np.array([1.0, 1]))})
    viewport = chart._view.viewport()
    box = chart._plot.getViewBox()
    middle = chart._view.mapFromScene(box.mapViewToScene(QPointF(-150, chart.limit / 2)))
    with qtbot.waitSignal(chart.pointed) as pointed:
        QTest.mouseMove(viewport, middle)
    assert pointed.args[0] == pytest.approx(-150, abs=2)
    with qtbot.waitSignal(chart.pointed) as pointed:
        QTest.mouseMove(viewport, QPoint(2, 2))
    assert pointed.args == [None]


def test_nothing_is_moved_by_hand(chart: Chart) -> None:
    before = chart._plot.getViewBox().viewRange()
    viewport = chart._view.viewport()
    QTest.mousePress(viewport, Qt.MouseButton.LeftButton, pos=QPoint(200, 100))
    QTest.mouseMove(viewport, QPoint(100, 150))
    QTest.mouseRelease(viewport, Qt.MouseButton.LeftButton, pos=QPoint(100, 150))
    assert chart._plot.getViewBox().viewRange() == before


def test_colours_follow_the_theme(chart: Chart) -> None:
    try:
        for choice, tokens in (("light", theme.LIGHT), ("dark", theme.DARK)):
            theme.theme.apply(choice)
            assert chart._items["b"].opts["pen"].color() == QColor(tokens.series[1])
            assert chart._view.backgroundBrush().color() == QColor(tokens.surface)
    finally:
        theme.theme.apply("dark")


# ---- a second run, and pauses -----------------------------------------------------------------------------------


def test_a_second_run_lies_dashed_and_paler_over_the_first(chart: Chart) -> None:
    x = np.array([-4.0, -3, -2, -1, 0])
    first, second = np.array([5.0, 6, 7, 8, 9]), np.array([50.0, math.nan, 70, 71, math.nan])
    chart.draw({"a": (x, first), "b": (x, first)}, {"a": (x, second), "b": (x, second)})
    drawn_x, drawn_y = chart._other_items["a"].getData()
    assert list(drawn_x) == list(x)
    assert np.array_equal(drawn_y, second, equal_nan=True), "gaps stay gaps"
    assert list(chart._other_dots["a"].getData()[1]) == [50]
    assert chart.limit == 80, "the value axis reaches over both"
    pen, own = chart._other_items["a"].opts["pen"], chart._items["a"].opts["pen"]
    assert pen.dashPattern() == [4, 3]
    assert own.style() == Qt.PenStyle.SolidLine
    ground = QColor(theme.theme.tokens.surface)
    assert abs(pen.color().blue() - ground.blue()) < abs(own.color().blue() - ground.blue())
    assert chart._items["a"].opts["fillLevel"] is None, "an area would hide the other run"
    assert (chart.value_at("a", -2), chart.value_at("a", -2, other=True)) == (7, 70)
    assert chart.value_at("a", -3, other=True) is None
    chart.draw({"a": (x, first), "b": (x, first)})
    assert len(chart._other_items["a"].getData()[0] if chart._other_items["a"].getData()[0] is not None else ()) == 0
    assert chart.value_at("a", -2, other=True) is None
    assert chart._items["a"].opts["fillLevel"] == 0


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
    assert [label for _, label in chart._plot.getAxis("bottom")._tickLevels[0]] == ["end", "0 s"]
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
