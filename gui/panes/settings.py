"""The Settings page: engines, looks, sampling, what happens on closing, runs that are kept, folders."""

from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

from backend.desk.types import EngineEntry, JobProgress, Question, Reading, RunView, SettingsView
from backend.errors import UserError
from gui.bridge import Bridge
from gui.panes.settings_calibration import CalibrationCard
from gui.theme import icon, theme
from gui.widgets.add_engine_panel import AddEnginePanel
from gui.widgets.choice_dialog import Answer, ChoiceDialog
from gui.widgets.edge_line import EdgeLine
from gui.widgets.engine_list import EngineList
from gui.widgets.gpu_peaks import KEY as PEAKS
from gui.widgets.gpu_peaks import GpuPeaks
from gui.widgets.install_panel import InstallPanel
from gui.widgets.setting_cards import setting_cards
from gui.widgets.setting_rows import FolderRow, SettingCard, SettingRow
from gui.widgets.words_label import words_label

_WIDTH_PX = 860
_GAP_PX = 12  # between the column and its scroll bar


class SettingsPane(QWidget):
    """Every change is written at once.

    Attributes:
        open_url: opens a folder; tests put something else there.
        rows: the settings by key.

    Signals:
        engines_changed: an engine was installed, added, probed or removed.
    """

    engines_changed = Signal()

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self.open_url: Callable[[QUrl], bool] = QDesktopServices.openUrl
        self.rows: dict[str, SettingRow] = {}
        self.folders: dict[str, FolderRow] = {}
        self._unsaved: deque[tuple[SettingRow, object]] = deque()
        self._saving = False
        self._busy: dict[str, str] = {}
        self._cancelling = False  # the person has given the install up here
        self.question: ChoiceDialog | None = None
        self._column = QVBoxLayout()
        self._column.setSpacing(12)
        self._make_engines()
        self.calibration = CalibrationCard(bridge)
        self._column.addWidget(self.calibration)
        self._make_settings()
        self._folder_card = SettingCard("Folders")
        self._column.addWidget(self._folder_card)
        self._column.addStretch()
        self._lay_out()
        self._was_live = bridge.run.is_live
        bridge.job_progressed.connect(self._on_progress)
        bridge.run_changed.connect(self._on_run_changed)
        bridge.sampled.connect(self._on_sampled)
        theme.changed.connect(self._paint)
        self._paint()

    def _lay_out(self) -> None:
        heading = QLabel("Settings")
        heading.setProperty("role", "heading")
        self._column.insertWidget(0, heading)
        column = QWidget()
        column.setMaximumWidth(_WIDTH_PX)  # longer lines are hard to read
        self._column.setContentsMargins(0, 0, 0, 0)
        column.setLayout(self._column)
        middle = QWidget()
        row = QHBoxLayout(middle)
        row.setContentsMargins(0, 4, _GAP_PX, 12)
        row.addWidget(column, 1000)
        row.addStretch(1)
        self.area = QScrollArea()
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setWidget(middle)
        self.area.setProperty("role", "steady")
        self.area.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        EdgeLine(self.area)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.area)

    def _make_engines(self) -> None:
        card = SettingCard(
            "Engines", "The vLLM installations that models run on. Each lives in an environment of its own."
        )
        self.install_button = QPushButton("Install vLLM…")
        self.install_button.setAccessibleName("Install an engine")
        self.install_button.setToolTip("Download a vLLM that fits this machine")
        self.add_button = QPushButton("Add existing…")
        self.add_button.setAccessibleName("Add an engine")
        self.add_button.setToolTip("Use a vLLM that you installed yourself")
        card.head.addWidget(self.install_button)
        card.head.addWidget(self.add_button)
        self.install = InstallPanel()
        self.add = AddEnginePanel()
        self.problem = words_label("bad", "Problem with an engine")
        self.problem.hide()
        self.engines = EngineList()
        for widget in (self.install, self.add, self.problem, self.engines):
            card.body.addWidget(widget)
        self._column.addWidget(card)
        self.install_button.clicked.connect(self.install.begin)
        self.add_button.clicked.connect(self.add.begin)
        self.install.plan_wanted.connect(self._on_plan_wanted)
        self.install.agreed.connect(self._on_agreed)
        self.install.cancel_wanted.connect(self._on_cancel)
        self.install.closed.connect(self.install_button.setFocus)
        self.add.path_given.connect(self._on_path)
        self.add.closed.connect(self.add_button.setFocus)
        self.engines.probe_wanted.connect(self._on_probe)
        self.engines.remove_wanted.connect(self._on_remove)
        self.engines.add_wanted.connect(self._on_use)

    def _make_settings(self) -> None:
        for title, rows in setting_cards():
            card = SettingCard(title)
            for row in rows:
                card.body.addWidget(row)
                row.changed.connect(self._on_changed)
                row.setEnabled(False)  # until it is known what is set
                self.rows[row.key] = row
            self._column.addWidget(card)

    def showEvent(self, event: QShowEvent) -> None:
        """Look again: engines and settings may have been changed from a terminal."""
        super().showEvent(event)
        self._refresh_engines()
        self.calibration.refresh()
        self._show_gpus()
        if not self._saving:
            self._bridge.call(self, self._bridge.desk.settings_view(), done=self._show_settings)

    def _on_sampled(self, _reading: Reading) -> None:
        if self.isVisible():  # a peak that was entered is in use from the next reading on
            self._show_gpus()

    def _show_gpus(self) -> None:
        peaks = self.rows[PEAKS]
        assert isinstance(peaks, GpuPeaks)
        peaks.show_gpus(self._bridge.gpus.gpus if self._bridge.gpus is not None else ())

    def _on_run_changed(self, run: RunView) -> None:
        if run.is_live != self._was_live:  # an engine that runs cannot be removed
            self._was_live = run.is_live
            if self.isVisible():
                self._refresh_engines()

    # ---- settings --------------------------------------------------------------------------------------------

    def _show_settings(self, view: SettingsView) -> None:
        for key, row in self.rows.items():
            row.setEnabled(True)
            row.show_value(view.values[key])
        if {name: row.folder for name, row in self.folders.items()} == dict(view.folders):
            return
        for shown in self.folders.values():
            shown.deleteLater()
        self.folders = {}
        for name, folder in view.folders.items():
            self.folders[name] = FolderRow(name, folder)
            self.folders[name].open_wanted.connect(self._on_open)
            self._folder_card.body.addWidget(self.folders[name])

    def _on_changed(self, key: str, value: object) -> None:
        if key == "theme":
            theme.apply(str(value))
        self._unsaved.append((self.rows[key], value))
        self._save_next()

    def _save_next(self) -> None:
        """One after the other: each change is made to what the one before has written."""
        if self._saving or not self._unsaved:
            return
        self._saving = True
        row, value = self._unsaved.popleft()

        def done(_view: SettingsView) -> None:
            row.show_saved()
            self._saved()

        def failed(error: UserError) -> None:
            row.show_problem(str(error))
            self._saved()

        self._bridge.call(self, self._bridge.desk.change_settings(**{row.key: value}), done=done, failed=failed)

    def _saved(self) -> None:
        self._saving = False
        self._save_next()

    def _on_open(self, folder: Path) -> None:
        while not folder.exists() and folder != folder.parent:  # nothing was written into it yet
            folder = folder.parent
        self.open_url(QUrl.fromLocalFile(str(folder)))

    # ---- engines ---------------------------------------------------------------------------------------------

    def _refresh_engines(self) -> None:
        self._bridge.call(self, self._bridge.desk.engines.list(), done=self._show_engines)

    def _show_engines(self, entries: tuple[EngineEntry, ...]) -> None:
        self.engines.show_engines(entries)
        self._show_busy()

    def _tell_changed(self) -> None:
        self._refresh_engines()
        self.engines_changed.emit()

    def _on_plan_wanted(self, build: str | None) -> None:
        def done(question: Question) -> None:
            if self.install.wants(build):
                self.install.show_question(question)

        def failed(error: UserError) -> None:
            if self.install.wants(build):
                self.install.show_problem(str(error))

        self._bridge.call(self, self._bridge.desk.engines.question(build), done=done, failed=failed)

    def _on_agreed(self, build: str | None) -> None:
        self.install_button.setEnabled(False)
        self._cancelling = False
        self._bridge.call(
            self, self._bridge.desk.engines.install(build), done=self._on_installed, failed=self._on_install_failed
        )

    def _on_progress(self, progress: JobProgress) -> None:
        if progress.job == "install":
            self.install.show_progress(progress)
        elif progress.job == "engines" and self.isVisible():  # changed, perhaps by a start
            self._refresh_engines()

    def _on_installed(self, _entry: EngineEntry) -> None:
        self._end_install()

    def _on_install_failed(self, error: UserError) -> None:
        if self._cancelling:
            self._end_install()
            return
        self.install_button.setEnabled(True)
        self.install.show_problem(str(error))
        self._tell_changed()

    def _on_cancel(self) -> None:
        self._cancelling = True  # what awaits the install hears of its end
        self._bridge.call(self, self._bridge.desk.engines.cancel_install())

    def _end_install(self) -> None:
        self.install_button.setEnabled(True)
        self.install.finish()
        self._tell_changed()

    def _on_path(self, path: str) -> None:
        def done(_entry: EngineEntry) -> None:
            self.add.show_busy(False)
            self.add.finish()
            self._tell_changed()

        def failed(error: UserError) -> None:
            self.add.show_busy(False)
            self.add.show_problem(str(error))

        self.add.show_busy(True)
        self._bridge.call(self, self._bridge.desk.engines.add(Path(path).expanduser()), done=done, failed=failed)

    def _on_use(self, entry: EngineEntry) -> None:
        self._work_on(entry, "Asking its vLLM (about 20 s) …", self._bridge.desk.engines.add(entry.folder))

    def _on_probe(self, entry: EngineEntry) -> None:
        self._work_on(entry, "Asking its vLLM (about 20 s) …", self._bridge.desk.engines.probe(entry.id))

    def _on_remove(self, entry: EngineEntry) -> None:
        if entry.managed:
            text = f"Everything in {entry.folder} is deleted. It can be installed again by a download."
            yes = Answer("yes", "Delete it", "danger")
        else:
            text = f"Specdeck forgets {entry.id}. Its files in {entry.folder} stay as they are."
            yes = Answer("yes", "Forget it", "primary")
        self.question = ChoiceDialog(
            self, title=f"Remove {entry.id}?", text=text, answers=(yes, Answer("no", "Keep it"))
        )

        def chosen(key: str) -> None:
            self.question = None
            if key == "yes":
                self._work_on(entry, "Removing …", self._bridge.desk.engines.remove(entry.id))

        self.question.chosen.connect(chosen)
        self.question.open()

    def _work_on(self, entry: EngineEntry, words: str, work: Coroutine[Any, Any, object]) -> None:
        """Do something with one engine; its row says so, also after the list was read anew."""
        self._show_problem("")
        self._busy[entry.id] = words
        self._show_busy()

        def done(_answer: object) -> None:
            del self._busy[entry.id]
            self._tell_changed()  # its row says itself if it does not work

        def failed(error: UserError) -> None:
            self._show_problem(str(error))
            done(None)

        self._bridge.call(self, work, done=done, failed=failed)

    def _show_busy(self) -> None:
        for identity, words in self._busy.items():
            if (row := self.engines.rows.get(identity)) is not None:
                row.show_busy(words)

    def _show_problem(self, words: str) -> None:
        self.problem.setText(words)
        self.problem.setVisible(bool(words))

    def _paint(self) -> None:
        self.install_button.setIcon(icon("follow", size_px=16))
        self.add_button.setIcon(icon("plus", size_px=16))
