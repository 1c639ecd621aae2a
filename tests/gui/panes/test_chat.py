"""The chat pane: what a person can do in it, what it then asks, and what it shows of the answers."""

from collections.abc import Iterator
from typing import cast

import pytest
from PySide6.QtCore import QPoint, Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QPlainTextEdit, QTextEdit
from pytestqt.qtbot import QtBot

from backend.desk.types import ChatDelta, ChatMessage, ChatSettings
from backend.errors import UserError
from backend.events import ChatUsage, RunState
from gui.bridge import Bridge
from gui.panes.chat import ChatPane
from gui.widgets.answer_view import AnswerView
from gui.widgets.choice_dialog import ChoiceDialog
from gui.widgets.message_view import QuestionView
from gui.widgets.prompt_edit import PromptEdit
from gui.widgets.text_block import TextBlock
from tests.gui.panes.chat_bridge import FakeBridge

LEFT = Qt.MouseButton.LeftButton
QUESTION = ChatMessage("user", "one")
EMPTY = ChatMessage("assistant", "")
ANSWER = ChatMessage("assistant", "text", usage=ChatUsage(43, 171, 0.21, 254.2, "stop"))
CUT = ChatMessage("assistant", "text", usage=ChatUsage(43, 171, 0.21, 254.2, "length"))
FAILED = ChatMessage("assistant", "te", usage=ChatUsage(43, 2, 0.21, None, None), error="It broke. Start it again.")


class Room:
    """A pane on a stand-in bridge, with an engine that is ready."""

    def __init__(self, qtbot: QtBot) -> None:
        self.qtbot = qtbot
        self.bridge = FakeBridge()
        self.pane = ChatPane(cast("Bridge", self.bridge))
        qtbot.addWidget(self.pane)
        self.pane.resize(370, 700)
        self.pane.show()
        self.bridge.tell_run(RunState.READY)

    @property
    def calls(self) -> list[tuple[object, ...]]:
        return self.bridge.calls

    def show(self, *messages: ChatMessage, streaming: bool = False, settings: ChatSettings | None = None) -> None:
        self.bridge.tell_chat(*messages, streaming=streaming, settings=settings or ChatSettings())
        self.settle()

    def settle(self) -> None:
        self.qtbot.waitUntil(lambda: self.pane.transcript.slices.is_idle)

    @property
    def answer(self) -> AnswerView:
        view = self.pane.transcript.views[-1]
        assert isinstance(view, AnswerView)
        return view

    def type(self, text: str) -> None:
        QTest.keyClicks(self.pane.input, text)


@pytest.fixture
def room(qtbot: QtBot) -> Iterator[Room]:
    made = Room(qtbot)
    yield made
    made.settle()


@pytest.mark.parametrize(
    ("key", "modifier"),
    [
        (Qt.Key.Key_Return, Qt.KeyboardModifier.NoModifier),
        (Qt.Key.Key_Enter, Qt.KeyboardModifier.KeypadModifier),
        (Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier),
    ],
)
def test_enter_sends(room: Room, key: Qt.Key, modifier: Qt.KeyboardModifier) -> None:
    room.type("hello")
    QTest.keyClick(room.pane.input, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    room.type("world")
    assert room.calls == []
    QTest.keyClick(room.pane.input, key, modifier)
    assert room.calls == [("send", "hello\nworld")]
    assert room.pane.input.toPlainText() == ""
    QTest.keyClick(room.pane.input, key, modifier)  # nothing to send
    assert len(room.calls) == 1


def test_send_becomes_stop_while_an_answer_streams(room: Room) -> None:
    assert not room.pane.send.isEnabled()
    room.type("hello")
    assert room.pane.send.isEnabled()
    QTest.mouseClick(room.pane.send, LEFT)
    room.show(QUESTION, EMPTY, streaming=True)
    assert room.pane.send.isHidden()
    assert not room.pane.clear_button.isEnabled()
    room.type("next")
    QTest.keyClick(room.pane.input, Qt.Key.Key_Return)  # too early: it stays
    assert room.pane.input.toPlainText() == "next"
    QTest.mouseClick(room.pane.stop, LEFT)
    QTest.keyClick(room.pane.input, Qt.Key.Key_Escape)
    assert room.calls == [("send", "hello"), ("stop",), ("stop",)]
    room.show(QUESTION, ANSWER)
    assert room.pane.stop.isHidden()
    assert room.pane.send.isEnabled()
    QTest.keyClick(room.pane.input, Qt.Key.Key_Escape)
    assert len(room.calls) == 3


def test_a_question_that_is_refused_is_not_lost(room: Room) -> None:
    room.bridge.refusal = UserError("No engine is ready.", "Start an engine.")
    room.type("precious")
    QTest.keyClick(room.pane.input, Qt.Key.Key_Return)
    assert room.pane.input.toPlainText() == "precious"
    assert room.pane.notice.text == "No engine is ready. Start an engine."


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RunState.STOPPED, "Start an engine to chat with it."),
        (RunState.FAILED, "Start an engine to chat with it."),
        (RunState.PREFLIGHT, "being prepared"),
        (RunState.STARTING, "is starting"),
        (RunState.UNRESPONSIVE, "does not respond"),
        (RunState.STOPPING, "is stopping"),
    ],
)
def test_without_a_ready_engine_nothing_can_be_asked(room: Room, state: RunState, words: str) -> None:
    room.show(QUESTION, ANSWER)
    room.type("draft")
    room.bridge.tell_run(state)
    assert words in room.pane.empty.text()
    assert words in room.pane.figures.text()
    assert room.pane.input.placeholderText() == "Message", "it is said once"
    assert not room.pane.input.isEnabled()
    assert not room.pane.send.isEnabled()
    assert not room.answer.regenerate.isEnabled()
    room.bridge.tell_run(RunState.READY)
    assert room.pane.input.toPlainText() == "draft"
    assert room.pane.send.isEnabled()
    assert room.answer.regenerate.isEnabled()


