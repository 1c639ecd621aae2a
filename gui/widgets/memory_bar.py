"""The memory of GPUs as bars, split into who holds it: told apart by colour, pattern and figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QEvent, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetrics, QHelpEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QToolTip, QWidget

from backend.hardware import GpuInfo, GpuReading
from gui.theme import NOTE_PX, mix, text_font, theme
from gui.widgets import figures, gpu_words
from gui.widgets.card_parts import OnCard

_STRIPE_SHARE = 0.28
_LABEL_GAP = 12
_TOP = 8
_LIMIT_HEIGHT = 18
_LEAST_PITCH, _MOST_PITCH = 13, 46
_LEAST_BAR, _MOST_BAR = 8, 28
_NOTE_PITCH = 42
_PART_HEIGHT = 24
_SWATCH = 10
_OLD_OPACITY = 0.45


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of holder.

    Attributes:
        name: what it is called.
        colour: counts the theme's series colours, None for no colour of its own.
        pattern: laid over the colour.
    """

    name: str
    colour: int | None
    pattern: Qt.BrushStyle = Qt.BrushStyle.SolidPattern


ENGINE = Part("this engine", 0)
OTHER = Part("other", 1, Qt.BrushStyle.BDiagPattern)
USED = Part("in use", 5, Qt.BrushStyle.Dense5Pattern)
RESERVED = Part("reserved", None, Qt.BrushStyle.DiagCrossPattern)
FREE = Part("free", None, Qt.BrushStyle.NoBrush)
PARTS = (ENGINE, OTHER, USED, RESERVED, FREE)


@dataclass(frozen=True, slots=True)
class Shares:
    """Who holds how many bytes of a memory of `total_bytes`, FREE last; without parts nothing is known."""

    total_bytes: float
    parts: tuple[tuple[Part, float], ...] = ()

    @property
    def short_words(self) -> str:
        """Return all but the first part, which stands in the bar, in GiB: "other 0.4, reserved 0.6, free 8.3"."""
        return ", ".join(f"{part.name} {figures.number(size / figures.GIB, 1)}" for part, size in self.parts[1:])

    @property
    def words(self) -> str:
        """Return "this engine 61.2 GiB, other 0.4 GiB, free 17.0 GiB"."""
        return ", ".join(f"{part.name} {figures.gib(size)}" for part, size in self.parts) or "not known"


def shares(gpu: GpuInfo, reading: GpuReading | None) -> Shares:
    """Split the memory of a GPU; where nobody tells who holds it, into what is in use and what is free."""
    total = gpu_words.total_bytes(gpu, reading)
    if total is None or not total or reading is None or reading.memory_used_bytes is None:
        return Shares(total or 0.0)
    used, reserved = reading.memory_used_bytes, reading.memory_reserved_bytes
    engine, other = reading.engine_bytes, reading.other_bytes
    parts = [(USED, used)] if engine is None or other is None else [(ENGINE, engine), (OTHER, other)]
    parts += [(RESERVED, reserved)] if reserved is not None else []
    free = reading.memory_free_bytes
    free = total - sum(size for _, size in parts) if free is None else free
    return Shares(total, (*((part, max(size, 0.0)) for part, size in parts), (FREE, max(free, 0.0))))


def brush(part: Part) -> tuple[QColor, QBrush]:
    """Return what is painted for a holder: its ground, and the pattern over it."""
    tokens = theme.tokens
    if part.colour is None:
        ground = mix(tokens.line, tokens.surface, 0.3)
        return QColor(ground), QBrush(QColor(mix(ground, tokens.muted, 0.55)), part.pattern)
    colour = tokens.series[part.colour]
    return QColor(colour), QBrush(QColor(mix(colour, tokens.surface, _STRIPE_SHARE)), part.pattern)


