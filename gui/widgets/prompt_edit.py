"""An input for prose that grows with its text; Enter sends it, Shift+Enter breaks the line."""

import math

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QPlainTextEdit, QSizePolicy, QWidget


class PromptEdit(QPlainTextEdit):
    """Shows between `least` and `most` lines.

    Signals:
        submitted: Enter or Ctrl+Enter was pressed.
        escaped: Escape was pressed.
    """

    submitted = Signal()
    escaped = Signal()

    def __init__(self, parent: QWidget | None = None, *, least: int = 2, most: int = 5, sends: bool = True) -> None:
        super().__init__(parent)
        self._least, self._most, self._sends = least, most, sends
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.textChanged.connect(self._fit)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Send with Enter; everything else is editing."""
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        if self._sends and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not shift:
            self.submitted.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width breaks the lines elsewhere."""
        super().resizeEvent(event)
        self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        """The style is known from now on."""
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        lines = int(self.document().size().height())  # a plain text document counts lines
        shown = max(self._least, min(lines, self._most))
        frame = self.height() - self.viewport().height()
        if frame < 0:
            return  # the viewport has not followed yet; its own change of size comes here again
        around = frame + 2 * self.document().documentMargin()
        height = math.ceil(shown * self.fontMetrics().lineSpacing() + around)
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if lines > self._most else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        if self.verticalScrollBarPolicy() != policy:
            self.setVerticalScrollBarPolicy(policy)
        if height != self.minimumHeight():
            self.setFixedHeight(height)
