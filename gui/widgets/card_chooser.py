"""A small window under a button: which cards are shown, and in which order; by pointer and by keyboard."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from gui.theme import icon, theme

_KEY = Qt.ItemDataRole.UserRole
_ICON_PX = 14
_ROW_HEIGHT = 28
_LIST_WIDTH = 256


class CardChooser(QFrame):
    """A list with a mark for each card that is shown.

    Signals:
        chosen(list, list): order of all cards, and those to show; after each change.
    """

    chosen = Signal(list, list)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setProperty("bar", True)
        self.setAccessibleName("Cards")
        heading = QLabel("Cards", self)
        heading.setProperty("role", "title")
        hint = QLabel("Drag to reorder", self)
        hint.setProperty("role", "note")
        self.list = QListWidget(self)
        self.list.setAccessibleName("Cards in order; Space shows or hides one")
        self.list.setToolTip("Space shows or hides a card, Alt+Up and Alt+Down move it")
        self.list.setDragDropMode(QAbstractItemView.DragDropMode.InternalMove)
        self.list.setDefaultDropAction(Qt.DropAction.MoveAction)
        self.list.itemChanged.connect(self._on_changed)
        self.list.model().rowsMoved.connect(self._on_changed)
        self.list.currentRowChanged.connect(self._on_row_changed)
        self.list.installEventFilter(self)
        heading.setBuddy(self.list)
        self.up, self.down = QPushButton("Move up", self), QPushButton("Move down", self)
        self.up.clicked.connect(self._on_up)
        self.down.clicked.connect(self._on_down)
        top, buttons = QHBoxLayout(), QHBoxLayout()
        top.addWidget(heading)
        top.addStretch(1)
        top.addWidget(hint)
        for button, way in ((self.up, "up"), (self.down, "down")):
            button.setAccessibleName(f"Move the chosen card {way}")
            button.setToolTip(f"Move the chosen card {way} (Alt+{way.title()})")
            buttons.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 12, 12)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(self.list)
        layout.addLayout(buttons)
        theme.changed.connect(self._on_theme_changed)
        self._on_theme_changed()

    def open_below(self, button: QWidget, cards: Sequence[tuple[str, str, bool]]) -> None:
        """Show the choice under a button: (key, title, whether it is shown) for each card, in order."""
        self.fill(cards)
        self.list.setFixedHeight(_ROW_HEIGHT * self.list.count() + 8)
        self.list.setMinimumWidth(_LIST_WIDTH)
        self.adjustSize()
        self.move(button.mapToGlobal(QPoint(0, button.height() + 4)))
        self.show()
        self.list.setFocus()

    def fill(self, cards: Sequence[tuple[str, str, bool]]) -> None:
        """List the cards without telling anybody."""
        self.list.blockSignals(True)
        self.list.clear()
        for key, title, shown in cards:
            item = QListWidgetItem(title, self.list)
            item.setData(_KEY, key)
            item.setSizeHint(QSize(0, _ROW_HEIGHT))
            item.setFlags(
                Qt.ItemFlag.ItemIsEnabled
                | Qt.ItemFlag.ItemIsSelectable
                | Qt.ItemFlag.ItemIsUserCheckable
                | Qt.ItemFlag.ItemIsDragEnabled
            )
            item.setCheckState(Qt.CheckState.Checked if shown else Qt.CheckState.Unchecked)
        self.list.setCurrentRow(0)
        self.list.blockSignals(False)
        self._on_row_changed(0)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Alt with an arrow moves the chosen card; the list itself would only move its selection."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            steps = {int(Qt.Key.Key_Up): -1, int(Qt.Key.Key_Down): 1}
            if event.modifiers() & Qt.KeyboardModifier.AltModifier and event.key() in steps:
                self._move(steps[event.key()])
                return True
        return super().eventFilter(watched, event)

    def _move(self, by: int) -> None:
        row = self.list.currentRow()
        if not 0 <= row + by < self.list.count():
            return
        self.list.blockSignals(True)
        item = self.list.takeItem(row)
        self.list.insertItem(row + by, item)
        self.list.setCurrentRow(row + by)
        self.list.blockSignals(False)
        self._on_row_changed(row + by)
        self._on_changed()

    def _on_up(self) -> None:
        self._move(-1)

    def _on_down(self) -> None:
        self._move(1)

    def _on_row_changed(self, row: int) -> None:
        self.up.setEnabled(row > 0)
        self.down.setEnabled(0 <= row < self.list.count() - 1)

    def _on_changed(self) -> None:
        items = [self.list.item(row) for row in range(self.list.count())]
        shown = [item.data(_KEY) for item in items if item.checkState() is Qt.CheckState.Checked]
        self.chosen.emit([item.data(_KEY) for item in items], shown)

    def _on_theme_changed(self) -> None:
        self.up.setIcon(icon("up", size_px=_ICON_PX))
        self.down.setIcon(icon("down", size_px=_ICON_PX))
