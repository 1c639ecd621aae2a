"""Marks of what happened, on the time axis of a chart: a thin line and a symbol each, neighbours joined into one."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from backend.events import Mark
from gui.theme import mix, symbol, theme

SYMBOL_PX = 11
"""Marks that are closer together than their symbols are wide are shown as one."""

# Kind -> symbol and colour, the most telling one first: it stands for its neighbours.
_KINDS = {
    "crash": ("error", "bad"),
    "stall": ("warning", "warn"),
    "stop": ("stop", "muted"),
    "ready": ("check", "ok"),
    "start": ("start", "accent"),
    "version": ("version", "accent"),
    "bench": ("bench", "accent"),
    "chat": ("chat", "muted"),
}
_OTHER = ("info", "muted")
# What happens all the time has no lines where there are many: they would hide the curves.
_COMMON = ("chat", "bench")
_MOST_LINES = 8
_RANKS = {kind: rank for rank, kind in enumerate(_KINDS)}

Placed = tuple[float, Mark]
"""Seconds before the right end of the axis as a negative number, and what happened there."""


@dataclass(frozen=True, slots=True)
class MarkGroup:
    """Marks that are drawn as one: at `x_px` from the left end, with the symbol of `kind`."""

    x_px: int
    kind: str
    marks: tuple[Placed, ...]

    @property
    def words(self) -> str:
        """What happened, in words."""
        return ", ".join(mark.text for _, mark in self.marks)


def grouped(marks: Sequence[Placed], span_s: float, width_px: int) -> tuple[MarkGroup, ...]:
    """Return what is drawn on an axis of `span_s` seconds and `width_px` pixels, from left to right."""
    groups: list[list[Placed]] = []
    least_s = (SYMBOL_PX + 1) * span_s / max(width_px, 1)
    for placed in sorted(marks, key=lambda placed: placed[0]):
        if not -span_s <= placed[0] <= 0:
            continue
        if groups and placed[0] - groups[-1][0][0] < least_s:  # not by whole pixels: those change as time goes on
            groups[-1].append(placed)
        else:
            groups.append([placed])
    made = []
    for group in groups:
        x, most = min(group, key=lambda placed: _RANKS.get(placed[1].kind, len(_RANKS)))
        made.append(MarkGroup(round((x + span_s) / span_s * width_px), most.kind, tuple(group)))
    return tuple(made)


class ChartMarks(pg.GraphicsObject):  # type: ignore[misc]  # pyqtgraph has no types
    """Draws the groups into a view box, in its pixels; changes only when another picture is to be drawn."""

    def __init__(self, box: pg.ViewBox) -> None:
        super().__init__(box)
        self._box = box
        self.groups: tuple[MarkGroup, ...] = ()
        self.n_changes = 0
        self._marks: tuple[Placed, ...] = ()
        self._span_s = 1.0
        self.setZValue(-10)  # lines and areas of the chart are drawn over it
        box.sigResized.connect(self._on_resized)
        theme.changed.connect(self.update)

    def show_marks(self, marks: Sequence[Placed], span_s: float) -> bool:
        """Show these marks; returns whether the picture is another one now."""
        self._marks, self._span_s = tuple(marks), span_s
        groups = grouped(marks, span_s, int(self._box.width()))
        is_new = _picture(groups) != _picture(self.groups)
        self.groups = groups
        if is_new:
            self.n_changes += 1
            self.update()
        return is_new

    def near(self, x: float, *, within_px: int = SYMBOL_PX) -> MarkGroup | None:
        """Return what is drawn nearest to `x` seconds before the right end, if it is near."""
        x_px = (x + self._span_s) / self._span_s * self._box.width()
        found = min(self.groups, key=lambda group: abs(group.x_px - x_px), default=None)
        return found if found is not None and abs(found.x_px - x_px) <= within_px else None

    def boundingRect(self) -> QRectF:
        """The view box, and over it the room for the symbols."""
        return QRectF(0, 0, self._box.width(), self._box.height()).adjusted(-SYMBOL_PX, -SYMBOL_PX - 2, SYMBOL_PX, 0)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Paint a line down to the axis for each group, and its symbol over it."""
        tokens = theme.tokens
        height = self._box.height()
        for group in self.groups:
            name, token = _KINDS.get(group.kind, _OTHER)
            colour = getattr(tokens, token)
            pen = QPen(QColor(mix(tokens.surface, colour, 0.45)), 1, Qt.PenStyle.DotLine)
            pen.setCosmetic(True)
            painter.setPen(pen)
            if len(self.groups) <= _MOST_LINES or group.kind not in _COMMON:
                painter.drawLine(QPointF(group.x_px, 0), QPointF(group.x_px, height))
            at = QPointF(group.x_px - SYMBOL_PX / 2, -SYMBOL_PX - 1)
            painter.drawPixmap(at, symbol(name, colour, size_px=SYMBOL_PX))

    def _on_resized(self) -> None:
        self.prepareGeometryChange()
        self.show_marks(self._marks, self._span_s)


def _picture(groups: Sequence[MarkGroup]) -> list[tuple[int, str]]:
    return [(group.x_px, group.kind) for group in groups]
