"""The Profiles page: the list, the form with checks while you type, the exact command, and save or start."""

from functools import partial

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeySequence, QResizeEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from backend.desk.types import JobProgress, ProfileCheck, ProfileEntry, ProfileForm, RunView
from backend.errors import UserError
from backend.events import Finding, RunState, Severity
from gui.bridge import Bridge
from gui.panes.profiles.changes import ProfileChanges
from gui.panes.profiles.drafts import ProfileDrafts
from gui.qt_models.profile_delegate import ProfileDelegate
from gui.qt_models.profile_list import ProfileListModel
from gui.widgets.command_view import CommandView
from gui.widgets.finding_list import FindingList
from gui.widgets.notice_bar import NoticeBar
from gui.widgets.profile_actions import DraftState, ProfileActions
from gui.widgets.profile_form import ProfileFormView
from gui.widgets.profile_sidebar import ProfileSidebar

_DEBOUNCE_MS, _AGAIN_MS = 150, 1500
_NARROW_PX = 1174
# Widths of the list and of the right column, in a wide page and in a narrow one.
_WIDE, _NARROW = (264, 392), (220, 288)
_RUN_WORDS = {
    **dict.fromkeys((RunState.PREFLIGHT, RunState.STARTING), "starting"),
    **dict.fromkeys((RunState.READY, RunState.UNRESPONSIVE), "running"),
    RunState.STOPPING: "stopping",
}


