"""Bars of acceptance by position: the figure over each can be read, also where bars are narrow and high."""

from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from gui.theme import theme
from gui.widgets.position_bars import PositionBars


def test_the_figure_of_a_narrow_bar_that_reaches_the_top_can_be_read(qtbot: QtBot) -> None:
    bars = PositionBars()
    qtbot.addWidget(bars)
    bars.resize(260, 200)
    with qtbot.waitExposed(bars):
        bars.show()
    bars.show_ratios((1.0, *[0.0] * 7))
    picture = bars.grab().toImage()
    ground, text, fill = (QColor(each) for each in (theme.tokens.surface, theme.tokens.text, theme.tokens.series[2]))
    columns = [x for x in range(44, 100) if picture.pixelColor(x, 100) == fill]
    assert len(columns) in range(8, 24), "a narrow bar"
    beside = [x for x in range(46, 90) if x not in range(columns[0] - 1, columns[-1] + 2)]

    def is_text(x: int, y: int) -> bool:
        shown = picture.pixelColor(x, y)
        return abs(shown.lightness() - text.lightness()) < abs(shown.lightness() - ground.lightness())

    assert sum(is_text(x, y) for x in beside for y in range(20)) > 10
