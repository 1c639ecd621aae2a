"""The Logs page: the lines of the current run's engine or of an earlier one, followed, filtered and copied."""

import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QHideEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from backend.desk.types import JobProgress, LogBatch, RunEntry, RunView
from backend.errors import UserError
from backend.events import RunState
from gui.bridge import Bridge
from gui.panes.logs.counts import LogCounts
from gui.panes.logs.view import LogFrame, LogView
from gui.qt_models.line_filter import LineFilter
from gui.qt_models.log_lines import LogLines
from gui.theme import icon, theme
from gui.widgets.line_detail import LineDetail
from gui.widgets.log_toolbar import LogToolbar

_TYPING_MS = 150
_OUTCOMES = {
    RunState.STOPPED: "stopped",
    RunState.FAILED: "failed",
    RunState.PREFLIGHT: "starting",
    RunState.STARTING: "starting",
    RunState.READY: "running",
    RunState.UNRESPONSIVE: "not responding",
    RunState.STOPPING: "stopping",
}


class LogsPane(QWidget):
    """Reads a log only while it is seen; what was read stays when another page is shown.

    Attributes:
        open_url: opens a folder; tests put something else there.
    """

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self.open_url: Callable[[QUrl], bool] = QDesktopServices.openUrl
        self._choice: str | None = None  # run id; None is the current run
        self._followed: tuple[str | None] | None = None  # the choice whose lines are here
        self._run_id = ""  # of the lines that are here
        self._stale = True  # lines that come still belong to what was chosen before
        self._current: tuple[str, RunState] = ("", RunState.STOPPED)
        self._entries: tuple[RunEntry, ...] = ()
        self._wanted: int | None = None
        self._n_new = 0
        self._trouble = ""  # why the log cannot be read now
        self._anchor: int | None = None
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(_TYPING_MS)
        self._typing.timeout.connect(self._apply_filter)

        self.lines = LogLines(self)
        self.view = LogView(self.lines)
        self.toolbar = LogToolbar()
        self.detail = LineDetail()
        self.counts = LogCounts()
        self.news = QPushButton()
        self.news.setProperty("kind", "chip")
        self.news.setAccessibleName("New lines")
        self.news.setToolTip("Go to the newest line and follow again (End)")
        self.empty = QLabel()
        self.empty.setProperty("role", "muted")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setWordWrap(True)
        self.show_all = QPushButton("Show all lines")
        self.show_all.setAccessibleName("Show all lines")
        self.show_all.setToolTip("Take level and filter away")
        self._lay_out()
        self._connect()
        self._paint()
        self._show_state()

    def _lay_out(self) -> None:
        nothing = QWidget()
        middle = QVBoxLayout(nothing)
        middle.setSpacing(12)
        middle.addStretch()
        middle.addWidget(self.empty)
        middle.addWidget(self.show_all, 0, Qt.AlignmentFlag.AlignHCenter)
        middle.addStretch()
        self._stack = QStackedWidget()
        self._stack.addWidget(LogFrame(self.view))
        self._stack.addWidget(nothing)
        card = QFrame()
        card.setProperty("card", True)
        inside = QVBoxLayout(card)
        inside.setContentsMargins(8, 8, 8, 8)
        inside.setSpacing(8)
        inside.addWidget(self._stack, 1)
        inside.addWidget(self.detail)
        foot = QHBoxLayout()
        foot.setContentsMargins(4, 0, 4, 0)
        foot.setSpacing(8)
        foot.addWidget(self.counts, 1)
        foot.addWidget(self.news)
        # The chip comes and goes; the line under the list must not move.
        self.news.ensurePolished()
        foot.addStrut(self.news.sizeHint().height())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 4, 0, 0)
        layout.setSpacing(12)
        layout.addWidget(self.toolbar)
        layout.addWidget(card, 1)
        layout.addLayout(foot)
        layout.setSpacing(8)

    def _connect(self) -> None:
        self._bridge.log_lines.connect(self._on_lines)
        self._bridge.job_progressed.connect(self._on_progress)
        self._bridge.run_changed.connect(self._on_run_changed)
        self.toolbar.run_chosen.connect(self._on_run_chosen)
        self.toolbar.level_chosen.connect(self._apply_filter)
        self.toolbar.text_changed.connect(self._typing.start)
        self.toolbar.follow_wanted.connect(self.view.set_following)
        self.toolbar.copy_wanted.connect(self._on_copy)
        self.toolbar.folder_wanted.connect(self._on_open_folder)
        self.view.following_changed.connect(self._on_following)
        self.view.copy_wanted.connect(self._on_copy)
        self.view.current_changed.connect(self._on_selected)
        self.lines.scanned.connect(self._on_scanned)
        self.lines.filter_failed.connect(self.toolbar.show_problem)
        self.detail.closed.connect(self.view.clearSelection)
        self.news.clicked.connect(self._on_news)
        self.show_all.clicked.connect(self._on_show_all)
        self.counts.level_pressed.connect(self._on_level_pressed)
        theme.changed.connect(self._paint)
        children = Qt.ShortcutContext.WidgetWithChildrenShortcut
        for keys, slot in (
            (QKeySequence.StandardKey.Find, self.toolbar.begin_filter),
            (QKeySequence(Qt.Key.Key_Escape), self._on_escape),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setContext(children)
            shortcut.activated.connect(slot)

    # ---- what is followed ------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Read on where it was left."""
        super().showEvent(event)
        self._on_run_changed(self._bridge.run)
        self._refresh_runs()
        self._follow()

    def hideEvent(self, event: QHideEvent) -> None:
        """Read nothing while nobody looks."""
        super().hideEvent(event)
        self._bridge.call(self, self._bridge.desk.logs.unfollow())

    def _follow(self) -> None:
        resume = self._followed == (self._choice,)
        self._stale = not resume
        self._followed = (self._choice,)
        self._bridge.call(
            self, self._bridge.desk.logs.follow(self._choice, resume=resume), failed=self._on_follow_failed
        )

    def _on_follow_failed(self, error: UserError) -> None:
        self._followed = None
        self.lines.clear()
        self._show_state(str(error))
        self._refresh_runs()

    def _refresh_runs(self) -> None:
        self._bridge.call(self, self._bridge.desk.logs.runs(), done=self._show_runs)

    def _show_runs(self, entries: tuple[RunEntry, ...]) -> None:
        self._entries = entries
        view = self._bridge.run
        current = "Current run" + (f" · {view.title or view.profile}" if view.run_id else "")
        runs = [(None, current), *((e.run_id, _label(e)) for e in entries if e.run_id != view.run_id)]
        if self._choice is not None and self._choice not in (run_id for run_id, _ in runs):
            known = {entry.run_id: entry for entry in entries}
            runs += [(self._choice, _label(known[self._choice]))] if self._choice in known else []
        self.toolbar.show_runs(runs, self._choice)

    def _on_run_chosen(self, run_id: str | None) -> None:
        if run_id != self._choice:
            self._choice = run_id
            self._wanted = None
            self.view.set_following(True)
            self._follow()

    def _on_run_changed(self, view: RunView) -> None:
        if (view.run_id, view.state) != self._current:
            self._current = (view.run_id, view.state)
            if self.isVisible():
                self._refresh_runs()

    # ---- lines -----------------------------------------------------------------------------------------------

    def _on_lines(self, batch: LogBatch) -> None:
        if batch.reset:
            self._run_id, self._stale, self._n_new = batch.run_id, False, 0
            self.lines.clear()
        if self._stale:
            return
        n_before = self.lines.n_lines
        self.lines.append(batch.lines, replaces_last=batch.replaces_last)
        if not self.view.following and n_before:
            self._n_new += len(batch.lines) - int(batch.replaces_last)
        self._look_for_wanted()
        self._show_state()

    def _on_progress(self, progress: JobProgress) -> None:
        if progress.job == "logs":
            self._trouble = progress.text
            self._show_state()

    def show_line(self, number: int) -> None:
        """Choose the current run, and select and centre one of its lines as soon as it is there."""
        self._wanted = number
        if self._choice is not None:
            self._choice = None
            self._refresh_runs()
            if self.isVisible():
                self._follow()
        self.toolbar.clear_filter()
        self._apply_filter()
        self.view.set_following(False)
        self._look_for_wanted()

    def _look_for_wanted(self) -> None:
        if self._wanted is None or self._stale or self._run_id != self._bridge.run.run_id:
            return
        if self.lines.last_number >= self._wanted:
            row = self.lines.row_of(self._wanted)
            self._wanted = None
            if row is not None:
                self.view.show_row(row)
                self.view.setFocus()

    def _apply_filter(self) -> None:
        self._typing.stop()
        wanted = LineFilter(self.toolbar.level, self.toolbar.text, is_regex=self.toolbar.is_regex)
        self.toolbar.show_problem(wanted.problem)
        known = self.lines.filter
        if (wanted.level, wanted.text, wanted.is_regex) == (known.level, known.text, known.is_regex):
            return
        self._anchor = None if self.view.following else self.view.middle_number()
        self.view.show_matches(wanted)
        self.lines.set_filter(wanted)
        self._show_state()

    def _on_scanned(self) -> None:
        anchor, self._anchor = self._anchor, None
        if self.view.following:
            self.view.scrollToBottom()
        elif anchor is not None and (row := self.lines.row_of(anchor)) is not None:
            self.view.scrollTo(self.lines.index(row), LogView.ScrollHint.PositionAtCenter)
        self._show_state()

    # ---- what is done with them ------------------------------------------------------------------------------

    def _on_following(self, following: bool) -> None:
        if following:
            self._n_new = 0
        self.toolbar.show_following(following)
        self._show_state()

    def _on_news(self) -> None:
        self.view.clearSelection()
        self.view.set_following(True)
        self.view.setFocus()

    def _on_show_all(self) -> None:
        self.toolbar.clear_filter()
        self._apply_filter()

    def _on_level_pressed(self, level: str) -> None:
        """Show lines from a level on, or again all lines."""
        self.toolbar.choose_level("" if self.toolbar.level == level else level)
        self._apply_filter()

    def _on_escape(self) -> None:
        if not self.detail.isHidden():
            self.view.clearSelection()
        else:
            self._on_show_all()

    def _on_selected(self) -> None:
        rows = self.view.selected_rows()
        if len(rows) == 1:
            self.detail.show_line(self.lines.line(rows[0]))
        else:
            self.detail.hide()
        self.toolbar.show_selected(len(rows))

    def _on_copy(self) -> None:
        rows = self.view.selected_rows() or range(self.lines.rowCount())
        QGuiApplication.clipboard().setText("\n".join(self.lines.line(row).text for row in rows))
        n_lines = len(rows)
        self.toolbar.show_copied(f"{n_lines:,} {'line' if n_lines == 1 else 'lines'} copied")

    def _on_open_folder(self) -> None:
        file = next((entry.log_file for entry in self._entries if entry.run_id == self._run_id), None)
        file = file or self._bridge.run.log_file
        if file is not None:
            self.open_url(QUrl.fromLocalFile(str(file.parent)))

    # ---- words -----------------------------------------------------------------------------------------------

    def _show_state(self, problem: str = "") -> None:
        n_lines, n_shown = self.lines.n_lines, self.lines.rowCount()
        if problem or n_lines == 0:
            words = problem or self._trouble or self._empty_words()
        elif n_shown == 0 and not self.lines.is_scanning:
            words = "No line matches. Choose another level or another filter."
        else:
            words = ""
        self.show_all.setVisible(n_lines > 0)
        if words != self.empty.text():
            self.empty.setText(words)
            self.empty.setAccessibleName(words)
        self._stack.setCurrentIndex(1 if words else 0)
        self.counts.show_counts(self.lines, n_shown=n_shown, level=self.toolbar.level, trouble=self._trouble)
        self.toolbar.show_can(copy=n_shown > 0, folder=bool(self._run_id))
        n_new = self._n_new
        self.news.setVisible(n_new > 0 and not self.view.following)
        if n_new:
            said = f"{n_new:,} new {'line' if n_new == 1 else 'lines'}"
            self.news.setText(said)
            self.news.setAccessibleName(said)

    def _empty_words(self) -> str:
        if self._run_id:
            return "The engine has not written anything yet."
        if len(self._entries) > 0:
            return (
                "No engine has been started since this window was opened.\nChoose an earlier run above to read its log."
            )
        return "No engine has been started yet.\nChoose a profile in the top bar and press Start: its log appears here."

    def _paint(self) -> None:
        self.news.setIcon(icon("down", theme.tokens.accent, size_px=14))


def _label(entry: RunEntry) -> str:
    when = time.strftime("%d %b, %H:%M", time.localtime(entry.started_at)).lstrip("0")
    return f"{when} · {entry.profile} · {_OUTCOMES[entry.state]}"