class ProfilesPane(QWidget):
    """Three columns: which profile, what it says, and what that amounts to.

    Signals:
        start_requested(str): start this profile; it may be the one that runs, which then must be restarted.
        profiles_changed: the list of profiles or one of their titles is another now.
    """

    start_requested = Signal(str)
    profiles_changed = Signal()

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._drafts = ProfileDrafts()
        self._form: ProfileForm | None = None
        self._check: ProfileCheck | None = None
        self._wanted = ""  # the profile that is shown, or asked for and on its way
        self._serial = 0  # answers to older questions are dropped
        self._run_shown: tuple[str, str, bool] | None = None
        self._changes = ProfileChanges(bridge, self)
        self.model = ProfileListModel(self)
        self.sidebar = ProfileSidebar(self.model, ProfileDelegate())
        self.form = ProfileFormView()
        self.notice = NoticeBar()
        self.findings = FindingList()
        self.command = CommandView()
        self.actions_card = ProfileActions()
        self._right = QWidget()
        right = QVBoxLayout(self._right)
        right.setContentsMargins(0, 0, 0, 0)
        right.setSpacing(12)
        right.addWidget(self.findings)
        right.addWidget(self.command, 1)
        right.addWidget(self.actions_card)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(12)
        layout.addWidget(self.sidebar)
        middle = QVBoxLayout()
        middle.setSpacing(12)
        middle.addWidget(self.form, 1)
        middle.addWidget(self.notice)
        layout.addLayout(middle, 1)
        layout.addWidget(self._right)
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(_DEBOUNCE_MS)
        self._typing.timeout.connect(self._ask_check)
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.setInterval(_AGAIN_MS)
        self._again.timeout.connect(self._ask_check)
        self.setFocusProxy(self.sidebar.view)
        self._connect()
        self._on_run_changed(bridge.run)

    def _connect(self) -> None:
        self.sidebar.searched.connect(self.model.set_search)
        self.sidebar.chosen.connect(self.select)
        self.sidebar.new_wanted.connect(self._changes.ask_new)
        self.sidebar.duplicate_wanted.connect(self._on_duplicate)
        self.sidebar.rename_wanted.connect(self._on_rename)
        self.sidebar.delete_wanted.connect(self._on_delete)
        self.form.edited.connect(self._on_edited)
        self.findings.place_wanted.connect(self.form.reveal)
        self.actions_card.revert_wanted.connect(self._on_revert)
        self.actions_card.save_wanted.connect(self._on_save)
        self.actions_card.start_wanted.connect(self._on_start)
        self._changes.made.connect(self._on_made)
        self._changes.renamed.connect(self._on_renamed)
        self._changes.deleted.connect(self._on_deleted)
        self._changes.restored.connect(self._on_restored)
        self._changes.refused.connect(self._on_refused)
        self._bridge.run_changed.connect(self._on_run_changed)
        self._bridge.job_progressed.connect(self._on_progress)
        for keys, slot in (
            ("Ctrl+S", self._on_save),
            ("Ctrl+N", self._changes.ask_new),
            ("Ctrl+D", self._on_duplicate),
            ("Ctrl+F", self._on_find),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(slot)

    # ---- for the main window ---------------------------------------------------------------------------------

    @property
    def has_unsaved(self) -> tuple[str, ...]:
        """Names of the profiles with unsaved changes."""
        return self._drafts.names

    @property
    def current(self) -> str:
        """Name of the profile that is shown, "" for none."""
        return self._form.name if self._form is not None else ""

    def select(self, name: str) -> None:
        """Show a profile; what was typed into the one before is kept."""
        if name and name != self._wanted:
            self._wanted = name
            self._load(name)

    def refresh(self) -> None:
        """Read the files again: they may have changed, and another engine may serve."""
        self._bridge.call(self, self._bridge.desk.profiles.list(), done=self._on_list)
        if self._wanted:
            self._load(self._wanted)

    # ---- showing ---------------------------------------------------------------------------------------------

    def _on_list(self, entries: tuple[ProfileEntry, ...]) -> None:
        self.model.set_entries(entries)
        if not self._wanted:
            self._bridge.call(self, self._bridge.desk.profiles.default(), done=self._on_default)
        self.sidebar.choose(self._wanted)

    def _on_default(self, name: str) -> None:
        run = self._bridge.run
        self.select(run.profile if self.model.entry(run.profile) is not None else name)

    def _load(self, name: str) -> None:
        self.sidebar.choose(name)
        self._serial += 1
        self._bridge.call(
            self,
            self._bridge.desk.profiles.form(name),
            done=partial(self._on_form, self._serial),
            failed=partial(self._on_form_failed, self._serial),
        )

    def _on_form(self, serial: int, form: ProfileForm) -> None:
        if serial == self._serial:
            self._drafts.load(form)
            self._show_form(form)

    def _on_form_failed(self, serial: int, error: UserError) -> None:
        if serial != self._serial:
            return
        self._wanted = ""  # it was deleted meanwhile
        self.notice.show_notice(str(error), tone="bad")
        self._bridge.call(self, self._bridge.desk.profiles.list(), done=self._on_list)

    def _show_form(self, form: ProfileForm) -> None:
        self._form, self._wanted = form, form.name
        values = self._drafts.values(form.name)
        self.form.show_form(form, values, title=values.get("title") or form.name)
        self.form.note.setText("preset" if form.read_only else "")
        self.sidebar.choose(form.name)
        self._check = None
        self._show_state()
        self._ask_check()

    def _show_state(self) -> None:
        """Bring buttons, words and marks up to date."""
        form = self._form
        self.model.set_unsaved(self._drafts.names)
        if form is None:
            return
        name, word, restart_needed = self._run_shown or ("", "", False)
        running = word if name == form.name else ""
        self.actions_card.show_state(
            DraftState(
                n_changes=self._drafts.count(form.name),
                read_only=form.read_only,
                ok=self._check is None or self._check.ok,
                usable=not form.problem,
                running=running,
                restart_needed=restart_needed,
            )
        )
        why = "A preset stays as it is; duplicate it" if form.read_only else "Stop its engine first"
        self.sidebar.allow(duplicate=not form.problem, change=not form.read_only and not running, why=why)

    def _on_run_changed(self, run: RunView) -> None:
        word = _RUN_WORDS.get(run.state, "")
        shown = (run.profile if word else "", word, run.restart_needed)
        if shown == self._run_shown:
            return
        self._run_shown = shown
        self.model.set_running(shown[0], word)
        self._show_state()
        if self.isVisible():
            self._ask_check()  # the port may be free now, or taken

    def _on_progress(self, progress: JobProgress) -> None:
        if progress.job == "engines" and self._wanted and self.isVisible():  # another engine may serve now
            self._load(self._wanted)

    # ---- typing ----------------------------------------------------------------------------------------------

    def _on_edited(self, path: str, text: str) -> None:
        if self._form is None:
            return
        self._drafts.edit(self._form.name, path, text)
        if path == "title":
            self.form.title.setText(text or self._form.name)
        self._show_state()
        self._typing.start()

    def _ask_check(self) -> None:
        self._typing.stop()
        self._again.stop()
        form = self._form
        if form is None:
            return
        if form.problem:
            self._show_check(None)
            return
        self._serial += 1
        self._bridge.call(
            self,
            self._bridge.desk.profiles.check(form.name, self._drafts.values(form.name)),
            done=partial(self._on_checked, self._serial),
            failed=partial(self._on_form_failed, self._serial),
        )

    def _on_checked(self, serial: int, check: ProfileCheck) -> None:
        if serial != self._serial:
            return
        was_pending = self._check is not None and self._check.pending
        self._show_check(check)
        if check.pending and self.isVisible():
            self._again.start()
        elif was_pending and self._form is not None:
            self._load(self._form.name)  # now it is known what an empty field means

    def _show_check(self, check: ProfileCheck | None) -> None:
        self._check = check
        problems = check.problems if check is not None else {}
        self.form.show_problems({path: words for path, words in problems.items() if path})
        if check is None:
            self.findings.show_findings(())
            self.command.show_command("", "There is no command for a profile that cannot be used.")
        else:
            found = [Finding(Severity.ERROR, f"{self._label(path)}: {words}.") for path, words in problems.items()]
            fine = "Nothing speaks against a start." if check.command else "Nothing is wrong with the profile itself."
            self.findings.show_findings(
                [*found, *check.findings], [*problems, *check.places], fine="" if found else fine
            )
            self.command.show_command(check.command, check.command_note)
        self._show_state()

    def _label(self, path: str) -> str:
        fields = self._form.fields if self._form is not None else ()
        return next((field.title for field in fields if field.path == path), "The profile")

    # ---- changing the draft ----------------------------------------------------------------------------------

    def _on_revert(self) -> None:
        if self._form is not None:
            self._drafts.take(self._form.name)
            self._show_form(self._form)

    def _on_save(self) -> None:
        if not self.actions_card.save.isEnabled() or self._form is None:
            return
        if not self._form.read_only:
            self._save(start=False)
            return
        self._changes.ask_save_copy(self._form.name, self._drafts.values(self._form.name))

    def _save(self, *, start: bool) -> None:
        assert self._form is not None
        name, values = self._form.name, self._drafts.values(self._form.name)
        self._bridge.call(
            self,
            self._bridge.desk.profiles.save(name, values),
            done=partial(self._on_saved, values, start),
            failed=self._on_refused,
        )

    def _on_saved(self, sent: dict[str, str], start: bool, form: ProfileForm) -> None:
        self._drafts.saved(form, sent)
        if self._wanted == form.name:
            self._show_form(form)
        self._tell_change()
        if start:
            self.start_requested.emit(form.name)

    def _on_start(self) -> None:
        if self._form is None:
            return
        if self._drafts.count(self._form.name):
            self._save(start=True)
        else:
            self.start_requested.emit(self._form.name)

    def _on_find(self) -> None:
        self.form.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.form.search.selectAll()

    # ---- changing the list -----------------------------------------------------------------------------------

    def _on_duplicate(self) -> None:
        if self._form is not None and not self._form.problem:
            self._changes.ask_duplicate(self._form.name)

    def _on_rename(self) -> None:
        if self._form is not None and self.sidebar.buttons["rename"].isEnabled():
            self._changes.ask_rename(self._form.name)

    def _on_delete(self) -> None:
        if self._form is not None and self.sidebar.buttons["delete"].isEnabled():
            self._changes.delete(self._form.name)

    def _on_made(self, made_from: str, form: ProfileForm) -> None:
        """Show a profile that is new; `made_from` is the profile whose draft went into it, "" for none."""
        self._drafts.take(made_from)
        self._serial += 1
        self._drafts.load(form)
        self._show_form(form)
        self._tell_change()

    def _on_renamed(self, name: str, new_name: str) -> None:
        self._drafts.put(new_name, self._drafts.take(name))
        if self._wanted == name:
            self.select(new_name)
        self._tell_change()

    def _on_deleted(self, name: str, token: str) -> None:
        undo = partial(self._changes.restore, token, self._drafts.take(name))
        self.notice.show_notice(f"{name} was deleted.", action="Undo", act=undo)
        if self._wanted == name:
            self._wanted = ""
            entries = [entry.name for entry in self.model.entries]
            place = entries.index(name) if name in entries else 0
            others = entries[place + 1 :] + entries[:place]
            if others:
                self.select(others[0])
        self._tell_change()

    def _on_restored(self, name: str, edits: dict[str, str]) -> None:
        self._drafts.put(name, edits)
        self.select(name)
        self._tell_change()

    def _tell_change(self) -> None:
        self._bridge.call(self, self._bridge.desk.profiles.list(), done=self._on_list)
        self.profiles_changed.emit()

    def _on_refused(self, error: UserError) -> None:
        self.notice.show_notice(str(error), tone="bad")

    # ---- Qt --------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Look at the files again whenever the page comes up."""
        super().showEvent(event)
        if not event.spontaneous():
            self.refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        """Ask nothing while nobody looks."""
        super().hideEvent(event)
        self._again.stop()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the form the room that it needs."""
        super().resizeEvent(event)
        side, right = _NARROW if self.width() < _NARROW_PX else _WIDE
        self.sidebar.setFixedWidth(side)
        self._right.setFixedWidth(right)
        self.findings.fit_into(self.height())
