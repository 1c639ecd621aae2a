"""The list of log lines: painted quickly, follows the end until a person looks at something else."""

from PySide6.QtCore import QItemSelectionModel, QModelIndex, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QMouseEvent, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QFrame, QHeaderView, QScrollBar, QTableView, QWidget

from gui.qt_models.line_delegate import LineDelegate
from gui.qt_models.line_filter import LineFilter
from gui.qt_models.log_lines import LogLines
from gui.theme import theme


class LogView(QTableView):
    """A list of lines with rows of one height.

    A table, since a list view lays out every row anew with every batch: 140 ms for 50,000 rows against 5 ms here.
    Long lines are not laid out either: a scroll bar of its own says from which character on they are painted, so that
    numbers and letters at their left stay in sight.

    Attributes:
        sideways: that scroll bar, in characters; `LogFrame` gives it its place.

    Signals:
        following_changed(bool): the newest line is kept in sight, or no longer.
        copy_wanted: Ctrl+C was pressed.
        current_changed: another line is the current one, or none, or others are selected.
    """

    following_changed = Signal(bool)
    copy_wanted = Signal()
    current_changed = Signal()

    def __init__(self, lines: LogLines, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._lines = lines
        self._following = True
        self._top = 0
        self.delegate = LineDelegate(self)
        self.setItemDelegate(self.delegate)
        self.setModel(lines)
        self.setAccessibleName("Lines of the log")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setCornerButtonEnabled(False)
        for corner in self.findChildren(QAbstractButton):  # Qt's own, never seen without headers
            corner.setAccessibleName("Select all lines")
            corner.setToolTip("Select all lines")
            corner.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setTabKeyNavigation(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerItem)
        self.horizontalHeader().hide()
        self.horizontalHeader().setStretchLastSection(True)
        rows = self.verticalHeader()
        rows.hide()
        rows.setMinimumSectionSize(self.delegate.row_height)
        rows.setDefaultSectionSize(self.delegate.row_height)
        rows.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalScrollBar().actionTriggered.connect(self._on_scrolled)
        self.sideways = QScrollBar(Qt.Orientation.Horizontal, self)
        self.sideways.setAccessibleName("Scroll sideways")
        self.sideways.setToolTip("See the end of long lines (Left and Right, with Ctrl to the ends)")
        self.sideways.setSingleStep(_STEP_CHARACTERS)
        self._turned = 0.0
        self.sideways.hide()
        self.sideways.valueChanged.connect(self._on_sideways)
        lines.rowsInserted.connect(self._on_inserted)
        lines.dataChanged.connect(self._fit_sideways)
        lines.rowsAboutToBeRemoved.connect(self._on_about_to_remove)
        lines.rowsRemoved.connect(self._on_removed)
        lines.modelReset.connect(self._on_reset)
        self.selectionModel().selectionChanged.connect(self.current_changed)
        theme.changed.connect(self.viewport().update)

    # ---- following -------------------------------------------------------------------------------------------

    @property
    def following(self) -> bool:
        """Whether the newest line is kept in sight."""
        return self._following

    def set_following(self, following: bool) -> None:
        """Keep the newest line in sight, or stay where one is."""
        if following:
            self.scrollToBottom()
        if following != self._following:
            self._following = following
            self.following_changed.emit(following)

    def _on_scrolled(self) -> None:
        """A person moved the scroll bar, by mouse, wheel or key; at the end they want to see what comes."""
        bar = self.verticalScrollBar()
        self.set_following(bar.sliderPosition() >= bar.maximum())

    def _on_inserted(self) -> None:
        digits = max(len(str(self._lines.last_number)), 4)
        if digits != self.delegate.digits:
            self.delegate.digits = digits
            self.viewport().update()
        self._fit_sideways()
        if self._following:
            self.scrollToBottom()

    def _on_about_to_remove(self, _parent: QModelIndex, first: int, last: int) -> None:
        self._top = self.verticalScrollBar().value() - (last - first + 1 if first == 0 else 0)

    def _on_removed(self) -> None:
        if not self._following:  # what is read stays where it is
            self.verticalScrollBar().setValue(max(self._top, 0))

    def _on_reset(self) -> None:
        self._fit_sideways()
        self.current_changed.emit()

    # ---- sideways --------------------------------------------------------------------------------------------

    def _fit_sideways(self) -> None:
        """Let the bar reach to the end of the longest line."""
        n_seen = self.delegate.n_fitting(self.viewport().width())
        last = max(self._lines.longest - n_seen, 0)
        if (last, n_seen) != (self.sideways.maximum(), self.sideways.pageStep()):
            self.sideways.setPageStep(n_seen)
            self.sideways.setRange(0, last)

    def _on_sideways(self, first: int) -> None:
        self.delegate.first = first
        self.viewport().update()

    # ---- lines -----------------------------------------------------------------------------------------------

    def show_row(self, row: int) -> None:
        """Select a line and bring it to the middle; following ends."""
        self.set_following(False)
        index = self._lines.index(row)
        flags = QItemSelectionModel.SelectionFlag
        self.selectionModel().setCurrentIndex(index, flags.ClearAndSelect | flags.Rows)
        self.scrollTo(index, QAbstractItemView.ScrollHint.PositionAtCenter)

    def selected_rows(self) -> list[int]:
        """Return the selected rows in order."""
        return sorted(index.row() for index in self.selectionModel().selectedRows())

    def show_matches(self, wanted: LineFilter) -> None:
        """Highlight what a filter looks for."""
        self.delegate.filter = wanted
        self.viewport().update()

    def middle_number(self) -> int | None:
        """Return the number of the line in the middle of what is seen, None without lines."""
        row = self.rowAt(self.viewport().height() // 2)
        if row < 0:
            row = self._lines.rowCount() - 1
        return self._lines.line(row).number if row >= 0 else None

    # ---- events ----------------------------------------------------------------------------------------------

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Let End follow again, Ctrl+C copy, and every other step away from the end pause."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_wanted.emit()
            return
        if event.key() == Qt.Key.Key_End and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.clearSelection()
            self.set_following(True)
            return
        if event.key() in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            to_end = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
            step = self.sideways.maximum() if to_end else _STEP_CHARACTERS
            self.sideways.setValue(self.sideways.value() + (step if event.key() == Qt.Key.Key_Right else -step))
            return
        if event.key() in _STEPS and self._following:
            self._begin_at_the_end()
            self.set_following(False)
        if event.key() == Qt.Key.Key_Home and self._lines.rowCount():
            self.setCurrentIndex(self._lines.index(0))  # a table would go to the first column
            self.scrollToTop()
            return
        super().keyPressEvent(event)

    def _begin_at_the_end(self) -> None:
        """Steps by keys go out from the newest line, which is what one has seen."""
        if not self.selected_rows() and self._lines.rowCount():
            self.setCurrentIndex(self._lines.index(self._lines.rowCount() - 1))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Let the lines stand still while one is looked at."""
        if self.indexAt(event.position().toPoint()).isValid():
            self.set_following(False)
        super().mousePressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the newest line in sight."""
        super().resizeEvent(event)
        self._fit_sideways()
        if self._following:
            self.scrollToBottom()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll sideways with a wheel that turns so, or with Shift."""
        across, down = event.angleDelta().x(), event.angleDelta().y()
        is_shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        if not is_shift and abs(across) <= abs(down):
            super().wheelEvent(event)
            return
        self._turned += (across or down) * _STEP_CHARACTERS / _NOTCH  # a touchpad tells less than a character at once
        whole = int(self._turned)
        self._turned -= whole
        self.sideways.setValue(self.sideways.value() - whole)
        event.accept()


class LogFrame(QWidget):
    """Gives the list room for whole rows only, with the scroll bar for long lines below when there are any."""

    def __init__(self, view: LogView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._view = view
        view.setParent(self)
        view.sideways.setParent(self)
        view.sideways.rangeChanged.connect(self._place)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Place both."""
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        view, bar = self._view, self._view.sideways
        bar_px = bar.sizeHint().height() if bar.maximum() > 0 else 0
        frame_px = 2 * view.frameWidth()
        row_px = view.delegate.row_height
        n_rows = max((self.height() - bar_px - frame_px) // row_px, 1)
        view.setGeometry(0, 0, self.width(), n_rows * row_px + frame_px)
        bar.setGeometry(0, self.height() - bar_px, self.width(), bar_px)
        bar.setVisible(bar_px > 0)


_STEP_CHARACTERS = 8
_NOTCH = 120  # what a wheel tells for one notch
_STEPS = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown, Qt.Key.Key_Home)
