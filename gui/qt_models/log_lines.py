"""The lines of a log as an item model that filters as they come, and in slices when the filter changes."""

import time
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt, QTimer, Signal

from backend.desk.types import LogLine
from gui.qt_models.line_filter import FilterTooSlowError, LineFilter

MAX_LINES = 50_000
# Dropped at once, so that a full list does not move with every batch.
_DROP_LINES = 2_000
_SLICE_S = 0.004
_STEP_LINES = 200

_Index = QModelIndex | QPersistentModelIndex
_NO_PARENT = QModelIndex()
_WORDS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error", "": "no level"}


class LogLines(QAbstractListModel):
    """Holds the newest lines; its rows are those that pass the filter.

    Attributes:
        n_warnings: warnings among all lines held.
        n_errors: errors among them; error lines that follow each other, such as a traceback, count as one.
        longest: how many columns the longest line took that was ever held since `clear`.

    Signals:
        scanned: after a change of the filter, all lines have been looked at.
        filter_failed(str): the filter was given up, in words; all lines of its level are shown.
    """

    LEVEL_ROLE = Qt.ItemDataRole.UserRole + 1
    NUMBER_ROLE = Qt.ItemDataRole.UserRole + 2

    scanned = Signal()
    filter_failed = Signal(str)

    def __init__(self, parent: QObject | None = None, *, max_lines: int = MAX_LINES) -> None:
        super().__init__(parent)
        self._max_lines = max_lines
        self._all: list[LogLine] = []
        self._shown: list[LogLine] = []
        self._filter = LineFilter()
        self._next = 0  # of `_all`: the first line that was not looked at yet
        self.oldest_number = 0  # the first line since the last one that was forgotten, be it overwritten or not
        self.n_warnings = 0
        self.n_errors = 0
        self.longest = 0
        self._scan_timer = QTimer(self)
        self._scan_timer.setInterval(0)
        self._scan_timer.timeout.connect(self._on_scan)

    # ---- what is held ----------------------------------------------------------------------------------------

    @property
    def n_lines(self) -> int:
        """How many lines are held, shown or not."""
        return len(self._all)

    @property
    def n_overwritten(self) -> int:
        """How many lines since `oldest_number` gave way to what was written over them."""
        return self.last_number - self.oldest_number + 1 - len(self._all) if self._all else 0

    @property
    def first_number(self) -> int:
        """Number of the oldest line held, 0 without lines."""
        return self._all[0].number if self._all else 0

    @property
    def last_number(self) -> int:
        """Number of the newest line held, 0 without lines."""
        return self._all[-1].number if self._all else 0

    @property
    def filter(self) -> LineFilter:
        """What is shown."""
        return self._filter

    @property
    def is_scanning(self) -> bool:
        """Whether a changed filter has not seen all lines yet."""
        return self._scan_timer.isActive()

    def line(self, row: int) -> LogLine:
        """Return the line of a row."""
        return self._shown[row]

    def row_of(self, number: int) -> int | None:
        """Return the row of the first shown line with this number or a higher one; None if there is none.

        A progress bar's earlier states have given way to its last one, which has a higher number.
        """
        row = bisect_left(self._shown, number, key=_number)
        return row if row < len(self._shown) else None

    # ---- changes ---------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget all lines; the filter stays."""
        self.beginResetModel()
        self._all, self._shown, self._next = [], [], 0
        self.oldest_number = 0
        self.n_warnings = self.n_errors = self.longest = 0
        self._scan_timer.stop()
        self.endResetModel()

    def append(self, lines: Sequence[LogLine], *, replaces_last: bool = False) -> None:
        """Take new lines; the oldest go when there are too many.

        Args:
            lines: in order.
            replaces_last: the first one stands for the newest one held.
        """
        if replaces_last and lines and self._all:
            self._replace_last(lines[0])
            lines = lines[1:]
        lines = lines[-self._max_lines :]
        surplus = len(self._all) + len(lines) - self._max_lines
        if surplus > 0:
            self._drop(min(max(surplus, _DROP_LINES), len(self._all)))
        if not self._all and lines:
            self.oldest_number = lines[0].number
        for line in lines:
            self._count(line, self._all[-1] if self._all else None, 1)
            self._all.append(line)
        if self._scan_timer.isActive():
            return
        self._look_on(until=None)

    def set_filter(self, wanted: LineFilter) -> None:
        """Show other lines; many lines are looked at bit by bit, until `scanned`."""
        self.beginResetModel()
        self._filter = wanted
        self._shown, self._next = [], 0
        if wanted.is_open:
            self._shown, self._next = list(self._all), len(self._all)
        self.endResetModel()
        self._scan_timer.stop()
        if self._next < len(self._all):
            self._scan_timer.start()
        else:
            self.scanned.emit()

    def _on_scan(self) -> None:
        self._look_on(until=time.monotonic() + _SLICE_S)
        if self._next >= len(self._all) and self._scan_timer.isActive():
            self._scan_timer.stop()
            self.scanned.emit()

    def _look_on(self, *, until: float | None) -> None:
        """Show what passes of the lines that were not looked at yet, as far as time allows."""
        fresh: list[LogLine] = []
        try:
            while self._next < len(self._all) and (until is None or time.monotonic() < until):
                step = self._all[self._next : self._next + _STEP_LINES]
                fresh += step if self._filter.is_open else [line for line in step if self._filter.passes(line)]
                self._next += len(step)
        except FilterTooSlowError:
            self._give_up()
            return
        if fresh:
            self.beginInsertRows(_NO_PARENT, len(self._shown), len(self._shown) + len(fresh) - 1)
            self._shown += fresh
            self.endInsertRows()

    def _give_up(self) -> None:
        self.set_filter(LineFilter(self._filter.level))
        self.filter_failed.emit("This expression takes too long for some lines. Make it simpler.")

    def _replace_last(self, line: LogLine) -> None:
        last = self._all.pop()
        before = self._all[-1] if self._all else None
        self._count(last, before, -1)
        self._count(line, before, 1)
        self._all.append(line)
        if self._next < len(self._all):  # the scan comes to it
            return
        row = len(self._shown) - 1
        was_shown = row >= 0 and self._shown[row] is last
        try:
            passes = self._filter.passes(line)
        except FilterTooSlowError:
            self._give_up()
            return
        if was_shown and passes:
            self._shown[row] = line
            self.dataChanged.emit(self.index(row), self.index(row))
        elif was_shown:
            self.beginRemoveRows(_NO_PARENT, row, row)
            self._shown.pop()
            self.endRemoveRows()
        elif passes:
            self.beginInsertRows(_NO_PARENT, row + 1, row + 1)
            self._shown.append(line)
            self.endInsertRows()

    def _drop(self, n_lines: int) -> None:
        """Forget the oldest lines."""
        before: LogLine | None = None
        for line in self._all[:n_lines]:
            self._count(line, before, -1)
            before = line
        if before is not None and n_lines < len(self._all):  # the rest of a traceback is an error of its own now
            self._count(self._all[n_lines], before, -1)
            self._count(self._all[n_lines], None, 1)
        del self._all[:n_lines]
        self.oldest_number = self.first_number
        self._next = max(self._next - n_lines, 0)
        n_rows = bisect_left(self._shown, self.first_number, key=_number) if self._all else len(self._shown)
        if n_rows:
            self.beginRemoveRows(_NO_PARENT, 0, n_rows - 1)
            del self._shown[:n_rows]
            self.endRemoveRows()

    def _count(self, line: LogLine, before: LogLine | None, step: int) -> None:
        if step > 0 and len(line.text) * 2 > self.longest:  # no line takes more than two columns a character
            self.longest = max(self.longest, columns(line.text))
        if line.level == "WARNING":
            self.n_warnings += step
        elif line.level == "ERROR" and (before is None or before.level != "ERROR"):
            self.n_errors += step

    # ---- what a view asks ------------------------------------------------------------------------------------

    def rowCount(self, parent: _Index = _NO_PARENT) -> int:
        """Return the number of shown lines."""
        return 0 if parent.isValid() else len(self._shown)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return text, level or number of a line."""
        if not index.isValid() or index.row() >= len(self._shown):
            return None
        line = self._shown[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return line.text
        if role == self.LEVEL_ROLE:
            return line.level
        if role == self.NUMBER_ROLE:
            return line.number
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"Line {line.number:,}, {_WORDS[line.level]}: {line.text}"
        return None


def columns(text: str) -> int:
    """Return how many columns a text takes where each plain letter takes one."""
    return len(text) if text.isascii() else len(text) + sum(unicodedata.east_asian_width(one) in "WF" for one in text)


def _number(line: LogLine) -> int:
    return line.number
