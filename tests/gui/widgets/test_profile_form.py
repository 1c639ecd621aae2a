"""The parts of the form: editors for every kind, findings, the command, and a form that never holds the window up."""

import time
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QEnterEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QLineEdit, QPlainTextEdit, QScrollArea, QWidget
from pytestqt.qtbot import QtBot

from backend.desk.types import FieldSpec, ProfileForm
from backend.events import Finding, Severity
from gui.widgets.command_view import CommandView
from gui.widgets.edge_line import EdgeLine
from gui.widgets.field_editor import FieldEditor
from gui.widgets.finding_list import FindingList
from gui.widgets.profile_actions import DraftState, ProfileActions
from gui.widgets.profile_form import ProfileFormView


def spec(kind: str = "text", path: str = "target.model", **more: object) -> FieldSpec:
    values = {"group": "Target", "title": "Model", "description": "What runs.", "unit": "", "flag": "--model"} | more
    return FieldSpec(path=path, kind=kind, **values)  # type: ignore[arg-type]


def editor(qtbot: QtBot, made: FieldSpec, *, unused: bool = False) -> FieldEditor:
    row = FieldEditor(made, unused=unused)
    qtbot.addWidget(row)
    row.resize(500, 80)
    row.show()
    return row


# ---- one field -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "choices", "widget", "typed"),
    [
        ("text", (), QLineEdit, "a/b"),
        ("integer", (), QLineEdit, "16,384"),
        ("number", (), QLineEdit, "0.9"),
        ("text", ("auto", "fp8"), QComboBox, "zzz"),
        ("prose", (), QPlainTextEdit, "two words"),
        ("lines", (), QPlainTextEdit, "--a"),
        ("table", (), QPlainTextEdit, "{}"),
        ("variables", (), QPlainTextEdit, "A=b"),
    ],
)
def test_what_is_typed_is_told_and_what_is_shown_is_not(
    qtbot: QtBot, kind: str, choices: tuple[str, ...], widget: type[QWidget], typed: str
) -> None:
    row = editor(qtbot, spec(kind, choices=choices, is_choice=bool(choices), default="vLLM: x"))
    assert isinstance(row.editor, widget)
    with qtbot.assertNotEmitted(row.edited):
        row.show_text("shown")
        row.show_text("")
    told: list[tuple[str, str]] = []
    row.edited.connect(lambda path, text: told.append((path, text)))
    target = row.editor.lineEdit() if isinstance(row.editor, QComboBox) else row.editor
    assert target is not None
    assert target.placeholderText() == "vLLM: x"
    QTest.keyClicks(target, typed)
    assert told[-1] == ("target.model", typed)
    assert row.text == typed


def test_a_switch_is_yes_no_or_not_set(qtbot: QtBot) -> None:
    row = editor(qtbot, spec("switch", default="vLLM: no"))
    assert isinstance(row.editor, QComboBox)
    assert [row.editor.itemText(n) for n in range(3)] == ["Not set (vLLM: no)", "Yes", "No"]
    with qtbot.assertNotEmitted(row.edited):
        row.show_text("false")
    assert (row.text, row.editor.currentText()) == ("false", "No")
    with qtbot.waitSignal(row.edited) as told:
        QTest.keyClick(row.editor, Qt.Key.Key_Up)
    assert told.args == ["target.model", "true"]