def test_an_answer_that_streams_can_be_stopped_whatever_the_engine_does(room: Room) -> None:
    room.show(QUESTION, EMPTY, streaming=True)
    room.bridge.tell_run(RunState.UNRESPONSIVE)
    assert room.pane.stop.isEnabled()
    assert room.pane.stop.isVisible()


def test_an_answer_grows_and_ends(room: Room) -> None:
    room.show(QUESTION, EMPTY, streaming=True)
    parts = ["**Every**", " new\n", "token"]
    for part in parts:
        room.bridge.chat_grew.emit(ChatDelta(part, "", 2))
    assert room.answer.text == "".join(parts)
    assert room.answer.note == "6 tokens so far"
    done = ChatMessage("assistant", "".join(parts), usage=ChatUsage(43, 6, 0.2, 50.0, "stop"))
    room.show(QUESTION, done, settings=ChatSettings(temperature=0.0))
    assert not room.answer.is_plain
    assert [block.toPlainText() for block in room.answer.findChildren(TextBlock)] == ["Every new token"]
    assert room.pane.figures.text() == "temp 0.0 · 49 tokens"


def test_buttons_under_an_answer_ask_for_it(room: Room) -> None:
    room.show(QUESTION, CUT)
    QTest.mouseClick(room.answer.go_on, LEFT)
    QTest.mouseClick(room.answer.regenerate, LEFT)
    room.show(QUESTION, FAILED)
    QTest.mouseClick(room.answer.retry, LEFT)
    assert room.calls == [("go_on",), ("regenerate",), ("regenerate",)]


def test_a_question_is_edited_and_asked_again(room: Room) -> None:
    room.show(QUESTION, ANSWER, ChatMessage("user", "two"), ANSWER)
    view = room.pane.transcript.views[2]
    assert isinstance(view, QuestionView)
    QTest.mouseClick(view.edit, LEFT)
    (edit,) = view.findChildren(PromptEdit)
    QTest.keyClicks(edit, "x")
    QTest.keyClick(edit, Qt.Key.Key_Return)
    assert room.calls == [("edit", 2, "twox")]


def test_an_edit_that_comes_to_nothing_is_not_lost(room: Room) -> None:
    room.show(QUESTION, ANSWER)
    room.bridge.refusal = UserError("Nothing answers.", "Start it again.")
    room.pane.transcript.edited.emit(0, "better")
    (edit,) = room.pane.transcript.views[0].findChildren(PromptEdit)
    assert edit.toPlainText() == "better"
    assert room.pane.notice.text == "Nothing answers. Start it again."


