"""The strip over the charts of a recorded run: its stretch is moved by keys and by pointer, and stays inside."""

import math

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from backend.curves import Curve
from backend.events import Mark
from gui.widgets.time_strip import TimeStrip

BEGIN, END = 1_800_000_000.0, 1_800_001_000.0
LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def strip(qtbot: QtBot) -> TimeStrip:
    made = TimeStrip()
    qtbot.addWidget(made)
    made.resize(1008, 34)  # one pixel a second between the paddings
    times = np.arange(BEGIN, END + 1)
    values = np.where((times - BEGIN) // 100 % 2, 50.0, math.nan)
    made.show_run(BEGIN, END, Curve(times, values), [Mark(BEGIN + 20, "ready", "Ready")])
    made.show_stretch(100.0, END)
    made.moved.connect(lambda until: made.show_stretch(made.span_s, until))
    made.show()
    return made


def until(strip: TimeStrip) -> float:
    return strip.until - BEGIN


def test_keys_move_the_stretch_and_stop_at_the_ends(strip: TimeStrip) -> None:
    strip.setFocus()
    found = []
    for key in (
        Qt.Key.Key_Right, Qt.Key.Key_Left, Qt.Key.Key_PageUp, Qt.Key.Key_Home, Qt.Key.Key_Left,
        Qt.Key.Key_PageDown, Qt.Key.Key_Right, Qt.Key.Key_End,
    ):  # fmt: skip
        QTest.keyClick(strip, key)
        found.append(until(strip))
    assert found == [1000, 990, 890, 100, 100, 200, 210, 1000]


def test_the_stretch_is_dragged(strip: TimeStrip) -> None:
    QTest.mousePress(strip, LEFT, pos=QPoint(4 + 950, 17))
    QTest.mouseMove(strip, QPoint(4 + 650, 17))
    assert until(strip) == pytest.approx(700)
    QTest.mouseMove(strip, QPoint(4 - 3000, 17))
    assert until(strip) == pytest.approx(100)
    QTest.mouseRelease(strip, LEFT, pos=QPoint(4, 17))
    QTest.mouseMove(strip, QPoint(500, 17))
    assert until(strip) == pytest.approx(100), "it was let go"


def test_a_click_beside_it_brings_its_middle_there(strip: TimeStrip) -> None:
    QTest.mouseClick(strip, LEFT, pos=QPoint(4 + 300, 17))
    assert until(strip) == pytest.approx(350)


def test_a_whole_run_has_nothing_to_move(strip: TimeStrip, qtbot: QtBot) -> None:
    strip.show_stretch(1000.0, END)
    with qtbot.assertNotEmitted(strip.moved):
        QTest.keyClick(strip, Qt.Key.Key_Left)
        QTest.mouseClick(strip, LEFT, pos=QPoint(300, 17))


def test_a_whole_area_stands_where_something_was_generated(strip: TimeStrip) -> None:
    strip.show_stretch(1000.0, END)  # no frame
    picture = strip.grab().toImage()
    assert picture.pixelColor(4 + 152, 25) != picture.pixelColor(4 + 52, 25)
    columns = [picture.pixelColor(4 + x, 25) for x in range(1000)]
    blank = picture.pixelColor(4 + 52, 25)
    for hundred in range(10):
        filled = sum(columns[hundred * 100 + x] != blank for x in range(5, 95))
        assert filled == (90 if hundred % 2 else 0), hundred


def test_a_short_stretch_of_a_long_run_can_still_be_seen(strip: TimeStrip) -> None:
    strip.show_stretch(0.01, END)
    area = strip.stretch_rect()
    assert area.width() >= 6
    assert area.right() <= strip.width()
