"""The profiles as a Qt list: two headings, the entries that a search leaves, and how each of them stands."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from backend.desk.types import ProfileEntry

NAME = Qt.ItemDataRole.UserRole
ENTRY = Qt.ItemDataRole.UserRole + 1
"""The ProfileEntry; None for a heading."""
MARK = Qt.ItemDataRole.UserRole + 2
"""A word on how it stands: "running", "starting" ..., "" for nothing."""
UNSAVED = Qt.ItemDataRole.UserRole + 3

_Index = QModelIndex | QPersistentModelIndex


class ProfileListModel(QAbstractListModel):
    """Rows are headings (strings) and entries."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._entries: tuple[ProfileEntry, ...] = ()
        self._rows: list[str | ProfileEntry] = []
        self._search = ""
        self._running = ("", "")
        self._unsaved: frozenset[str] = frozenset()

    # ---- what is shown ---------------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[ProfileEntry, ...]:
        """Every profile, also those that a search hides."""
        return self._entries

    def set_entries(self, entries: Sequence[ProfileEntry]) -> None:
        """Show other profiles, the person's own first."""
        self._entries = tuple(entries)
        self._rebuild()

    def set_search(self, text: str) -> None:
        """Leave only what holds every word of `text` in its title, name or subtitle."""
        self._search = text
        self._rebuild()

    def set_running(self, name: str, word: str) -> None:
        """Mark the profile of the running engine; "" for none."""
        self._running = (name, word)
        self._repaint()

    def set_unsaved(self, names: Sequence[str]) -> None:
        """Mark the profiles with unsaved changes."""
        self._unsaved = frozenset(names)
        self._repaint()

    def entry(self, name: str) -> ProfileEntry | None:
        """Return a profile by its name, also one that a search hides."""
        return next((entry for entry in self._entries if entry.name == name), None)

    def _rebuild(self) -> None:
        words = self._search.casefold().split()
        rows: list[str | ProfileEntry] = []
        for heading, read_only in (("YOURS", False), ("PRESETS", True)):
            found = [
                entry
                for entry in self._entries
                if entry.read_only == read_only and all(word in _haystack(entry) for word in words)
            ]
            rows += [heading, *found] if found else []
        if self._entries and not words and all(entry.read_only for entry in self._entries):
            rows[:0] = ["YOURS", "None yet. Duplicate a preset."]
        if rows == self._rows:
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def _repaint(self) -> None:
        if self._rows:
            self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

    # ---- Qt --------------------------------------------------------------------------------------------------

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """Return the number of rows."""
        return 0 if parent.isValid() else len(self._rows)

    def flags(self, index: _Index) -> Qt.ItemFlag:
        """Headings cannot be chosen."""
        if index.isValid() and isinstance(self._rows[index.row()], ProfileEntry):
            return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
        return Qt.ItemFlag.NoItemFlags

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return what a row shows."""
        if not index.isValid():
            return None
        item = self._rows[index.row()]
        if isinstance(item, str):
            return item if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole) else None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return item.title
            case Qt.ItemDataRole.ToolTipRole:
                return item.problem or f"{item.title}\n{item.name}: {item.subtitle}"
            case Qt.ItemDataRole.AccessibleTextRole:
                unsaved = "unsaved changes" if item.name in self._unsaved else ""
                return ", ".join(filter(None, (item.title, item.subtitle, self._mark(item), unsaved)))
        if role == NAME:
            return item.name
        if role == ENTRY:
            return item
        if role == MARK:
            return self._mark(item)
        return item.name in self._unsaved if role == UNSAVED else None

    def _mark(self, entry: ProfileEntry) -> str:
        name, word = self._running
        return word if entry.name == name else ""


def _haystack(entry: ProfileEntry) -> str:
    return f"{entry.title} {entry.name} {entry.subtitle}".casefold()
