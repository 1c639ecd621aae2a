"""Rows of figures as a Qt table: what changes is told cell by cell, so that nothing else is painted anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

KEY = Qt.ItemDataRole.UserRole
"""The key of a cell's row."""
CELL = Qt.ItemDataRole.UserRole + 1

_Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in one place.

    Attributes:
        text: what is read there.
        tip: the tooltip, "" for none.
        tone: "ok", "warn", "bad", "muted", or "" for plain text.
        picture: something that the delegate paints before the text, None for nothing.
    """

    text: str
    tip: str = ""
    tone: str = ""
    picture: object = None


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; it stays the same line as long as its key does."""

    key: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its tooltip."""

    title: str
    tip: str = ""


class CellRows(QAbstractTableModel):
    """Rows that are given whole; the model finds out what is new."""

    def __init__(self, columns: Sequence[Column], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.columns = tuple(columns)
        self.rows: tuple[Row, ...] = ()

    def set_rows(self, rows: Sequence[Row]) -> bool:
        """Show these rows; returns whether they are others than before, and not only their cells."""
        before, after = self.rows, tuple(rows)
        if [row.key for row in before] != [row.key for row in after]:
            self.beginResetModel()
            self.rows = after
            self.endResetModel()
            return True
        self.rows = after
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            for column, (was, now) in enumerate(zip(old.cells, new.cells, strict=True)):
                if was != now:
                    index = self.index(number, column)
                    self.dataChanged.emit(index, index)
        return False

    def row_of(self, key: str) -> int | None:
        """Return where a row stands."""
        return next((number for number, row in enumerate(self.rows) if row.key == key), None)

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """Return the number of rows."""
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a heading."""
        if orientation is not Qt.Orientation.Horizontal or not 0 <= section < len(self.columns):
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        if role == Qt.ItemDataRole.ToolTipRole:
            return column.tip or None
        return column.title if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return what a cell shows."""
        if not index.isValid():
            return None
        row = self.rows[index.row()]
        cell = row.cells[index.column()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return cell.text
            case Qt.ItemDataRole.ToolTipRole:
                return cell.tip or None
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{self.columns[index.column()].title}: {cell.text}"
        return row.key if role == KEY else cell if role == CELL else None
