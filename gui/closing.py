"""Closing the window: what becomes of the engine, then an end in stages that never blocks and runs once."""

from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from backend.events import RunState
from gui.bridge import Bridge
from gui.widgets.choice_dialog import Answer, ChoiceDialog, DialogSlot

# Only an engine that is there can be left: before the spawn there is none, and one that is being ended will end.
_CAN_BE_LEFT = (RunState.STARTING, RunState.READY, RunState.UNRESPONSIVE)


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
        self._leaves_engine = False
        self._slot = DialogSlot()

    @property
    def dialog(self) -> ChoiceDialog | None:
        """The question that is open."""
        return self._slot.dialog

    @property
    def is_closing(self) -> bool:
        """Whether the end has begun."""
        return self._is_closing

    def ask(self, *, unsaved: tuple[str, ...] = ()) -> None:
        """Close after asking what must be asked; once the end has begun, do not wait for the engine any longer."""
        if self._is_closing:
            self._hurry()
        elif self.dialog is not None:
            self.dialog.raise_()
        elif unsaved:
            self._ask_unsaved(unsaved)
        else:
            self._ask_install()

    def close_now(self) -> None:
        """Close without asking, as a signal wants it: the engine ends unless the settings leave it running."""
        if self._is_closing:
            self._hurry()
        else:
            self._begin(leave_running=self._bridge.desk.settings.on_close == "leave")

    def _hurry(self) -> None:
        if not self._leaves_engine:
            self._bridge.call(self, self._bridge.desk.runs.stop())

    # ---- questions ---------------------------------------------------------------------------------------------

    def _ask_unsaved(self, unsaved: tuple[str, ...]) -> None:
        dialog = ChoiceDialog(
            self._window,
            title="Unsaved changes",
            text=f"Not saved: {', '.join(unsaved)}. Closing loses the changes.",
            answers=[Answer("lose", "Close and lose them", "danger"), Answer("cancel", "Cancel")],
        )
        dialog.chosen.connect(self._on_unsaved_answer)
        self._slot.open(dialog)

    def _on_unsaved_answer(self, key: str) -> None:
        if key == "lose":
            self._ask_install()

    def _ask_install(self) -> None:
        installing = self._bridge.desk.engines.installing
        if not installing:
            self._ask_engine()
            return
        dialog = ChoiceDialog(
            self._window,
            title="An install is running",
            text=f"{installing} is being installed. Closing cancels it; the next install begins anew.",
            answers=[Answer("cancel-install", "Cancel it and close", "danger"), Answer("cancel", "Go on installing")],
        )
        dialog.chosen.connect(self._on_install_answer)
        self._slot.open(dialog)

    def _on_install_answer(self, key: str) -> None:
        if key == "cancel-install":
            self._ask_engine()

    def _ask_engine(self) -> None:
        run, wish = self._bridge.run, self._bridge.desk.settings.on_close
        if run.state not in _CAN_BE_LEFT:
            self._begin(leave_running=False)
            return
        if wish != "ask":
            self._begin(leave_running=wish == "leave")
            return
        dialog = ChoiceDialog(
            self._window,
            title="An engine is running",
            text=(
                f"{run.title or 'The engine'} is {_WORDS[run.state]}. "
                "Stop it to free its memory, or leave it running: "
                "Specdeck takes it over when it is opened again."
            ),
            answers=[
                Answer("stop", "Stop it and close", "primary"),
                Answer("leave", "Leave it running"),
                Answer("cancel", "Cancel"),
            ],
        )
        dialog.chosen.connect(self._on_engine_answer)
        self._slot.open(dialog)

    def _on_engine_answer(self, key: str) -> None:
        if key != "cancel":
            self._begin(leave_running=key == "leave")

    # ---- the stages ------------------------------------------------------------------------------------------

    def _begin(self, *, leave_running: bool) -> None:
        if self._is_closing:
            return
        self._is_closing, self._leaves_engine = True, leave_running
        self._slot.close()
        live = self._bridge.run.is_live
        self.began.emit("Stopping the engine; close again to kill it at once." if live and not leave_running else "")
        # Each stage in a turn of its own: the dialog that asked may still be on the stack.
        QTimer.singleShot(0, self, partial(self._end_backend, leave_running))

    def _end_backend(self, leave_running: bool) -> None:
        work = self._bridge.desk.close(leave_running=leave_running)
        if self._bridge.call(self, work, always=self._end_thread) is None:
            self._end_thread()

    def _end_thread(self) -> None:
        self._bridge.end(self.finished.emit)


_WORDS = {
    RunState.STARTING: "starting",
    RunState.READY: "running",
    RunState.UNRESPONSIVE: "running but does not respond",
}
