"""What can be done with the draft of a profile: revert, save, start; with words on where it stands."""

from dataclasses import dataclass

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from gui.theme import icon, theme


@dataclass(frozen=True, slots=True)
class DraftState:
    """How a draft stands.

    Attributes:
        n_changes: fields that differ from what is saved.
        read_only: it is a preset.
        ok: it has no problems that are known.
        usable: the file on disk can be read.
        loading: it is not known yet.
        running: word for the engine that runs this very profile, "" when none does.
        restart_needed: that engine was started before the last save.
    """

    n_changes: int = 0
    read_only: bool = False
    ok: bool = True
    usable: bool = True
    loading: bool = False
    running: str = ""
    restart_needed: bool = False


class ProfileActions(QFrame):
    """Three buttons and a sentence.

    Signals:
        revert_wanted, save_wanted, start_wanted: a button was pressed; what Save and Start mean stands on them.
    """

    revert_wanted = Signal()
    save_wanted = Signal()
    start_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setAccessibleName("Save and start")
        self.words = QLabel()
        self.words.setProperty("role", "muted")
        self.words.setWordWrap(True)
        self.revert = QPushButton("Revert")
        self.save = QPushButton("Save")
        self.start = QPushButton()
        self.start.setProperty("kind", "primary")
        for button, signal in (
            (self.revert, self.revert_wanted),
            (self.save, self.save_wanted),
            (self.start, self.start_wanted),
        ):
            button.clicked.connect(signal)
        self.revert.setAccessibleName("Revert")
        self.revert.setToolTip("Forget the unsaved changes")
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.revert, 1)
        row.addWidget(self.save, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 16, 12)
        layout.setSpacing(8)
        layout.addWidget(self.words)
        layout.addLayout(row)
        layout.addWidget(self.start)
        self._runs = False
        theme.changed.connect(self._paint)
        self.show_state(DraftState(usable=False, loading=True))

    def show_state(self, state: DraftState) -> None:
        """Show how a draft stands."""
        self.words.setText(_words(state))
        self.revert.setEnabled(state.n_changes > 0)
        saves = "Save as copy" if state.read_only else "Save"
        self.save.setText(saves)
        self.save.setAccessibleName(saves)
        self.save.setEnabled(state.usable and state.ok and state.n_changes > 0)
        tip = "Save your changes as a profile of your own" if state.read_only else "Save the changes"
        self.save.setToolTip(f"{tip} (Ctrl+S)" if state.ok else "Mend what is marked first")
        text, enabled, tip = _start(state)
        self.start.setText(text)
        self.start.setAccessibleName(text)
        self.start.setEnabled(enabled)
        self.start.setToolTip(tip)
        self._runs = not enabled and text == "Running"
        self._paint()

    def _paint(self) -> None:
        self.revert.setIcon(icon("undo", size_px=16))
        self.save.setIcon(icon("save", size_px=16))
        self.start.setIcon(icon("check" if self._runs else "start", theme.tokens.on_accent, size_px=16))


def _words(state: DraftState) -> str:
    if state.loading:
        return "Reading the profiles \N{HORIZONTAL ELLIPSIS}"
    if not state.usable:
        return "This profile cannot be used."
    if state.n_changes:
        changes = f"{state.n_changes} unsaved change{'' if state.n_changes == 1 else 's'}"
        return f"{changes}. A preset stays as it is; save yours as a copy." if state.read_only else f"{changes}."
    if state.running and state.restart_needed:
        return "Saved. The engine runs what was saved before; restart it to apply the changes."
    if state.read_only:
        return "A preset: change what you like and save it as a copy."
    return "Everything is saved."


def _start(state: DraftState) -> tuple[str, bool, str]:
    """Return label, whether it can be pressed, and tooltip of the button that starts."""
    if not state.usable:
        return "Start this profile", False, "Mend its file first"
    if not state.ok:
        return "Save and restart" if state.running else "Start this profile", False, "Mend what is marked first"
    if state.n_changes and state.read_only:
        return "Start this profile", False, "Save your changes as a copy first, or revert them"
    if state.running:
        if state.n_changes:
            return "Save and restart", True, "Save the changes, then stop the engine and start it anew"
        if state.restart_needed:
            return "Restart to apply", True, "Stop the engine and start it anew with what is saved"
        return state.running.capitalize(), False, "The engine runs this profile as it is saved"
    if state.n_changes:
        return "Save and start", True, "Save the changes, then start the engine with this profile"
    return "Start this profile", True, "Start the engine with this profile"
