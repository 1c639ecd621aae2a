"""What stands over the plot of a chart card: the big figure with its words, and the legend with values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PySide6.QtCore import QEvent, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.theme import FIGURE_PX, FONT_PX, NOTE_PX, code_font, text_font, theme

_GAP = 8
_SWATCH = 10
_ENTRY_GAP = 12
_PERCENT = " %"


class _PaintedText(QWidget):
    """Text that changes every second: painted, since a label makes the whole page lay itself out anew."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def _tell(self, words: str, tip: str = "") -> None:
        """Let assistive technology and the tooltip say it too; `tip` is what the tooltip says instead."""
        if words != self.accessibleName():
            self.setAccessibleName(words)
            self.update()
        if self.toolTip() != (tip or words):
            self.setToolTip(tip or words)


class Source(NamedTuple):
    """Where figures come from: in a word, and in a sentence without its full stop."""

    word: str
    sentence: str


class Headline(NamedTuple):
    """A figure and the words beside it: `short` says them where there is little room, `note` only the tooltip."""

    figure: str
    words: str
    short: str = ""
    note: str = ""


class FigureLine(_PaintedText):
    """A big figure and the words beside it; what does not fit is shortened and stands in the tooltip."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.figure = ""
        self.words = ""
        self._short = ""
        self._figure_font = code_font(FIGURE_PX)
        self._words_font = text_font(FONT_PX)

    def show_figure(self, figure: str, words: str, short: str = "", note: str = "") -> None:
        """Show both, as in Headline; an empty figure leaves the words alone."""
        self.figure, self.words, self._short = figure, words, short
        sentence = _joined(figure, words)
        self._tell(sentence, f"{sentence}. {note}" if note else "")

    def sizeHint(self) -> QSize:
        """As high as the figure, as wide as there is room."""
        return QSize(120, QFontMetrics(self._figure_font).height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint figure and words on one base line."""
        painter = QPainter(self)
        big, small = QFontMetrics(self._figure_font), QFontMetrics(self._words_font)
        base = big.ascent() + (self.height() - big.height()) // 2
        x = 0
        number = self.figure.removesuffix(_PERCENT)
        sign = self.figure.removeprefix(number).strip()  # small, as the words are
        if number:
            painter.setFont(self._figure_font)
            painter.setPen(QColor(theme.tokens.text))
            painter.drawText(0, base, number)
            x = big.horizontalAdvance(number) + (_GAP // 2 if sign else _GAP)
        painter.setFont(self._words_font)
        painter.setPen(QColor(theme.tokens.muted))
        room = max(self.width() - x, 0)
        words = _joined(sign, self.words)
        if self._short and small.horizontalAdvance(words) > room:
            words = _joined(sign, self._short)
        painter.drawText(x, base, small.elidedText(words, Qt.TextElideMode.ElideRight, room))


def _joined(figure: str, words: str) -> str:
    return f"{figure}{'' if words.startswith(',') else ' '}{words}".strip()


class SourceLine(_PaintedText):
    """Small text at the right end, shortened where it has no room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.text = ""
        self.is_marked = False
        self._font = text_font(NOTE_PX)

    def show_text(self, text: str, *, marked: bool = False, tip: str = "") -> None:
        """Show another text, in the accent's colour when marked; `tip` is what the tooltip says instead."""
        self.text, self.is_marked = text, marked
        self._tell(text, tip)

    def sizeHint(self) -> QSize:
        """One line of small text."""
        return QSize(40, QFontMetrics(self._font).height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the text at the right."""
        painter = QPainter(self)
        painter.setFont(self._font)
        painter.setPen(QColor(theme.tokens.accent if self.is_marked else theme.tokens.muted))
        text = QFontMetrics(self._font).elidedText(self.text, Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, text)


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One entry: `colour` counts the theme's series colours, None for a value that has no line."""

    label: str
    value: str
    colour: int | None = None


class Legend(_PaintedText):
    """Entries side by side, or in two lines: a stroke in the line's colour, its name, its value."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entries: tuple[LegendEntry, ...] = ()
        self._font = text_font(NOTE_PX)
        self._value_font = code_font(NOTE_PX)

    def show_entries(self, entries: Sequence[LegendEntry], note: str = "") -> None:
        """Show the entries; the tooltip says `note` too."""
        self.entries = tuple(entries)
        sentence = ", ".join(f"{entry.label} {entry.value}" for entry in entries)
        self._tell(sentence, f"{sentence}. {note}" if note else "")

    def values(self) -> dict[str, str]:
        """Return what is shown, by label."""
        return {entry.label: entry.value for entry in self.entries}

    def sizeHint(self) -> QSize:
        """Two lines of small text."""
        return QSize(120, 2 * QFontMetrics(self._font).height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the entries from the left, in two lines where one is too short; the tooltip has what finds no room."""
        painter = QPainter(self)
        tokens = theme.tokens
        names, values = QFontMetrics(self._font), QFontMetrics(self._value_font)
        widths = [
            (_SWATCH + 4 if entry.colour is not None else 0)
            + names.horizontalAdvance(entry.label)
            + 4
            + values.horizontalAdvance(entry.value)
            for entry in self.entries
        ]
        fits_one = sum(widths) + _ENTRY_GAP * (len(widths) - 1) <= self.width()
        middle = self.height() // 2 if fits_one else self.height() // 4
        base = middle + (names.ascent() - names.descent()) // 2
        x = 0
        for entry, wide in zip(self.entries, widths, strict=True):
            if x + wide > self.width():
                if x == 0 or base + names.height() > self.height():
                    break
                x, middle, base = 0, middle + self.height() // 2, base + self.height() // 2
                if wide > self.width():
                    break
            if entry.colour is not None:
                painter.fillRect(QRect(x, middle - 1, _SWATCH, 2), QColor(tokens.series[entry.colour]))
                x += _SWATCH + 4
            painter.setFont(self._font)
            painter.setPen(QColor(tokens.muted))
            painter.drawText(x, base, entry.label)
            x += names.horizontalAdvance(entry.label) + 4
            painter.setFont(self._value_font)
            painter.setPen(QColor(tokens.text))
            painter.drawText(x, base, entry.value)
            x += values.horizontalAdvance(entry.value) + _ENTRY_GAP

    def changeEvent(self, event: QEvent) -> None:
        """Repaint when the style changes."""
        super().changeEvent(event)
        self.update()