def test_the_wheel_scrolls_the_form_and_not_the_value(qtbot: QtBot) -> None:
    for made in (spec("switch"), spec("text", choices=("a", "b"), is_choice=True)):
        row = editor(qtbot, made)
        row.show_text("true" if made.kind == "switch" else "a")
        before = row.text
        event = QWheelEvent(
            QPointF(9, 9), QPointF(9, 9), QPoint(0, 0), QPoint(0, -120), Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(row.editor, event)
        assert row.text == before
        assert not event.isAccepted()


def test_a_problem_is_words_with_a_mark(qtbot: QtBot) -> None:
    row = editor(qtbot, spec())
    row.show_problem("should be a full path")
    assert row.problem == "Should be a full path."
    assert not row._mark.pixmap().isNull()
    assert row.editor.property("state") == "bad"
    row.show_problem("")
    assert row.problem == ""
    assert row.editor.property("state") == ""


def test_another_engine_changes_what_is_offered_and_keeps_the_text(qtbot: QtBot) -> None:
    row = editor(qtbot, spec(default="vLLM decides", is_choice=True))
    before = row.editor
    assert isinstance(before, QComboBox)
    assert before.count() == 0
    row.show_text("bfloat16")
    with qtbot.assertNotEmitted(row.edited):
        row.show_spec(spec(choices=("auto", "half"), default="vLLM: auto", is_choice=True), unused=True)
    assert row.editor is before, "what a person types into stays the same"
    assert [row.editor.itemText(n) for n in range(row.editor.count())] == ["auto", "half"]
    assert row.text == "bfloat16"
    assert row.help.text() == "Not used by a CPU engine. What runs."
    inner = row.editor.lineEdit()
    assert inner is not None
    with qtbot.waitSignal(row.edited):
        QTest.keyClicks(inner, "x")
    row.show_spec(spec(default="vLLM decides", is_choice=True), unused=False)
    assert row.editor is before
    assert (before.count(), row.text) == (0, "bfloat16x")
    assert row.help.text() == "What runs."


@pytest.mark.parametrize("is_choice", [True, False])
def test_a_text_that_does_not_fit_begins_with_its_beginning_and_stands_in_the_tooltip(
    qtbot: QtBot, is_choice: bool
) -> None:
    long = "an-organisation/a-model-with-a-name-that-is-much-longer-than-any-field-of-this-form-is-wide"
    row = editor(qtbot, spec(is_choice=is_choice, choices=(long,) if is_choice else ()))
    enter = QEnterEvent(QPointF(9, 9), QPointF(9, 9), QPointF(9, 9))
    row.show_text("short")
    QApplication.sendEvent(row, enter)
    assert row.editor.toolTip() == "What runs.\nvllm serve --model"
    if isinstance(row.editor, QComboBox):
        row.editor.setCurrentIndex(0)
        row.editor.activated.emit(0)
    else:
        row.show_text(long)
    line = row.editor.lineEdit() if isinstance(row.editor, QComboBox) else row.editor
    assert isinstance(line, QLineEdit)
    assert (line.text(), line.cursorPosition()) == (long, 0)
    QApplication.sendEvent(row, enter)
    assert row.editor.toolTip() == f"{long}\nWhat runs.\nvllm serve --model"


def test_prose_is_as_high_as_its_text(qtbot: QtBot) -> None:
    row = editor(qtbot, spec("prose"))
    row.show_text("one")
    short = row.editor.height()
    row.show_text("\n".join("abcdef"))
    assert row.editor.height() > short
    row.show_text("\n".join("abcdef" * 20))
    assert row.editor.height() < 300
    row.show_text("one")
    assert row.editor.height() == short


# ---- the whole form --------------------------------------------------------------------------------------------


def form(n: int = 70, *, platform: str = "", problem: str = "") -> ProfileForm:
    kinds = ("text", "integer", "switch", "prose", "lines")
    fields = tuple(
        spec(
            kinds[k % 5],
            f"g{k // 10}.f{k}",
            group=f"Group {k // 10}",
            title=f"Field {k}",
            description=f"What field {k} means.",
            flag=f"--flag-{k}",
            advanced=k % 2 == 1,
            gpu_only=k == 0,
        )
        for k in range(n)
    )
    values = {field.path: "true" if field.kind == "switch" else f"v{k}" for k, field in enumerate(fields)}
    return ProfileForm("mine", read_only=False, fields=fields, values=values, problem=problem, platform=platform)


def view(qtbot: QtBot, shown: ProfileForm) -> ProfileFormView:
    made = ProfileFormView()
    qtbot.addWidget(made)
    made.resize(640, 700)
    made.show()
    made.show_form(shown, shown.values, title="Mine")
    return made


def built(qtbot: QtBot, made: ProfileFormView) -> None:
    qtbot.waitUntil(lambda: not made.is_building, timeout=20_000)


def test_fields_are_made_in_slices_and_only_those_that_are_seen(qtbot: QtBot) -> None:
    made = view(qtbot, form())
    assert made.is_building
    assert made.findChildren(FieldEditor) == [], "nothing is made before the window had its turn"
    built(qtbot, made)
    assert {row.spec.advanced for row in made.findChildren(FieldEditor)} == {False}
    assert all(row.text == made._values[row.spec.path] for row in made.findChildren(FieldEditor))
    more = made._sections["Group 0"].more
    assert more.text() == "5 more settings, 5 set"
    QTest.mouseClick(more, Qt.MouseButton.LeftButton)
    built(qtbot, made)
    seen = [row.spec.path for row in made.findChildren(FieldEditor) if row.spec.advanced and row.isVisible()]
    assert seen == ["g0.f1", "g0.f3", "g0.f5", "g0.f7", "g0.f9"]
    QTest.mouseClick(more, Qt.MouseButton.LeftButton)
    assert not any(row.isVisible() for row in made.findChildren(FieldEditor) if row.spec.advanced)


def test_a_form_that_is_still_made_shows_the_newest_values(qtbot: QtBot) -> None:
    made = view(qtbot, form())
    other = dict.fromkeys(form().values, "")
    made.show_form(form(platform="cpu"), other, title="Other")
    built(qtbot, made)
    assert {row.text for row in made.findChildren(FieldEditor)} == {""}
    row = made.row("g0.f0")
    assert row is not None
    assert row.help.text().startswith("Not used by a CPU engine.")


def test_another_profile_reuses_the_widgets_and_is_shown_within_a_frame(qtbot: QtBot) -> None:
    made = view(qtbot, form())
    built(qtbot, made)
    for section in made._sections.values():
        section.unfold()
    built(qtbot, made)
    before = made.findChildren(FieldEditor)
    assert len(before) == 70
    took = []
    for number in range(9):
        values = {path: text if text == "true" else f"{text}-{number}" for path, text in form().values.items()}
        begin = time.thread_time()
        made.show_form(form(), values, title=f"P{number}")
        took.append(time.thread_time() - begin)
        QApplication.processEvents()
    assert made.findChildren(FieldEditor) == before
    assert sorted(took)[4] < 0.016, took


def test_a_problem_in_a_folded_field_unfolds_it(qtbot: QtBot) -> None:
    made = view(qtbot, form())
    built(qtbot, made)
    made.show_problems({"g1.f11": "should be shorter"})
    built(qtbot, made)
    row = made.row("g1.f11")
    assert row is not None
    assert row.isVisible()
    assert row.problem == "Should be shorter."
    made.show_problems({})
    assert row.problem == ""


def test_search_finds_by_option_and_brings_back_what_was_folded(qtbot: QtBot) -> None:
    made = view(qtbot, form())
    built(qtbot, made)
    made.search.setText("--flag-33")
    built(qtbot, made)
    assert [row.spec.path for row in made.findChildren(FieldEditor) if row.isVisible()] == ["g3.f33"]
    assert not made._sections["Group 0"].isVisible()
    made.search.clear()
    assert made._sections["Group 0"].isVisible()
    row = made.row("g3.f33")
    assert row is not None
    assert not row.isVisible()


def test_a_damaged_profile_shows_its_problem_in_place_of_fields(qtbot: QtBot) -> None:
    made = view(qtbot, replace(form(problem="The file is broken."), values={}))
    assert made.broken_words.isVisible()
    assert made.broken_words.text() == "The file is broken."
    assert not made.area.isVisible()
    built(qtbot, made)


# ---- findings, command, actions --------------------------------------------------------------------------------


def test_findings_have_a_word_for_how_much_they_matter(qtbot: QtBot) -> None:
    cards = FindingList()
    qtbot.addWidget(cards)
    cards.show()
    found = (
        Finding(Severity.ERROR, "Port 8000 is taken.", "vLLM would fail.", "Use 8001."),
        Finding(Severity.WARNING, "A large download."),
        Finding(Severity.NOTE, "A note."),
        Finding(Severity.NOTE, "<b>plain</b>"),
    )
    cards.show_findings(found, ("server.port", "", "", ""))
    assert list(cards.words) == [
        "Error: Port 8000 is taken.", "Warning: A large download.", "Note: A note.", "Note: <b>plain</b>",
    ]  # fmt: skip
    assert cards.count.text() == "1 error, 3 more"
    (button,) = (one for one in cards.findChildren(QWidget) if one.accessibleName().startswith("Show the field"))
    with qtbot.waitSignal(cards.place_wanted) as told:
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert told.args == ["server.port"]
    cards.show_findings(found[2:])
    assert cards.count.text() == "2 notes"
    cards.show_findings((), fine="Nothing speaks against it.")
    assert list(cards.words) == ["Fine: Nothing speaks against it."]
    assert cards.count.text() == ""


def test_findings_are_shown_and_scrolled_whole(qtbot: QtBot) -> None:
    cards = FindingList()
    qtbot.addWidget(cards)
    found = [Finding(Severity.NOTE, " ".join([f"word-{n}"] * (4 + 7 * (n % 3))), fix="Do this.") for n in range(9)]
    cards.show_findings(found)
    cards.fit_into(500)
    cards.resize(288, 200)
    cards.show()

    def shown() -> list[int]:
        """The rows that are seen; each of them has to be whole."""
        seen = []
        for number, row in enumerate(cards.rows._rows):
            if row.isVisible():
                assert cards.rows.rect().contains(row.geometry()), number
                assert row.height() >= row.heightForWidth(row.width()), number
                seen.append(number)
        return seen

    qtbot.waitUntil(lambda: 0 < cards.height() <= 200, timeout=20_000)
    QApplication.processEvents()
    first = shown()
    assert first == list(range(len(first)))
    assert 1 < len(first) < 9
    assert cards.rows.bar.isVisible()
    seen = set(first)
    for _ in range(9):
        QTest.keyClick(cards.rows.bar, Qt.Key.Key_Down)
        QApplication.processEvents()
        seen |= set(shown())
    assert seen == set(range(9))
    cards.fit_into(5000)
    cards.resize(288, 2000)
    QApplication.processEvents()
    assert shown() == list(range(9))
    assert not cards.rows.bar.isVisible()


def test_the_variables_of_a_command_are_folded_away(qtbot: QtBot) -> None:
    shown = CommandView()
    qtbot.addWidget(shown)
    shown.show()
    whole = "A=1 \\\n  B='x y' \\\n  /bin/python -m vllm \\\n  serve a/b \\\n  --c D=2"
    shown.show_command(whole, "For vllm 1.0.")
    assert shown.variables.text() == "Environment (2)"
    assert shown.text.toPlainText() == whole[whole.index("/bin") :]
    QTest.mouseClick(shown.variables, Qt.MouseButton.LeftButton)
    assert shown.text.toPlainText() == whole
    assert shown.command == whole
    shown.show_command("/bin/python -m vllm \\\n  serve a/b", "For vllm 1.0.")
    assert not shown.variables.isVisible()
    assert shown.text.toPlainText() == shown.command


def test_the_command_keeps_its_place_while_it_changes(qtbot: QtBot) -> None:
    shown = CommandView()
    qtbot.addWidget(shown)
    shown.resize(300, 200)
    shown.show()
    lines = "\n".join(f"--option-{n} 1" for n in range(80))
    shown.show_command(lines, "For vllm 1.0.")
    bar = shown.text.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    place = bar.value()
    shown.show_command(lines.replace("--option-3 1", "--option-3 2"), "For vllm 1.0.")
    assert bar.value() == place > 0
    shown.show_command("", "Install an engine.")
    assert shown.text.placeholderText() == "Install an engine."
    assert not shown.copy.isEnabled()


@pytest.mark.parametrize(
    ("state", "save", "start"),
    [
        (DraftState(), ("Save", False), ("Start this profile", True)),
        (DraftState(n_changes=2), ("Save", True), ("Save and start", True)),
        (DraftState(n_changes=2, ok=False), ("Save", False), ("Start this profile", False)),
        (DraftState(read_only=True), ("Save as copy", False), ("Start this profile", True)),
        (DraftState(n_changes=1, read_only=True), ("Save as copy", True), ("Start this profile", False)),
        (DraftState(running="running"), ("Save", False), ("Running", False)),
        (DraftState(running="starting"), ("Save", False), ("Starting", False)),
        (DraftState(n_changes=1, running="running"), ("Save", True), ("Save and restart", True)),
        (DraftState(running="running", restart_needed=True), ("Save", False), ("Restart to apply", True)),
        (DraftState(usable=False), ("Save", False), ("Start this profile", False)),
    ],
)
def test_the_buttons_say_what_they_do(
    qtbot: QtBot, state: DraftState, save: tuple[str, bool], start: tuple[str, bool]
) -> None:
    actions = ProfileActions()
    qtbot.addWidget(actions)
    actions.show_state(state)
    assert (actions.save.text(), actions.save.isEnabled()) == save
    assert (actions.start.text(), actions.start.isEnabled()) == start
    assert actions.revert.isEnabled() == (state.n_changes > 0)
    assert actions.start.toolTip()


def test_a_line_says_that_there_is_more_below(qtbot: QtBot) -> None:
    area = QScrollArea()
    qtbot.addWidget(area)
    line = EdgeLine(area)
    content = QWidget()
    content.setMinimumHeight(600)
    area.setWidget(content)
    area.resize(200, 200)
    area.show()
    bar = area.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 0 and line.isVisible())
    assert line.geometry().bottom() == area.viewport().geometry().bottom()
    bar.setValue(bar.maximum())
    assert not line.isVisible()
    bar.setValue(0)
    assert line.isVisible()
