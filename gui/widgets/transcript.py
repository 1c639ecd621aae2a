"""The messages of a chat, one widget each; the newest are built at once and the others when somebody looks for them."""

from collections.abc import Iterator, Sequence

import shiboken6
from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QScrollArea, QVBoxLayout, QWidget

from backend.desk.types import ChatDelta, ChatMessage
from gui.theme import icon, theme
from gui.widgets.answer_view import AnswerView
from gui.widgets.message_view import MessageView, QuestionView
from gui.widgets.slices import Slices
from gui.widgets.text_block import TextBlock

_AT_FIRST = 24
_MORE = 20
_NEAR_PX = 4
_MOST = 60  # more are let go again once somebody is back at the end


class Transcript(QScrollArea):
    """Shows a conversation and stays at its end, unless somebody has scrolled up.

    Signals:
        link_clicked(QUrl): somebody wants to follow a link.
        edited(int, str): question `int` shall have another text.
        retry_wanted, continue_wanted: of the last answer.
    """

    link_clicked = Signal(QUrl)
    edited = Signal(int, str)
    retry_wanted = Signal()
    continue_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "transcript")
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # Always there, or all text would be laid out anew, in one turn, when the bar takes its room.
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        bar = self.verticalScrollBar()
        bar.setEnabled(False)
        self.style().unpolish(bar)  # it took its style before the transcript had its role
        self.style().polish(bar)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Conversation")
        self.slices = Slices(self)
        self.views: list[MessageView] = []
        self._messages: tuple[ChatMessage, ...] = ()
        self._first = 0  # index of the first message that has a widget
        self._streaming = self._busy = False
        self._following, self._moving, self._from_end_px, self._filling = True, False, 0, False
        content = QWidget()
        self._layout = QVBoxLayout(content)
        self._layout.setContentsMargins(0, 4, 8, 8)
        self._layout.setSpacing(16)
        self.earlier = QPushButton()
        self.earlier.setProperty("kind", "quiet")
        self.earlier.setToolTip("Show earlier messages")
        self.earlier.clicked.connect(self._on_earlier)
        self.earlier.hide()
        self._layout.addWidget(self.earlier)
        self._layout.addStretch()
        self.setWidget(content)
        self.jump = QPushButton("Jump to end", self)
        self.jump.setProperty("kind", "chip")
        self.jump.setAccessibleName("Jump to the end of the conversation")
        self.jump.setToolTip("Jump to the end of the conversation, and follow it")
        self.jump.clicked.connect(self.follow)
        self.jump.hide()
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self.verticalScrollBar().rangeChanged.connect(self._on_range_changed)
        theme.changed.connect(self._on_theme_changed)
        self._paint()

    # ---- what is shown -----------------------------------------------------------------------------------------

    def show_messages(self, messages: Sequence[ChatMessage], *, streaming: bool, busy: bool) -> None:
        """Show a conversation; what has not changed keeps its widgets.

        Args:
            messages: all of it.
            streaming: the last answer grows.
            busy: nothing can be asked now.
        """
        old, self._messages = self._messages, tuple(messages)
        same = 0
        while same < min(len(old), len(self._messages)) and _same_place(old[same], self._messages[same]):
            same += 1
        changed = (streaming, busy) != (self._streaming, self._busy)
        self._streaming, self._busy = streaming, busy
        if same < self._first or (same == 0 and old):
            same = 0
            self._first = 0
        self._drop_from(max(0, same - self._first))
        if not self.views:
            self._build_anew()
        else:
            for index in range(self._first + len(self.views), len(self._messages)):
                self._insert(index, len(self.views))
        for index, view in enumerate(self.views, self._first):
            near_end = index >= min(len(old), len(self._messages)) - 2
            if changed or near_end or view.message is not self._messages[index]:
                self._refresh(index, view)
        self._show_earlier()
        self._order_tabs()

    def grow(self, delta: ChatDelta) -> None:
        """Append streamed text to the last message."""
        if self.views and isinstance(self.views[-1], AnswerView):
            self.views[-1].grow(delta.text, delta.reasoning, delta.n_tokens)

    def edit_again(self, index: int, text: str) -> None:
        """Let a text be edited once more that could not take the place of question `index`."""
        at = index - self._first
        view = self.views[at] if 0 <= at < len(self.views) else None
        if isinstance(view, QuestionView):
            view.begin_edit(text)

    def _build_anew(self) -> None:
        """Build the newest messages, the last pair at once and those before it bit by bit."""
        self._first = len(self._messages)
        self.follow()
        self._add_before(2)
        if self._first > 0:
            self.slices.add(self, self._build_steps(_AT_FIRST - 2))

    def _build_steps(self, n: int) -> Iterator[None]:
        self._filling = True
        for _ in range(n):
            if self._first == 0:
                break
            yield  # before the step, so that what was built before is rendered first
            self._add_before(1)
            self._show_earlier()
        yield
        self._filling = False
        self._order_tabs()

    def _add_before(self, n: int) -> None:
        """Build `n` messages before those that are there."""
        for _ in range(min(n, self._first)):
            self._first -= 1
            self._insert(self._first, 0)
            self._refresh(self._first, self.views[0])

    def _insert(self, index: int, at: int) -> None:
        message = self._messages[index]
        kind = AnswerView if message.role == "assistant" else QuestionView
        view = kind(message, self.slices)
        view.link_clicked.connect(self.link_clicked)
        view.edited.connect(self._on_edited)
        view.retry_wanted.connect(self.retry_wanted)
        view.continue_wanted.connect(self.continue_wanted)
        self.views.insert(at, view)
        self._layout.insertWidget(at + 1, view)

    def _refresh(self, index: int, view: MessageView) -> None:
        last = index == len(self._messages) - 1
        view.show_message(self._messages[index], streaming=self._streaming and last, last=last, busy=self._busy)

    def _drop_from(self, at: int) -> None:
        for view in self.views[at:]:
            self._discard(view)
        del self.views[at:]

    def _let_go(self) -> None:
        """Drop the widgets of the oldest messages, which cost time at every change of width or theme."""
        if len(self.views) > _MOST and not self._filling:
            n = len(self.views) - _AT_FIRST
            for view in self.views[:n]:
                self._discard(view)
            del self.views[:n]
            self._first += n
            self._show_earlier()

    def _discard(self, view: MessageView) -> None:
        view.hide()
        self._layout.removeWidget(view)
        view.deleteLater()

    def _show_earlier(self) -> None:
        words = f"Show earlier messages ({self._first:,})"
        self.earlier.setText(words)
        self.earlier.setAccessibleName(words)
        self.earlier.setVisible(self._first > 0)

    def _order_tabs(self) -> None:
        """Let Tab go through the messages from top to bottom, whenever they were built."""
        before: QWidget = self.earlier
        for view in self.views:
            for stop in view.tab_stops():
                QWidget.setTabOrder(before, stop)
                before = stop
        QWidget.setTabOrder(before, self.jump)

    def _on_earlier(self) -> None:
        if not self._filling:
            self._following = False
            self.slices.add(self, self._build_steps(_MORE))

    def _on_edited(self, text: str) -> None:
        view = self.sender()
        if isinstance(view, MessageView) and view in self.views:
            self.edited.emit(self._first + self.views.index(view), text)

    # ---- where it is -------------------------------------------------------------------------------------------

    @property
    def is_following(self) -> bool:
        """Whether the end stays in sight."""
        return self._following

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._following = True
        self._let_go()
        self._move_to(self.verticalScrollBar().maximum())
        self.jump.hide()

    def _move_to(self, value: int) -> None:
        self._moving = True
        self.verticalScrollBar().setValue(value)
        self._moving = False

    def _on_scrolled(self, value: int) -> None:
        bar = self.verticalScrollBar()
        if not self._moving:
            was_following = self._following
            self._following = value >= bar.maximum() - _NEAR_PX
            self._from_end_px = bar.maximum() - value
            if value < bar.pageStep() // 2 and self._first > 0 and not self._following:
                self._on_earlier()
            elif self._following and not was_following:
                self._let_go()
        self.jump.setVisible(not self._following)

    def _on_range_changed(self, _low: int, high: int) -> None:
        self.verticalScrollBar().setEnabled(high > 0)
        if self._following:
            self._move_to(high)
        elif self._filling:  # what is built above must not push away what somebody reads
            self._move_to(high - self._from_end_px)
        self.jump.setVisible(not self._following and high > 0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the button over the lower edge."""
        super().resizeEvent(event)
        self._place_jump()

    def _place_jump(self) -> None:
        self.jump.adjustSize()
        self.jump.move((self.width() - self.jump.width()) // 2, self.height() - self.jump.height() - 8)
        self.jump.raise_()

    def _on_theme_changed(self) -> None:
        self._paint()
        self.slices.add(self, self._theme_steps(), first=True)

    def _theme_steps(self) -> Iterator[None]:
        """Give all text the colours of the theme, what is in sight first."""
        middle = self.viewport().rect().center()

        def distance(block: TextBlock) -> int:
            y = block.mapFrom(self.viewport(), middle).y()
            return max(-y, y - block.height(), 0)

        for block in sorted(self.findChildren(TextBlock), key=distance):
            if shiboken6.isValid(block):
                block.take_theme()
                yield

    def _paint(self) -> None:
        self.jump.setIcon(icon("down", size_px=14))
        self._place_jump()


def _same_place(old: ChatMessage, new: ChatMessage) -> bool:
    """Whether a widget of the old message can show the new one."""
    if old is new:
        return True
    return old.role == new.role and (old.role == "assistant" or old.text == new.text)
