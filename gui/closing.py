"""Closing the window: what becomes of the engine, then an end in stages that never blocks and runs once."""

import logging

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from backend.errors import UserError
from gui.bridge import Bridge
from gui.widgets.choice_dialog import Answer, ChoiceDialog

log = logging.getLogger(__name__)


class Closing(QObject):
    """Decides, asks if it must, and shuts down: backend first, then its thread, then the window.

    Signals:
        began(str): the end has begun; what it waits for, in words.
        finished: everything has ended, the window may go.
    """

    began = Signal(str)
    finished = Signal()

    def __init__(self, bridge: Bridge, window: QWidget) -> None:
        super().__init__(window)
        self._bridge = bridge
        self._window = window
        self._is_closing = False
        self.dialog: ChoiceDialog | None = None

    @property
    def is_closing(self) -> bool:
        """Whether the end has begun."""
        return self._is_closing

    def ask(self, *, unsaved: tuple[str, ...] = ()) -> None:
        """Close after asking what must be asked; while the end has begun, kill at once what it waits for."""
        if self._is_closing:
            self._bridge.call(self, self._bridge.desk.runs.stop())
            return
        if self.dialog is not None:
            self.dialog.raise_()
            return
        if unsaved:
            self._ask_unsaved(unsaved)
        else:
            self._ask_engine()

    def close_now(self) -> None:
        """Close without asking, as a signal wants it: the engine ends unless the settings leave it running."""
        if self._is_closing:
            self._bridge.call(self, self._bridge.desk.runs.stop())
            return
        self._begin(leave_running=self._bridge.desk.settings.on_close == "leave")

    def _ask_unsaved(self, unsaved: tuple[str, ...]) -> None:
        dialog = ChoiceDialog(
            self._window,
            title="Unsaved changes",
            text=f"Not saved: {', '.join(unsaved)}. Closing loses the changes.",
            answers=[Answer("lose", "Close and lose them", "danger"), Answer("cancel", "Cancel")],
        )
        dialog.chosen.connect(lambda key: self._ask_engine() if key == "lose" else None)
        self._open(dialog)

    def _ask_engine(self) -> None:
        wish = self._bridge.desk.settings.on_close
        if not self._bridge.run.is_live:
            self._begin(leave_running=False)
        elif wish != "ask":
            self._begin(leave_running=wish == "leave")
        else:
            run = self._bridge.run
            dialog = ChoiceDialog(
                self._window,
                title="An engine is running",
                text=(
                    f"{run.title or 'The engine'} is {run.state.lower()}. "
                    "Left running, it keeps its memory, and the next window takes it over."
                ),
                answers=[
                    Answer("stop", "Stop it and close", "primary"),
                    Answer("leave", "Leave it running"),
                    Answer("cancel", "Cancel"),
                ],
            )
            dialog.chosen.connect(self._on_engine_answer)
            self._open(dialog)

    def _on_engine_answer(self, key: str) -> None:
        if key != "cancel":
            self._begin(leave_running=key == "leave")

    def _open(self, dialog: ChoiceDialog) -> None:
        self.dialog = dialog
        dialog.destroyed.connect(self._on_dialog_gone)
        dialog.open()

    def _on_dialog_gone(self) -> None:
        self.dialog = None

    # ---- the stages ------------------------------------------------------------------------------------------

    def _begin(self, *, leave_running: bool) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self.dialog is not None:
            self.dialog.close()
        live = self._bridge.run.is_live
        self.began.emit("Stopping the engine; close again to kill it at once." if live and not leave_running else "")
        # Each stage in a turn of its own: the dialog that asked may still be on the stack.
        QTimer.singleShot(0, self, lambda: self._end_backend(leave_running=leave_running))

    def _end_backend(self, *, leave_running: bool) -> None:
        work = self._bridge.desk.close(leave_running=leave_running)
        if self._bridge.call(self, work, done=lambda _: self._end_thread(), failed=self._on_failed) is None:
            self._end_thread()

    def _on_failed(self, error: UserError) -> None:
        log.error("The backend did not end well: %s", error)
        self._end_thread()

    def _end_thread(self) -> None:
        self._bridge.close()
        QTimer.singleShot(0, self, self.finished.emit)
