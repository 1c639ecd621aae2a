"""The exact command that a profile stands for, to be read and copied."""

import re

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from gui.theme import code_font, icon, theme

_COPIED_MS = 1500
_COPY = "Copy command"
_BREAK = " \\\n  "
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class _Lines(QPlainTextEdit):
    """Text that ends with a whole line."""

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave away what is less than a line."""
        super().resizeEvent(event)
        margin_px = self.viewportMargins().bottom()
        room_px = self.viewport().height() + margin_px - round(self.document().documentMargin())
        rest_px = room_px % self.fontMetrics().lineSpacing()
        if rest_px != margin_px:
            self.setViewportMargins(0, 0, 0, rest_px)


class CommandView(QFrame):
    """A card with a command in the font of code, each option on a line of its own; the variables are folded away.

    Attributes:
        command: all of it, as it is copied.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setAccessibleName("Command")
        self.command = ""
        title = QLabel("Command")
        title.setProperty("role", "title")
        self.copy = QPushButton(_COPY)
        self.copy.setAccessibleName("Copy the command")
        self.copy.setToolTip("Copy the whole command for a shell, with its environment variables")
        self.copy.clicked.connect(self._on_copy)
        self.text = _Lines()
        self.text.setReadOnly(True)
        self.text.setFont(code_font(12))
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName("The exact command")
        self.text.setToolTip("What Specdeck runs for this profile")
        self.text.setMinimumHeight(64)
        self.variables = QPushButton()
        self.variables.setProperty("kind", "fold")
        self.variables.setCheckable(True)
        self.variables.setToolTip("Show or hide the environment variables before the command; Copy takes them along")
        self.variables.toggled.connect(self._on_toggled)
        self.note = QLabel()
        self.note.setProperty("role", "note")
        self.note.setWordWrap(True)
        self.note.hide()
        self._back = QTimer(self)
        self._back.setSingleShot(True)
        self._back.setInterval(_COPIED_MS)
        self._back.timeout.connect(self._on_back)
        head = QHBoxLayout()
        head.addWidget(title, 1)
        head.addWidget(self.copy, 0, Qt.AlignmentFlag.AlignRight)
        foot = QHBoxLayout()
        foot.setSpacing(8)
        foot.addWidget(self.note, 1)
        foot.addWidget(self.variables)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 16, 10)
        layout.setSpacing(8)
        layout.addLayout(head)
        layout.addWidget(self.text, 1)
        layout.addLayout(foot)
        theme.changed.connect(self._paint)
        self.show_command("", "")
        self._paint()
        self.copy.ensurePolished()
        self.copy.setMinimumWidth(self.copy.sizeHint().width())  # the button must not shrink while it says "Copied"

    def show_command(self, command: str, note: str) -> None:
        """Show a command, and in a note for which engine it is or why there is none."""
        self.command = command
        self._show_text()
        self.text.setPlaceholderText("" if command else note)
        self.copy.setEnabled(bool(command))
        self.note.setText(note if command else "")
        self.note.setVisible(bool(command))
        n_variables = len(_variables(command))
        self.variables.setText(f"Environment ({n_variables})")
        self.variables.setAccessibleName(f"Environment variables of the command: {n_variables}")
        self.variables.setVisible(n_variables > 0)

    def _show_text(self) -> None:
        hidden = [] if self.variables.isChecked() else _variables(self.command)
        shown = self.command[sum(len(each) + len(_BREAK) for each in hidden) :]
        if shown != self.text.toPlainText():
            bars = self.text.verticalScrollBar(), self.text.horizontalScrollBar()
            places = [bar.value() for bar in bars]
            self.text.setPlainText(shown)
            for bar, place in zip(bars, places, strict=True):
                bar.setValue(place)  # while somebody types, the text should not jump

    def _on_toggled(self) -> None:
        self._show_text()
        self._paint()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.command)
        self.copy.setText("Copied")
        self._back.start()

    def _on_back(self) -> None:
        self.copy.setText(_COPY)

    def _paint(self) -> None:
        self.copy.setIcon(icon("copy", size_px=16))
        is_open = self.variables.isChecked()
        self.variables.setIcon(icon("down" if is_open else "right", theme.tokens.muted, size_px=14))


def _variables(command: str) -> list[str]:
    """Return the assignments that a command begins with."""
    parts = command.split(_BREAK)
    n_variables = next((n for n, part in enumerate(parts) if not _VARIABLE.match(part)), 0)
    return parts[:n_variables]
