"""The start of an engine as it goes on: steps with their time and the usual time, and progress where it is known."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from backend.desk.types import RunView
from backend.events import Phase, RunState
from gui.theme import icon, symbol, theme
from gui.widgets import figures

SILENT_S = 30.0
_WIDEST = 760
_ICON_PX = 16


class _Step(QWidget):
    """One line: mark, name, time, and what is going on."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.phase = Phase("", 0.0)
        self._mark = QLabel(self)
        self._mark.setFixedWidth(_ICON_PX + 8)
        self.name = QLabel(self)
        self.time = QLabel(self)
        self.time.setProperty("role", "code")
        self.time.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.usual = QLabel(self)
        self.usual.setProperty("role", "note")
        self.usual.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.usual.setMinimumWidth(96)
        self.detail = QLabel(self)
        self.detail.setTextFormat(Qt.TextFormat.PlainText)
        self.bar = QProgressBar(self)
        self.bar.setTextVisible(False)
        self.bar.setRange(0, 1000)
        self.bar.setToolTip("Counted in the engine's log")
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 4, 0, 4)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(4)
        grid.addWidget(self._mark, 0, 0)
        grid.addWidget(self.name, 0, 1)
        grid.addWidget(self.detail, 0, 2)
        grid.addWidget(self.time, 0, 3)
        grid.addWidget(self.usual, 0, 4)
        grid.addWidget(self.bar, 1, 1, 1, 4)
        grid.setColumnStretch(2, 1)

    def show_phase(self, phase: Phase, elapsed_s: float, silent_s: float) -> None:
        """Show a step that began and, if it has not ended, runs at `elapsed_s` after the spawn."""
        self.phase = phase
        done = phase.ended_s is not None
        took_s = (elapsed_s if phase.ended_s is None else phase.ended_s) - phase.started_s
        self.name.setText(phase.name)
        self._set_role(self.name, "muted" if done else "title")
        self.time.setText(figures.took(took_s))
        self.usual.setText("" if phase.usual_s is None else f"usually {figures.duration(phase.usual_s)}")
        if done:
            words, role = phase.detail, "note"
        elif silent_s > SILENT_S:
            words, role = f"no sign of life for {figures.duration(silent_s)}: log and CPU are still", "warn-note"
        else:
            words, role = phase.detail or "working", "note"
        self.detail.setText(words)
        self._set_role(self.detail, role)
        known = not done and phase.fraction is not None
        self.bar.setVisible(known)
        if phase.fraction is not None:
            self.bar.setValue(round(phase.fraction * 1000))
            self.bar.setAccessibleName(f"{phase.name}: {figures.percent(phase.fraction)}")
        self.setAccessibleName(f"{phase.name}, {'done' if done else 'now'}, {self.time.text()}, {words}")
        self.paint_mark(stuck=role == "warn-note")

    def paint_mark(self, *, stuck: bool = False) -> None:
        """Show whether it is done, runs or is stuck."""
        if self.phase.ended_s is not None:
            self._mark.setPixmap(symbol("check", theme.tokens.ok, size_px=_ICON_PX))
        else:
            colour = theme.tokens.warn if stuck else theme.tokens.accent
            self._mark.setPixmap(symbol("warning" if stuck else "right", colour, size_px=_ICON_PX))

    def _set_role(self, label: QLabel, role: str) -> None:
        if label.property("role") != role:
            label.setProperty("role", role)
            label.style().unpolish(label)
            label.style().polish(label)


