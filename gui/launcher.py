"""From a click on Start to a running engine: asks what must be asked, and says what stands against it."""

from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from backend.desk.types import Question, StartAnswer
from backend.errors import UserError
from gui.bridge import Bridge
from gui.widgets.choice_dialog import Answer, ChoiceDialog, DialogSlot


class Launcher(QObject):
    """Starts engines for the window.

    Signals:
        refused(str, str): a start did not happen: why, and what to do.
        warned(str): the start goes on, but something is worth knowing.
    """

    refused = Signal(str, str)
    warned = Signal(str)

    def __init__(self, bridge: Bridge, window: QWidget, *, agreed: frozenset[str] = frozenset()) -> None:
        """Ask in dialogs of `window`; `agreed` are keys of questions that the first start need not ask."""
        super().__init__(window)
        self._bridge = bridge
        self._window = window
        self._agreed = agreed
        self._slot = DialogSlot()
        self.enabled = True

    @property
    def dialog(self) -> ChoiceDialog | None:
        """The question that is open."""
        return self._slot.dialog

    def start(self, name: str) -> None:
        """Start the engine of a profile."""
        agreed, self._agreed = self._agreed, frozenset()
        self._ask_backend(name, agreed)

    def restart(self, name: str) -> None:
        """End the engine that runs, then start that of a profile; asks first if it is another profile's."""
        run = self._bridge.run
        if run.profile == name:
            self._stop_and_start(name)
            return
        dialog = ChoiceDialog(
            self._window,
            title="Another engine is running",
            text=f"{run.title or 'The engine'} must be stopped before {name} can start.",
            answers=[Answer("stop", "Stop it and start", "danger"), Answer("no", "Cancel")],
        )
        dialog.chosen.connect(partial(self._on_restart_answer, name))
        self._slot.open(dialog)

    def disable(self) -> None:
        """Start nothing any more, and put an open question away."""
        self.enabled = False
        self._slot.close()

    def _on_restart_answer(self, name: str, key: str) -> None:
        if key == "stop":
            self._stop_and_start(name)

    def _stop_and_start(self, name: str) -> None:
        if self.enabled:
            self._bridge.call(self, self._bridge.desk.runs.stop(), done=lambda _: self.start(name))

    def _ask_backend(self, name: str, agreed: frozenset[str]) -> None:
        if self.enabled:
            work = self._bridge.desk.runs.start(name, agreed)
            self._bridge.call(self, work, done=partial(self._on_answer, name, agreed), failed=self._on_failed)

    def _on_failed(self, error: UserError) -> None:
        self.refused.emit(error.message, error.what_to_do)

    def _on_answer(self, name: str, agreed: frozenset[str], answer: StartAnswer) -> None:
        if answer.blocking:
            self._show_blocking(answer)
        elif answer.questions:
            self._ask(name, answer.questions[0], agreed)
        elif answer.started and answer.warnings:
            self.warned.emit("\n".join(f"{finding.what} {finding.fix}".rstrip() for finding in answer.warnings))

    def _show_blocking(self, answer: StartAnswer) -> None:
        text = "\n\n".join(
            "\n".join(part for part in (finding.what, finding.why, finding.fix) if part) for finding in answer.blocking
        )
        self._slot.open(
            ChoiceDialog(self._window, title="This cannot start yet", text=text, answers=[Answer("ok", "Close")])
        )

    def _ask(self, name: str, question: Question, agreed: frozenset[str]) -> None:
        dialog = ChoiceDialog(
            self._window,
            title=question.title,
            text=question.text,
            answers=[Answer("yes", question.yes, "primary"), Answer("no", "Cancel")],
        )
        dialog.chosen.connect(partial(self._on_question_answer, name, agreed | {question.key}))
        self._slot.open(dialog)

    def _on_question_answer(self, name: str, agreed: frozenset[str], key: str) -> None:
        if key == "yes":
            self._ask_backend(name, agreed)
