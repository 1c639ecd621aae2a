"""A question with named answers, shown without blocking; every question of the window is one of these."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget


@dataclass(frozen=True, slots=True)
class Answer:
    """One button: `key` is what `chosen` carries; `kind` is "primary", "danger" or "" for a plain one."""

    key: str
    label: str
    kind: str = ""


class ChoiceDialog(QDialog):
    """Asks once; closing it in any other way than by a button gives the last answer, which is the harmless one.

    Attributes:
        text: what it says; `buttons` by the key of their answer.

    Signals:
        chosen(str): the key of the answer, exactly once.
    """

    chosen = Signal(str)

    def __init__(
        self,
        parent: QWidget | None,
        *,
        title: str,
        text: str,
        answers: Sequence[Answer],
        detail: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.text = text
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setAccessibleName(title)
        self.setMinimumWidth(460)
        self.setMaximumWidth(720)
        self._answers = tuple(answers)
        self._answered = False
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 20, 24, 20)
        layout.setSpacing(12)
        heading = QLabel(title)
        heading.setProperty("role", "heading")
        heading.setWordWrap(True)
        words = QLabel(text)
        words.setWordWrap(True)
        words.setTextFormat(Qt.TextFormat.PlainText)
        words.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        words.setAccessibleName("Question")
        layout.addWidget(heading)
        layout.addWidget(words)
        if detail is not None:
            layout.addWidget(detail)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addStretch()
        self.buttons: dict[str, QPushButton] = {}
        for answer in reversed(self._answers):
            button = QPushButton(answer.label)
            button.setToolTip(answer.label)
            button.setAccessibleName(answer.label)
            button.setProperty("kind", answer.kind)
            button.setProperty("answer", answer.key)
            button.clicked.connect(self._on_clicked)
            self.buttons[answer.key] = button
            row.addWidget(button)
        layout.addSpacing(4)
        layout.addLayout(row)
        # Enter must never do what cannot be undone.
        usual = next((answer for answer in self._answers if answer.kind != "danger"), self._answers[-1])
        for key, button in self.buttons.items():
            button.setAutoDefault(key == usual.key)
        self.buttons[usual.key].setDefault(True)
        self.buttons[usual.key].setFocus()

    def _on_clicked(self) -> None:
        self._answer(str(self.sender().property("answer")))

    def _answer(self, key: str) -> None:
        if self._answered:
            return
        self._answered = True
        self.close()
        self.chosen.emit(key)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Escape gives the harmless answer."""
        if event.key() == Qt.Key.Key_Escape:
            self._answer(self._answers[-1].key)
        else:
            super().keyPressEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        """A closed question gets the harmless answer."""
        super().closeEvent(event)
        self._answer(self._answers[-1].key)


class DialogSlot:
    """Holds the one question that its owner has open, and forgets it when it is gone.

    Attributes:
        dialog: the open question, None while there is none.
    """

    def __init__(self) -> None:
        self.dialog: ChoiceDialog | None = None

    def open(self, dialog: ChoiceDialog) -> None:
        """Show a question in place of the one before."""
        self.close()
        self.dialog = dialog
        dialog.destroyed.connect(partial(self._forget, dialog))
        dialog.open()

    def close(self) -> None:
        """Close the question that is open; it gets its harmless answer."""
        if self.dialog is not None:
            self.dialog.close()

    def _forget(self, dialog: ChoiceDialog, _gone: object = None) -> None:
        if self.dialog is dialog:
            self.dialog = None
