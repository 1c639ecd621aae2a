"""Paints one line of a log: number, level, text and what was looked for in it."""

import re

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from gui.qt_models.line_filter import LineFilter
from gui.qt_models.log_lines import LogLines
from gui.theme import code_font, mix, theme

_Index = QModelIndex | QPersistentModelIndex
_PAD = 8
_MARK_COLUMNS = 4  # two blanks, the letter, a blank
_MARKS = {"ERROR": "E", "WARNING": "W", "DEBUG": "D"}
# What stands before the message: process, level, time and place; only painted in another tone.
_PREFIX = re.compile(
    r"(?:\([\w. :-]+ pid=\d+\) )?"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.]+ (?:\[[^\]]+\] ?)?|INFO: +[\d.]+:\d+ - )?"
)


class LineDelegate(QStyledItemDelegate):
    """Paints one line: its number, a letter for its level, the text with what was looked for.

    Every line that is seen is painted anew with every batch, so texts are placed by counting characters wherever
    they are plain; measuring them takes longer than painting them.

    Attributes:
        filter: whose matches are highlighted.
        digits: how many the highest number has.
        first: how many characters of every line are left out at its beginning, since others are looked at.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.filter = LineFilter()
        self.digits = 4
        self.first = 0
        self._font = code_font()
        self._font.setStyleStrategy(QFont.StyleStrategy.PreferNoShaping)  # no ligatures in a log, and much quicker
        self._scale = 0.0
        self._measure(parent)
        self._take_colours()
        theme.changed.connect(self._take_colours)

    def _measure(self, widget: QWidget) -> None:
        self._scale = widget.devicePixelRatioF()
        self._metrics = QFontMetricsF(self._font, widget)
        self._char = max(self._metrics.horizontalAdvance("0" * 100) / 100, 1.0)

    def _take_colours(self) -> None:
        tokens = theme.tokens
        self._colours = {
            "ERROR": QColor(tokens.bad),
            "WARNING": QColor(tokens.warn),
            "DEBUG": QColor(tokens.muted),
            "INFO": QColor(tokens.text),
            "": QColor(tokens.text),
        }
        self._muted = QColor(tokens.muted)
        self._chosen = QColor(mix(tokens.surface, tokens.accent, 0.22))
        self._error = QColor(mix(tokens.surface, tokens.bad, 0.07))
        self._match = QColor(mix(tokens.surface, tokens.warn, 0.28))

    @property
    def row_height(self) -> int:
        """Height of every row in pixels."""
        return round(self._metrics.height()) + 4

    def n_fitting(self, width: int) -> int:
        """Return how many characters of a line there is room for in a row of this width."""
        return max(int((width - 2 * _PAD) / self._char) - self.digits - _MARK_COLUMNS, 1)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        """Paint a line; what does not fit is cut with an ellipsis."""
        model = index.model()
        assert isinstance(model, LogLines)
        line = model.line(index.row())
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        view = self.parent()
        if isinstance(view, QWidget) and view.devicePixelRatioF() != self._scale:  # moved to another screen
            self._measure(view)
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, self._chosen)
        elif line.level == "ERROR":
            painter.fillRect(rect, self._error)
        painter.setFont(self._font)
        left = rect.left() + _PAD
        base = rect.top() + 2 + self._metrics.ascent()
        x = left + (self.digits + _MARK_COLUMNS) * self._char
        first = self.first
        n_seen = first + self.n_fitting(rect.width())
        whole = line.text if len(line.text) <= n_seen else line.text[: n_seen - 1] + "…"
        shown = self._fitting(whole[first:], rect.right() - _PAD - x)
        n_left = first if whole[:first].isascii() else len(whole[:first].encode("utf-16-le")) // 2
        for start, end in self.filter.spans(whole):
            if end <= n_left:
                continue
            begin = x + self._wide(shown, max(start - n_left, 0))
            width = x + self._wide(shown, end - n_left) - begin
            painter.fillRect(QRectF(begin, rect.top() + 1, width, rect.height() - 2), self._match)
        prefix = _PREFIX.match(whole)
        n_prefix = max(prefix.end() - first, 0) if prefix else 0
        painter.setPen(self._muted)
        number = str(line.number).rjust(self.digits)
        if line.text.isascii():
            painter.drawText(QPointF(left, base), f"{number}    {shown[:n_prefix]}")
        else:  # the prefix may hold anything
            painter.drawText(QPointF(left, base), number)
            painter.drawText(QPointF(x, base), shown[:n_prefix])
        painter.setPen(self._colours[line.level])
        if mark := _MARKS.get(line.level):
            painter.drawText(QPointF(left + (self.digits + 2) * self._char, base), mark)
        painter.drawText(QPointF(x + self._wide(shown, n_prefix), base), shown[n_prefix:])

    def _fitting(self, text: str, width: float) -> str:
        if text.isascii() or text[:-1].isascii():  # cut by counting
            return text
        return self._metrics.elidedText(text, Qt.TextElideMode.ElideRight, width)

    def _wide(self, text: str, n_units: int) -> float:
        """How wide the first `n_units` UTF-16 units are."""
        if text[:n_units].isascii():
            return n_units * self._char
        return self._metrics.horizontalAdvance(text, min(n_units, len(text.encode("utf-16-le")) // 2))
