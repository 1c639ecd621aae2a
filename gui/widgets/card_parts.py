"""What stands over the plot of a chart card: the big figure with its words, and the legend with values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from PySide6.QtCore import QEvent, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.theme import FIGURE_PX, FONT_PX, NOTE_PX, code_font, text_font, theme

_GAP = 8
_SWATCH = 10
_ENTRY_GAP = 12
_PERCENT = " %"


class OnCard(QWidget):
    """What paints itself on a card: with the ground of the card, or all it stands in would be painted anew below it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        theme.changed.connect(self.update)

    def painter(self) -> QPainter:
        """Begin to paint."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(theme.tokens.surface))
        return painter


class PaintedText(OnCard):
    """Text that changes every second: painted, since a label makes the whole page lay itself out anew."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def _tell(self, words: str, tip: str = "") -> None:
        """Let assistive technology and the tooltip say it too; `tip` is what the tooltip says instead."""
        if words != self.accessibleName():
            self.setAccessibleName(words)
            self.update()
        if self.toolTip() != (tip or words):
            self.setToolTip(tip or words)


class Source(NamedTuple):
    """Where figures come from: in a word, and in a sentence without its full stop.

    `of_gpus`: they are read together with all else of the GPUs, at a pace of their own.
    """

    word: str
    sentence: str
    of_gpus: bool = False


class Headline(NamedTuple):
    """A figure and the words beside it: `short` says them where there is little room, `note` only the tooltip."""

    figure: str
    words: str
    short: str = ""
    note: str = ""


class FigureLine(PaintedText):
    """A big figure and the words beside it; what does not fit is shortened and stands in the tooltip."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.figure = ""
        self.words = ""
        self._short = ""
        self._figure_font, self._words_font = code_font(FIGURE_PX), text_font(FONT_PX)
        self._big, self._small = QFontMetrics(self._figure_font), QFontMetrics(self._words_font)

    def show_figure(self, figure: str, words: str, short: str = "", note: str = "") -> None:
        """Show both, as in Headline; an empty figure leaves the words alone."""
        self.figure, self.words, self._short = figure, words, short
        sentence = _joined(figure, words)
        self._tell(sentence, f"{sentence}. {note}" if note else "")

    def sizeHint(self) -> QSize:
        """As high as the figure, as wide as there is room."""
        return QSize(120, self._big.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint figure and words on one base line."""
        painter = self.painter()
        big, small = self._big, self._small
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


