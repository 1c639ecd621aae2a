"""Paints one row of the list of recorded runs: profile, how it ended and when, and how fast it was."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from backend.events import PastRun
from gui.qt_models.past_runs import LETTER, RUN, duration_s
from gui.theme import NOTE_PX, mix, symbol, text_font, theme
from gui.widgets import past_run_words

_ROW_PX = 66
_SIDE_PX = 10
_LINE_PX = 18
_MARK_PX = 13
_LETTER_PX = 18
_RIGHT = Qt.TextElideMode.ElideRight


class PastRunDelegate(QStyledItemDelegate):
    """Three lines; a symbol, a word and a colour say how the run ended."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Paint a row."""
        run = index.data(RUN)
        assert isinstance(run, PastRun)
        tokens = theme.tokens
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        box = rect.adjusted(1, 1, -1, -1)
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        focused = bool(state & QStyle.StateFlag.State_HasFocus)
        if chosen or focused or state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(QColor(tokens.accent) if focused else Qt.PenStyle.NoPen)
            painter.setBrush(QColor(mix(tokens.surface, tokens.accent, 0.18) if chosen else tokens.raised))
            painter.drawRoundedRect(box, 6, 6)
        line = QRect(box.left() + _SIDE_PX, box.top() + 5, box.width() - 2 * _SIDE_PX, _LINE_PX)
        letter = str(index.data(LETTER) or "")
        if letter:
            self._paint_letter(painter, QRect(line.right() - _LETTER_PX + 1, line.top(), _LETTER_PX, _LINE_PX), letter)
        title = line.adjusted(0, 0, -_LETTER_PX - 6 if letter else 0, 0)
        self._paint_words(painter, title, run.title or run.profile, tokens.text, bold=True)
        line.translate(0, _LINE_PX)
        name, colour = self._mark(run)
        painter.drawPixmap(line.left(), line.center().y() - _MARK_PX // 2, symbol(name, colour, size_px=_MARK_PX))
        outcome = line.adjusted(_MARK_PX + 4, 0, 0, 0)
        when = past_run_words.when(run)
        used = self._paint_words(painter, outcome, run.outcome, colour, most=outcome.width() - self._width(when) - 10)
        self._paint_words(painter, outcome.adjusted(used + 8, 0, 0, 0), when, tokens.muted)
        line.translate(0, _LINE_PX)
        said = past_run_words.figures_and_length(run, duration_s(run))
        fitting = next((words for words in said if self._width(words) <= line.width()), said[-1])
        self._paint_words(painter, line, fitting, tokens.text if run.tokens_per_s else tokens.muted)
        painter.restore()

    @staticmethod
    def _mark(run: PastRun) -> tuple[str, str]:
        if run.failed:
            return "error", theme.tokens.bad
        return ("start", theme.tokens.ok) if run.ended_at is None else ("stop", theme.tokens.muted)

    @staticmethod
    def _width(words: str) -> int:
        return QFontMetrics(text_font(NOTE_PX)).horizontalAdvance(words)

    @staticmethod
    def _paint_words(
        painter: QPainter, rect: QRect, words: str, colour: str, *, bold: bool = False, most: int | None = None
    ) -> int:
        """Paint what fits; return how wide it is."""
        font = text_font(bold=True) if bold else text_font(NOTE_PX)
        metrics = QFontMetrics(font)
        shown = metrics.elidedText(words, _RIGHT, max(rect.width() if most is None else min(most, rect.width()), 0))
        painter.setFont(font)
        painter.setPen(QColor(colour))
        painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, shown)
        return metrics.horizontalAdvance(shown)

    @staticmethod
    def _paint_letter(painter: QPainter, rect: QRect, letter: str) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(theme.tokens.accent))
        painter.drawRoundedRect(rect, 4, 4)
        painter.setFont(text_font(NOTE_PX, bold=True))
        painter.setPen(QColor(theme.tokens.on_accent))
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, letter)

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        """Return the height of a row; the width is the list's."""
        return QSize(0, _ROW_PX)