class StartupTimeline(QWidget):
    """What stands in place of the cards while an engine is prepared and starts.

    Signals:
        log_requested: show the log.
    """

    log_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.steps: list[_Step] = []
        self.heading = QLabel(self)
        self.heading.setProperty("role", "heading")
        self.heading.setWordWrap(True)
        self.total = QLabel(self)
        self.total.setProperty("role", "muted")
        self.activity = QLabel(self)
        self.activity.setTextFormat(Qt.TextFormat.PlainText)
        self.activity.setWordWrap(True)
        self.bar = QProgressBar(self)
        self.bar.setTextVisible(False)
        self.bar.setRange(0, 1000)
        self.bar.setAccessibleName("Progress")
        self.bar.setToolTip("How much of this step is done")
        self.hint = QLabel(self)
        self.hint.setProperty("role", "note")
        self.hint.setWordWrap(True)
        self.show_log = QPushButton("Show log", self)
        self.show_log.setAccessibleName("Show the log of the start")
        self.show_log.setToolTip("Open the log, where every line of the engine stands")
        self.show_log.setIconSize(QSize(_ICON_PX, _ICON_PX))
        self.show_log.clicked.connect(self.log_requested)
        frame = QFrame(self)
        frame.setProperty("card", True)
        frame.setMaximumWidth(_WIDEST)
        inside = QVBoxLayout(frame)
        inside.setContentsMargins(24, 20, 24, 20)
        inside.setSpacing(8)
        inside.addWidget(self.heading)
        inside.addWidget(self.total)
        inside.addSpacing(8)
        inside.addWidget(self.activity)
        inside.addWidget(self.bar)
        self._steps_layout = QVBoxLayout()
        self._steps_layout.setSpacing(0)
        inside.addLayout(self._steps_layout)
        inside.addSpacing(4)
        below = QHBoxLayout()
        below.setSpacing(12)
        below.addWidget(self.hint, 1)
        below.addWidget(self.show_log)
        inside.addLayout(below)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(frame, 100)
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addStretch(1)
        layout.addLayout(row)
        layout.addStretch(2)
        theme.changed.connect(self._on_theme_changed)
        self._on_theme_changed()

    def show_run(self, view: RunView, now: float) -> None:
        """Show a run in PREFLIGHT or STARTING at the Unix time `now`."""
        title = view.title or view.profile or "the engine"
        preparing = view.state is RunState.PREFLIGHT
        self.heading.setText(f"{'Preparing' if preparing else 'Starting'} {title}")
        self.activity.setVisible(preparing)
        busy = "" if view.activity_fraction is not None else " \N{HORIZONTAL ELLIPSIS}"
        self.activity.setText(f"{view.activity or 'Checking'}{busy}")
        self.bar.setVisible(preparing and view.activity_fraction is not None)
        if view.activity_fraction is not None:
            self.bar.setValue(round(view.activity_fraction * 1000))
        phases = () if preparing else view.phases
        while len(self.steps) < len(phases):
            step = _Step(self)
            self.steps.append(step)
            self._steps_layout.addWidget(step)
        while len(self.steps) > len(phases):
            step = self.steps.pop()
            self._steps_layout.removeWidget(step)
            step.deleteLater()
        elapsed_s = max(now - view.started_at, 0.0) if view.started_at is not None else 0.0
        for step, phase in zip(self.steps, phases, strict=True):
            step.show_phase(phase, elapsed_s, view.silent_s)
            # Room for the usual times in every line, so that the times stand in a column, or in none.
            step.usual.setVisible(any(each.usual_s is not None for each in phases))
        self.total.setVisible(not preparing)
        self.total.setText(_total(phases, elapsed_s))
        self.hint.setText("Stop gives it up." if preparing else "Stop ends the engine.")
        self.show_log.setVisible(not preparing)

    def _on_theme_changed(self) -> None:
        self.show_log.setIcon(icon("logs", size_px=_ICON_PX))
        for step in self.steps:
            step.paint_mark()


def _total(phases: tuple[Phase, ...], elapsed_s: float) -> str:
    """Say how long it has taken, and how long the steps so far usually take; later steps are not known yet."""
    usual = [phase.usual_s for phase in phases if phase.usual_s is not None]
    words = f"{figures.elapsed(elapsed_s)} so far"
    if usual and len(usual) == len(phases):
        words += f"; these steps usually take {figures.duration(sum(usual))}"
    return words
