"""What is worth knowing before a start: one row for each finding, with a symbol and a word for how much it matters."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollBar,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from backend.events import Finding, Severity
from gui.theme import symbol, theme

_LOOK = {
    Severity.ERROR: ("error", "bad", "Error"),
    Severity.WARNING: ("warning", "warn", "Warning"),
    Severity.NOTE: ("info", "muted", "Note"),
}
_FINE = ("check", "ok", "Fine")
_GAP_PX, _LEAST_PX = 10, 24
_SHARE = 0.4  # of the column; the command has the rest


class _Rows(QWidget):
    """Rows, as high as they are together or as there is room; shows and scrolls only whole ones."""

    def __init__(self) -> None:
        super().__init__()
        self.limit_px = 10_000
        self._rows: list[QWidget] = []
        self._heights: list[int] = []
        self._column = QVBoxLayout()
        self._column.setSpacing(_GAP_PX)
        self.bar = QScrollBar(Qt.Orientation.Vertical)  # counts rows
        self.bar.setAccessibleName("More findings")
        self.bar.setToolTip("Up and Down show the other findings")
        self.bar.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.bar.valueChanged.connect(self._place)
        keeps = self.bar.sizePolicy()
        keeps.setRetainSizeWhenHidden(True)  # words keep their width
        self.bar.setSizePolicy(keeps)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addLayout(self._column, 1)
        layout.addWidget(self.bar)

    def show_rows(self, rows: Sequence[QWidget]) -> None:
        """Show these rows in place of those before."""
        while (item := self._column.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self._rows = list(rows)
        for row in rows:
            self._column.addWidget(row)
        self._column.addStretch()
        self.bar.setValue(0)
        self.measure()

    def measure(self) -> None:
        """Take the height of as many rows as there is room for."""
        width = self.width() - self.bar.sizeHint().width() - 2
        self._heights = [row.heightForWidth(width) for row in self._rows]
        ends = [self._height(0, end) for end in range(1, len(self._rows) + 1)]
        fitting = [end for end in ends if end <= self.limit_px]
        height = max([_LEAST_PX, *fitting[-1:], *self._heights])  # one row alone is whole in any case
        if height != self.maximumHeight():
            self.setFixedHeight(height)
        n_rows = len(self._rows)
        self.bar.setRange(0, next((first for first in range(n_rows) if self._height(first, n_rows) <= height), 0))
        self.bar.setPageStep(max(n_rows - self.bar.maximum(), 1))
        self.bar.setVisible(self.bar.maximum() > 0)
        self._place()

    def _height(self, first: int, end: int) -> int:
        return sum(self._heights[first:end]) + _GAP_PX * (end - first - 1)

    def _place(self) -> None:
        first = self.bar.value()
        for number, row in enumerate(self._rows):
            is_shown = number >= first and self._height(first, number + 1) <= self.maximumHeight()
            if row.isHidden() == is_shown:
                row.setVisible(is_shown)

    def event(self, event: QEvent) -> bool:
        """Measure again when the words of a row need another height."""
        done = super().event(event)
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            self.measure()
        return done

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Show other rows."""
        QApplication.sendEvent(self.bar, event)


class FindingList(QFrame):
    """A card of findings.

    Signals:
        place_wanted(str): show the field with this path.
    """

    place_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setAccessibleName("Before you start")
        self._shown: tuple[tuple[Finding, ...], tuple[str, ...], str] | None = None
        self._marks: list[tuple[QLabel, str, str]] = []
        title = QLabel("Before you start")
        title.setProperty("role", "title")
        self.count = QLabel()
        self.count.setProperty("role", "note")
        head = QHBoxLayout()
        head.addWidget(title, 1)
        head.addWidget(self.count)
        self.rows = _Rows()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        head.setContentsMargins(0, 0, 12, 0)  # ends where the buttons of the rows end
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 4, 12)
        layout.setSpacing(8)
        layout.addLayout(head)
        layout.addWidget(self.rows)
        theme.changed.connect(self._paint)

    @property
    def words(self) -> tuple[str, ...]:
        """What the rows say, each beginning with the word for how much it matters."""
        return tuple(mark.accessibleName() + ": " + text for mark, _, text in self._marks)

    def show_findings(self, findings: Sequence[Finding], places: Sequence[str] = (), *, fine: str = "") -> None:
        """Show findings; `places` are the paths of their fields, `fine` what to say when there are none."""
        shown = (tuple(findings), tuple(places), fine)
        if shown == self._shown:
            return
        self._shown = shown
        self._marks = []
        rows = []
        for number, finding in enumerate(findings):
            more = " ".join(filter(None, (finding.why, finding.fix)))
            place = places[number] if number < len(places) else ""
            rows.append(self._row(_LOOK[finding.severity], finding.what, more, place))
        if not findings and fine:
            rows.append(self._row(_FINE, fine, "", ""))
        self.count.setText(_count(findings))
        self._paint()
        self.rows.show_rows(rows)

    def fit_into(self, column_px: int) -> None:
        """Take no more than a share of a column of this height."""
        self.rows.limit_px = round(column_px * _SHARE) - self._head_px()
        self.rows.measure()

    def _head_px(self) -> int:
        layout = self.layout()
        assert layout is not None
        edges = layout.contentsMargins()
        return edges.top() + edges.bottom() + layout.spacing() + self.fontMetrics().height()

    def _row(self, look: tuple[str, str, str], text: str, more: str, place: str) -> QWidget:
        row = QWidget()
        mark = QLabel()
        mark.setAccessibleName(look[2])
        mark.setToolTip(look[2])
        self._marks.append((mark, look[0], text))
        mark.setProperty("tone", look[1])
        words = QLabel(text)
        words.setTextFormat(Qt.TextFormat.PlainText)
        words.setWordWrap(True)
        words.setAccessibleName(f"{look[2]}: {text}")
        words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        column = QVBoxLayout()
        column.setSpacing(2)
        column.addWidget(words)
        if more:
            note = QLabel(more)
            note.setTextFormat(Qt.TextFormat.PlainText)
            note.setProperty("role", "note")
            note.setWordWrap(True)
            column.addWidget(note)
        line = QHBoxLayout(row)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(10)
        line.addWidget(mark, 0, Qt.AlignmentFlag.AlignTop)
        line.addLayout(column, 1)
        if place:
            show = QPushButton("Show")
            show.setProperty("kind", "chip")
            show.setAccessibleName(f"Show the field: {text}")
            show.setToolTip("Go to the field that this is about")
            show.clicked.connect(partial(self.place_wanted.emit, place))
            line.addWidget(show, 0, Qt.AlignmentFlag.AlignTop)
        return row

    def _paint(self) -> None:
        for mark, name, _ in self._marks:
            mark.setPixmap(symbol(name, getattr(theme.tokens, mark.property("tone")), size_px=16))


def _count(findings: Sequence[Finding]) -> str:
    """Say how many there are of each kind, or of the worst kind where all of them would not fit."""
    parts = []
    for severity, (_, _, word) in _LOOK.items():
        n = sum(finding.severity is severity for finding in findings)
        if n:
            parts.append((n, f"{n} {word.lower()}{'' if n == 1 else 's'}"))
    if len(parts) > 2:
        parts[1:] = [(0, f"{len(findings) - parts[0][0]} more")]
    return ", ".join(words for _, words in parts)
