"""How a verdict is said where there is less and less room."""

import pytest
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from backend.events import Bound, Verdict
from gui.theme import NOTE_PX, text_font
from gui.widgets.verdict_line import VerdictLine

BOUND = Verdict(Bound.BANDWIDTH, "memory 60 % of peak (measured): a step waits for its weights.")
UNKNOWN = Verdict(Bound.UNKNOWN, "Peak bandwidth not known. Run the calibration.")


def wide(text: str) -> int:
    return QFontMetrics(text_font(NOTE_PX)).horizontalAdvance(text)


@pytest.mark.parametrize(
    ("verdict", "fits", "said"),
    [
        (BOUND, BOUND.words, BOUND.words),
        (BOUND, "memory 60 % of peak (measured)", "memory 60 % of peak (measured)"),
        (BOUND, "memory 60 % of peak", "memory 60 % of peak"),
        (UNKNOWN, UNKNOWN.words, UNKNOWN.words),
        (UNKNOWN, "Peak bandwidth not known.", "Peak bandwidth not known."),
        (None, "anything", ""),
    ],
)
def test_words_end_where_a_thought_does(qtbot: QtBot, verdict: Verdict | None, fits: str, said: str) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    line = VerdictLine(parent)
    line.show_verdict(verdict)
    assert line.fitting(wide(fits)) == said


def test_the_least_there_is_to_say_is_shortened(qtbot: QtBot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    line = VerdictLine(parent)
    line.show_verdict(BOUND)
    shown = line.fitting(wide("memory 60 %"))
    assert shown.startswith("memory")
    assert shown.endswith("\N{HORIZONTAL ELLIPSIS}")
    assert wide(shown) <= wide("memory 60 %")
