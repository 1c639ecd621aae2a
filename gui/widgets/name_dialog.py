"""Asks for the name of a profile without blocking; stays open until the name was taken."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from gui.theme import symbol, theme

_WIDTH_PX = 440
RULE = "Letters, digits, dots, dashes and underscores; it is the file's name too."


class NameDialog(QDialog):
    """One line to type into.

    Signals:
        named(str): a name was agreed to; the dialog waits for `accept` or `refuse`.
    """

    named = Signal(str)

    def __init__(self, parent: QWidget, *, title: str, text: str, yes: str, name: str) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setAccessibleName(title)
        self.setFixedWidth(_WIDTH_PX)
        heading = QLabel(title)
        heading.setProperty("role", "heading")
        words = QLabel(text)
        words.setProperty("role", "muted")
        words.setWordWrap(True)
        label = QLabel("&Name")
        self.line = QLineEdit(name)
        self.line.setAccessibleName("Name of the profile")
        self.line.setToolTip(RULE)
        self.line.selectAll()
        self.line.textChanged.connect(self._on_typed)
        label.setBuddy(self.line)
        rule = QLabel(RULE)
        rule.setProperty("role", "note")
        rule.setWordWrap(True)
        self._mark = QLabel()
        self.problem = QLabel()
        self.problem.setProperty("role", "bad")
        self.problem.setWordWrap(True)
        trouble = QHBoxLayout()
        trouble.addWidget(self._mark, 0, Qt.AlignmentFlag.AlignTop)
        trouble.addWidget(self.problem, 1)
        self.cancel = QPushButton("Cancel")
        self.cancel.setAccessibleName("Cancel")
        self.cancel.setToolTip("Change nothing (Esc)")
        self.cancel.setAutoDefault(False)
        self.cancel.clicked.connect(self.reject)
        self.yes = QPushButton(yes)
        self.yes.setProperty("kind", "primary")
        self.yes.setAccessibleName(yes)
        self.yes.setToolTip(f"{yes} (Enter)")
        self.yes.setDefault(True)
        self.yes.setEnabled(bool(name))
        self.yes.clicked.connect(self._on_yes)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addStretch()
        buttons.addWidget(self.cancel)
        buttons.addWidget(self.yes)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 20, 24, 20)
        layout.setSpacing(8)
        for widget in (heading, words, label, self.line, rule):
            layout.addWidget(widget)
        layout.addLayout(trouble)
        layout.addSpacing(8)
        layout.addLayout(buttons)
        self._clear()
        self.line.setFocus()

    def refuse(self, words: str) -> None:
        """Say why the name cannot be had."""
        self._mark.setPixmap(symbol("error", theme.tokens.bad, size_px=16))
        self.problem.setText(words)
        self.problem.setAccessibleName(words)
        self._mark.show()
        self.problem.show()
        self.yes.setEnabled(True)
        self.line.setFocus()
        self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        """Take the height that the wrapped words need."""
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        layout = self.layout()
        assert layout is not None
        layout.activate()
        self.setFixedHeight(layout.heightForWidth(_WIDTH_PX))

    def _clear(self) -> None:
        self._mark.hide()
        self.problem.hide()

    def _on_typed(self, text: str) -> None:
        self._clear()
        self._fit()
        self.yes.setEnabled(bool(text.strip()))

    def _on_yes(self) -> None:
        self.yes.setEnabled(False)  # once is enough
        self.named.emit(self.line.text().strip())
