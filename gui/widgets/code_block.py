"""A block of code in a message: its language, the code as it is, and a button that copies it."""

import math
from collections.abc import Iterator

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QFont, QGuiApplication, QResizeEvent, QTextCursor, QWheelEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from gui.theme import code_font

_COPIED_MS = 1500
# What is laid out at once: so many lines, or so many characters.
_STEP_LINES = 200
_STEP_CHARS = 8000
_LINE_CHARS = 2000  # a longer line is shown as several


class CodeBlock(QFrame):
    """Shows code line by line; long lines are scrolled, not wrapped."""

    def __init__(self, language: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("inset", "true")
        self._code = ""
        self._language = QLabel(language or "code")
        self._language.setProperty("role", "note")
        self._language.setTextFormat(Qt.TextFormat.PlainText)
        self._language.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.copy = QPushButton("Copy")
        self.copy.setProperty("kind", "chip")
        self.copy.setAccessibleName("Copy the code")
        self.copy.setToolTip("Copy the code")
        self.copy.clicked.connect(self._on_copy)
        self._view = _CodeView(self)
        self._view.setAccessibleName(f"Code, {language}" if language else "Code")
        self._back = QTimer(self)
        self._back.setSingleShot(True)
        self._back.setInterval(_COPIED_MS)
        self._back.timeout.connect(self._on_back)
        head = QHBoxLayout()
        head.setContentsMargins(12, 6, 6, 2)
        head.addWidget(self._language, 1)
        head.addWidget(self.copy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 1, 1, 1)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addWidget(self._view)

    @property
    def code(self) -> str:
        """The code, exactly."""
        return self._code

    def steps(self, code: str) -> Iterator[None]:
        """Show code, with a pause after each part of it."""
        self._code = code
        part: list[str] = []
        size = 0
        for line in code.split("\n"):
            for start in range(0, max(1, len(line)), _LINE_CHARS):
                part.append(line[start : start + _LINE_CHARS])
                size += len(part[-1])
                if len(part) == _STEP_LINES or size > _STEP_CHARS:
                    self._view.add_lines(part)
                    part, size = [], 0
                    yield
        self._view.add_lines(part)

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.code)
        self.copy.setText("Copied")
        self._back.start()

    def _on_back(self) -> None:
        self.copy.setText("Copy")


class _CodeView(QPlainTextEdit):
    """As high as its lines."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._empty = True
        self.setReadOnly(True)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        font = code_font()
        font.setFeature(QFont.Tag("calt"), 0)  # an arrow must not stand for a minus and a greater-than sign
        self.setFont(font)
        self.setProperty("role", "code")
        self.document().setDefaultFont(font)

    def add_lines(self, lines: list[str]) -> None:
        """Append whole lines without scrolling to them."""
        if not lines:
            return
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText("\n".join(lines if self._empty else ["", *lines]))
        self._empty = False
        self.fit()
        self.verticalScrollBar().setValue(0)

    def fit(self) -> None:
        """Take the height of all lines, and of the scroll bar where one is needed."""
        margins = 2 * self.document().documentMargin()
        height = math.ceil(self.blockCount() * self.fontMetrics().lineSpacing() + margins)
        bar = self.horizontalScrollBar()
        if bar.maximum() > 0:
            height += bar.sizeHint().height()
        if height != self.minimumHeight():
            self.setFixedHeight(height)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width may need a scroll bar, or none."""
        super().resizeEvent(event)
        self.fit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll sideways; up and down belongs to the transcript."""
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)
        else:
            event.ignore()
