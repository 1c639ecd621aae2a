"""Shows an install in the terminal: a question, and its progress."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from backend.launch.pip_output import InstallStep


def ask(question: str) -> bool:
    """Ask on stderr for a yes; no terminal means no."""
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class InstallView:
    """A progress line on a terminal; elsewhere one line for each new step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, detail="")
        self._name = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def pause(self) -> None:
        """Take the progress line away for a question; the next step shows it again."""
        self._progress.stop()

    def show(self, step: InstallStep) -> None:
        """Show one step."""
        if step.name != self._name:
            self._name = step.name
            if not self._console.is_terminal or step.name.startswith("Adding"):
                detail = f": {step.detail}" if step.detail and step.fraction is None else ""
                self._console.print(f"{step.name}{detail}", markup=False)
        if self._console.is_terminal:
            self._progress.start()  # again after a question
            self._progress.update(
                self._task,
                description=step.name,
                total=None if step.fraction is None else 1.0,
                completed=step.fraction or 0.0,
                detail=step.detail,
            )
