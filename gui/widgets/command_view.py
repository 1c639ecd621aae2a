"""The exact command that a profile stands for, to be read and copied."""

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication, QTextOption
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from gui.theme import code_font, icon, theme

_COPIED_MS = 1500


class CommandView(QFrame):
    """A card with a command in the font of code; it wraps and never needs to be scrolled sideways."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setAccessibleName("Command")
        title = QLabel("Command")
        title.setProperty("role", "title")
        self.copy = QPushButton("Copy")
        self.copy.setAccessibleName("Copy the command")
        self.copy.setToolTip("Copy the command for a shell")
        self.copy.clicked.connect(self._on_copy)
        self.text = QPlainTextEdit()
        self.text.setReadOnly(True)
        self.text.setFont(code_font(12))
        self.text.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName("The exact command")
        self.text.setToolTip("What Specdeck runs for this profile; long lines are only wrapped here")
        self.text.setMinimumHeight(64)
        self.note = QLabel()
        self.note.setProperty("role", "note")
        self.note.setWordWrap(True)
        self._back = QTimer(self)
        self._back.setSingleShot(True)
        self._back.setInterval(_COPIED_MS)
        self._back.timeout.connect(self._on_back)
        head = QHBoxLayout()
        head.addWidget(title, 1)
        head.addWidget(self.copy, 0, Qt.AlignmentFlag.AlignRight)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 16, 12)
        layout.setSpacing(8)
        layout.addLayout(head)
        layout.addWidget(self.text, 1)
        layout.addWidget(self.note)
        theme.changed.connect(self._paint)
        self.show_command("", "")
        self._paint()

    def show_command(self, command: str, note: str) -> None:
        """Show a command, and in a note for which engine it is or why there is none."""
        if command != self.text.toPlainText():
            bar = self.text.verticalScrollBar()
            place = bar.value()
            self.text.setPlainText(command)
            bar.setValue(place)  # while somebody types, the text should not jump
        self.text.setPlaceholderText("" if command else note)
        self.copy.setEnabled(bool(command))
        self.note.setText(note if command else "")
        self.note.setVisible(bool(command and note))

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text.toPlainText())
        self.copy.setText("Copied")
        self._back.start()

    def _on_back(self) -> None:
        self.copy.setText("Copy")

    def _paint(self) -> None:
        self.copy.setIcon(icon("copy", size_px=16))
