"""Below a log: how many lines there are, how many of them warn, and buttons that show only those."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from gui.qt_models.log_lines import MAX_LINES, LogLines


class LogCounts(QWidget):
    """One line of figures.

    Signals:
        level_pressed(str): the button of this level was pressed.
    """

    level_pressed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.total, self.remark = QLabel(), QLabel()
        self.warnings, self.errors = QPushButton(), QPushButton()
        for label, name in ((self.total, "Number of lines"), (self.remark, "Remark on the log")):
            label.setProperty("role", "muted")
            label.setAccessibleName(name)
        for button in (self.warnings, self.errors):
            button.setProperty("kind", "chip")
            button.setCheckable(True)
        self.remark.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        for widget in (self.total, self.warnings, self.errors):
            row.addWidget(widget)
        row.addWidget(self.remark, 1)
        self.warnings.clicked.connect(self._on_warnings)
        self.errors.clicked.connect(self._on_errors)

    def show_counts(self, lines: LogLines, *, n_shown: int, level: str, trouble: str) -> None:
        """Show how it stands.

        Args:
            lines: what is held.
            n_shown: how many of them pass the filter.
            level: the level that is chosen, "" for all.
            trouble: what goes wrong with reading the log, "" for nothing.
        """
        n_lines, n_gone = lines.n_lines, lines.n_overwritten
        total = _counted(n_lines + n_gone, "line")
        if lines.oldest_number > 1:
            total = f"newest {total}"
        words = f"{n_shown:,} of {total}" if n_shown != n_lines else total[0].upper() + total[1:]
        if n_gone and n_shown == n_lines:
            words += f", {n_gone:,} of them overwritten by a progress bar"
        self.total.setText(words if n_lines else "")
        for button, shows, n_found, word, tip in (
            (self.warnings, "WARNING", lines.n_warnings, "warning", "Show only warnings and errors"),
            (self.errors, "ERROR", lines.n_errors, "error", "Show only errors; a traceback counts as one"),
        ):
            text = _counted(n_found, word)
            button.setVisible(n_lines > 0)
            button.setText(text)
            button.setAccessibleName(text)
            button.setChecked(level == shows)
            button.setToolTip("Show lines of all levels again" if level == shows else tip)
        cut = "older lines are in the file" if n_lines >= MAX_LINES else ""
        self.remark.setText(" · ".join(filter(None, (cut, trouble))) if n_lines else "")

    def _on_warnings(self) -> None:
        self.level_pressed.emit("WARNING")

    def _on_errors(self) -> None:
        self.level_pressed.emit("ERROR")


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
