"""A line over the page that says what went wrong or what was done, until it is closed or replaced."""

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QWidget

from gui.theme import icon, symbol, theme

_SYMBOLS = {"bad": "error", "warn": "warning", "info": "info"}


class NoticeBar(QFrame):
    """Shows one notice at a time, with at most one action; hidden while there is none."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Notice")
        self._act: Callable[[], None] | None = None
        self._tone = "info"
        self._mark = QLabel()
        self._words = QLabel()
        self._words.setWordWrap(True)
        self._words.setTextFormat(Qt.TextFormat.PlainText)
        self._words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._action = QPushButton()
        self._action.setAccessibleName("Action of the notice")
        self._action.setToolTip("Action of the notice")
        self._action.clicked.connect(self._on_action)
        self._close = QToolButton()
        self._close.setProperty("kind", "quiet")
        self._close.setAccessibleName("Close the notice")
        self._close.setToolTip("Close the notice")
        self._close.clicked.connect(self.clear)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 6, 6)
        row.setSpacing(10)
        row.addWidget(self._mark)
        row.addWidget(self._words, 1)
        row.addWidget(self._action)
        row.addWidget(self._close)
        theme.changed.connect(self._paint)
        self.hide()

    @property
    def text(self) -> str:
        """What is shown, "" while hidden."""
        return "" if self.isHidden() else self._words.text()

    def show_notice(
        self, text: str, *, tone: str = "info", action: str = "", act: Callable[[], None] | None = None
    ) -> None:
        """Show `text` ("bad", "warn" or "info"), with a button `action` that calls `act` and closes the notice."""
        self._words.setText(text)
        self._words.setAccessibleName(text)
        self._tone, self._act = tone, act
        self._action.setText(action)
        self._action.setToolTip(action)
        self._action.setVisible(bool(action))
        self.setProperty("notice", tone)
        self.style().unpolish(self)
        self.style().polish(self)
        self._paint()
        self.show()

    def clear(self) -> None:
        """Hide the notice."""
        self._act = None
        self.hide()

    def _on_action(self) -> None:
        act = self._act
        self.clear()
        if act is not None:
            act()

    def _paint(self) -> None:
        colour = theme.tokens.accent if self._tone == "info" else getattr(theme.tokens, self._tone)
        self._mark.setPixmap(symbol(_SYMBOLS[self._tone], colour))
        self._close.setIcon(icon("close"))
