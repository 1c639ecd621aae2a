"""The column with the recorded runs: search, order, the list, and what can be done with those that are chosen."""

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QAbstractItemModel, QItemSelectionModel, QModelIndex, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QAbstractItemView,
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from gui.theme import icon, theme

MOST = 2
_ID = Qt.ItemDataRole.UserRole + 2
_NOT_FOUND = "No run has these words. Clear the search to see all of them."
_USUAL = QAbstractItemView.SelectionMode.ExtendedSelection
_CHOOSING = QAbstractItemView.SelectionMode.MultiSelection  # a plain click adds
_TIP = "Arrow keys choose a run; Ctrl+click, or Shift with an arrow, lays a second one over it; Del deletes"


class RunList(QFrame):
    """Shows a model that gives the id of each row as its ID role; at most two rows are chosen.

    Attributes:
        chosen: ids of the chosen runs, the one that was chosen first comes first.

    Signals:
        chosen_changed: other runs are chosen, by hand.
        searched(str): other words are looked for.
        order_chosen(str): the list is to be sorted by this key.
        delete_wanted: the chosen runs are to be deleted.
    """

    ID = _ID
    chosen_changed = Signal()
    searched = Signal(str)
    order_chosen = Signal(str)
    delete_wanted = Signal()

    def __init__(
        self,
        model: QAbstractItemModel,
        delegate: QAbstractItemDelegate,
        orders: Mapping[str, str],
        parent: QWidget | None = None,
    ) -> None:
        """Show a model; `orders` are the ways to sort it, key -> label."""
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setAccessibleName("Recorded runs")
        self.chosen: tuple[str, ...] = ()
        self._model = model
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search runs")
        self.search.setAccessibleName("Search runs")
        self.search.setToolTip("Show only the runs with these words: profile, engine, outcome or date (Ctrl+F)")
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self.searched)
        self.order = QComboBox()
        self.order.setAccessibleName("Order of the runs")
        self.order.setToolTip("What the runs are sorted by")
        for key, label in orders.items():
            self.order.addItem(label, key)
        self.order.currentIndexChanged.connect(self._on_order)
        self.view = QListView()
        self.view.setAccessibleName("List of recorded runs")
        self.view.setToolTip(_TIP)
        self.view.setModel(model)
        self.view.setItemDelegate(delegate)
        delegate.setParent(self.view)
        self.view.setMouseTracking(True)
        self.view.setStyleSheet("QListView:focus { border: none; }")  # the rows show the focus themselves
        self.view.setSelectionMode(_USUAL)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.view.setUniformItemSizes(True)
        self.view.selectionModel().selectionChanged.connect(self._on_selection)
        model.modelReset.connect(self._show_chosen)
        self.empty = QLabel()
        self.hint = QLabel()
        self.hint.setAccessibleName("Hint")
        self._note = QLabel()
        self._note.setAccessibleName("Recording")
        self._note.hide()
        for words, role in ((self.empty, "muted"), (self.hint, "note"), (self._note, "warn-note")):
            words.setProperty("role", role)
            words.setWordWrap(True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.empty.hide()
        self.compare = QPushButton("Compare")
        self.compare.setCheckable(True)
        self.compare.setProperty("kind", "snug")
        self.compare.setAccessibleName("Compare with a second run")
        self.compare.setToolTip("Choose a second run to lay over this one, or take it away again")
        self.compare.toggled.connect(self._on_compare)
        self.delete = QPushButton("Delete")
        self.delete.setProperty("kind", "snug")
        self.delete.setAccessibleName("Delete the chosen runs")
        self.delete.clicked.connect(self.delete_wanted)
        buttons = QHBoxLayout()
        buttons.setSpacing(6)
        buttons.addWidget(self.compare, 1)
        buttons.addWidget(self.delete, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 12, 12)
        layout.setSpacing(8)
        for widget in (self.search, self.order, self.view, self.empty, self.hint, self._note):
            layout.addWidget(widget, 1 if widget in (self.view, self.empty) else 0)
        layout.addLayout(buttons)
        delete = QShortcut(QKeySequence(Qt.Key.Key_Delete), self.view)
        delete.setContext(Qt.ShortcutContext.WidgetShortcut)
        delete.activated.connect(self._on_delete_key)
        theme.changed.connect(self._paint)
        self._paint()
        self._show_state()

    def choose(self, run_ids: Sequence[str]) -> None:
        """Show these runs as the chosen ones; says nothing to anybody."""
        self.chosen = tuple(run_ids)[:MOST]
        self._show_chosen()
        self._show_state()

    def show_note(self, words: str) -> None:
        """Say something about the recording itself, "" for nothing."""
        self._note.setText(words)
        self._note.setVisible(bool(words))

    def allow_delete(self, allowed: bool, why: str) -> None:
        """Say whether the chosen runs can be deleted, and if not, why."""
        self.delete.setEnabled(allowed)
        self.delete.setToolTip("Delete the chosen runs for good (Del)" if allowed else why)

    def _show_chosen(self) -> None:
        """Select the rows of the chosen runs; a search may hide some."""
        nothing = self._model.rowCount() == 0
        self.view.setVisible(not nothing)
        self.empty.setVisible(nothing)  # without words it only takes the room of the list
        self.empty.setText(_NOT_FOUND if self.search.text() else "")
        selection = self.view.selectionModel()
        flag = QItemSelectionModel.SelectionFlag
        with QSignalBlocker(selection):
            current = selection.currentIndex()
            selection.clearSelection()
            for run_id in self.chosen:
                if (index := self._index(run_id)).isValid():
                    selection.select(index, flag.Select)
            if not current.isValid() and self.chosen:
                selection.setCurrentIndex(self._index(self.chosen[0]), flag.NoUpdate)
        self.view.viewport().update()

    def _index(self, run_id: str) -> QModelIndex:
        first = self._model.index(0, 0)
        found = self._model.match(first, _ID, run_id, 1, Qt.MatchFlag.MatchExactly)
        return found[0] if found else QModelIndex()

    def _on_selection(self) -> None:
        selected = [str(index.data(_ID)) for index in self.view.selectionModel().selectedIndexes()]
        kept = [run_id for run_id in self.chosen if run_id in selected]
        added = [run_id for run_id in selected if run_id not in kept]
        current = str(self.view.currentIndex().data(_ID))
        added.sort(key=lambda run_id: run_id == current)  # of many at once, the one at the cursor stays
        chosen = (kept + added)[:1] + (kept + added)[1:][-1:]
        if len(selected) > MOST:
            self.chosen = tuple(chosen)
            self._show_chosen()
        if tuple(chosen) != self.chosen or len(selected) > MOST:
            self.chosen = tuple(chosen)
            self._show_state()
            self.chosen_changed.emit()

    def _on_compare(self, wanted: bool) -> None:
        if wanted:
            self.view.setSelectionMode(_CHOOSING)
            self.view.setFocus()
            self._show_state()
        else:
            self.view.setSelectionMode(_USUAL)
            self.choose(self.chosen[:1])
            self.chosen_changed.emit()

    def _show_state(self) -> None:
        """Bring button and hint up to date; the next click adds a run only until there are two."""
        choosing = self.view.selectionMode() is _CHOOSING and len(self.chosen) == 1
        if not choosing:
            self.view.setSelectionMode(_USUAL)
        with QSignalBlocker(self.compare):
            self.compare.setChecked(choosing or len(self.chosen) == MOST)
        self.compare.setEnabled(bool(self.chosen))
        self.hint.setText("Choose the run to lay over this one." if choosing else "")
        self.hint.setVisible(choosing)
        self._paint()

    def _on_order(self) -> None:
        self.order_chosen.emit(str(self.order.currentData()))

    def _on_delete_key(self) -> None:
        if self.delete.isEnabled():
            self.delete_wanted.emit()

    def _paint(self) -> None:
        colour = theme.tokens.accent if self.compare.isChecked() else theme.tokens.text
        self.compare.setIcon(icon("compare", colour, size_px=16))
        self.delete.setIcon(icon("trash", size_px=16))
        self.view.viewport().update()
