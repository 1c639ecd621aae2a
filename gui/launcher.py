"""From a click on Start to a running engine: asks what must be asked, and says what stands against it."""

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from backend.desk.types import Question, StartAnswer
from backend.errors import UserError
from gui.bridge import Bridge
from gui.widgets.choice_dialog import Answer, ChoiceDialog


class Launcher(QObject):
    """Starts engines for the window.

    Signals:
        refused(str, str): a start did not happen: why, and what to do.
        warned(str): the start goes on, but something is worth knowing.
    """

    refused = Signal(str, str)
    warned = Signal(str)

    def __init__(self, bridge: Bridge, window: QWidget, *, agreed: frozenset[str] = frozenset()) -> None:
        """Ask in dialogs of `window`; `agreed` are keys of questions that were answered before."""
        super().__init__(window)
        self._bridge = bridge
        self._window = window
        self._agreed = agreed
        self._name = ""
        self.dialog: ChoiceDialog | None = None

    def start(self, name: str) -> None:
        """Start the engine of a profile."""
        self._name = name
        self._ask_backend(self._agreed)

    def restart(self, name: str) -> None:
        """End the engine that runs, then start that of a profile."""
        self._bridge.call(self, self._bridge.desk.runs.stop(), done=lambda _: self.start(name))

    def _ask_backend(self, agreed: frozenset[str]) -> None:
        work = self._bridge.desk.runs.start(self._name, agreed)
        self._bridge.call(self, work, done=lambda answer: self._on_answer(answer, agreed), failed=self._on_failed)

    def _on_failed(self, error: UserError) -> None:
        self.refused.emit(error.message, error.what_to_do)

    def _on_answer(self, answer: StartAnswer, agreed: frozenset[str]) -> None:
        if answer.blocking:
            self._show_blocking(answer)
        elif answer.questions:
            self._ask(answer.questions[0], agreed)
        elif answer.started and answer.warnings:
            self.warned.emit("\n".join(f"{finding.what} {finding.fix}".rstrip() for finding in answer.warnings))

    def _show_blocking(self, answer: StartAnswer) -> None:
        text = "\n\n".join(
            "\n".join(part for part in (finding.what, finding.why, finding.fix) if part) for finding in answer.blocking
        )
        self._open(
            ChoiceDialog(self._window, title="This cannot start yet", text=text, answers=[Answer("ok", "Close")])
        )

    def _ask(self, question: Question, agreed: frozenset[str]) -> None:
        dialog = ChoiceDialog(
            self._window,
            title=question.title,
            text=question.text,
            answers=[Answer("yes", question.yes, "primary"), Answer("no", "Cancel")],
        )
        dialog.chosen.connect(lambda key: self._ask_backend(agreed | {question.key}) if key == "yes" else None)
        self._open(dialog)

    def _open(self, dialog: ChoiceDialog) -> None:
        self.dialog = dialog
        dialog.destroyed.connect(self._on_dialog_gone)
        dialog.open()

    def _on_dialog_gone(self) -> None:
        self.dialog = None
