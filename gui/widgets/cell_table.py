"""A quiet table of figures: rows of text in tones, a bar where a cell has one, columns that share the width."""

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from gui.theme import NOTE_PX, mix, text_font, theme
from gui.widgets.cell_rows import CELL, KEY, Cell, CellRows, Column, Row
from gui.widgets.memory_bar import Shares, paint_bar

ROW_PX = 22
HEADER_PX = 24
_FONT_PX = 12
_PAD = 8
_BAR_SHARE = 0.52
_BAR_HEIGHT = 9


class CellDelegate(QStyledItemDelegate):
    """Paints a cell: its text in its tone, and its bar before the text."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._font = text_font(_FONT_PX)
        self._text = QFontMetrics(self._font)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Paint one cell."""
        tokens = theme.tokens
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, QColor(mix(tokens.surface, tokens.accent, 0.18)))
        cell = index.data(CELL)
        if not isinstance(cell, Cell):
            return
        area = rect.adjusted(_PAD, 0, -_PAD, 0)
        if isinstance(cell.picture, Shares):
            bar = QRect(
                area.left(), area.center().y() - _BAR_HEIGHT // 2, round(area.width() * _BAR_SHARE), _BAR_HEIGHT
            )
            paint_bar(painter, bar, cell.picture)
            area.setLeft(bar.right() + _PAD)
        painter.setFont(self._font)
        painter.setPen(QColor(getattr(tokens, cell.tone) if cell.tone else tokens.text))
        words = self._text.elidedText(cell.text, Qt.TextElideMode.ElideRight, area.width())
        painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, words)

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        """Return the height of a row."""
        return QSize(0, ROW_PX)


class CellTable(QTableView):
    """Shows rows; the columns share the width by their weights, the dispensable ones give way where it is narrow.

    Attributes:
        chosen_key: the key of the row that is selected, "" for none.

    Signals:
        chosen(str): the key of the row that is selected now; "" for none.
    """

    chosen = Signal(str)

    def __init__(
        self,
        name: str,
        columns: Sequence[tuple[Column, int]],
        parent: QWidget | None = None,
        *,
        dispensable: Sequence[int] = (),
        selectable: bool = False,
    ) -> None:
        """Make a table without rows.

        Args:
            name: what assistive technology calls it.
            columns: each with its least width in pixels, by which it also takes part in what is left.
            parent: the owner.
            dispensable: columns that are hidden where not all have their least width, the first one first.
            selectable: whether a row can be chosen.
        """
        super().__init__(parent)
        self.rows = CellRows([column for column, _ in columns], self)
        self._widths = tuple(width for _, width in columns)
        self._dispensable = tuple(dispensable)
        self.chosen_key = ""
        self.setAccessibleName(name)
        self.setProperty("role", "cells")
        self.setModel(self.rows)
        self.setItemDelegate(CellDelegate(self))
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        mode = QAbstractItemView.SelectionMode
        self.setSelectionMode(mode.SingleSelection if selectable else mode.NoSelection)
        side = self.verticalHeader()
        side.hide()
        side.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        side.setMinimumSectionSize(ROW_PX)
        side.setDefaultSectionSize(ROW_PX)
        header = self.horizontalHeader()
        header.setFont(text_font(NOTE_PX))
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setMinimumSectionSize(0)
        header.setFixedHeight(HEADER_PX)
        header.setHighlightSections(False)
        header.setSectionsClickable(False)
        self.selectionModel().selectionChanged.connect(self._on_selection_changed)
        theme.changed.connect(self.viewport().update)

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows; a selected one stays so while it is there."""
        key = self.chosen_key
        if self.rows.set_rows(rows) and key:
            self.chosen_key = ""
            self.choose(key)

    def choose(self, key: str) -> None:
        """Select a row, if it is there."""
        row = self.rows.row_of(key)
        if row is not None:
            self.setCurrentIndex(self.rows.index(row, 0))
            self.selectRow(row)

    def height_for(self, n_rows: int) -> int:
        """Return how high it must be to show so many rows."""
        return HEADER_PX + n_rows * ROW_PX + 2 * self.frameWidth() + 2

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the width."""
        super().resizeEvent(event)
        room = self.viewport().width()
        hidden: set[int] = set()
        for column in self._dispensable:
            if sum(width for number, width in enumerate(self._widths) if number not in hidden) <= room:
                break
            hidden.add(column)
        total = sum(width for number, width in enumerate(self._widths) if number not in hidden)
        left = room
        shown = [number for number in range(len(self._widths)) if number not in hidden]
        for number in range(len(self._widths)):
            self.setColumnHidden(number, number in hidden)
        for number in shown:
            width = left if number == shown[-1] else round(self._widths[number] * room / total)
            self.setColumnWidth(number, width)
            left -= width

    def _on_selection_changed(self) -> None:
        indexes = self.selectionModel().selectedRows()
        self.chosen_key = str(indexes[0].data(KEY)) if indexes else ""
        self.chosen.emit(self.chosen_key)
