"""The list of recorded runs: search, order, and what each row says."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from backend.events import PastRun
from gui.qt_models.past_runs import ID, LETTER, ORDERS, RUN, PastRunsModel

T = 1_800_000_000.0
BASE = PastRun("a", "alpha", "Alpha", "vllm 0.32.0", T, T + 20, T + 100, "stopped", False, 10.0, 0.5)
RUNS = (
    BASE,
    replace(BASE, run_id="b", profile="beta", title="Beta", started_at=T + 1000, ended_at=T + 1010, tokens_per_s=30.0,
            acceptance_rate=None, outcome="failed: out of memory", failed=True),
    replace(BASE, run_id="c", profile="gamma", title="Gamma", started_at=T + 500, ended_at=T + 5000, tokens_per_s=None,
            acceptance_rate=0.9, engine="vllm 0.31.1"),
)  # fmt: skip


@pytest.fixture
def model() -> PastRunsModel:
    made = PastRunsModel(lambda run: [run.title, run.outcome, run.engine])
    made.set_runs(RUNS)
    return made


def ids(model: PastRunsModel) -> str:
    return "".join(model.index(row).data(ID) for row in range(model.rowCount()))


@pytest.mark.parametrize(
    ("order", "wanted"),
    [("newest", "bca"), ("fastest", "bac"), ("accepted", "cab"), ("longest", "cab"), ("name", "abc")],
)
def test_unknown_figures_stand_last_in_every_order(model: PastRunsModel, order: str, wanted: str) -> None:
    model.set_order(order)
    assert ids(model) == wanted
    assert order in ORDERS


def test_search_looks_at_all_that_is_said_and_at_the_profile(model: PastRunsModel) -> None:
    for words, wanted in (("MEMORY out", "b"), ("0.31", "c"), ("alpha", "a"), ("nothing", ""), ("", "bca")):
        model.set_search(words)
        assert ids(model) == wanted
    model.set_search("beta")
    assert model.run("a") is BASE, "also one that a search hides"


def test_rows_give_the_run_and_its_letter(model: PastRunsModel) -> None:
    model.set_letters({"c": "A", "b": "B"})
    rows = [model.index(row) for row in range(3)]
    assert [index.data(LETTER) for index in rows] == ["B", "A", ""]
    assert rows[0].data(RUN) is RUNS[1]
    assert rows[0].data(Qt.ItemDataRole.AccessibleTextRole) == "Beta, failed: out of memory, vllm 0.32.0, run B"
    assert rows[2].data(Qt.ItemDataRole.ToolTipRole) == "Alpha\nstopped\nvllm 0.32.0"
