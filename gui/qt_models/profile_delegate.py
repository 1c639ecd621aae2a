"""Paints one row of the list of profiles: title, a line of words, and how it stands."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from backend.desk.types import ProfileEntry
from gui.qt_models.profile_list import ENTRY, MARK, UNSAVED
from gui.theme import NOTE_PX, mix, symbol, text_font, theme

_ROW_PX = 48
_HEADING_PX = 30
_SIDE_PX = 12
_ELIDE = Qt.TextElideMode.ElideRight


class ProfileDelegate(QStyledItemDelegate):
    """Headings in small capitals, entries in two lines; colours and words say the same."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Paint a row."""
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect: QRect = option.rect
        entry = index.data(ENTRY)
        if isinstance(entry, ProfileEntry):
            self._paint_entry(painter, option, rect, index, entry)
        else:
            words = str(index.data())
            is_heading = words.isupper()
            painter.setFont(text_font(NOTE_PX, bold=is_heading))
            painter.setPen(QColor(theme.tokens.muted))
            left = 4 if is_heading else _SIDE_PX
            painter.drawText(rect.adjusted(left, 8 if is_heading else 0, -4, 0), Qt.AlignmentFlag.AlignVCenter, words)
        painter.restore()

    def _paint_entry(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        rect: QRect,
        index: QModelIndex | QPersistentModelIndex,
        entry: ProfileEntry,
    ) -> None:
        tokens = theme.tokens
        state: QStyle.StateFlag = option.state
        box = rect.adjusted(1, 1, -1, -1)
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        if chosen or state & QStyle.StateFlag.State_MouseOver:
            focused = chosen and bool(state & QStyle.StateFlag.State_HasFocus)
            painter.setPen(QColor(tokens.accent) if focused else Qt.PenStyle.NoPen)
            painter.setBrush(QColor(mix(tokens.surface, tokens.accent, 0.18) if chosen else tokens.raised))
            painter.drawRoundedRect(box, 6, 6)
        inner = box.adjusted(_SIDE_PX - 1, 5, 1 - _SIDE_PX, -5)
        top = QRect(inner.left(), inner.top(), inner.width(), inner.height() // 2)
        bottom = QRect(inner.left(), top.bottom(), inner.width(), inner.height() // 2)
        if entry.problem:
            painter.drawPixmap(inner.right() - 15, inner.center().y() - 8, symbol("error", tokens.bad, size_px=16))
            top.setRight(inner.right() - 20)
            bottom.setRight(inner.right() - 20)
        title_font = text_font(bold=True)
        painter.setFont(title_font)
        painter.setPen(QColor(tokens.text))
        title = QFontMetrics(title_font).elidedText(entry.title, Qt.TextElideMode.ElideMiddle, top.width())
        painter.drawText(top, Qt.AlignmentFlag.AlignVCenter, title)
        self._paint_words(painter, bottom, entry, str(index.data(MARK) or ""), unsaved=bool(index.data(UNSAVED)))

    @staticmethod
    def _paint_words(painter: QPainter, rect: QRect, entry: ProfileEntry, mark: str, *, unsaved: bool) -> None:
        """Paint "running · unsaved · n-gram, 4 tokens", with a dot before what matters."""
        tokens = theme.tokens
        font = text_font(NOTE_PX)
        metrics = QFontMetrics(font)
        painter.setFont(font)
        parts = [(mark, tokens.ok)] if mark else []
        parts += [("unsaved", tokens.warn)] if unsaved else []
        left = rect.left()
        for words, colour in parts:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colour))
            painter.drawEllipse(left, rect.center().y() - 2, 6, 6)
            painter.setPen(QColor(colour))
            left += 10
            painter.drawText(
                QRect(left, rect.top(), rect.right() - left, rect.height()), Qt.AlignmentFlag.AlignVCenter, words
            )
            left += metrics.horizontalAdvance(words) + 8
        rest = QRect(left, rect.top(), max(0, rect.right() - left), rect.height())
        painter.setPen(QColor(tokens.bad if entry.problem else tokens.muted))
        painter.drawText(rest, Qt.AlignmentFlag.AlignVCenter, metrics.elidedText(entry.subtitle, _ELIDE, rest.width()))

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        """Return the height of a row; the width is the list's."""
        return QSize(0, _ROW_PX if isinstance(index.data(ENTRY), ProfileEntry) else _HEADING_PX)
