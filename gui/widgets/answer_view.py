"""An answer of the chat: its text, its figures, what went wrong, and what can be done with it."""

import dataclasses
from collections.abc import Iterator

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from backend.desk.types import ChatMessage
from backend.events import ChatUsage
from gui.theme import icon, theme
from gui.widgets.figures import UNKNOWN, rate
from gui.widgets.icon_button import IconButton
from gui.widgets.message_text import PlainText, RichText
from gui.widgets.message_view import MessageView
from gui.widgets.slices import Slices

_FINISH_WORDS = {"stop": "", "length": "cut at the length limit", "abort": "stopped"}


def usage_words(usage: ChatUsage) -> str:
    """Say the figures of an answer in one line; a dash stands for what is unknown."""
    parts = []
    if (usage.completion_tokens, usage.tokens_per_s, usage.ttft_s) != (None, None, None):
        n, first = usage.completion_tokens, usage.ttft_s
        parts.append(f"{UNKNOWN} tokens" if n is None else f"{n:,} token{'' if n == 1 else 's'}")
        parts.append(f"{rate(usage.tokens_per_s)} tokens/s")
        parts.append(f"first {UNKNOWN}" if first is None else f"first {first:.2f} s")
    reason = usage.finish_reason or ""
    parts.append(_FINISH_WORDS.get(reason, reason))
    return " · ".join(part for part in parts if part)


