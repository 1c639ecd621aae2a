"""The bar at the top: profile, Start or Stop, state, and the address that clients use."""

import time
from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QComboBox, QFrame, QHBoxLayout, QPushButton, QSizePolicy, QWidget

from backend.desk.types import ProfileEntry, RunView
from backend.events import RunState
from gui.theme import code_font, icon, text_font, theme
from gui.widgets import figures
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.state_pill import StatePill

HEIGHT_PX = 60


class TopBar(QFrame):
    """Always shows what runs and how to stop it.

    Signals:
        start_wanted(str): the profile to start; stop_wanted: end the run.
        profile_chosen(str): another profile was picked.
    """

    start_wanted = Signal(str)
    stop_wanted = Signal()
    profile_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("bar", "true")
        self.setFixedHeight(HEIGHT_PX)
        self._view = RunView()
        self._settling = QTimer(self)  # runs while the button has just got another meaning
        self._settling.setSingleShot(True)
        self.profiles = QComboBox()
        self.profiles.setAccessibleName("Profile")
        self.profiles.setProperty("role", "running")  # what runs is read also while it cannot be changed
        self.profiles.setToolTip("The profile to start (Ctrl+P)")
        self.profiles.setMinimumWidth(180)
        self.profiles.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.profiles.setMaximumWidth(380)
        self.profiles.setMinimumContentsLength(16)
        self.profiles.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.profiles.activated.connect(self._on_activated)
        self.button = QPushButton("Start")
        self.button.setMinimumWidth(88)
        self.button.clicked.connect(self._on_clicked)
        self.pill = StatePill()
        self.words = ElidedLabel("", font=text_font(), mode=Qt.TextElideMode.ElideRight)
        self.endpoint = ElidedLabel("", font=code_font(12))
        self.endpoint.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.copy = QPushButton("Copy")
        self.copy.setAccessibleName("Copy the address")
        self.copy.setToolTip("Copy the address for clients (Ctrl+Shift+C)")
        self.copy.setShortcut("Ctrl+Shift+C")
        self.copy.clicked.connect(self._on_copy)
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 0, 16, 0)
        row.setSpacing(12)
        row.addWidget(self.profiles, 3)
        row.addWidget(self.button)
        row.addWidget(self.pill)
        row.addWidget(self.words, 2)
        row.addWidget(self.endpoint)
        row.addWidget(self.copy)
        theme.changed.connect(self._paint)
        self.show_run(RunView())

    @property
    def profile(self) -> str:
        """Name of the chosen profile, "" while none is known."""
        return str(self.profiles.currentData() or "")

    @property
    def is_settling(self) -> bool:
        """Whether the button has just got another meaning and takes no click yet."""
        return self._settling.isActive()

    def show_profiles(self, entries: Sequence[ProfileEntry]) -> None:
        """Offer these profiles; the chosen one stays chosen."""
        chosen = self.profile
        self.profiles.blockSignals(True)
        self.profiles.clear()
        for entry in entries:
            if not entry.problem:
                self.profiles.addItem(entry.title, entry.name)
                words = f"{entry.name}: {entry.subtitle}" if entry.subtitle else entry.name
                self.profiles.setItemData(self.profiles.count() - 1, words, Qt.ItemDataRole.ToolTipRole)
        self.profiles.blockSignals(False)
        self.choose(chosen)

    def choose(self, name: str) -> None:
        """Choose a profile, if it is offered."""
        index = self.profiles.findData(name)
        if index >= 0:
            self.profiles.setCurrentIndex(index)

    def show_run(self, view: RunView) -> None:
        """Show the run as it is now."""
        before, self._view = self._view, view
        self.pill.show_state(view.state)
        self.profiles.setEnabled(not view.is_live)
        if view.profile and view.profile != before.profile:
            self.choose(view.profile)
        self.endpoint.show_text(view.url if view.is_live else "")
        self.copy.setVisible(bool(view.url) and view.is_live)
        self._paint()
        self.tick()

    def tick(self) -> None:
        """Show the time anew."""
        view = self._view
        since = view.ready_at or view.started_at
        parts = []
        if view.is_live and since is not None:
            parts.append(f"{'up ' if view.ready_at else ''}{figures.uptime(time.time() - since)}")
        if view.engine and view.is_live:
            parts.append(view.engine)
        if view.restart_needed:
            parts.append("restart to apply the changed profile")
        words = " \N{MIDDLE DOT} ".join(parts)
        if words != self.words.text:
            self.words.show_text(words)

    def _paint(self) -> None:
        live = self._view.is_live
        stopping = self._view.state is RunState.STOPPING
        self.button.setText("Kill" if stopping else "Stop" if live else "Start")
        hint = "Kill at once what still ends" if stopping else "Stop the engine" if live else "Start this profile"
        if hint != self.button.accessibleName() and self.button.accessibleName():
            self._settling.start(QApplication.doubleClickInterval())
        self.button.setToolTip(f"{hint} (Ctrl+R)")
        self.button.setAccessibleName(hint)
        kind = "danger" if live else "primary"
        colour = theme.tokens.bad if live else theme.tokens.on_accent
        self.button.setIcon(icon("stop" if live else "start", colour, size_px=16))
        if self.button.property("kind") != kind:
            self.button.setProperty("kind", kind)
            self.button.style().unpolish(self.button)
            self.button.style().polish(self.button)
        self.copy.setIcon(icon("copy", size_px=16))

    def _on_clicked(self) -> None:
        if self._settling.isActive():
            return  # the second click of a double click, meant for what the button was before
        if self._view.is_live:
            self.stop_wanted.emit()
        elif self.profile:
            self.start_wanted.emit(self.profile)

    def _on_activated(self) -> None:
        self.profile_chosen.emit(self.profile)

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self._view.url)
