"""What is worth knowing before a start: one row for each finding, with a symbol and a word for how much it matters."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from backend.events import Finding, Severity
from gui.theme import symbol, theme

_LOOK = {
    Severity.ERROR: ("error", "bad", "Error"),
    Severity.WARNING: ("warning", "warn", "Warning"),
    Severity.NOTE: ("info", "muted", "Note"),
}
_FINE = ("check", "ok", "Fine")


class _Scroll(QScrollArea):
    """As high as what it holds, but gives way where there is less room."""

    def sizeHint(self) -> QSize:
        """Return the size of the content."""
        content = self.widget()
        assert content is not None
        height = content.heightForWidth(self.viewport().width()) if content.hasHeightForWidth() else -1
        return QSize(240, max(height, content.sizeHint().height() if height < 0 else 0, 24))

    def minimumSizeHint(self) -> QSize:
        """Be satisfied with one line."""
        return QSize(60, 24)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Ask for another height when the content has one."""
        if event.type() == QEvent.Type.LayoutRequest and watched is self.widget():
            self.updateGeometry()
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Ask for another height when the lines wrap at another width."""
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self.updateGeometry()


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
        self._content = QWidget()
        self._rows = QVBoxLayout(self._content)
        self._rows.setContentsMargins(0, 0, 4, 0)
        self._rows.setSpacing(10)
        self._scroll = _Scroll()
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._scroll.setWidget(self._content)
        self._scroll.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 12, 12)
        layout.setSpacing(8)
        layout.addLayout(head)
        layout.addWidget(self._scroll)
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
        while (item := self._rows.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self._marks = []
        for number, finding in enumerate(findings):
            more = " ".join(filter(None, (finding.why, finding.fix)))
            place = places[number] if number < len(places) else ""
            self._rows.addWidget(self._row(_LOOK[finding.severity], finding.what, more, place))
        if not findings and fine:
            self._rows.addWidget(self._row(_FINE, fine, "", ""))
        self._rows.addStretch()
        self.count.setText(_count(findings))
        self._paint()
        self._scroll.updateGeometry()

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
    parts = []
    for severity, (_, _, word) in _LOOK.items():
        n = sum(finding.severity is severity for finding in findings)
        if n:
            parts.append(f"{n} {word.lower()}{'' if n == 1 else 's'}")
    return ", ".join(parts)