def paint_swatch(painter: QPainter, rect: QRect, part: Part) -> None:
    """Paint a small square that explains a holder's colour."""
    ground, pattern = brush(part)
    painter.fillRect(rect, ground)
    if part.pattern is not Qt.BrushStyle.SolidPattern:
        painter.fillRect(rect, pattern)
    painter.setPen(QPen(QColor(theme.tokens.muted), 1) if part.colour is None else Qt.PenStyle.NoPen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRect(rect.adjusted(0, 0, -1, -1))


def swatch(part: Part) -> Callable[[QPainter, QRect], None]:
    """Return what paints the square of a holder."""
    return partial(paint_swatch, part=part)


def paint_bar(
    painter: QPainter, rect: QRect, split: Shares, text: QFontMetrics | None = None, *, keep_off_x: int | None = None
) -> None:
    """Paint one bar; with `text` (the painter's font) the figures stand in the parts that are wide enough, in GiB.

    No figure stands where a line is drawn at `keep_off_x`.
    """
    painter.save()
    path = QPainterPath()
    radius = min(4.0, rect.height() / 3)
    path.addRoundedRect(QRectF(rect), radius, radius)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setClipPath(path)
    painter.fillRect(rect, brush(FREE)[0])
    scale = rect.width() / split.total_bytes if split.total_bytes else 0.0
    so_far = 0.0
    for part, size in split.parts:
        left = rect.left() + round(so_far * scale)
        so_far += size
        right = rect.left() + round(so_far * scale)
        area = QRect(left, rect.top(), right - left, rect.height())
        if part is not FREE:
            if size > 0:  # what is there is seen, however little it is
                area.setWidth(max(area.width(), 2))
            ground, pattern = brush(part)
            painter.fillRect(area, ground)
            if part.pattern is not Qt.BrushStyle.SolidPattern:
                painter.fillRect(area, pattern)
            if left > rect.left():
                painter.fillRect(QRect(left, rect.top(), 1, rect.height()), QColor(theme.tokens.surface))
        if text is not None and text.height() <= rect.height() + 2:
            if keep_off_x is not None and area.left() <= keep_off_x <= area.right():
                right_of = QRect(keep_off_x + 1, area.top(), area.right() - keep_off_x, area.height())
                left_of = QRect(area.left(), area.top(), keep_off_x - area.left(), area.height())
                area = max(left_of, right_of, key=QRect.width)
            _paint_figure(painter, area, part, size, text)
    painter.restore()


def _paint_figure(painter: QPainter, area: QRect, part: Part, size: float, text: QFontMetrics) -> None:
    figure = figures.number(size / figures.GIB, 1)
    for words in (f"{part.name} {figure}", figure):
        if text.horizontalAdvance(words) + 10 <= area.width():
            ground, _ = brush(part)
            if part.pattern not in (Qt.BrushStyle.SolidPattern, Qt.BrushStyle.NoBrush):  # stripes are hard to read on
                wide = text.horizontalAdvance(words) + 6
                painter.fillRect(QRect(area.center().x() - wide // 2, area.top(), wide, area.height()), ground)
            painter.setPen(QColor(theme.tokens.muted if part.colour is None else theme.tokens.surface))
            painter.drawText(area, Qt.AlignmentFlag.AlignCenter, words)
            return


@dataclass(frozen=True, slots=True)
class BarRow:
    """One bar: its label, what it shows, the tooltip, and words in place of the figures where there are none.

    `is_limited`: the limit of the profile holds there, since the engine uses that GPU.
    """

    label: str
    split: Shares
    tip: str
    unknown: str = ""
    is_limited: bool = True


class MemoryBars(OnCard):
    """A bar for each GPU below each other, with a line at the limit that the profile sets."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: tuple[BarRow, ...] = ()
        self.limit_ratio: float | None = None
        self.is_old = False
        self._font = text_font(NOTE_PX)
        self._text = QFontMetrics(self._font)
        self.setMinimumSize(120, 80)
        self.setAccessibleName("Memory of each GPU")

    def show_rows(self, rows: Sequence[BarRow], limit_ratio: float | None = None, *, is_old: bool = False) -> None:
        """Show these bars, pale when they are old; the engine may take `limit_ratio` of each memory, 0..1."""
        if (tuple(rows), limit_ratio, is_old) == (self.rows, self.limit_ratio, self.is_old):
            return
        self.rows, self.limit_ratio, self.is_old = tuple(rows), limit_ratio, is_old
        said = ["Old figures"] if is_old else []
        said += [f"{row.label}: {row.unknown or row.split.words}" for row in rows]
        said += [self.limit_words] if self.limit_words else []
        self.setAccessibleDescription(". ".join(said))
        self.update()

    @property
    def limit_words(self) -> str:
        """What stands beside the line of the limit."""
        return "" if self.limit_ratio is None else f"profile limit {self.limit_ratio:.4g}"

    @property
    def limit_x(self) -> int | None:
        """Where the line of the limit stands, in pixels from the left edge."""
        if self.limit_ratio is None or not self.rows:
            return None
        bar = self.bar_rect(0)
        return bar.left() + round(self.limit_ratio * bar.width())

    @property
    def _top(self) -> int:
        return _TOP + (_LIMIT_HEIGHT if self.limit_ratio is not None else 0)

    @property
    def _pitch(self) -> int:
        room = self.height() - self._top
        return max(_LEAST_PITCH, min(_MOST_PITCH, room // max(len(self.rows), 1)))

    def bar_rect(self, row: int) -> QRect:
        """Return where a bar stands."""
        pitch = self._pitch
        high = max(_LEAST_BAR, min(_MOST_BAR, round(pitch * 0.7)))
        if pitch >= _NOTE_PITCH:
            high = min(high, pitch - self._text.height() - 6)
        left = max((self._text.horizontalAdvance(each.label) for each in self.rows), default=0) + _LABEL_GAP
        return QRect(left, self._top + row * pitch, max(self.width() - left - 8, 20), high)

    def sizeHint(self) -> QSize:
        """Take the room of a plot."""
        return QSize(240, 160)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint labels, bars and the limit; for a single GPU its parts are listed below the bar."""
        painter = self.painter()
        painter.setFont(self._font)
        painter.setOpacity(_OLD_OPACITY if self.is_old else 1.0)
        tokens = theme.tokens
        for number, row in enumerate(self.rows):
            bar = self.bar_rect(number)
            painter.setPen(QColor(tokens.muted))
            side = QRect(0, bar.top(), bar.left() - _LABEL_GAP, bar.height())
            painter.drawText(side, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, row.label)
            paint_bar(painter, bar, row.split, self._text, keep_off_x=self.limit_x if row.is_limited else None)
            below = QRect(bar.left(), bar.bottom() + 2, bar.width(), self._text.height())
            if row.unknown:
                self._paint_words(painter, bar.adjusted(8, 0, -8, 0), row.unknown)
            elif self._pitch >= _NOTE_PITCH and len(self.rows) > 1:
                self._paint_words(painter, below, row.split.short_words)
        if self.limit_x is not None:
            self._paint_limit(painter, self.limit_x)
        if len(self.rows) == 1 and not self.rows[0].unknown:
            self._paint_parts(painter, self.rows[0].split, self.bar_rect(0).bottom() + 12)

    def _paint_words(self, painter: QPainter, area: QRect, words: str) -> None:
        painter.setPen(QColor(theme.tokens.muted))
        shown = self._text.elidedText(words, Qt.TextElideMode.ElideRight, area.width())
        painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)

    def _paint_limit(self, painter: QPainter, x: int) -> None:
        """Paint the words of the limit over the bars, and its line through those of the engine."""
        colour = QColor(theme.tokens.warn)
        wide = self._text.horizontalAdvance(self.limit_words)
        left = min(x - wide // 2, self.width() - wide - 2)
        painter.setPen(colour)
        painter.drawText(QRect(left, 0, wide + 2, self._text.height()), Qt.AlignmentFlag.AlignLeft, self.limit_words)
        painter.setPen(QPen(colour, 1, Qt.PenStyle.DashLine))
        top = self._text.height() + 2
        for number, row in enumerate(self.rows):
            bar = self.bar_rect(number)
            if row.is_limited:
                painter.drawLine(x, max(top, bar.top() - 6), x, bar.bottom() + 2)

    def _paint_parts(self, painter: QPainter, split: Shares, top: int) -> None:
        """List who holds what; where there is no room for all of them, in one line."""
        bar = self.bar_rect(0)
        high = min(_PART_HEIGHT, (self.height() - top) // max(len(split.parts), 1))
        if high < self._text.height():
            self._paint_words(painter, QRect(bar.left(), top - 8, bar.width(), self._text.height()), split.short_words)
            return
        for number, (part, size) in enumerate(split.parts):
            line = QRect(bar.left(), top + number * high, bar.width(), high)
            paint_swatch(painter, QRect(line.left(), line.center().y() - _SWATCH // 2, _SWATCH, _SWATCH), part)
            painter.setPen(QColor(theme.tokens.muted))
            painter.drawText(line.adjusted(_SWATCH + 8, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, part.name)
            painter.setPen(QColor(theme.tokens.text))
            share = figures.percent(size / split.total_bytes)
            side = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(line, side, share)
            painter.drawText(
                line.adjusted(0, 0, -self._text.horizontalAdvance("< 1 %") - 12, 0), side, figures.gib(size)
            )

    def event(self, event: QEvent) -> bool:
        """Tell of the bar under the pointer."""
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            row = (event.pos().y() - self._top) // self._pitch
            if 0 <= row < len(self.rows):
                QToolTip.showText(event.globalPos(), self.rows[row].tip, self)
                return True
        return super().event(event)
