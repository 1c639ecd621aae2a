"""The chat with the running engine: conversation, input, and how answers are asked for."""

from collections.abc import Coroutine
from typing import Any

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QHideEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from backend.desk.types import ChatDelta, ChatMessage, ChatSettings, ChatView, RunView
from backend.errors import UserError
from backend.events import RunState
from gui.bridge import Bridge
from gui.theme import icon, symbol, theme
from gui.widgets.chat_settings import ChatSettingsPanel
from gui.widgets.choice_dialog import Answer, ChoiceDialog
from gui.widgets.icon_button import IconButton
from gui.widgets.notice_bar import NoticeBar
from gui.widgets.prompt_edit import PromptEdit
from gui.widgets.transcript import Transcript

MINIMUM_WIDTH_PX = 300
_NOT_READY = {
    RunState.PREFLIGHT: "The engine is being prepared. You can chat once it is ready.",
    RunState.STARTING: "The engine is starting. You can chat once it is ready.",
    RunState.UNRESPONSIVE: "The engine does not respond. Wait for it, or stop it and start it again.",
    RunState.STOPPING: "The engine is stopping.",
}
_NO_ENGINE = "Start an engine to chat with it."
_READY = "Ask the engine something. The conversation is kept until you clear it."


class ChatPane(QFrame):
    """One conversation that is kept over restarts."""

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setMinimumWidth(MINIMUM_WIDTH_PX)
        self.setAccessibleName("Chat")
        self._bridge = bridge
        self._view = bridge.chat
        self._ready = False
        self._prompt = ""
        self._lay_out()
        theme.changed.connect(self._paint)
        bridge.chat_changed.connect(self._on_chat_changed)
        bridge.chat_grew.connect(self._on_chat_grew)
        bridge.run_changed.connect(self._on_run_changed)
        self._on_run_changed(bridge.run)
        self.setFocusProxy(self.input)
        self._show()
        self._paint()

    def _lay_out(self) -> None:
        title = QLabel("Chat")
        title.setProperty("role", "title")
        self.settings_button = IconButton("profiles", "System prompt and sampling")
        self.settings_button.setCheckable(True)
        self.settings_button.toggled.connect(self._on_settings_toggled)
        self.clear_button = IconButton("trash", "Clear the conversation")
        self.clear_button.clicked.connect(self._on_clear)
        head = QHBoxLayout()
        head.setSpacing(4)
        head.addWidget(title)
        head.addStretch()
        head.addWidget(self.settings_button)
        head.addWidget(self.clear_button)
        self.notice = NoticeBar()
        self.settings_panel = ChatSettingsPanel()
        self.settings_panel.changed.connect(self._on_settings_changed)
        self.settings_panel.hide()
        self.transcript = Transcript()
        self.transcript.link_clicked.connect(self.ask_to_open)
        self.transcript.edited.connect(self._on_edited)
        self.transcript.retry_wanted.connect(self._on_retry)
        self.transcript.continue_wanted.connect(self._on_continue)
        self._empty_mark = QLabel()
        self._empty_mark.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.empty = QLabel()
        self.empty.setProperty("role", "muted")
        self.empty.setWordWrap(True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.ask_prompt = QPushButton("Ask the demo's question")
        self.ask_prompt.clicked.connect(self._on_ask_prompt)
        nothing = QWidget()
        column = QVBoxLayout(nothing)
        column.setSpacing(12)
        column.addStretch(2)
        column.addWidget(self._empty_mark)
        column.addWidget(self.empty)
        column.addWidget(self.ask_prompt, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch(3)
        self._pages = QStackedWidget()
        self._pages.addWidget(nothing)
        self._pages.addWidget(self.transcript)
        self.input = PromptEdit(least=2, most=5)
        self.input.setAccessibleName("Message")
        self.input.setToolTip("Enter sends, Shift+Enter breaks the line, Esc stops the answer")
        self.input.submitted.connect(self._on_send)
        self.input.escaped.connect(self._on_stop)
        self.input.textChanged.connect(self._show_controls)
        self.figures = QLabel()
        self.figures.setProperty("role", "note")
        self.figures.setWordWrap(True)
        self.figures.setAccessibleName("Temperature and length of the conversation")
        self.figures.setToolTip("Temperature that is asked for · tokens of the conversation at its last answer")
        self.send = QPushButton("Send")
        self.send.setProperty("kind", "primary")
        self.send.setAccessibleName("Send the message")
        self.send.setToolTip("Send the message (Enter)")
        self.send.clicked.connect(self._on_send)
        self.stop = QPushButton("Stop answer")
        self.stop.setAccessibleName("Stop the answer")
        self.stop.setToolTip("Stop the answer, and see whether the engine lets it go (Esc)")
        self.stop.clicked.connect(self._on_stop)
        foot = QHBoxLayout()
        foot.setSpacing(8)
        foot.addWidget(self.figures, 1)
        foot.addWidget(self.stop)
        foot.addWidget(self.send)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 10, 16, 14)
        layout.setSpacing(8)
        layout.addLayout(head)
        layout.addWidget(self.notice)
        layout.addWidget(self.settings_panel)
        layout.addWidget(self._pages, 1)
        layout.addWidget(self.input)
        layout.addLayout(foot)

    # ---- from the backend --------------------------------------------------------------------------------------

    def _on_chat_changed(self, view: ChatView) -> None:
        old, self._view = self._view, view
        asked = view.streaming and not old.streaming
        if asked:
            self.transcript.follow()
        self._show()
        if view.notice and view.notice != old.notice:
            self.notice.show_notice(view.notice, tone="warn")
        elif view.undo and view.undo != old.undo:
            self.notice.show_notice(view.undo, action="Undo", act=self._on_undo)
        elif asked:
            self.notice.clear()

    def _on_chat_grew(self, delta: ChatDelta) -> None:
        self.transcript.grow(delta)

    def _on_run_changed(self, run: RunView) -> None:
        ready = run.state is RunState.READY
        words = _READY if ready else _NOT_READY.get(run.state, _NO_ENGINE)
        if (ready, words, run.prompt) == (self._ready, self.empty.text(), self._prompt):
            return
        self._ready, self._prompt = ready, run.prompt
        self.empty.setText(words)
        self.input.setPlaceholderText("Message (Enter sends, Shift+Enter breaks the line)" if ready else "Message")
        self._show()

    def _show(self) -> None:
        view = self._view
        self.transcript.show_messages(view.messages, streaming=view.streaming, busy=view.streaming or not self._ready)
        self._pages.setCurrentIndex(1 if view.messages else 0)
        self.settings_panel.show_settings(view.settings)
        self.ask_prompt.setVisible(self._ready and bool(self._prompt))
        self.ask_prompt.setAccessibleName(f"Ask the demo's question: {self._prompt}")
        self.ask_prompt.setToolTip(self._prompt)
        # Where there is a conversation, the sentence of the empty page has to stand elsewhere.
        self.figures.setText(figures_words(view) if self._ready or view.streaming else self._words_if_needed())
        self._show_controls()

    def _words_if_needed(self) -> str:
        return self.empty.text() if self._view.messages else ""

    def _show_controls(self) -> None:
        streaming = self._view.streaming
        had_focus = self.send.hasFocus() or self.stop.hasFocus()
        self.send.setVisible(not streaming)
        self.stop.setVisible(streaming)
        self.send.setEnabled(self._ready and bool(self.input.toPlainText().strip()))
        self.input.setEnabled(self._ready or streaming)
        self.clear_button.setEnabled(bool(self._view.messages) and not streaming)
        self.ask_prompt.setEnabled(not streaming)
        if had_focus and self.input.isEnabled():
            self.input.setFocus()

    # ---- to the backend ----------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        self._bridge.call(self, work, failed=self._on_failed)

    def _on_failed(self, error: UserError) -> None:
        self.notice.show_notice(str(error), tone="bad")

    def _on_send(self) -> None:
        text = self.input.toPlainText()
        if self._view.streaming or not self._ready or not text.strip():
            return
        self.input.clear()
        self._send(text)

    def _on_ask_prompt(self) -> None:
        self._send(self._prompt)
        self.input.setFocus()

    def _send(self, text: str) -> None:
        self.settings_panel.settle()

        def give_back(error: UserError) -> None:
            if not self.input.toPlainText():
                self.input.setPlainText(text)
                self.input.moveCursor(self.input.textCursor().MoveOperation.End)
            self._on_failed(error)

        self._bridge.call(self, self._bridge.desk.chat.send(text), failed=give_back)

    def _on_stop(self) -> None:
        if self._view.streaming:
            self._call(self._bridge.desk.chat.stop())

    def _on_edited(self, index: int, text: str) -> None:
        def give_back(error: UserError) -> None:
            self.transcript.edit_again(index, text)
            self._on_failed(error)

        self._bridge.call(self, self._bridge.desk.chat.edit(index, text), failed=give_back)

    def _on_retry(self) -> None:
        self._call(self._bridge.desk.chat.regenerate())

    def _on_continue(self) -> None:
        self._call(self._bridge.desk.chat.go_on())

    def _on_clear(self) -> None:
        self._call(self._bridge.desk.chat.clear())
        self.input.setFocus()

    def _on_undo(self) -> None:
        self._call(self._bridge.desk.chat.undo())

    def _on_settings_changed(self, settings: ChatSettings) -> None:
        self._call(self._bridge.desk.chat.change_settings(settings))

    def _on_settings_toggled(self, shown: bool) -> None:
        self.settings_panel.setVisible(shown)
        if shown:
            self.settings_panel.system.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:
        """Settings that were just edited are told before the window closes."""
        super().hideEvent(event)
        self.settings_panel.settle()

    # ---- links -------------------------------------------------------------------------------------------------

    def ask_to_open(self, url: QUrl) -> None:
        """Show where a link of an answer leads, and open it only after a yes."""
        address = url.toString(QUrl.ComponentFormattingOption.FullyEncoded)
        shown = QPlainTextEdit(address)
        shown.setReadOnly(True)
        shown.setAccessibleName("Address")
        shown.setTabChangesFocus(True)
        shown.setFixedHeight(84)
        web = url.scheme().lower() in ("http", "https") and bool(url.host())
        # Not the default answer: whoever presses Enter without reading must not follow a model's link.
        opening = [Answer("open", "Open in the browser", "danger")] if web else []
        dialog = ChoiceDialog(
            self,
            title="Open this link?" if web else "This link is not opened",
            text="A model wrote it. It leads to:" if web else "Only addresses of web pages are opened. It leads to:",
            answers=[*opening, Answer("no", "Do not open" if web else "Close")],
            detail=shown,
        )
        dialog.setProperty("address", address)
        dialog.chosen.connect(self._on_link_chosen)
        dialog.open()

    def _on_link_chosen(self, key: str) -> None:
        if key == "open":
            address = str(self.sender().property("address"))
            QDesktopServices.openUrl(QUrl.fromEncoded(address.encode()))

    def _paint(self) -> None:
        self._empty_mark.setPixmap(symbol("chat", theme.tokens.muted, size_px=28))
        self.stop.setIcon(icon("stop", size_px=14))


def figures_words(view: ChatView) -> str:
    """Say what is asked for and how long the conversation is, as far as it is known."""
    parts = []
    if view.settings.temperature is not None:
        parts.append(f"temp {view.settings.temperature}")
    tokens = _conversation_tokens(view.messages)
    if tokens is not None:
        parts.append(f"{tokens:,} tokens")
    return " · ".join(parts)


def _conversation_tokens(messages: tuple[ChatMessage, ...]) -> int | None:
    """Tokens of the prompt and the answer together, of the newest answer that knows both."""
    for message in reversed(messages):
        usage = message.usage
        if usage is not None and usage.prompt_tokens is not None and usage.completion_tokens is not None:
            return usage.prompt_tokens + usage.completion_tokens
    return None