class SourceLine(PaintedText):
    """Small text at the right end, shortened where it has no room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.text = ""
        self.is_marked = False
        self._font = text_font(NOTE_PX)
        self._metrics = QFontMetrics(self._font)

    def show_text(self, text: str, *, marked: bool = False, tip: str = "") -> None:
        """Show another text, in the accent's colour when marked; `tip` is what the tooltip says instead."""
        self.text, self.is_marked = text, marked
        self._tell(text, tip)

    def sizeHint(self) -> QSize:
        """One line of small text."""
        return QSize(40, self._metrics.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the text at the right."""
        painter = self.painter()
        painter.setFont(self._font)
        painter.setPen(QColor(theme.tokens.accent if self.is_marked else theme.tokens.muted))
        text = self._metrics.elidedText(self.text, Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, text)


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One entry: `colour` counts the theme's series colours, None for a value that has no line.

    `is_other`: its line is that of a second run; `dashed`: its line is dashed. `paint` paints something else in
    place of a piece of the line, into the square it is given. `amount` is what `value` says, None if that is unknown.
    """

    label: str
    value: str
    colour: int | None = None
    is_other: bool = False
    dashed: bool = False
    paint: Callable[[QPainter, QRect], None] | None = None
    amount: float | None = None

    @property
    def has_swatch(self) -> bool:
        """Whether something stands before the label."""
        return self.colour is not None or self.paint is not None


class Legend(PaintedText):
    """Entries side by side, or in two lines: a stroke in the line's colour, its name, its value."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entries: tuple[LegendEntry, ...] = ()
        self._shorter: tuple[tuple[LegendEntry, ...], ...] = ()
        self._font, self._value_font = text_font(NOTE_PX), code_font(NOTE_PX)
        self._names = QFontMetrics(self._font)
        # Asked for several times at each tick, and most texts come again.
        self._name_width = lru_cache(maxsize=64)(self._names.horizontalAdvance)
        self._value_width = lru_cache(maxsize=256)(QFontMetrics(self._value_font).horizontalAdvance)

    def show_entries(
        self, entries: Sequence[LegendEntry], note: str = "", shorter: Sequence[Sequence[LegendEntry]] = ()
    ) -> None:
        """Show the entries; the tooltip says `note` too. Where they find no room, the first of `shorter` that does."""
        self.entries = tuple(entries)
        self._shorter = tuple(map(tuple, shorter))
        sentence = ", ".join(f"{entry.label} {entry.value}" for entry in entries)
        self._tell(sentence, f"{sentence}. {note}" if note else "")

    def values(self) -> dict[str, str]:
        """Return what is shown, by label."""
        return {entry.label: entry.value for entry in self.entries}

    def sizeHint(self) -> QSize:
        """Two lines of small text."""
        return QSize(120, 2 * self._names.height())

    def shown(self) -> tuple[LegendEntry, ...]:
        """Return the entries that find room."""
        return tuple(entry for line in self._lines() for entry in line)

    def _lines(self) -> list[list[LegendEntry]]:
        """Return the entries line by line: one line or two, of the longest text of which all find room."""
        found: list[list[LegendEntry]] = []
        for entries in (self.entries, *self._shorter):
            found = self._placed(entries)
            if sum(map(len, found)) == len(entries):
                break
        return found

    def _placed(self, entries: Sequence[LegendEntry]) -> list[list[LegendEntry]]:
        lines: list[list[LegendEntry]] = [[]]
        x = 0
        for entry in entries:
            wide = self._width(entry)
            if x + wide > self.width():
                if not lines[-1] or len(lines) == 2 or wide > self.width():
                    break
                lines.append([])
                x = 0
            lines[-1].append(entry)
            x += wide + _ENTRY_GAP
        return lines

    def _width(self, entry: LegendEntry) -> int:
        swatch = _SWATCH + 4 if entry.has_swatch else 0
        value = 4 + self._value_width(entry.value) if entry.value else 0
        return swatch + self._name_width(entry.label) + value

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the entries from the left, in two lines where one is too short; the tooltip has what finds no room."""
        painter = self.painter()
        lines = self._lines()
        for number, line in enumerate(lines):
            middle = round(self.height() * (2 * number + 1) / (2 * len(lines)))
            base = middle + (self._names.ascent() - self._names.descent()) // 2
            x = 0
            for entry in line:
                self._paint_entry(painter, entry, x, middle, base)
                x += self._width(entry) + _ENTRY_GAP

    def _paint_entry(self, painter: QPainter, entry: LegendEntry, x: int, middle: int, base: int) -> None:
        tokens = theme.tokens
        if entry.paint is not None:
            entry.paint(painter, QRect(x, middle - _SWATCH // 2, _SWATCH, _SWATCH))
        elif entry.colour is not None:
            colour = QColor(tokens.series[entry.colour % len(tokens.series)])
            self._paint_swatch(painter, x, middle - 1, colour, dashed=entry.is_other or entry.dashed)
        x += _SWATCH + 4 if entry.has_swatch else 0
        painter.setFont(self._font)
        painter.setPen(QColor(tokens.muted))
        painter.drawText(x, base, entry.label)
        x += self._name_width(entry.label) + 4
        painter.setFont(self._value_font)
        painter.setPen(QColor(tokens.text))
        painter.drawText(x, base, entry.value)

    @staticmethod
    def _paint_swatch(painter: QPainter, x: int, y: int, colour: QColor, *, dashed: bool) -> None:
        for left, wide in ((0, 4), (6, 4)) if dashed else ((0, _SWATCH),):
            painter.fillRect(QRect(x + left, y, wide, 2), colour)

    def changeEvent(self, event: QEvent) -> None:
        """Repaint when the style changes."""
        super().changeEvent(event)
        self.update()
