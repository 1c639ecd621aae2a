"""What holds the engine back, in a line under the figure of a card."""

import re

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from backend.events import Bound, Verdict
from gui.theme import NOTE_PX, mix, text_font, theme
from gui.widgets.card_parts import PaintedText

_PILL_TONES = {Bound.BANDWIDTH: "ok", Bound.HOST: "warn", Bound.COMPUTE: "accent"}


class VerdictLine(PaintedText):
    """A word on a coloured ground; beside it, as far as there is room, what it rests on."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.verdict: Verdict | None = None
        self._bold, self._font = text_font(NOTE_PX, bold=True), text_font(NOTE_PX)
        self.hide()

    def show_verdict(self, verdict: Verdict | None) -> None:
        """Show a verdict, or nothing."""
        if verdict == self.verdict:
            return
        self.verdict = verdict
        self.setVisible(verdict is not None)
        if verdict is not None:
            self._tell(": ".join(filter(None, (verdict.bound.value, verdict.words))))
            self.update()

    def sizeHint(self) -> QSize:
        """One line."""
        return QSize(120, QFontMetrics(self._font).height() + 8)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the word and the words behind it."""
        painter = self.painter()
        if self.verdict is None:
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tokens = theme.tokens
        bold = QFontMetrics(self._bold)
        left = 0
        if bound := self.verdict.bound.value:
            colour = getattr(tokens, _PILL_TONES[self.verdict.bound])
            pill = QRectF(0, 2, bold.horizontalAdvance(bound) + 16, self.height() - 4)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(mix(tokens.surface, colour, 0.12)))
            painter.drawRoundedRect(pill, pill.height() / 2, pill.height() / 2)
            painter.setPen(QColor(colour))
            painter.setFont(self._bold)
            painter.drawText(pill, Qt.AlignmentFlag.AlignCenter, bound)
            left = round(pill.right()) + 8
        room = QRect(left, 0, max(self.width() - left, 0), self.height())
        painter.setPen(QColor(tokens.muted))
        painter.setFont(self._font)
        painter.drawText(room, Qt.AlignmentFlag.AlignVCenter, self.fitting(room.width()))

    def fitting(self, width: int) -> str:
        """Return the words that fit: all, or the figures without what they mean, then without their source."""
        if self.verdict is None:
            return ""
        words = self.verdict.words
        figures = re.split(r":|(?<=\.) ", words, maxsplit=1)[0]
        metrics = QFontMetrics(self._font)
        for shorter in (words, figures, re.sub(r" \(.*?\)", "", figures)):
            if metrics.horizontalAdvance(shorter) <= width:
                return shorter
        return metrics.elidedText(shorter, Qt.TextElideMode.ElideRight, width)