@pytest.mark.parametrize("left", [(), (QUESTION, ANSWER)], ids=["cleared", "replaced"])
def test_what_was_lost_can_be_brought_back(room: Room, left: tuple[ChatMessage, ...]) -> None:
    assert not room.pane.clear_button.isEnabled()
    room.show(QUESTION, ANSWER)
    room.bridge.tell_chat(*left, undo="This is gone.")
    assert room.pane.notice.text == "This is gone."
    assert room.pane.empty.isVisible() == (not left)
    (undo,) = [each for each in room.pane.notice.findChildren(QAbstractButton) if each.text() == "Undo"]
    QTest.mouseClick(undo, LEFT)
    assert room.calls == [("undo",)]
    room.show(QUESTION, ANSWER)
    assert room.pane.transcript.isVisible()
    room.bridge.tell_chat(*left, undo="This is gone.")
    room.pane.notice.clear()
    room.bridge.tell_chat(*left, undo="This is gone.", settings=ChatSettings(seed=1))
    assert room.pane.notice.text == ""  # it was closed, and nothing new is gone
    room.show(QUESTION, ANSWER)
    room.bridge.tell_chat(*left, undo="This is gone.")
    room.show(QUESTION, EMPTY, streaming=True)
    assert room.pane.notice.text == ""  # another question was asked


def test_the_conversation_is_cleared_by_its_button(room: Room) -> None:
    room.show(QUESTION, ANSWER)
    QTest.mouseClick(room.pane.clear_button, LEFT)
    assert room.calls == [("clear",)]


def test_the_question_of_a_demo_is_asked_with_one_key(room: Room) -> None:
    button = room.pane.ask_prompt
    assert not button.isVisible()  # this profile has none
    room.bridge.tell_run(RunState.STARTING, prompt="Why is decoding slow?")
    assert not button.isVisible()
    room.bridge.tell_run(RunState.READY, prompt="Why is decoding slow?")
    assert button.isVisible()
    assert "Why is decoding slow?" in button.accessibleName()
    assert button.toolTip() == "Why is decoding slow?"
    assert button.focusPolicy() & Qt.FocusPolicy.TabFocus
    QTest.keyClick(button, Qt.Key.Key_Space)
    assert room.calls == [("send", "Why is decoding slow?")]
    room.show(QUESTION, ANSWER)
    assert not button.isVisible()


def test_trouble_with_keeping_the_conversation_is_told_once(room: Room) -> None:
    room.bridge.tell_chat(notice="The conversation cannot be kept: No space left on device.")
    assert "cannot be kept" in room.pane.notice.text
    room.pane.notice.clear()
    room.bridge.tell_chat(QUESTION, ANSWER, notice="The conversation cannot be kept: No space left on device.")
    assert room.pane.notice.text == ""


@pytest.mark.parametrize(
    ("key", "opened"), [("open", ["https://example.org/a%20b?c=d"]), ("no", [])], ids=["yes", "no"]
)
def test_a_link_is_opened_only_after_a_yes(
    room: Room, monkeypatch: pytest.MonkeyPatch, key: str, opened: list[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: asked.append(url.toEncoded().data().decode()))
    room.show(QUESTION, ChatMessage("assistant", "[good](https://example.org/a%20b?c=d)", usage=ANSWER.usage))
    (block,) = room.answer.findChildren(TextBlock)
    QTest.mouseClick(block.viewport(), LEFT, pos=QPoint(8, 8))
    (dialog,) = room.pane.findChildren(ChoiceDialog)
    assert [edit.toPlainText() for edit in dialog.findChildren(QPlainTextEdit)] == ["https://example.org/a%20b?c=d"]
    assert asked == []
    QTest.mouseClick(dialog.buttons[key], LEFT)
    assert asked == opened


def test_enter_does_not_open_a_link(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", opened.append)
    room.pane.ask_to_open(QUrl("https://example.org/"))
    (dialog,) = room.pane.findChildren(ChoiceDialog)
    assert dialog.focusWidget() is dialog.buttons["no"]
    assert dialog.buttons["no"].isDefault()
    QTest.keyClick(dialog, Qt.Key.Key_Return)
    assert opened == []
    assert not dialog.isVisible()


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "javascript:alert(1)", "ftp://example.org/x", "http:///x", "x"]
)
def test_other_addresses_are_never_opened(room: Room, address: str) -> None:
    room.pane.ask_to_open(QUrl(address))
    (dialog,) = room.pane.findChildren(ChoiceDialog)
    assert list(dialog.buttons) == ["no"]
    assert [edit.toPlainText() for edit in dialog.findChildren(QPlainTextEdit)] == [address]
    QTest.keyClick(dialog, Qt.Key.Key_Escape)


