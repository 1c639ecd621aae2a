"""What changes the list of profiles: new, copies, other names, delete and undo; asks for names."""

from collections.abc import Callable, Mapping
from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from backend.desk.types import ProfileForm
from backend.errors import UserError
from gui.bridge import Bridge
from gui.widgets.name_dialog import NameDialog


class ProfileChanges(QObject):
    """Asks, does it, and tells.

    Signals:
        made(str, ProfileForm): a new profile, and the one whose draft went into it, "" for none.
        renamed(str, str): old and new name.
        deleted(str, str): name, and the token that `restore` takes.
        restored(str, dict): name, and the unsaved edits that it had.
        refused(UserError): something could not be done.
    """

    made = Signal(str, object)
    renamed = Signal(str, str)
    deleted = Signal(str, str)
    restored = Signal(str, dict)
    refused = Signal(object)

    def __init__(self, bridge: Bridge, pane: QWidget) -> None:
        super().__init__(pane)
        self._bridge = bridge
        self._pane = pane
        self.dialog: NameDialog | None = None

    # ---- new ones --------------------------------------------------------------------------------------------

    def ask_new(self) -> None:
        """Make a profile with little in it."""
        text = "It begins with the demo's model and nothing else set."
        self._ask("my-profile", title="New profile", text=text, yes="Make it", act=self._new)

    def ask_duplicate(self, name: str) -> None:
        """Copy a profile as it is saved."""
        text = f"A copy of {name} as it is saved, among your own profiles."
        self._ask(name, title="Duplicate profile", text=text, yes="Duplicate", act=partial(self._duplicate, name))

    def ask_save_copy(self, name: str, values: Mapping[str, str]) -> None:
        """Save a draft as a new profile."""
        text = "Presets stay as they are. Your changes become a profile of your own."
        self._ask(name, title="Save as copy", text=text, yes="Save", act=partial(self._save_copy, name, values))

    def _new(self, name: str) -> None:
        work = self._bridge.desk.profiles.new(name)
        self._bridge.call(self, work, done=partial(self._on_made, ""), failed=self._on_name_refused)

    def _duplicate(self, name: str, new_name: str) -> None:
        work = self._bridge.desk.profiles.duplicate(name, new_name)
        self._bridge.call(self, work, done=partial(self._on_made, ""), failed=self._on_name_refused)

    def _save_copy(self, name: str, values: Mapping[str, str], new_name: str) -> None:
        work = self._bridge.desk.profiles.save_copy(name, new_name, values)
        self._bridge.call(self, work, done=partial(self._on_made, name), failed=self._on_name_refused)

    def _on_made(self, made_from: str, form: ProfileForm) -> None:
        self._close_dialog()
        self.made.emit(made_from, form)

    # ---- those there are -------------------------------------------------------------------------------------

    def ask_rename(self, name: str) -> None:
        """Give one of the person's own profiles another name."""
        text = "The name is the file's name. What the list shows is the title, which is a field of the form."
        self._open_dialog(title="Rename profile", text=text, yes="Rename", act=partial(self._rename, name), name=name)

    def _rename(self, name: str, new_name: str) -> None:
        if name == new_name:
            self._close_dialog()
            return
        work = self._bridge.desk.profiles.rename(name, new_name)
        done = partial(self._on_renamed, name, new_name)
        self._bridge.call(self, work, done=done, failed=self._on_name_refused)

    def _on_renamed(self, name: str, new_name: str, _nothing: None) -> None:
        self._close_dialog()
        self.renamed.emit(name, new_name)

    def delete(self, name: str) -> None:
        """Delete one of the person's own profiles; without a question, since it can be undone."""
        work = self._bridge.desk.profiles.delete(name)
        self._bridge.call(self, work, done=partial(self.deleted.emit, name), failed=self.refused.emit)

    def restore(self, token: str, edits: dict[str, str]) -> None:
        """Bring a deleted profile back, with the unsaved edits that it had."""
        work = self._bridge.desk.profiles.restore(token)
        self._bridge.call(self, work, done=partial(self._on_restored, edits), failed=self.refused.emit)

    def _on_restored(self, edits: dict[str, str], name: str) -> None:
        self.restored.emit(name, edits)

    # ---- asking for a name -----------------------------------------------------------------------------------

    def _ask(self, wish: str, *, title: str, text: str, yes: str, act: Callable[[str], None]) -> None:
        """Ask for the name of a new profile; offers one that is free."""
        done = partial(self._on_free_name, title, text, yes, act)
        self._bridge.call(self, self._bridge.desk.profiles.free_name(wish), done=done)

    def _on_free_name(self, title: str, text: str, yes: str, act: Callable[[str], None], name: str) -> None:
        self._open_dialog(title=title, text=text, yes=yes, act=act, name=name)

    def _open_dialog(self, *, title: str, text: str, yes: str, act: Callable[[str], None], name: str) -> None:
        self._close_dialog()
        self.dialog = NameDialog(self._pane, title=title, text=text, yes=yes, name=name)
        self.dialog.named.connect(act)
        self.dialog.finished.connect(self._on_dialog_finished)
        self.dialog.open()

    def _on_name_refused(self, error: UserError) -> None:
        if self.dialog is not None:
            self.dialog.refuse(str(error))
        else:
            self.refused.emit(error)

    def _close_dialog(self) -> None:
        if self.dialog is not None:
            self.dialog.accept()

    def _on_dialog_finished(self) -> None:
        self.dialog = None
