"""The recorded runs as a Qt list: those that a search leaves, in the order that was chosen."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from backend.events import PastRun

RUN = Qt.ItemDataRole.UserRole
"""The PastRun."""
LETTER = Qt.ItemDataRole.UserRole + 1
"""Which of two compared runs it is, "A" or "B"; "" for neither."""
ID = Qt.ItemDataRole.UserRole + 2
"""Its run id."""

_Index = QModelIndex | QPersistentModelIndex


def duration_s(run: PastRun) -> float:
    """Return how long a run has lasted from its spawn in seconds, so far if it still runs."""
    return max((time.time() if run.ended_at is None else run.ended_at) - run.started_at, 0.0)


def _falling(value: float | None) -> float:
    return math.inf if value is None else -value


ORDERS: dict[str, tuple[str, Callable[[PastRun], Any]]] = {
    "newest": ("Newest first", lambda run: -run.started_at),
    "fastest": ("Most tokens/s", lambda run: _falling(run.tokens_per_s)),
    "accepted": ("Most accepted", lambda run: _falling(run.acceptance_rate)),
    "longest": ("Longest", lambda run: -duration_s(run)),
    "name": ("Profile", lambda run: (run.title or run.profile).casefold()),
}
"""Key of an order -> its label and what it sorts by; runs that are equal there stand newest first."""


class PastRunsModel(QAbstractListModel):
    """One row a run."""

    def __init__(self, said: Callable[[PastRun], Sequence[str]], parent: QObject | None = None) -> None:
        """Make an empty list; `said` is what there is to say about a run, line by line, for search and tooltips."""
        super().__init__(parent)
        self._said = said
        self._all: tuple[PastRun, ...] = ()
        self._rows: list[PastRun] = []
        self._search = ""
        self._order = "newest"
        self._letters: dict[str, str] = {}

    @property
    def runs(self) -> tuple[PastRun, ...]:
        """Every run, also those that a search hides."""
        return self._all

    @property
    def shown(self) -> tuple[PastRun, ...]:
        """The runs that a search leaves, in order."""
        return tuple(self._rows)

    def set_runs(self, runs: Sequence[PastRun]) -> None:
        """Show other runs."""
        self._all = tuple(runs)
        self._rebuild()

    def set_search(self, text: str) -> None:
        """Leave only what holds every word of `text` in what is said about it."""
        self._search = text
        self._rebuild()

    def set_order(self, key: str) -> None:
        """Sort by one of ORDERS."""
        self._order = key
        self._rebuild()

    def set_letters(self, letters: dict[str, str]) -> None:
        """Mark the runs that are compared, by their ids."""
        if letters != self._letters:
            self._letters = dict(letters)
            if self._rows:
                self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

    def run(self, run_id: str) -> PastRun | None:
        """Return a run, also one that a search hides."""
        return next((run for run in self._all if run.run_id == run_id), None)

    def index_of(self, run_id: str) -> QModelIndex:
        """Return where a run stands, an invalid index if it is not shown."""
        row = next((row for row, run in enumerate(self._rows) if run.run_id == run_id), -1)
        return self.index(row) if row >= 0 else QModelIndex()

    def _rebuild(self) -> None:
        words = self._search.casefold().split()
        found = [run for run in self._all if all(word in self._haystack(run) for word in words)]
        _, sorts_by = ORDERS[self._order]
        rows = sorted(sorted(found, key=lambda run: -run.started_at), key=sorts_by)
        if rows != self._rows:
            self.beginResetModel()
            self._rows = rows
            self.endResetModel()

    # ---- Qt --------------------------------------------------------------------------------------------------

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """Return the number of rows."""
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return what a row shows."""
        if not index.isValid():
            return None
        run = self._rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return run.title or run.profile
        if role == Qt.ItemDataRole.ToolTipRole:
            return "\n".join(self._said(run))
        if role == Qt.ItemDataRole.AccessibleTextRole:
            letter = self._letters.get(run.run_id, "")
            return ", ".join([*self._said(run), *([f"run {letter}"] if letter else [])])
        if role == RUN:
            return run
        if role == ID:
            return run.run_id
        return self._letters.get(run.run_id, "") if role == LETTER else None

    def _haystack(self, run: PastRun) -> str:
        return " ".join((*self._said(run), run.profile)).casefold()