class AnswerView(MessageView):
    """An answer: plain while it streams, rendered when it has ended."""

    def __init__(self, message: ChatMessage, slices: Slices, parent: QWidget | None = None) -> None:
        super().__init__(message, slices, parent)
        self._plain: PlainText | None = None
        self._rich: RichText | None = None
        self._rich_text: str | None = None
        self._n_tokens = 0
        self._unseen_reasoning: list[str] = []
        self._reasoning_length = 0
        self._reasoning_waits = False
        self.reasoning_toggle = QPushButton("Reasoning")
        self.reasoning_toggle.setProperty("kind", "quiet")
        self.reasoning_toggle.setCheckable(True)
        self.reasoning_toggle.setIconSize(QSize(14, 14))
        self.reasoning_toggle.setAccessibleName("Reasoning")
        self.reasoning_toggle.setToolTip("Show or hide what the model thought before it answered")
        self.reasoning_toggle.toggled.connect(self._on_reasoning_toggled)
        self.reasoning_toggle.hide()
        self.reasoning = PlainText(muted=True)
        self.reasoning.hide()
        self._waiting = QLabel("Waiting for the first token")
        self._waiting.setProperty("role", "muted")
        self._body = QVBoxLayout()
        self._body.setSpacing(0)
        self._note = QLabel()
        self._note.setWordWrap(True)
        self._note.setProperty("role", "note")
        self._error = QLabel()
        self._error.setWordWrap(True)
        self._error.setProperty("role", "bad")
        for label in (self._note, self._error):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.go_on = _button("Continue", "Continue this answer where it was cut")
        self.go_on.clicked.connect(self.continue_wanted)
        self.retry = _button("Retry", "Ask this question again")
        self.retry.clicked.connect(self.retry_wanted)
        self.copy = IconButton("copy", "Copy this answer", size_px=14)
        self.copy.clicked.connect(self._copy)
        self.regenerate = IconButton("regenerate", "Answer this question again", size_px=14)
        self.regenerate.clicked.connect(self.retry_wanted)
        self._lay_out()
        theme.changed.connect(self._paint)
        self._paint()

    def _lay_out(self) -> None:
        foot = QHBoxLayout()
        foot.setSpacing(0)
        foot.addWidget(self._note, 1)
        foot.addWidget(self.copy, 0, Qt.AlignmentFlag.AlignTop)
        foot.addWidget(self.regenerate, 0, Qt.AlignmentFlag.AlignTop)
        actions = QHBoxLayout()
        actions.setSpacing(8)
        actions.addWidget(self.go_on)
        actions.addWidget(self.retry)
        actions.addStretch()
        thought = QHBoxLayout()
        thought.setContentsMargins(12, 0, 0, 4)
        thought.addWidget(self.reasoning)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(4, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.reasoning_toggle, 0, Qt.AlignmentFlag.AlignLeft)
        layout.addLayout(thought)
        layout.addWidget(self._waiting)
        layout.addLayout(self._body)
        layout.addWidget(self._error)
        layout.addLayout(foot)
        layout.addLayout(actions)

    @property
    def text(self) -> str:
        """The text of the answer as far as it has come."""
        return self.message.text if self._plain is None else self._plain.text

    @property
    def is_plain(self) -> bool:
        """Whether the text is shown as it streams, not rendered."""
        return self._plain is not None

    @property
    def note(self) -> str:
        """The line of figures under the answer."""
        return self._note.text()

    @property
    def error(self) -> str:
        """What went wrong, in words."""
        return self._error.text()

    def grow(self, text: str, reasoning: str, n_tokens: int) -> None:
        """Append streamed text."""
        self._add_reasoning(reasoning)
        if text:
            self._plain_body().add(text)
        self._n_tokens += n_tokens
        if text or reasoning:
            self._waiting.hide()
        if self._n_tokens:
            self._note.setText(f"{self._n_tokens:,} token{'' if self._n_tokens == 1 else 's'} so far")

    def show_message(self, message: ChatMessage, *, streaming: bool, last: bool, busy: bool) -> None:
        """Show text, figures and what can be done."""
        self.message = message
        if len(message.reasoning) < self._reasoning_length:  # another answer took the place of this one
            self._forget_reasoning()
        if len(message.reasoning) > self._reasoning_length:
            self._add_reasoning(message.reasoning[self._reasoning_length :])
        if streaming and message.usage is None:
            self._stream_from(message.text)
        else:
            self._render(message.text)
        ended = message.usage is not None
        self._waiting.setVisible(not ended and not message.text and not message.reasoning)
        if ended:
            self._note.setText(_note_words(message))
            self._n_tokens = 0
        else:
            self._note.setText("")
        self._error.setText(message.error)
        self._error.setVisible(bool(message.error))
        cut = message.usage is not None and message.usage.finish_reason == "length"
        self.go_on.setVisible(last and cut and bool(message.text))
        self.retry.setVisible(last and bool(message.error))
        self.regenerate.setVisible(last and ended and not message.error)
        self.copy.setVisible(ended and bool(message.text))
        for button in (self.go_on, self.retry, self.regenerate):
            button.setEnabled(not busy)

    def _plain_body(self) -> PlainText:
        if self._plain is None:
            self._plain = PlainText()
            self._plain.set_caret(True)
            self._body.addWidget(self._plain)
            if self._rich is not None:
                self._drop(self._rich)
                self._rich, self._rich_text = None, None
        return self._plain

    def _stream_from(self, text: str) -> None:
        """Have exactly `text` shown plainly, with more to come."""
        shown = self._plain.text if self._plain is not None else ""
        if self._plain is not None and not text.startswith(shown):
            self._drop(self._plain)
            self._plain, shown = None, ""
        if len(text) > len(shown) or self._rich is not None:
            self._plain_body().add(text[len(shown) :])

    def _render(self, text: str) -> None:
        """Render the text, and put it in place of the plain one when all of it is there."""
        if text == self._rich_text:
            return
        if self._rich is not None:
            self._drop(self._rich)
        self._rich, self._rich_text = RichText(text), text
        self._rich.link_clicked.connect(self.link_clicked)
        self._rich.rendered.connect(self._on_rendered)
        if self._plain is not None:
            self._plain.set_caret(False)
        self._rich.set_waiting(True)
        self._body.addWidget(self._rich)
        self._rich.render_in(self._slices)

    def _on_rendered(self) -> None:
        if self.sender() is not self._rich or self._rich is None:
            return
        if self._plain is not None:
            self._drop(self._plain)
            self._plain = None
        self._rich.set_waiting(False)

    def _drop(self, widget: QWidget) -> None:
        widget.hide()
        self._body.removeWidget(widget)
        widget.deleteLater()

    def _add_reasoning(self, text: str) -> None:
        if not text:
            return
        self._reasoning_length += len(text)
        self._unseen_reasoning.append(text)
        self.reasoning_toggle.show()
        self._show_reasoning()

    def _forget_reasoning(self) -> None:
        self.reasoning_toggle.hide()
        self.reasoning_toggle.setChecked(False)
        self.reasoning.clear()
        self._unseen_reasoning, self._reasoning_length = [], 0

    def _show_reasoning(self) -> None:
        """Lay the reasoning out once somebody looks at it."""
        if self.reasoning_toggle.isChecked() and not self._reasoning_waits:
            self._reasoning_waits = True
            self._slices.add(self, self._reasoning_steps(), first=True)

    def _reasoning_steps(self) -> Iterator[None]:
        while self._unseen_reasoning:
            unseen, self._unseen_reasoning = "".join(self._unseen_reasoning), []
            yield from self.reasoning.steps(unseen)
        self._reasoning_waits = False

    def _on_reasoning_toggled(self, shown: bool) -> None:
        self._show_reasoning()
        self.reasoning.setVisible(shown)
        self._paint()

    def _paint(self) -> None:
        shown = self.reasoning_toggle.isChecked()
        self.reasoning_toggle.setIcon(icon("down" if shown else "right", theme.tokens.muted, size_px=14))


def _note_words(message: ChatMessage) -> str:
    """The figures, and below them what else is to be said."""
    usage = message.usage
    if usage is not None and message.note and usage.finish_reason == "abort":
        usage = dataclasses.replace(usage, finish_reason=None)  # the note says it better
    lines = ("" if usage is None else usage_words(usage), message.note)
    return "\n".join(line for line in lines if line)


def _button(label: str, name: str) -> QPushButton:
    button = QPushButton(label)
    button.setProperty("kind", "chip")
    button.setAccessibleName(name)
    button.setToolTip(name)
    button.hide()
    return button
