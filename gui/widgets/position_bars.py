"""A bar for each position of a draft: how often the guess there was accepted."""

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from gui.theme import NOTE_PX, text_font, theme
from gui.widgets import figures
from gui.widgets.card_parts import OnCard

POSITIONS_COLOUR = 2
"""Of the theme's series colours."""
_MARKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_LEFT = 44
_TOP = 10  # as in the other plots
_BOTTOM = 20
_WIDEST_BAR = 56


class PositionBars(OnCard):
    """Bars from 0 to 100 %, each with its figure on top and its position below; those of a second run are hollow."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.ratios: tuple[float | None, ...] = ()
        self.others: tuple[float | None, ...] = ()
        self._font = text_font(NOTE_PX)
        self.setMinimumSize(120, 80)
        self.setAccessibleName("Acceptance by position")

    def show_ratios(self, ratios: tuple[float | None, ...], others: tuple[float | None, ...] = ()) -> None:
        """Show these bars, 0..1 each, beside those of a second run; None has no bar."""
        if (ratios, others) != (self.ratios, self.others):
            self.ratios, self.others = ratios, others
            words = _words(ratios)
            if others:
                words = f"A: {words}. B: {_words(others)}"
            self.setAccessibleDescription(words)
            self.setToolTip(words)
            self.update()

    def sizeHint(self) -> QSize:
        """Take the room of a plot."""
        return QSize(240, 160)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint axis, bars and figures."""
        painter = self.painter()
        painter.setFont(self._font)
        tokens = theme.tokens
        text = QFontMetrics(self._font)
        plot = self.rect().adjusted(_LEFT, _TOP, -16, -_BOTTOM)
        painter.setPen(QColor(tokens.line))
        painter.drawPolyline([plot.topLeft(), plot.bottomLeft(), plot.bottomRight()])
        painter.setPen(QColor(tokens.muted))
        for mark in _MARKS:
            y = round(plot.bottom() - mark * plot.height())
            at = QRect(0, y - text.height() // 2, _LEFT - 6, text.height())
            painter.drawText(
                at,
                Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
                f"{mark * 100:.0f}{' %' if mark == _MARKS[-1] else ''}",
            )
        runs = [ratios for ratios in (self.ratios, self.others) if ratios]
        if not runs:
            return
        n_slots = max(len(ratios) for ratios in runs)
        slot = plot.width() / n_slots
        bar = max(min(slot * 0.62, _WIDEST_BAR) / len(runs), 1)
        # With many positions only as many figures as fit beside each other.
        share = text.horizontalAdvance("100 % ")
        every = max(1, -(-share // max(int(slot), 1)))
        has_room = len(runs) == 1 or bar >= share  # beside each other
        for number in range(n_slots):
            middle = plot.left() + (number + 0.5) * slot
            for place, ratios in enumerate(runs):
                at_x = middle + (place - (len(runs) - 1) / 2) * (bar + 2)
                ratio = ratios[number] if number < len(ratios) else None
                says = number % every == 0 and has_room
                self._paint_bar(painter, plot, at_x, bar, ratio, hollow=ratios is self.others, says=says)
            if number % every == 0:
                painter.setPen(QColor(tokens.muted))
                below = _centred(middle, plot.bottom() + 4, text)
                painter.drawText(below, Qt.AlignmentFlag.AlignCenter, str(number + 1))

    def _paint_bar(
        self,
        painter: QPainter,
        plot: QRect,
        middle: float,
        wide: float,
        ratio: float | None,
        *,
        hollow: bool,
        says: bool,
    ) -> None:
        tokens = theme.tokens
        text = QFontMetrics(self._font)
        if ratio is not None:
            high = round(ratio * plot.height())
            area = QRect(round(middle - wide / 2), plot.bottom() - high, round(wide), high)
            colour = QColor(tokens.series[POSITIONS_COLOUR])
            if hollow:
                painter.setPen(QPen(colour, 1, Qt.PenStyle.DashLine))
                painter.drawRect(area.adjusted(0, 0, -1, -1))
            else:
                painter.fillRect(area, colour)
        if not says:
            return
        at_y = plot.bottom() - round((ratio or 0) * plot.height()) - text.height() - 2
        share = figures.percent(ratio)
        # No room over a bar that reaches up to here: then in it, if it is wide enough.
        inside = at_y < 0 and wide >= text.horizontalAdvance(share)
        at_y = at_y + text.height() + 4 if inside else max(at_y, 0)
        painter.setPen(QColor(tokens.surface if inside and not hollow else tokens.text))
        painter.drawText(_centred(middle, at_y, text), Qt.AlignmentFlag.AlignCenter, share)


def _words(ratios: tuple[float | None, ...]) -> str:
    return ", ".join(f"position {n} {figures.percent(ratio)}" for n, ratio in enumerate(ratios, start=1))


def _centred(middle: float, top: int, text: QFontMetrics) -> QRect:
    return QRect(round(middle) - 40, top, 80, text.height())
