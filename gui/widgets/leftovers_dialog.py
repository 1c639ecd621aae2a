"""Lists engines of earlier runs that nobody supervises, with what they hold, and asks what becomes of each."""

import time
from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from backend.desk.types import LeftoverView


class LeftoversDialog(QDialog):
    """One row for each leftover; nothing is ended without a click.

    Signals:
        end_wanted(str): end this run; adopt_wanted(str): supervise it again.
    """

    end_wanted = Signal(str)
    adopt_wanted = Signal(str)

    def __init__(self, parent: QWidget | None, leftovers: Sequence[LeftoverView], *, can_adopt: bool) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Left over from earlier runs")
        self.setAccessibleName("Left over from earlier runs")
        self.setMinimumWidth(560)
        self._rows: dict[str, tuple[QFrame, QLabel]] = {}
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 20, 24, 20)
        layout.setSpacing(12)
        heading = QLabel("Left over from earlier runs")
        heading.setProperty("role", "heading")
        held = sum(leftover.memory_bytes for leftover in leftovers)
        words = QLabel(f"Nobody supervises these engines. Together they hold {held / 2**30:,.1f} GiB of memory.")
        words.setProperty("role", "muted")
        words.setWordWrap(True)
        layout.addWidget(heading)
        layout.addWidget(words)
        for leftover in leftovers:
            layout.addWidget(self._row(leftover, can_adopt=can_adopt))
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addStretch()
        self.leave = _button("Leave them", "Close this and change nothing")
        self.leave.clicked.connect(self.close)
        self.end_all = _button("End all", "End every engine of this list", "danger")
        self.end_all.clicked.connect(self._on_end_all)
        row.addWidget(self.leave)
        row.addWidget(self.end_all)
        layout.addSpacing(4)
        layout.addLayout(row)
        self.leave.setFocus()

    def _row(self, leftover: LeftoverView, *, can_adopt: bool) -> QFrame:
        frame = QFrame()
        frame.setProperty("card", "true")
        row = QHBoxLayout(frame)
        row.setContentsMargins(12, 10, 12, 10)
        row.setSpacing(8)
        text = QVBoxLayout()
        text.setSpacing(2)
        title = QLabel(leftover.profile or leftover.run_id)
        title.setProperty("role", "title")
        started = time.strftime("%d %b %H:%M", time.localtime(leftover.started_at))
        what = "its server answers" if leftover.adoptable else "its server is gone"
        note = QLabel(
            f"Started {started} \N{MIDDLE DOT} {leftover.n_processes} processes \N{MIDDLE DOT} "
            f"{leftover.memory_bytes / 2**30:,.1f} GiB \N{MIDDLE DOT} {what}"
        )
        note.setProperty("role", "note")
        note.setWordWrap(True)
        note.setToolTip(leftover.run_id)
        text.addWidget(title)
        text.addWidget(note)
        row.addLayout(text, 1)
        if leftover.adoptable and can_adopt:
            adopt = _button("Take over", f"Supervise {leftover.run_id} again", "primary")
            adopt.setProperty("run_id", leftover.run_id)
            adopt.clicked.connect(self._on_adopt)
            row.addWidget(adopt)
        end = _button("End", f"End {leftover.run_id} and free its memory", "danger")
        end.setProperty("run_id", leftover.run_id)
        end.clicked.connect(self._on_end)
        row.addWidget(end)
        self._rows[leftover.run_id] = (frame, note)
        return frame

    def show_ended(self, run_id: str, problem: str) -> None:
        """Take a run off the list, or say why it could not be ended; the last one closes the dialog."""
        if run_id not in self._rows:
            return
        frame, note = self._rows[run_id]
        if problem:
            note.setText(problem)
            frame.setEnabled(True)
            return
        del self._rows[run_id]
        frame.setParent(None)
        frame.deleteLater()
        if not self._rows:
            self.close()

    def _on_end(self) -> None:
        self._end(str(self.sender().property("run_id")))

    def _on_end_all(self) -> None:
        for run_id in tuple(self._rows):
            self._end(run_id)

    def _end(self, run_id: str) -> None:
        frame, note = self._rows[run_id]
        frame.setEnabled(False)
        note.setText("Ending its processes \N{HORIZONTAL ELLIPSIS}")
        self.end_wanted.emit(run_id)

    def _on_adopt(self) -> None:
        run_id = str(self.sender().property("run_id"))
        self.close()
        self.adopt_wanted.emit(run_id)


def _button(label: str, tip: str, kind: str = "") -> QPushButton:
    button = QPushButton(label)
    button.setToolTip(tip)
    button.setAccessibleName(tip)
    button.setProperty("kind", kind)
    return button