def test_an_address_that_looks_like_another_is_shown_as_it_is_sent(room: Room) -> None:
    room.pane.ask_to_open(QUrl("https://ex\u0430mple.org/"))  # with a Cyrillic letter
    (dialog,) = room.pane.findChildren(ChoiceDialog)
    (shown,) = dialog.findChildren(QPlainTextEdit)
    assert shown.toPlainText().startswith("https://xn--")
    QTest.keyClick(dialog, Qt.Key.Key_Escape)


def test_settings_are_checked_while_they_are_typed(room: Room) -> None:
    QTest.mouseClick(room.pane.settings_button, LEFT)
    panel = room.pane.settings_panel
    for name, wrong in (("temperature", "-1"), ("top_p", "1.5"), ("max_tokens", "2.5"), ("seed", "x")):
        QTest.keyClicks(panel.inputs[name], wrong)
        assert panel.inputs[name].property("state") == "bad"
        assert panel.problems[name].isVisible()
        assert panel.settings is None
        panel.inputs[name].clear()
        assert panel.inputs[name].property("state") == ""
        assert panel.problems[name].isHidden()
    assert panel.settings == ChatSettings()
    assert room.calls == []
    for name, text in (("temperature", "0,5"), ("top_p", "0.9"), ("max_tokens", "200"), ("seed", "-7")):
        QTest.keyClicks(panel.inputs[name], text)
    QTest.keyClicks(panel.system, "be brief")
    room.qtbot.waitUntil(lambda: bool(room.calls))
    wanted = ChatSettings("be brief", 0.5, 0.9, 200, -7)
    assert room.calls[-1] == ("change_settings", wanted)
    n = len(room.calls)
    room.show(settings=wanted)  # what the backend tells is what stands there
    assert panel.inputs["temperature"].text() == "0,5"
    QTest.mouseClick(panel.defaults, LEFT)
    assert room.calls[n:] == [("change_settings", ChatSettings())]
    assert all(edit.text() == "" for edit in panel.inputs.values())


def test_settings_count_for_the_question_that_is_sent_at_once(room: Room) -> None:
    room.pane.settings_button.click()
    QTest.keyClicks(room.pane.settings_panel.inputs["seed"], "5")
    room.type("hello")
    QTest.keyClick(room.pane.input, Qt.Key.Key_Return)
    assert room.calls == [("change_settings", ChatSettings(seed=5)), ("send", "hello")]


def test_kept_settings_are_shown(room: Room) -> None:
    room.show(settings=ChatSettings("brief", 0.0, None, 300, None))
    texts = {name: edit.text() for name, edit in room.pane.settings_panel.inputs.items()}
    assert texts == {"temperature": "0.0", "top_p": "", "max_tokens": "300", "seed": ""}
    assert room.pane.settings_panel.system.toPlainText() == "brief"
    assert room.calls == []


def test_the_input_grows_to_five_lines(room: Room) -> None:
    heights = []
    for _ in range(8):
        heights.append(room.pane.input.height())
        QTest.keyClick(room.pane.input, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert heights[0] == heights[1] < heights[2] < heights[3] < heights[4] == heights[5] == heights[7]


def test_all_of_it_is_reachable_and_named_and_fits_into_300_pixels(room: Room) -> None:
    room.pane.resize(300, 700)
    room.pane.settings_button.click()
    room.show(QUESTION, CUT, ChatMessage("user", "long " * 40), FAILED)
    room.type("x")
    named = [
        each
        for kind in (QAbstractButton, QLineEdit, QPlainTextEdit, QTextEdit)
        for each in room.pane.findChildren(kind)
        if each.isVisible()
    ]
    assert len(named) > 12
    for each in named:
        assert each.accessibleName(), each
        assert each.toolTip() or isinstance(each, TextBlock), each.accessibleName()
        left = each.mapTo(room.pane, QPoint(0, 0)).x()
        assert left >= 0, each.accessibleName()
        assert left + each.width() <= 300, each.accessibleName()
        if isinstance(each, QAbstractButton):
            assert each.width() >= each.minimumSizeHint().width(), each.accessibleName()
    chain, widget = [], room.pane.nextInFocusChain()
    while widget is not None and widget is not room.pane:
        chain.append(widget)
        widget = widget.nextInFocusChain()
    pane = room.pane
    order = [pane.settings_button, pane.settings_panel.system, room.answer.copy, pane.input, pane.send]
    assert [chain.index(each) for each in order] == sorted(chain.index(each) for each in order)
