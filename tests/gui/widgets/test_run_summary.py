"""The table of figures of one run or two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from gui.widgets.run_summary import RunFigures, RunSummary, ratios

FIRST = RunFigures("First", "today", 20.0, 0.5, 2.0, 0.2, 600.0)
SECOND = RunFigures("Second", "today", 50.0, 0.75, 3.0, None, 60.0)
figure = st.one_of(st.none(), st.just(0.0), st.floats(0.001, 1e6))


@pytest.fixture
def table(qtbot: QtBot) -> RunSummary:
    made = RunSummary()
    qtbot.addWidget(made)
    made.resize(900, 100)
    made.show()
    return made


def test_one_run_has_one_row(table: RunSummary) -> None:
    table.show_runs([FIRST])
    assert table.rows() == [["20.0", "50.0 %", "2.00", "≈200 ms", "10 min"]]
    assert table._titles[0].text == "First  ·  today"
    assert not table._letters[0].isVisible()


def test_two_runs_have_ratios_where_both_figures_are_known(table: RunSummary) -> None:
    table.show_runs([FIRST, SECOND])
    assert table.rows() == [
        ["20.0", "50.0 %", "2.00", "≈200 ms", "10 min"],
        ["50.0", "75.0 %", "3.00", "–", "1 min"],  # noqa: RUF001
        ["2.50x", "1.50x", "1.50x", "–", "0.10x"],  # noqa: RUF001
    ]
    assert [letter.text() for letter in table._letters if letter.isVisible()] == ["A", "B", "B / A"]
    assert table._cells[2][0].accessibleName() == "B / A tokens/s: 2.50x"
    table.show_runs([SECOND])
    assert len(table.rows()) == 1


@given(st.tuples(*[figure] * 5), st.tuples(*[figure] * 5))
def test_a_ratio_is_known_only_where_both_are(a: tuple[float | None, ...], b: tuple[float | None, ...]) -> None:
    found = ratios(RunFigures("", "", *a), RunFigures("", "", *b))
    for first, second, ratio in zip(a, b, found, strict=True):
        if first is None or second is None or first == 0:
            assert ratio is None
        else:
            assert ratio == pytest.approx(second / first)
