"""The Profiles page with real files behind it: find, edit, save, copy, rename, delete and undo, by mouse and keys."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QLineEdit,
    QPushButton,
)
from pytestqt.qtbot import QtBot

from backend.desk.types import JobProgress, RunView
from backend.events import RunState
from backend.launch import command
from backend.launch.profile_store import ProfileStore
from gui.panes.profiles import ProfilesPane
from gui.qt_models.profile_list import ENTRY, MARK, UNSAVED
from gui.widgets.field_editor import FieldEditor
from tests.backend.desk.profile_rooms import Rooms
from tests.backend.launch import profile_cases
from tests.e2e.fake_environment import make_environment
from tests.gui.panes.profiles_page import Page, RoomBridge, own_file

CONTROL = Qt.KeyboardModifier.ControlModifier
MINE = '# mine, with care\nschema = 1\ntitle = "Mine"\n\n[target]\nmodel = "a/b" # the model\nmax_model_len = 4_096\n'


@pytest.fixture
def page(qtbot: QtBot) -> Iterator[Page]:
    own_file("mine").parent.mkdir(parents=True)
    own_file("mine").write_text(MINE)
    made = Page(qtbot)
    yield made
    if made.pane._changes.dialog is not None:
        made.dialog.reject()
    made.pane.hide()


# ---- finding and showing ---------------------------------------------------------------------------------------


def test_the_demo_that_pays_opens_first_and_the_list_has_headings(page: Page) -> None:
    assert page.pane.current == "demo-ngram"
    model = page.pane.model
    headings = [model.index(row).data() for row in range(model.rowCount()) if model.index(row).data(ENTRY) is None]
    assert headings == ["YOURS", "PRESETS"]
    assert page.names[0] == "mine"
    assert page.pane.sidebar.view.currentIndex().data() == "Demo: n-gram"


def test_the_running_profile_opens_first(qtbot: QtBot) -> None:
    rooms = Rooms()
    bridge = RoomBridge(rooms)
    bridge.show_run(RunView(RunState.READY, profile="demo"))
    pane = ProfilesPane(bridge.as_bridge)
    qtbot.addWidget(pane)
    pane.show()
    assert pane.current == "demo"
    pane.hide()


def test_search_leaves_what_has_the_words_and_keeps_the_form(page: Page) -> None:
    QTest.keyClicks(page.pane.sidebar.search, "TP 4 llama")
    assert page.names == ["llama-3.3-70b-draft-1b"]
    assert page.pane.current == "demo-ngram"
    QTest.keyClicks(page.pane.sidebar.search, "zzz")
    assert page.names == []
    assert page.pane.sidebar.empty.isVisible()
    page.pane.sidebar.search.clear()
    assert len(page.names) == 8
    assert page.pane.sidebar.view.currentIndex().data() == "Demo: n-gram", "the chosen one stays chosen"


def test_the_form_shows_values_units_help_and_what_empty_means(page: Page) -> None:
    page.choose("mine")
    length = page.row("target.max_model_len")
    assert (length.text, length.label.text()) == ("4,096", "Longest context")
    share = page.row("memory.gpu_memory_utilization")
    assert isinstance(share.editor, QLineEdit)
    assert share.editor.placeholderText() == "vLLM: 0.92"
    assert share.help.text().startswith("Not used by a CPU engine.")
    assert not page.row("memory.kv_cache_bytes").help.text().startswith("Not used")
    assert page.pane.form.title.text() == "Mine"


def test_a_damaged_file_says_what_is_wrong_and_offers_no_start(page: Page) -> None:
    own_file("bad").write_text("[target\n")
    page.pane.refresh()
    page.choose("bad")
    assert str(own_file("bad")) in page.pane.form.broken_words.text()
    assert not page.pane.form.area.isVisible()
    actions = page.pane.actions_card
    assert not any(button.isEnabled() for button in (actions.save, actions.start, actions.revert))
    page.choose("mine")
    assert page.pane.form.area.isVisible()
    assert actions.start.isEnabled()


def test_every_field_can_be_found_and_unfolds_itself(page: Page) -> None:
    QTest.keyClick(page.pane, Qt.Key.Key_F, CONTROL)
    QTest.keyClicks(page.pane.form.search, "--stream-interval")
    page.built()
    visible = [row.spec.path for row in page.pane.findChildren(FieldEditor) if row.isVisible()]
    assert visible == ["scheduler.stream_interval"]
    page.pane.form.search.clear()
    assert not page.row("scheduler.stream_interval").isVisible()
    assert page.row("server.port").isVisible()
    page.pane.form.search.setText("zzz")
    assert not any(row.isVisible() for row in page.pane.findChildren(FieldEditor))


# ---- typing ----------------------------------------------------------------------------------------------------


def test_a_problem_stands_under_its_field_and_goes_when_it_is_mended(page: Page) -> None:
    page.choose("mine")
    page.type("target.max_model_len", "lots")
    row = page.row("target.max_model_len")
    assert row.problem == "Should be a whole number."
    assert "Error: Longest context: should be a whole number." in page.pane.findings.words
    assert page.pane.command.text.toPlainText() == ""
    assert not page.pane.actions_card.save.isEnabled()
    assert not page.pane.actions_card.start.isEnabled()
    page.type("target.max_model_len", "2,048")
    assert row.problem == ""
    assert "--max-model-len 2048" in page.pane.command.text.toPlainText()
    assert page.pane.actions_card.save.isEnabled()


def test_the_command_is_the_exact_one_and_can_be_copied(page: Page) -> None:
    page.choose("llama-3.1-8b-eagle3")
    exact = command.preview(ProfileStore().get("llama-3.1-8b-eagle3"), profile_cases.environment())
    shown = page.pane.command
    for is_open in (False, True, False):
        shown.variables.setChecked(is_open)
        QGuiApplication.clipboard().clear()
        page.click(shown.copy)
        assert QGuiApplication.clipboard().text() == exact
    page.qtbot.waitUntil(lambda: shown.copy.text() == "Copy command", timeout=20_000)


def test_only_the_newest_answer_counts(page: Page) -> None:
    page.choose("mine")
    page.bridge.held = []
    page.type("target.max_model_len", "1000")
    page.type("target.max_model_len", "2000")
    assert len(page.bridge.held) >= 2
    page.bridge.release(newest_first=True)
    assert "--max-model-len 2000" in page.pane.command.text.toPlainText()


def test_findings_lead_to_their_field(page: Page) -> None:
    page.choose("mine")
    page.pane.form._on_edited("speculation.draft_tensor_parallel_size", "2")
    page.pane.form._on_edited("speculation.method", "ngram")
    page.checked()
    wanted = [b for b in page.pane.findings.findChildren(QPushButton) if "GPUs for the draft" in b.accessibleName()]
    page.click(wanted[0])
    page.built()
    row = page.row("speculation.draft_tensor_parallel_size")
    page.qtbot.waitUntil(row.isVisible, timeout=20_000)
    assert (
        page.pane.form.area.viewport()
        .rect()
        .intersects(row.rect().translated(row.mapTo(page.pane.form.area.viewport(), row.rect().topLeft())))
    )
    assert page.pane.focusWidget() is row.editor


def test_without_an_engine_the_page_says_what_to_do(qtbot: QtBot) -> None:
    rooms = Rooms()
    rooms.engines.answer = None
    pane = ProfilesPane(RoomBridge(rooms).as_bridge)
    qtbot.addWidget(pane)
    pane.show()
    assert pane.command.text.placeholderText() == "Install or add an engine in Settings to see the exact command."
    assert not pane.command.copy.isEnabled()
    assert pane.actions_card.start.isEnabled(), "a start offers to install one"
    pane.hide()


# ---- saving ----------------------------------------------------------------------------------------------------


def test_save_writes_the_file_with_its_comments(page: Page) -> None:
    page.choose("mine")
    page.type("target.max_model_len", "1024")
    assert page.pane.actions_card.words.text() == "1 unsaved change."
    assert page.unsaved == ["mine"]
    with page.qtbot.waitSignal(page.pane.profiles_changed):
        page.click(page.pane.actions_card.save)
    assert own_file("mine").read_text() == MINE.replace("4_096", "1024")
    assert page.unsaved == []
    assert page.row("target.max_model_len").text == "1,024"
    assert page.rooms.runs.changed == ["mine"]
    assert not page.pane.actions_card.save.isEnabled()


def test_a_new_title_is_in_the_list_after_saving(page: Page) -> None:
    page.choose("mine")
    page.type("title", "Other words")
    assert page.pane.form.title.text() == "Other words"
    QTest.keyClick(page.row("title").editor, Qt.Key.Key_S, CONTROL)
    assert page.data("mine", Qt.ItemDataRole.DisplayRole) == "Other words"


def test_revert_forgets_what_was_typed(page: Page) -> None:
    page.choose("mine")
    page.type("target.max_model_len", "x")
    page.click(page.pane.actions_card.revert)
    assert page.row("target.max_model_len").text == "4,096"
    assert page.row("target.max_model_len").problem == ""
    assert page.unsaved == []
    assert own_file("mine").read_text() == MINE


def test_typing_the_saved_text_again_is_no_change(page: Page) -> None:
    page.choose("mine")
    page.type("target.max_model_len", "1")
    page.type("target.max_model_len", "4,096")
    assert page.unsaved == []
    assert page.pane.actions_card.words.text() == "Everything is saved."


def test_drafts_are_kept_and_marked_while_others_are_looked_at(page: Page) -> None:
    page.choose("mine")
    page.type("target.max_model_len", "512")
    page.choose("demo")
    page.type("server.port", "8123")
    assert page.row("target.max_model_len").text == "2,048"
    assert set(page.pane.has_unsaved) == {"mine", "demo"}
    assert page.data("mine", UNSAVED) is True
    assert "unsaved changes" in str(page.data("mine", Qt.ItemDataRole.AccessibleTextRole))
    page.pane.hide()
    page.pane.show()
    assert page.row("server.port").text == "8123"
    page.choose("mine")
    assert page.row("target.max_model_len").text == "512"
    assert own_file("mine").read_text() == MINE


def test_a_preset_is_saved_as_a_copy(page: Page) -> None:
    page.choose("demo")
    assert not page.pane.sidebar.buttons["delete"].isEnabled()
    assert not page.pane.sidebar.buttons["rename"].isEnabled()
    page.type("server.port", "8123")
    actions = page.pane.actions_card
    assert actions.save.text() == "Save as copy"
    assert not actions.start.isEnabled(), "what is typed would not be started"
    page.click(actions.save)
    assert page.dialog.line.text() == "demo-2"
    page.name("demo")
    assert "ships with Specdeck" in page.dialog.problem.text()
    page.name("my-demo")
    assert page.pane.current == "my-demo"
    assert ProfileStore().get("my-demo").server.port == 8123
    assert own_file("my-demo").read_text().startswith("# The smallest real thing")
    assert page.unsaved == [], "the draft went into the copy"
    page.choose("demo")
    assert page.row("server.port").text == ""


# ---- the list --------------------------------------------------------------------------------------------------


def test_new_profile(page: Page) -> None:
    page.click(page.pane.sidebar.buttons["new"])
    assert page.dialog.line.text() == "my-profile"
    with page.qtbot.waitSignal(page.pane.profiles_changed):
        page.name("fresh")
    assert page.pane.current == "fresh"
    assert "fresh" in page.names
    assert ProfileStore().get("fresh").target.model == "specdeck://smollm2-135m-instruct"


def test_duplicate_rename_delete_and_undo_by_keys(page: Page) -> None:
    page.choose("mine")
    page.press(Qt.Key.Key_D, CONTROL)
    QTest.keyClick(page.dialog.line, Qt.Key.Key_Return)
    assert page.pane.current == "mine-2"
    assert own_file("mine-2").read_text() == MINE
    page.type("server.port", "8123")
    page.press(Qt.Key.Key_F2)
    page.name("mine")
    assert "already a profile named mine" in page.dialog.problem.text()
    page.name("other")
    assert page.pane.current == "other"
    assert page.row("server.port").text == "8123", "what was typed goes with the name"
    assert page.names[:2] == ["mine", "other"]
    page.press(Qt.Key.Key_Delete)
    assert not own_file("other").exists()
    assert page.pane.current != "other"
    assert page.pane.notice.text == "other was deleted."
    assert page.unsaved == []
    page.click(page.pane.notice.findChildren(QPushButton)[0])
    assert own_file("other").read_text() == MINE
    assert page.pane.current == "other"
    assert page.row("server.port").text == "8123"


def test_arrows_walk_over_the_headings(page: Page) -> None:
    page.choose("mine")
    page.press(Qt.Key.Key_Down)
    assert page.pane.current == page.names[1]
    page.press(Qt.Key.Key_Up)
    assert page.pane.current == "mine"


def test_a_profile_that_vanished_is_told_and_another_one_shown(page: Page) -> None:
    page.choose("mine")
    own_file("mine").unlink()
    page.pane.refresh()
    assert "no profile named mine" in page.pane.notice.text
    assert page.pane.current == "demo-ngram"
    assert "mine" not in page.names


def test_a_file_changed_elsewhere_is_shown_when_the_page_comes_up(page: Page) -> None:
    page.choose("mine")
    page.pane.hide()
    own_file("mine").write_text(MINE.replace("4_096", "77"))
    page.pane.show()
    assert page.row("target.max_model_len").text == "77"


# ---- the run ---------------------------------------------------------------------------------------------------


def test_the_running_profile_is_marked_protected_and_restarted(page: Page) -> None:
    page.choose("mine")
    run = RunView(RunState.READY, profile="mine", run_id="r", url="http://127.0.0.1:8000/v1")
    page.bridge.show_run(run)
    assert page.data("mine", MARK) == "running"
    actions = page.pane.actions_card
    assert (actions.start.text(), actions.start.isEnabled()) == ("Running", False)
    assert not page.pane.sidebar.buttons["delete"].isEnabled()
    page.type("server.port", "8001")
    assert actions.start.text() == "Save and restart"
    with page.qtbot.waitSignal(page.pane.start_requested) as told:
        page.click(actions.start)
    assert told.args == ["mine"]
    assert "port = 8001" in own_file("mine").read_text()
    page.bridge.show_run(replace(run, restart_needed=True))
    assert (actions.start.text(), actions.start.isEnabled()) == ("Restart to apply", True)
    page.bridge.show_run(RunView())
    assert actions.start.text() == "Start this profile"
    assert page.data("mine", MARK) == ""


def test_start_asks_for_the_profile_that_is_shown(page: Page) -> None:
    page.choose("demo")
    with page.qtbot.waitSignal(page.pane.start_requested) as told:
        page.click(page.pane.actions_card.start)
    assert told.args == ["demo"]


def test_a_save_that_fails_is_told_and_starts_nothing(page: Page) -> None:
    page.choose("mine")
    page.type("server.port", "8001")
    own_file("mine").write_text("[broken\n")
    with page.qtbot.assertNotEmitted(page.pane.start_requested):
        page.click(page.pane.actions_card.start)
    assert "cannot be used" in page.pane.notice.text
    assert page.unsaved == ["mine"]
    assert own_file("mine").read_text() == "[broken\n"


def test_an_engine_that_is_installed_meanwhile_is_seen_on_the_open_page(
    qtbot: QtBot, page: Page, tmp_path: Path
) -> None:
    page.rooms.engines.answer = None
    page.bridge.call(page.pane, page.rooms.engines.add(make_environment(tmp_path / "a")))
    page.bridge.job_progressed.emit(JobProgress("engines", ""))
    page.built()
    assert page.pane.command.text.toPlainText() == ""
    page.rooms.engines.answer = profile_cases.environment()
    page.bridge.call(page.pane, page.rooms.engines.add(make_environment(tmp_path / "b")))
    page.bridge.job_progressed.emit(JobProgress("install", "half"))
    assert page.pane.command.text.toPlainText() == ""
    page.bridge.job_progressed.emit(JobProgress("engines", ""))
    qtbot.waitUntil(lambda: "vllm" in page.pane.command.text.toPlainText(), timeout=20_000)
