"""The whole text of one log line, wrapped, under the list that cuts long ones."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QToolButton, QVBoxLayout, QWidget

from backend.desk.types import LogLine
from gui.theme import code_font, icon, theme

_ROWS = 4
_LEVELS = {"ERROR": "error", "WARNING": "warning", "INFO": "info", "DEBUG": "debug"}


class LineDetail(QFrame):
    """Hidden while no line is chosen.

    Signals:
        closed: the person does not want to see it any more.
    """

    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("inset", True)
        self.setAccessibleName("Chosen line")
        self._head = QLabel()
        self._head.setProperty("role", "muted")
        self._close = QToolButton()
        self._close.setProperty("kind", "quiet")
        self._close.setAccessibleName("Close the whole line")
        self._close.setToolTip("Close the whole line (Esc)")
        self._close.clicked.connect(self.closed)
        self._text = QPlainTextEdit()
        self._text.setReadOnly(True)
        self._text.setFont(code_font())
        self._text.setFrameShape(QFrame.Shape.NoFrame)
        self._text.setStyleSheet("QPlainTextEdit { border: none; padding: 0; background: transparent; }")
        self._text.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)  # it wraps
        self._text.setTabChangesFocus(True)
        self._text.setAccessibleName("Whole text of the line")
        self._text.setToolTip("Whole text of the line; select and copy parts of it here")
        self._text.document().setDocumentMargin(0)
        self._text.setFixedHeight(_ROWS * QFontMetrics(code_font()).lineSpacing() + 10)
        self._head.setBuddy(self._text)
        row = QHBoxLayout()
        row.addWidget(self._head, 1)
        row.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 4, 4, 4)
        layout.setSpacing(0)
        layout.addLayout(row)
        layout.addWidget(self._text)
        theme.changed.connect(self._paint)
        self._paint()
        self.hide()

    @property
    def text(self) -> str:
        """What is shown, "" while hidden."""
        return "" if self.isHidden() else self._text.toPlainText()

    def show_line(self, line: LogLine) -> None:
        """Show one line."""
        level = _LEVELS.get(line.level)
        self._head.setText(f"Line {line.number:,}" + (f" · {level}" if level else ""))
        self._text.setPlainText(line.text)
        self.show()

    def _paint(self) -> None:
        self._close.setIcon(icon("close"))
