"""The column with the list of profiles: search, the list, and what can be done with the chosen one."""

from PySide6.QtCore import QAbstractItemModel, QModelIndex, QSignalBlocker, Qt, Signal, SignalInstance
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QFrame,
    QGridLayout,
    QLabel,
    QLineEdit,
    QListView,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from gui.theme import icon, theme

_NAME = Qt.ItemDataRole.UserRole
_BUTTONS = (
    ("new", "New", "plus", "Make a new profile (Ctrl+N)"),
    ("duplicate", "Duplicate", "duplicate", "Copy this profile to one of your own (Ctrl+D)"),
    ("rename", "Rename", "rename", "Give this profile another name (F2)"),
    ("delete", "Delete", "trash", "Delete this profile; it can be undone (Del)"),
)


class ProfileSidebar(QFrame):
    """Shows a model of profiles that gives each one's name as its user role.

    Signals:
        searched(str): other words are looked for.
        chosen(str): another profile was chosen by hand.
        new_wanted, duplicate_wanted, rename_wanted, delete_wanted: a button or a key was pressed.
    """

    searched = Signal(str)
    chosen = Signal(str)
    new_wanted = Signal()
    duplicate_wanted = Signal()
    rename_wanted = Signal()
    delete_wanted = Signal()

    def __init__(
        self, model: QAbstractItemModel, delegate: QAbstractItemDelegate, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setAccessibleName("Profiles")
        self._model = model
        self._current = ""
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search profiles")
        self.search.setAccessibleName("Search profiles")
        self.search.setToolTip("Show only the profiles with these words")
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self.searched)
        self.view = QListView()
        self.view.setAccessibleName("List of profiles")
        self.view.setToolTip("Arrow keys choose; F2 renames, Del deletes")
        self.view.setModel(model)
        self.view.setItemDelegate(delegate)
        delegate.setParent(self.view)
        self.view.setMouseTracking(True)
        self.view.setStyleSheet("QListView:focus { border: none; }")  # the chosen row shows the focus itself
        self.view.setUniformItemSizes(False)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.view.selectionModel().currentChanged.connect(self._on_current)
        model.modelReset.connect(self._on_reset)
        self.empty = QLabel("No profile has these words. Clear the search to see all of them.")
        self.empty.setProperty("role", "muted")
        self.empty.setWordWrap(True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.empty.hide()
        self.buttons: dict[str, QPushButton] = {}
        grid = QGridLayout()
        grid.setHorizontalSpacing(6)
        grid.setVerticalSpacing(8)
        for number, (key, text, _symbol, tip) in enumerate(_BUTTONS):
            button = QPushButton(text)
            button.setProperty("kind", "snug")  # word and symbol fit in a narrow column too
            button.setAccessibleName(f"{text} profile")
            button.setToolTip(tip)
            grid.addWidget(button, number // 2, number % 2)
            self.buttons[key] = button
        wanted = (self.new_wanted, self.duplicate_wanted, self.rename_wanted, self.delete_wanted)
        for button, signal in zip(self.buttons.values(), wanted, strict=True):
            button.clicked.connect(signal)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 12, 12)
        layout.setSpacing(8)
        for widget in (self.search, self.view, self.empty):
            layout.addWidget(widget, 1 if widget in (self.view, self.empty) else 0)
        layout.addLayout(grid)
        self._key(Qt.Key.Key_F2, self.rename_wanted)
        self._key(Qt.Key.Key_Delete, self.delete_wanted)
        theme.changed.connect(self._paint)
        self._paint()

    def _key(self, key: Qt.Key, wanted: SignalInstance) -> None:
        shortcut = QShortcut(QKeySequence(key), self.view)
        shortcut.setContext(Qt.ShortcutContext.WidgetShortcut)
        shortcut.activated.connect(wanted)

    def choose(self, name: str) -> None:
        """Show a profile as the chosen one; says nothing to anybody."""
        self._current = name
        first = self._model.index(0, 0)
        found = self._model.match(first, _NAME, name, 1, Qt.MatchFlag.MatchExactly) if name else []
        index = found[0] if found else QModelIndex()
        with QSignalBlocker(self.view.selectionModel()):
            self.view.setCurrentIndex(index)
        if index.isValid():
            self.view.scrollTo(index)
        self.view.viewport().update()

    def allow(self, *, duplicate: bool, change: bool, why: str) -> None:
        """Say what can be done with the chosen profile; `why` tells why it cannot be changed."""
        self.buttons["duplicate"].setEnabled(duplicate)
        for key, _text, _symbol, tip in _BUTTONS[2:]:
            self.buttons[key].setEnabled(change)
            self.buttons[key].setToolTip(tip if change else why)

    def _on_reset(self) -> None:
        nothing = self._model.rowCount() == 0
        self.view.setVisible(not nothing)
        self.empty.setVisible(nothing and bool(self.search.text()))
        self.choose(self._current)

    def _on_current(self, index: QModelIndex) -> None:
        name = index.data(_NAME)
        if name and name != self._current:
            self._current = name
            self.chosen.emit(name)

    def _paint(self) -> None:
        for key, _text, symbol, _tip in _BUTTONS:
            self.buttons[key].setIcon(icon(symbol, size_px=16))
        self.view.viewport().update()
