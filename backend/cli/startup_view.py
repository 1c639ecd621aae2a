"""The start-up of an engine in the terminal: phases with their time, the usual time and real progress."""

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from backend.events import Phase
from backend.launch.supervisor import Supervisor

_SILENT_S = 30.0


class StartupView:
    """Shows the phases of one run until it is ready; a line for each phase where the output is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = 0
        self._run: Supervisor | None = None
        self._live = Live(console=console, refresh_per_second=4, transient=False, get_renderable=self._render)

    def begin(self, run: Supervisor) -> None:
        """Show the start of `run`."""
        self._run = run
        if self._console.is_terminal:
            self._live.start()

    def update(self) -> None:
        """Take note of a change; prints the phases that have ended where the output is no terminal."""
        if self._run is None or self._console.is_terminal:
            return
        for phase in self._run.phases[self._printed :]:
            if phase.ended_s is None:
                break
            self._printed += 1
            self._console.print(f"  {phase.name}: {_seconds(phase.ended_s - phase.started_s)}{_usual(phase)}")

    def end(self) -> None:
        """Stop showing."""
        self.update()
        if self._console.is_terminal and self._live.is_started:
            self._live.stop()

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        run = self._run
        if run is None:
            return table
        for phase in run.phases:
            if phase.ended_s is not None:
                took = _seconds(phase.ended_s - phase.started_s)
                table.add_row(Text("done", style="green"), phase.name, took + _usual(phase), Text(phase.detail))
            else:
                took = _seconds(run.elapsed_s - phase.started_s) + _usual(phase)
                table.add_row(Text("now", style="yellow"), phase.name, took, _progress(phase, run.silent_s))
        return table


def _progress(phase: Phase, silent_s: float) -> RenderableType:
    if phase.fraction is not None:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(ProgressBar(total=1.0, completed=phase.fraction, width=30), phase.detail)
        return grid
    if silent_s > _SILENT_S:
        return Text(f"no sign of life for {silent_s:.0f} s: log and CPU are still", style="yellow")
    return Text(phase.detail or "busy", style="dim")


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _usual(phase: Phase) -> str:
    return "" if phase.usual_s is None else f" (usually {phase.usual_s:.0f} s)"
