"""One message of the chat: what all have in common, and a question in its bubble."""

import math

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from backend.desk.types import ChatMessage
from gui.theme import text_font
from gui.widgets.icon_button import IconButton
from gui.widgets.message_text import PlainText
from gui.widgets.prompt_edit import PromptEdit
from gui.widgets.slices import Slices

_BUBBLE_SHARE = 0.84
_WIDE_CHARS = 200  # a line as long as this fills any bubble


class MessageView(QWidget):
    """What both kinds of messages have in common.

    Signals:
        link_clicked(QUrl): somebody wants to follow a link.
        edited(str): another text for this question.
        retry_wanted: ask again for this answer; continue_wanted: write on where it was cut.
    """

    link_clicked = Signal(QUrl)
    edited = Signal(str)
    retry_wanted = Signal()
    continue_wanted = Signal()

    def __init__(self, message: ChatMessage, slices: Slices, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self._slices = slices

    @property
    def text(self) -> str:
        """The text as it is shown."""
        return self.message.text

    def show_message(self, message: ChatMessage, *, streaming: bool, last: bool, busy: bool) -> None:
        """Show what has become of the message.

        Args:
            message: as it is now.
            streaming: more text will come.
            last: it is the last of the conversation.
            busy: nothing can be asked now.
        """
        raise NotImplementedError

    def tab_stops(self) -> list[QWidget]:
        """What the Tab key should reach, in order."""
        return [child for child in self.findChildren(QWidget) if child.focusPolicy() & Qt.FocusPolicy.TabFocus]

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text)


class QuestionView(MessageView):
    """A question: plain text in a bubble at the right, which can be edited and asked anew."""

    def __init__(self, message: ChatMessage, slices: Slices, parent: QWidget | None = None) -> None:
        super().__init__(message, slices, parent)
        self.edit = IconButton("edit", "Edit this question and ask again", size_px=14)
        self.edit.clicked.connect(self._on_edit)
        self.copy = IconButton("copy", "Copy this question", size_px=14)
        self.copy.clicked.connect(self._copy)
        self._bubble = QFrame()
        self._bubble.setProperty("inset", "true")
        inside = QVBoxLayout(self._bubble)
        inside.setContentsMargins(14, 8, 14, 8)
        self._body = PlainText()
        inside.addWidget(self._body)
        self._row = QWidget()
        row = QHBoxLayout(self._row)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addStretch()
        row.addWidget(self.copy, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self.edit, 0, Qt.AlignmentFlag.AlignTop)
        row.addSpacing(4)
        row.addWidget(self._bubble)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.addWidget(self._row)
        self._editor: _QuestionEditor | None = None
        self._busy = False
        metrics = QFontMetricsF(text_font())
        longest = max((line[:_WIDE_CHARS] for line in message.text.splitlines()), key=len, default="")
        self._natural_px = math.ceil(metrics.horizontalAdvance(longest) * 1.1) + 40
        self._body.add(message.text[:2000])
        if len(message.text) > 2000:
            slices.add(self, self._body.steps(message.text[2000:]), first=True)

    @property
    def text(self) -> str:
        """The text of the question."""
        return self.message.text

    def show_message(self, message: ChatMessage, *, streaming: bool, last: bool, busy: bool) -> None:
        """Allow editing while something can be asked."""
        self.message = message
        self._busy = busy
        self.edit.setEnabled(not busy)

    def begin_edit(self, text: str | None = None) -> None:
        """Put an editor in place of the bubble, with the question in it or another text."""
        if self._editor is None:
            self._editor = _QuestionEditor(self.message.text if text is None else text)
            self._editor.done.connect(self._on_edited)
            self._editor.given_up.connect(self.end_edit)
            self._column.addWidget(self._editor)
            self._row.hide()
        self._editor.input.setFocus()

    def end_edit(self) -> None:
        """Show the bubble again."""
        if self._editor is not None:
            self._editor.hide()
            self._editor.deleteLater()
            self._editor = None
            self._row.show()
            self.edit.setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """A bubble is as wide as its text, up to a share of the width."""
        super().resizeEvent(event)
        self._set_width()

    def _set_width(self) -> None:
        room = int(self.width() * _BUBBLE_SHARE) - self.copy.sizeHint().width()
        self._bubble.setFixedWidth(max(48, min(room, self._natural_px)))

    def _on_edit(self) -> None:
        self.begin_edit()

    def _on_edited(self, text: str) -> None:
        if not self._busy:  # or the edited text would be lost
            self.end_edit()
            self.edited.emit(text)


class _QuestionEditor(QWidget):
    """Input with Cancel and Ask again.

    Signals:
        done(str): the new text; given_up: nothing shall change.
    """

    done = Signal(str)
    given_up = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.input = PromptEdit(self, least=2, most=10)
        self.input.setPlainText(text)
        self.input.setAccessibleName("Edit the question")
        self.input.setToolTip("Enter asks again, Shift+Enter breaks the line, Esc leaves it as it was")
        self.input.moveCursor(self.input.textCursor().MoveOperation.End)
        self.input.submitted.connect(self._on_done)
        self.input.escaped.connect(self.given_up)
        cancel = QPushButton("Cancel")
        cancel.setAccessibleName("Leave the question as it was")
        cancel.setToolTip("Leave the question as it was (Esc)")
        cancel.clicked.connect(self.given_up)
        ask = QPushButton("Ask again")
        ask.setProperty("kind", "primary")
        ask.setAccessibleName("Ask again with this text")
        ask.setToolTip("Drop what followed this question, and ask again (Enter)")
        ask.clicked.connect(self._on_done)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addStretch()
        row.addWidget(cancel)
        row.addWidget(ask)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.input)
        layout.addLayout(row)

    def _on_done(self) -> None:
        if self.input.toPlainText().strip():
            self.done.emit(self.input.toPlainText())
