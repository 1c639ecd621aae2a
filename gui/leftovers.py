"""Engines of earlier runs that nobody supervises: shown once at the start, ended or taken over as the person says."""

from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from backend.desk.types import LeftoverView
from backend.errors import UserError
from gui.bridge import Bridge
from gui.widgets.leftovers_dialog import LeftoversDialog


class Leftovers(QObject):
    """Asks the backend for leftovers and the person what becomes of them.

    Signals:
        gone: an engine that was to be taken over had ended.
    """

    gone = Signal()

    def __init__(self, bridge: Bridge, window: QWidget) -> None:
        super().__init__(window)
        self._bridge = bridge
        self._window = window
        self.dialog: LeftoversDialog | None = None

    def look(self) -> None:
        """Show the leftovers, if there are any."""
        self._bridge.call(self, self._bridge.desk.runs.leftovers(), done=self._show)

    def close(self) -> None:
        """Put the question away; nothing is ended by that."""
        if self.dialog is not None:
            self.dialog.close()

    def _show(self, leftovers: tuple[LeftoverView, ...]) -> None:
        others = [leftover for leftover in leftovers if leftover.run_id != self._bridge.run.run_id]
        if not others or self.dialog is not None:
            return
        self.dialog = LeftoversDialog(self._window, others, can_adopt=not self._bridge.run.is_live)
        self.dialog.end_wanted.connect(self._on_end)
        self.dialog.adopt_wanted.connect(self._on_adopt)
        self.dialog.destroyed.connect(self._on_dialog_gone)
        self.dialog.open()

    def _on_dialog_gone(self) -> None:
        self.dialog = None

    def _on_end(self, run_id: str) -> None:
        self._bridge.call(
            self,
            self._bridge.desk.runs.end_leftover(run_id),
            done=partial(self._show_ended, run_id),
            failed=partial(self._on_not_ended, run_id),
        )

    def _on_not_ended(self, run_id: str, error: UserError) -> None:
        self._show_ended(run_id, str(error))

    def _show_ended(self, run_id: str, problem: str) -> None:
        if self.dialog is not None:
            self.dialog.show_ended(run_id, problem)

    def _on_adopt(self, run_id: str) -> None:
        self._bridge.call(self, self._bridge.desk.runs.adopt(run_id), done=self._on_adopted)

    def _on_adopted(self, taken: bool) -> None:
        if not taken:
            self.gone.emit()
