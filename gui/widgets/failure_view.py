"""Why an engine failed, where the log says so, and what to do next."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from backend.desk.types import RunView
from gui.theme import icon, symbol, theme
from gui.widgets import figures

_WIDEST = 760
_ICON_PX = 14
_UNKNOWN_CAUSE = "The engine ended without saying why."


class FailureView(QWidget):
    """What stands in place of the cards after a failure.

    Signals:
        retry_requested: start the same profile again.
        log_requested(int | None): show the log, at that line if one is known.
        dismissed: go back to the charts.
    """

    retry_requested = Signal()
    log_requested = Signal(object)
    dismissed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._line: int | None = None
        self._mark = QLabel(self)
        self.heading = QLabel(self)
        self.heading.setProperty("role", "heading")
        self.heading.setWordWrap(True)
        self.cause = QLabel(self)
        self.cause.setProperty("role", "code")
        self.cause.setTextFormat(Qt.TextFormat.PlainText)
        self.cause.setWordWrap(True)
        self.cause.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.cause.setAccessibleName("Cause of the failure")
        self.cause.setToolTip("The first real error, as the log has it; select it to copy a part")
        self.place = QLabel(self)
        self.place.setProperty("role", "muted")
        self.place.setWordWrap(True)
        self.retry = QPushButton("Retry", self)
        self.retry.setProperty("kind", "primary")
        self.retry.setAccessibleName("Retry")
        self.retry.setToolTip("Start the same profile again")
        self.retry.clicked.connect(self.retry_requested)
        self.show_log = QPushButton("Show log", self)
        self.show_log.setAccessibleName("Show the log at the cause")
        self.show_log.setToolTip("Open the log where the cause stands")
        self.show_log.clicked.connect(self._on_show_log)
        self.copy = QPushButton("Copy cause", self)
        self.copy.setAccessibleName("Copy the cause")
        self.copy.setToolTip("Copy the cause to the clipboard")
        self.copy.clicked.connect(self._on_copy)
        self.dismiss = QPushButton("Back to the charts", self)
        self.dismiss.setProperty("kind", "quiet")
        self.dismiss.setAccessibleName("Back to the charts")
        self.dismiss.setToolTip("Close this; the log stays on the Logs page")
        self.dismiss.clicked.connect(self.dismissed)
        for button in (self.retry, self.show_log, self.copy):
            button.setIconSize(QSize(_ICON_PX, _ICON_PX))

        head = QHBoxLayout()
        head.setSpacing(10)
        head.addWidget(self._mark)
        head.addWidget(self.heading, 1)
        inset = QFrame(self)
        inset.setProperty("inset", True)
        inset_layout = QVBoxLayout(inset)
        inset_layout.setContentsMargins(12, 10, 12, 10)
        inset_layout.addWidget(self.cause)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        for button in (self.retry, self.show_log, self.copy):
            buttons.addWidget(button)
        buttons.addStretch(1)
        buttons.addWidget(self.dismiss)
        frame = QFrame(self)
        frame.setProperty("card", True)
        frame.setMaximumWidth(_WIDEST)
        inside = QVBoxLayout(frame)
        inside.setContentsMargins(24, 20, 24, 20)
        inside.setSpacing(12)
        inside.addLayout(head)
        inside.addWidget(inset)
        inside.addWidget(self.place)
        inside.addLayout(buttons)
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

    def show_run(self, view: RunView) -> None:
        """Show a run that FAILED."""
        diagnosis = view.diagnosis
        self._line = diagnosis.log_line if diagnosis is not None else None
        spawned = view.log_file is not None
        title = view.title or view.profile or "The engine"
        self.heading.setText(f"“{title}” failed" if spawned else f"“{title}” could not be started")
        self.cause.setText(diagnosis.cause if diagnosis is not None and diagnosis.cause else _UNKNOWN_CAUSE)
        self.place.setText("\n".join(_places(view)))
        self.place.setVisible(bool(self.place.text()))
        self.show_log.setVisible(spawned)
        self.copy.setText("Copy cause")

    def _on_show_log(self) -> None:
        self.log_requested.emit(self._line)

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.cause.text())
        self.copy.setText("Copied")

    def _on_theme_changed(self) -> None:
        self._mark.setPixmap(symbol("error", theme.tokens.bad, size_px=22))
        self.retry.setIcon(icon("regenerate", theme.tokens.on_accent, size_px=_ICON_PX))
        self.show_log.setIcon(icon("logs", size_px=_ICON_PX))
        self.copy.setIcon(icon("copy", size_px=_ICON_PX))


def _places(view: RunView) -> list[str]:
    """Say how it ended, in which step, and where the log has the cause."""
    words = []
    diagnosis = view.diagnosis
    if diagnosis is not None and diagnosis.exit_words:
        words.append(f"How it ended: {diagnosis.exit_words}")
    if view.ready_at is None and view.phases:
        known = view.started_at is not None and view.ended_at is not None
        took = f" after {figures.duration((view.ended_at or 0.0) - (view.started_at or 0.0))}" if known else ""
        words.append(f"Last step{took}: {view.phases[-1].name}")
    if diagnosis is not None and diagnosis.log_line is not None and view.log_file is not None:
        words.append(f"Where: {view.log_file.name}, line {diagnosis.log_line:,}")
    return words
