"""The window: top bar, rail, pages and status bar, and what connects them."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from PySide6.QtCore import QEvent, QSettings, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QCloseEvent, QDesktopServices, QKeySequence, QShortcut
from PySide6.QtWidgets import QFrame, QHBoxLayout, QMainWindow, QStackedWidget, QVBoxLayout, QWidget

from backend.curves import RECENT_S
from backend.desk.types import ProfileEntry, Reading, RunView, StoreProblem
from backend.errors import UserError
from backend.events import RunState
from gui import pages
from gui.bridge import Bridge
from gui.closing import Closing
from gui.launcher import Launcher
from gui.leftovers import Leftovers
from gui.widgets import pooled_acceptance
from gui.widgets.choice_dialog import Answer, ChoiceDialog, DialogSlot
from gui.widgets.notice_bar import NoticeBar
from gui.widgets.rail import Rail
from gui.widgets.status_bar import StatusBar
from gui.widgets.top_bar import TopBar

if TYPE_CHECKING:
    from gui.panes.chat import ChatPane
    from gui.panes.logs import LogsPane
    from gui.panes.profiles import ProfilesPane
    from gui.panes.run import RunPane
    from gui.panes.settings import SettingsPane

PAGES = (
    ("run", "Run"),
    ("profiles", "Profiles"),
    ("gpus", "GPUs"),
    ("history", "History"),
    ("logs", "Logs"),
    ("settings", "Settings"),
)
BEST_DEMO = "demo:best"


class MainWindow(QMainWindow):
    """The one window; pages other than Run are made when they are first shown.

    Signals:
        closed: everything has ended and the window is gone.
        page_made: a page was made, and with it much that stays.
    """

    closed = Signal()
    page_made = Signal()

    def __init__(
        self, bridge: Bridge, store: QSettings, *, agreed: frozenset[str] = frozenset(), parent: QWidget | None = None
    ) -> None:
        """Work with `bridge`, keep geometry and choices in `store`; `agreed` as for Launcher."""
        super().__init__(parent)
        self.setWindowTitle("Specdeck")
        self.setMinimumSize(900, 600)
        self._bridge = bridge
        self._store = store
        self._pages: dict[str, QWidget] = {}
        self._wanted = ""  # what is to be started once the backend has looked around
        self._has_begun = False
        self._store_words = ""
        self.leftovers = Leftovers(bridge, self)
        self._crash_slot = DialogSlot()
        self.launcher = Launcher(bridge, self, agreed=agreed)
        self.closing = Closing(bridge, self)
        self.top_bar = TopBar()
        self.rail = Rail(PAGES)
        self.notice = NoticeBar()
        self.status = StatusBar()
        self.stack = QStackedWidget()
        self.stack.addWidget(QWidget())  # until the first page is there
        self._lay_out()
        self._connect()
        self._shortcuts()
        self.rail.choose("run")
        self.setFocus()  # else the first button of the rail would look chosen
        geometry = store.value("window/geometry")
        if geometry is None or not self.restoreGeometry(geometry):
            self.resize(1440, 900)
        self._refresh_profiles()

    # ---- building ----------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        pages = QWidget()
        column = QVBoxLayout(pages)
        column.setContentsMargins(16, 12, 16, 12)
        column.setSpacing(8)
        column.addWidget(self.notice)
        column.addWidget(self.stack, 1)
        right = QVBoxLayout()
        right.setContentsMargins(0, 0, 0, 0)
        right.setSpacing(0)
        right.addWidget(self.top_bar)
        right.addWidget(_rule(horizontal=True))
        right.addWidget(pages, 1)
        upper = QHBoxLayout()
        upper.setContentsMargins(0, 0, 0, 0)
        upper.setSpacing(0)
        upper.addWidget(self.rail)
        upper.addWidget(_rule(horizontal=False))
        upper.addLayout(right, 1)
        whole = QWidget()
        layout = QVBoxLayout(whole)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(upper, 1)
        layout.addWidget(_rule(horizontal=True))
        layout.addWidget(self.status)
        self.setCentralWidget(whole)

    def _connect(self) -> None:
        bridge = self._bridge
        bridge.run_changed.connect(self._on_run_changed)
        bridge.sampled.connect(self._on_sampled)
        bridge.call_failed.connect(self._on_call_failed)
        bridge.store_problem_changed.connect(self._on_store_problem)
        bridge.began.connect(self._on_began)
        self.top_bar.start_wanted.connect(self.start_profile)
        self.top_bar.stop_wanted.connect(self.stop_run)
        self.top_bar.profile_chosen.connect(self._on_profile_chosen)
        self.rail.chosen.connect(self.show_page)
        self.launcher.refused.connect(self._on_refused)
        self.launcher.warned.connect(self._on_warned)
        self.leftovers.gone.connect(self._on_leftover_gone)
        self.closing.began.connect(self._on_closing)
        self.closing.finished.connect(self._on_closed)

    def _shortcuts(self) -> None:
        for keys, slot in (
            ("Ctrl+R", self.top_bar.button.click),
            ("Ctrl+P", self._on_choose_profile),
            ("Ctrl+Q", self.close),
            ("Ctrl+L", self._on_focus_chat),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setAutoRepeat(False)  # a key that is held must not start, stop and kill in turn
            shortcut.activated.connect(slot)

    def _add_page(self, key: str, page: QWidget) -> None:
        self._pages[key] = page
        self.stack.addWidget(page)

    def _make_page(self, key: str) -> QWidget:
        page = pages.make(key, self._bridge, self._store)
        if key == "run":
            run = cast("RunPane", page)
            run.retry_requested.connect(self._on_retry)
            run.log_requested.connect(self._on_log_requested)
        elif key == "profiles":
            profiles = cast("ProfilesPane", page)
            profiles.profiles_changed.connect(self._refresh_profiles)
            profiles.start_requested.connect(self._on_start_from_profiles)
        elif key == "settings":
            cast("SettingsPane", page).engines_changed.connect(self._refresh_profiles)
        return page

    # ---- pages and profiles --------------------------------------------------------------------------------------

    def show_page(self, key: str) -> None:
        """Show one of PAGES."""
        page = self.page(key)
        self.rail.choose(key)
        self.stack.setCurrentWidget(page)

    def page(self, key: str) -> QWidget:
        """Return a page, made if it was never shown."""
        if key not in self._pages:
            self._add_page(key, self._make_page(key))
            self.page_made.emit()
        return self._pages[key]

    @property
    def run_pane(self) -> "RunPane":
        """The run page."""
        return cast("RunPane", self.page("run"))

    @property
    def chat(self) -> "ChatPane":
        """The chat, which stands on the run page."""
        return cast("ChatPane", self.run_pane.chat)

    def _show_first_page(self) -> None:
        if not self._pages:
            self.show_page("run")

    def _refresh_profiles(self) -> None:
        self._bridge.call(self, self._bridge.desk.profiles.list(), done=self._show_profiles)

    def _show_profiles(self, entries: tuple[ProfileEntry, ...]) -> None:
        is_first = not self.top_bar.profile
        self.top_bar.show_profiles(entries)
        if is_first and not self._bridge.run.profile:
            self._bridge.call(self, self._bridge.desk.profiles.default(), done=self._choose_first)

    def _choose_first(self, default: str) -> None:
        kept = str(self._store.value("window/profile") or "")
        if not self._bridge.run.profile:
            self.top_bar.choose(default)
            self.top_bar.choose(kept)

    def _on_profile_chosen(self, name: str) -> None:
        self._store.setValue("window/profile", name)

    # ---- the run -------------------------------------------------------------------------------------------------

    def start_profile(self, name: str) -> None:
        """Start a profile unless something runs; BEST_DEMO is the shipped demo that pays best."""
        if not self._has_begun:  # an engine that was left running comes first
            self._wanted = name
            return
        if name == BEST_DEMO:
            self._bridge.call(self, self._bridge.desk.profiles.default(), done=self.start_profile)
            return
        if self._bridge.run.is_live or self.closing.is_closing:
            return
        self._store.setValue("window/profile", name)
        self.notice.clear()
        self.top_bar.choose(name)
        self.show_page("run")
        self.launcher.start(name)

    def stop_run(self) -> None:
        """End the run; while it ends, kill at once."""
        self._bridge.call(self, self._bridge.desk.runs.stop())

    def raise_and_start(self, name: str) -> None:
        """Come to the front for a second start of the program; a window that closes does not."""
        if self.closing.is_closing:
            return
        if self.isMinimized():
            self.showNormal()
        self.show()
        self.raise_()
        self.activateWindow()
        if name:
            self.start_profile(name)

    def _on_start_from_profiles(self, name: str) -> None:
        if self._bridge.run.is_live:
            self.launcher.restart(name)
        else:
            self.start_profile(name)

    def _on_retry(self) -> None:
        name = self._bridge.run.profile or self.top_bar.profile
        if name:
            self.start_profile(name)

    def _on_log_requested(self, line: object) -> None:
        self.show_page("logs")
        if isinstance(line, int):
            cast("LogsPane", self.page("logs")).show_line(line)

    def _on_run_changed(self, view: RunView) -> None:
        self.top_bar.show_run(view)
        title = f"{view.title} \N{EN DASH} Specdeck" if view.is_live and view.title else "Specdeck"
        self.setWindowTitle(title)
        if view.left_behind:
            self.notice.show_notice(view.left_behind, tone="bad")
        elif (
            view.state is RunState.FAILED
            and self.stack.currentWidget() is not self._pages.get("run")
            and view.diagnosis
        ):
            self.notice.show_notice(
                f"The engine failed: {view.diagnosis.cause}",
                tone="bad",
                action="Show",
                act=lambda: self.show_page("run"),
            )

    def _on_sampled(self, reading: Reading) -> None:
        if not self.isMinimized() and self.isVisible():
            self.top_bar.tick()
            now = reading.host.t
            readings = self._bridge.run_readings(pooled_acceptance.NAMES, RECENT_S, now)
            recent = pooled_acceptance.pooled(readings, now)
            self.status.show_reading(reading, recent)
        if not self._pages and reading.engine is not None:  # figures first, the charts take a moment
            self.status.repaint()
            QTimer.singleShot(0, self, self._show_first_page)

    def _on_began(self) -> None:
        self._has_begun = True
        if self._wanted:
            self.start_profile(self._wanted)
        if not self._bridge.run.is_live:
            self._show_first_page()
        self.leftovers.look()

    def _on_leftover_gone(self) -> None:
        self.notice.show_notice("That engine has ended meanwhile.")

    # ---- notices ---------------------------------------------------------------------------------------------------

    def _on_call_failed(self, error: UserError) -> None:
        self._on_refused(error.message, error.what_to_do)

    def _on_refused(self, message: str, what_to_do: str) -> None:
        self.notice.show_notice(f"{message} {what_to_do}".strip(), tone="bad")

    def _on_store_problem(self, problem: StoreProblem) -> None:
        """Say that readings cannot be kept, once; what was said goes when they can be kept again."""
        if problem.text and problem.text != self._store_words:
            self.notice.show_notice(problem.text, tone="warn")
        elif not problem.text and self.notice.text == self._store_words:
            self.notice.clear()
        if problem.lasts:
            self._store_words = problem.text

    def _on_warned(self, words: str) -> None:
        self.notice.show_notice(words, tone="warn")

    def show_crash(self, file: str) -> None:
        """Say that the window made a mistake, and where the report is."""
        if self.crash_dialog is not None:
            return
        dialog = ChoiceDialog(
            self,
            title="Specdeck made a mistake",
            text=(
                f"The report is in {file}.\nThe engine is not touched by this, and the window goes on. "
                "If something looks wrong, close the window, leave the engine running, and open it again."
            ),
            answers=[Answer("folder", "Open the folder", "primary"), Answer("close", "Close")],
        )
        dialog.chosen.connect(partial(self._on_crash_answer, Path(file).parent))
        self._crash_slot.open(dialog)

    @property
    def crash_dialog(self) -> ChoiceDialog | None:
        """What tells of a crash, None while there is nothing to tell."""
        return self._crash_slot.dialog

    def _on_crash_answer(self, folder: Path, key: str) -> None:
        if key == "folder":
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))

    # ---- keyboard ----------------------------------------------------------------------------------------------------

    def _on_choose_profile(self) -> None:
        if self.top_bar.profiles.isEnabled():
            self.top_bar.profiles.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.top_bar.profiles.showPopup()

    def _on_focus_chat(self) -> None:
        self.show_page("run")
        self.chat.input.setFocus(Qt.FocusReason.ShortcutFocusReason)

    # ---- closing -----------------------------------------------------------------------------------------------------

    def closeEvent(self, event: QCloseEvent) -> None:
        """Never closes by itself: the end is asynchronous, and `closed` tells it."""
        event.ignore()
        profiles = cast("ProfilesPane | None", self._pages.get("profiles"))
        self.closing.ask(unsaved=profiles.has_unsaved if profiles is not None else ())

    def close_now(self) -> None:
        """Close without asking."""
        self.closing.close_now()

    def _on_closing(self, words: str) -> None:
        self._store.setValue("window/geometry", self.saveGeometry())
        self.launcher.disable()
        self._crash_slot.close()
        self.leftovers.close()
        self.stack.setEnabled(False)
        self.top_bar.setEnabled(False)
        self.rail.setEnabled(False)
        if words:
            self.notice.show_notice(words, tone="warn")

    def _on_closed(self) -> None:
        self.hide()
        self.closed.emit()

    def changeEvent(self, event: QEvent) -> None:
        """Sample seldom while nobody looks."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange:
            self._bridge.call(self, self._bridge.desk.set_visible(not self.isMinimized()))


def _rule(*, horizontal: bool) -> QFrame:
    line = QFrame()
    line.setProperty("rule", "true")
    if horizontal:
        line.setFixedHeight(1)
    else:
        line.setFixedWidth(1)
    return line
