"""Installing an engine, inside the page: what it would do, a yes, progress, and a way to cancel."""

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from backend.desk.types import JobProgress, Question
from gui.widgets.words_label import words_label

_BUILDS = (("", "What fits"), ("cpu", "CPU"), ("cuda", "CUDA"))


class InstallPanel(QFrame):
    """Hidden until `begin`; what is to be done is asked for by signals.

    Signals:
        plan_wanted(object): look what an install of this build means; None is what fits the machine.
        agreed(object): install this build.
        cancel_wanted: give the running install up.
        closed: the panel was closed without an install.
    """

    plan_wanted = Signal(object)
    agreed = Signal(object)
    cancel_wanted = Signal()
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("inset", True)
        self.setAccessibleName("Install an engine")
        self._build: str | None = None
        self._installing = False
        self._title = QLabel()
        self._title.setProperty("role", "title")
        self.builds: dict[str, QPushButton] = {}
        choice = QHBoxLayout()
        choice.setSpacing(8)
        label = QLabel("Build")
        label.setProperty("role", "muted")
        choice.addWidget(label)
        for build, name in _BUILDS:
            button = QPushButton(name)
            button.setProperty("kind", "chip")
            button.setProperty("build", build)
            button.setCheckable(True)
            button.setAutoExclusive(True)
            button.setAccessibleName(f"Build: {name}")
            button.setToolTip(
                {"": "The build that fits this machine", "cpu": "Runs everywhere, slowly"}.get(
                    build, "Needs an NVIDIA GPU and its driver"
                )
            )
            button.clicked.connect(self._on_build)
            choice.addWidget(button)
            self.builds[build] = button
        label.setBuddy(self.builds[""])
        choice.addStretch()
        self._choice = QWidget()
        choice.setContentsMargins(0, 0, 0, 0)
        self._choice.setLayout(choice)
        self._text = words_label("code", "What the install does")
        self._problem = words_label("bad", "Problem with the install")
        self._step = words_label("muted", "Step of the install")
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName("Progress of the install")
        self._bar.setToolTip("Progress of this step")
        self.yes = QPushButton("Install")
        self.yes.setProperty("kind", "primary")
        self.again = QPushButton("Try again")
        self.again.setAccessibleName("Try again")
        self.again.setToolTip("Look again what an install means")
        self.no = QPushButton("Cancel")
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addStretch()
        for button in (self.no, self.again, self.yes):
            row.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 12, 12)
        layout.setSpacing(10)
        for widget in (self._title, self._choice, self._text, self._problem, self._step, self._bar):
            layout.addWidget(widget)
        layout.addLayout(row)
        self.yes.clicked.connect(self._on_yes)
        self.again.clicked.connect(self._on_again)
        self.no.clicked.connect(self._on_no)
        self.hide()

    @property
    def text(self) -> str:
        """Everything that is said now."""
        labels = (self._title, self._text, self._problem, self._step)
        return "\n".join(label.text() for label in labels if not label.isHidden() and label.text())

    @property
    def is_installing(self) -> bool:
        """Whether an install is under way."""
        return self._installing

    def wants(self, build: str | None) -> bool:
        """Whether the plan of a build is still what the person waits for."""
        return not self._installing and not self.isHidden() and build == self._build

    def begin(self) -> None:
        """Show the panel and ask for the plan."""
        if self._installing:
            return
        self._build = None
        self.builds[""].setChecked(True)
        self.show()
        self._ask()
        self.no.setFocus()

    def show_question(self, question: Question) -> None:
        """Show what an install would do."""
        self._title.setText(question.title)
        self._text.setText(question.text)
        danger = question.key == "engine-replace"
        self.yes.setProperty("kind", "danger" if danger else "primary")
        self.yes.style().unpolish(self.yes)
        self.yes.style().polish(self.yes)
        self.yes.setText(question.yes)
        self.yes.setAccessibleName(question.yes)
        self.yes.setToolTip(question.yes)
        self._show(self._text, self.yes, choice=True)

    def show_problem(self, words: str) -> None:
        """Say why there is no plan, or why the install failed."""
        self._installing = False
        self._title.setText("Nothing was installed")
        self._problem.setText(words)
        self._show(self._problem, self.again, choice=True, no="Close")

    def show_progress(self, progress: JobProgress) -> None:
        """Show one step of a running install."""
        if not self._installing:
            return
        self._step.setText(progress.text)
        self._bar.setRange(0, 0 if progress.fraction is None else 1000)
        if progress.fraction is not None:
            self._bar.setValue(round(progress.fraction * 1000))

    def finish(self) -> None:
        """Hide the panel: the install has ended well, or was cancelled."""
        self._installing = False
        self.hide()

    def _ask(self) -> None:
        self._title.setText("Install an engine")
        self._step.setText("Looking at this machine …")
        self._bar.setRange(0, 0)
        self._show(self._step, self._bar, choice=True)
        self.plan_wanted.emit(self._build)

    def _show(self, *shown: QWidget, choice: bool = False, no: str = "Cancel") -> None:
        parts: Sequence[QWidget] = (self._text, self._problem, self._step, self._bar, self.yes, self.again)
        for part in parts:
            part.setVisible(part in shown)
        self._choice.setVisible(choice)
        self.no.setText(no)
        self.no.setEnabled(True)
        self.no.setAccessibleName(f"{no} the install" if no == "Cancel" else no)
        self.no.setToolTip("Give the install up" if self._installing else "Close without an install")

    def _on_build(self) -> None:
        self._build = str(self.sender().property("build")) or None
        self._ask()

    def _on_again(self) -> None:
        self._ask()

    def _on_yes(self) -> None:
        self._installing = True
        self._title.setText("Installing an engine")
        self._step.setText("Beginning …")
        self._bar.setRange(0, 0)
        self._show(self._step, self._bar)
        self.agreed.emit(self._build)

    def _on_no(self) -> None:
        if self._installing:
            self.no.setEnabled(False)
            self._step.setText("Cancelling …")
            self._bar.setRange(0, 0)
            self.cancel_wanted.emit()
        else:
            self.hide()
            self.closed.emit()
