"""A card that says what to do where there is nothing to show yet."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout, QWidget

from gui.theme import symbol, theme

_ICON_PX = 24


class MessageCard(QFrame):
    """A symbol, a title and a sentence in the middle.

    Attributes:
        title, words: what it says.
    """

    def __init__(self, symbol_name: str, title: str, words: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", True)
        self._symbol = symbol_name
        self._mark = QLabel(self)
        self._mark.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.title = QLabel(title, self)
        self.title.setProperty("role", "title")
        self.words = QLabel(words, self)
        self.words.setProperty("role", "muted")
        self.words.setWordWrap(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 24, 24, 24)
        layout.setSpacing(8)
        layout.addStretch(1)
        layout.addWidget(self._mark)
        for label in (self.title, self.words):
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
            layout.addWidget(label)
        layout.addStretch(1)
        theme.changed.connect(self._on_theme_changed)
        self._on_theme_changed()

    def show_message(self, title: str, words: str) -> None:
        """Say something else."""
        self.title.setText(title)
        self.words.setText(words)

    def _on_theme_changed(self) -> None:
        self._mark.setPixmap(symbol(self._symbol, theme.tokens.muted, size_px=_ICON_PX))
