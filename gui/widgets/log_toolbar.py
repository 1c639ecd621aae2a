"""The row over a log: which run, which lines, follow or pause, copy, folder."""

from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from gui.theme import code_font, icon, theme

_LEVELS = (("All levels", ""), ("Info and above", "INFO"), ("Warnings and errors", "WARNING"), ("Errors only", "ERROR"))
_COPIED_MS = 2500
_COPY = "Copy lines"


class LogToolbar(QWidget):
    """Holds the controls and their state; what they mean is decided elsewhere.

    Signals:
        run_chosen(object): a run id, None for the current run.
        level_chosen: `level` or the kind of the filter is another one.
        text_changed: `text` is another one; a person is typing.
        follow_wanted(bool): follow the newest line, or pause.
        copy_wanted, folder_wanted: a button was pressed.
    """

    run_chosen = Signal(object)
    level_chosen = Signal()
    text_changed = Signal()
    follow_wanted = Signal(bool)
    copy_wanted = Signal()
    folder_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._following = True
        self.runs = QComboBox()
        self.runs.setAccessibleName("Run")
        self.runs.setToolTip("Whose log is shown: that of the current run, or of an earlier one")
        self.runs.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.runs.setMinimumContentsLength(26)
        self.runs.addItem("Current run", None)
        self.levels = QComboBox()
        self.levels.setAccessibleName("Level")
        self.levels.setToolTip("How serious a line must be to be shown")
        for label, level in _LEVELS:
            self.levels.addItem(label, level)
        self.filter = QLineEdit()
        self.filter.setPlaceholderText("Filter")
        self.filter.setAccessibleName("Filter")
        self.filter.setToolTip("Show only lines with this text (Ctrl+F)")
        self.filter.setMinimumWidth(140)
        self.filter.setTextMargins(-8, 0, 0, 0)  # the symbol has room enough around it
        self._search = QAction("Filter", self)
        self._clear = QAction("Clear the filter", self)
        self._clear.triggered.connect(self.filter.clear)
        self._clear.setVisible(False)
        self.filter.addAction(self._search, QLineEdit.ActionPosition.LeadingPosition)
        self.filter.addAction(self._clear, QLineEdit.ActionPosition.TrailingPosition)
        for mark in self.filter.findChildren(QToolButton):  # small marks inside the field, no buttons of ours
            mark.setStyleSheet("QToolButton { padding: 0; border: none; background: transparent; min-height: 0; }")
            mark.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            mark.setAccessibleName("Clear the filter" if mark.defaultAction() is self._clear else "Filter")
            mark.setToolTip(mark.accessibleName())
        self.regex = QPushButton(".*")
        self.regex.setProperty("kind", "chip")
        self.regex.setFont(code_font())
        self.regex.setCheckable(True)
        self.regex.setAccessibleName("Regular expression")
        self.regex.setToolTip("Read the filter as a regular expression")
        self.follow = QPushButton()
        self.copy = QPushButton(_COPY)
        self.folder = QToolButton()
        self.folder.setAccessibleName("Open folder")
        self.folder.setToolTip("Open the folder of this run")
        self._problem = QLabel()
        self._problem.setWordWrap(True)
        self._problem.setProperty("role", "bad-note")
        self._problem.setAccessibleName("Problem of the filter")
        self._problem.hide()
        self._copied = QTimer(self)
        self._copied.setSingleShot(True)
        self._copied.setInterval(_COPIED_MS)
        self._copied.timeout.connect(self._on_copied_over)
        self._n_selected = 0
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.runs, 3)
        row.addWidget(self.levels)
        row.addWidget(self.filter, 3)
        row.addWidget(self.regex)
        row.addSpacing(8)
        row.addWidget(self.follow)
        row.addWidget(self.copy)
        row.addWidget(self.folder)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(row)
        layout.addWidget(self._problem)
        self.runs.activated.connect(self._on_run)
        self.levels.activated.connect(self.level_chosen)
        self.filter.textChanged.connect(self._on_text)
        self.regex.toggled.connect(self.level_chosen)
        self.follow.clicked.connect(self._on_follow)
        self.copy.clicked.connect(self.copy_wanted)
        self.folder.clicked.connect(self.folder_wanted)
        theme.changed.connect(self._paint)
        self._paint()
        for button, labels in ((self.follow, ("Pause", "Follow")), (self.copy, ("Copied", _COPY))):
            for label in labels:  # the row must not move when a label changes
                button.setText(label)
                button.ensurePolished()
                button.setMinimumWidth(max(button.minimumWidth(), button.sizeHint().width()))
        self.show_following(True)
        self.show_selected(0)
        controls = (self.runs, self.levels, self.filter, self.regex, self.follow, self.copy, self.folder)
        for control in controls:
            control.ensurePolished()
        height = max(control.sizeHint().height() for control in controls)
        for control in controls:
            control.setFixedHeight(height)

    # ---- what is chosen --------------------------------------------------------------------------------------

    @property
    def level(self) -> str:
        """The least level, "" for all."""
        return str(self.levels.currentData())

    @property
    def text(self) -> str:
        """The filter."""
        return self.filter.text()

    @property
    def is_regex(self) -> bool:
        """Whether the filter is a regular expression."""
        return self.regex.isChecked()

    def begin_filter(self) -> None:
        """Let a person type the filter."""
        self.filter.setFocus()
        self.filter.selectAll()

    def choose_level(self, level: str) -> None:
        """Show another least level, without telling."""
        self.levels.setCurrentIndex(self.levels.findData(level))

    def clear_filter(self) -> None:
        """Show every line, without telling."""
        blockers = [QSignalBlocker(self.levels), QSignalBlocker(self.filter), QSignalBlocker(self.regex)]
        self.levels.setCurrentIndex(0)
        self.filter.clear()
        self._clear.setVisible(False)
        self.regex.setChecked(False)
        self.show_problem("")
        del blockers

    # ---- what is shown ---------------------------------------------------------------------------------------

    def show_runs(self, runs: Sequence[tuple[str | None, str]], chosen: str | None) -> None:
        """Offer runs, as id and label."""
        labels = [(self.runs.itemData(row), self.runs.itemText(row)) for row in range(self.runs.count())]
        if labels != list(runs):
            self.runs.clear()
            for run_id, label in runs:
                self.runs.addItem(label, run_id)
        self.runs.setCurrentIndex(next((row for row, (run_id, _) in enumerate(runs) if run_id == chosen), 0))

    def show_following(self, following: bool) -> None:
        """Say what pressing the button does now."""
        self._following = following
        label = "Pause" if following else "Follow"
        self.follow.setText(label)
        self.follow.setAccessibleName(label)
        self.follow.setToolTip(
            "Let the list stand still; new lines are still collected"
            if following
            else "Go to the newest line and keep it in sight (End)"
        )
        self._paint()

    def show_problem(self, words: str) -> None:
        """Say what is wrong with the filter, "" for nothing."""
        self._problem.setText(words)
        self._problem.setVisible(bool(words))
        self.filter.setProperty("state", "bad" if words else "")
        self.filter.style().unpolish(self.filter)
        self.filter.style().polish(self.filter)

    @property
    def problem(self) -> str:
        """What is wrong with the filter, as shown."""
        return self._problem.text()

    def show_selected(self, n_lines: int) -> None:
        """Say what Copy would copy."""
        self._n_selected = n_lines
        what = "all shown lines" if n_lines == 0 else f"{n_lines:,} selected {'line' if n_lines == 1 else 'lines'}"
        self.copy.setAccessibleName(f"Copy {what}")
        self.copy.setToolTip(f"Copy {what} (Ctrl+C)")

    def show_copied(self, words: str) -> None:
        """Say for a moment what was copied."""
        self.copy.setText("Copied")
        self.copy.setToolTip(words)
        self.copy.setAccessibleName(words)
        self._copied.start()
        self._paint()

    def show_can(self, *, copy: bool, folder: bool) -> None:
        """Enable what can be done."""
        self.copy.setEnabled(copy)
        self.folder.setEnabled(folder)

    # ---- slots -----------------------------------------------------------------------------------------------

    def _on_text(self, text: str) -> None:
        self._clear.setVisible(bool(text))
        self.text_changed.emit()

    def _on_run(self) -> None:
        self.run_chosen.emit(self.runs.currentData())

    def _on_follow(self) -> None:
        self.follow_wanted.emit(not self._following)

    def _on_copied_over(self) -> None:
        self.copy.setText(_COPY)
        self.show_selected(self._n_selected)
        self._paint()

    def _paint(self) -> None:
        self._search.setIcon(icon("search", theme.tokens.muted, size_px=16))
        self._clear.setIcon(icon("close", theme.tokens.muted, size_px=16))
        self.folder.setIcon(icon("folder"))
        self.follow.setIcon(icon("pause" if self._following else "follow", size_px=16))
        self.copy.setIcon(icon("check" if self._copied.isActive() else "copy", size_px=16))
        for button in (self.follow, self.copy):
            button.setIconSize(QSize(16, 16))
