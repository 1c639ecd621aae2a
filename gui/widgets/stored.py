"""What a person chose in an earlier window."""

from PySide6.QtCore import QSettings


def stored_int(store: QSettings, key: str) -> int | None:
    """Return a number >= 0 that was kept, None where none was or somebody wrote something else there."""
    text = str(store.value(key, ""))
    return int(text) if text.isdecimal() else None
