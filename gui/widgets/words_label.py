"""A label for words that come from elsewhere: plain, in as many lines as they take, and to be copied."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel


def words_label(role: str, name: str) -> QLabel:
    """Return one without words; `role` says how it looks, `name` is what assistive technology calls it."""
    label = QLabel()
    label.setProperty("role", role)
    label.setAccessibleName(name)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
