"""The list of profiles: what is shown, marked and found."""

from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from backend.desk.types import ProfileEntry
from gui.qt_models.profile_list import ENTRY, MARK, NAME, UNSAVED, ProfileListModel

MINE = ProfileEntry("mine", "My Pair", "draft model, 5 tokens", read_only=False)
BAD = ProfileEntry("bad", "bad", "damaged file", read_only=False, problem="line 1: no TOML")
DEMO = ProfileEntry("demo", "Demo", "n-gram, 4 tokens", read_only=True)
ENABLED = Qt.ItemFlag.ItemIsEnabled


def shown(model: ProfileListModel) -> list[object]:
    rows = [model.index(row) for row in range(model.rowCount())]
    return [index.data(NAME) or index.data() for index in rows]


def test_headings_stand_over_what_a_search_leaves(qtbot: QtBot) -> None:
    model = ProfileListModel()
    QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    assert shown(model) == []
    model.set_entries([MINE, BAD, DEMO])
    assert shown(model) == ["YOURS", "mine", "bad", "PRESETS", "demo"]
    model.set_search("TOKENS  5")
    assert shown(model) == ["YOURS", "mine"]
    model.set_search("nothing like it")
    assert shown(model) == []
    model.set_search("")
    assert [bool(model.flags(model.index(row)) & ENABLED) for row in range(5)] == [False, True, True, False, True]
    assert model.entry("demo") is DEMO
    assert model.entry("gone") is None
    assert model.rowCount(model.index(0)) == 0
    assert model.data(QModelIndex()) is None


def test_without_own_profiles_it_says_how_to_get_one(qtbot: QtBot) -> None:
    model = ProfileListModel()
    model.set_entries([DEMO])
    assert shown(model) == ["YOURS", "None yet. Duplicate a preset.", "PRESETS", "demo"]
    assert not model.flags(model.index(1)) & ENABLED


def test_marks_are_data_and_are_read_out(qtbot: QtBot) -> None:
    model = ProfileListModel()
    model.set_entries([MINE, BAD, DEMO])
    with qtbot.waitSignal(model.dataChanged):
        model.set_running("mine", "running")
    model.set_unsaved(["mine"])
    mine, bad = model.index(1), model.index(2)
    assert (mine.data(MARK), mine.data(UNSAVED), mine.data(ENTRY)) == ("running", True, MINE)
    assert mine.data(Qt.ItemDataRole.AccessibleTextRole) == "My Pair, draft model, 5 tokens, running, unsaved changes"
    assert (bad.data(MARK), bad.data(UNSAVED)) == ("", False)
    assert bad.data(Qt.ItemDataRole.ToolTipRole) == "line 1: no TOML"


def test_the_same_entries_again_leave_the_view_alone(qtbot: QtBot) -> None:
    model = ProfileListModel()
    model.set_entries([MINE, DEMO])
    with qtbot.assertNotEmitted(model.modelReset):
        model.set_entries([MINE, DEMO])
