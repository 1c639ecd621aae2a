"""The start-up of an engine in the terminal: phases with their time, the usual time and real progress."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from backend.events import Phase
from backend.launch.supervisor import Supervisor

_SILENT_S = 30.0
_REMIND_S = 30.0


class StartupView:
    """Shows the phases of one run until it is ready.

    In a terminal they are drawn anew four times a second; elsewhere each phase gets a line when it ends, and a
    long one a line now and then, so that busy can be told from stuck there too.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = 0
        self._run: Supervisor | None = None
        self._live = Live(console=console, refresh_per_second=4, transient=False, get_renderable=self._render)

    @contextlib.asynccontextmanager
    async def shown(self, run: Supervisor) -> AsyncIterator[None]:
        """Show the start of `run` inside the block."""
        self._run = run
        reminding = asyncio.create_task(self._remind(run))
        if self._console.is_terminal:
            self._live.start()
        try:
            yield
        finally:
            reminding.cancel()
            await asyncio.wait({reminding})
            self.end()

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
        if self._live.is_started:
            self._live.stop()

    async def _remind(self, run: Supervisor) -> None:
        while not self._console.is_terminal:
            await asyncio.sleep(_REMIND_S)
            phase = run.phases[-1]
            took = _seconds(run.elapsed_s - phase.started_s) + _usual(phase)
            self._console.print(f"  {phase.name}: {took} so far; {_activity(phase, run.silent_s)}")

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
    if phase.fraction is None:
        return Text(_activity(phase, silent_s), style="yellow" if silent_s > _SILENT_S else "dim")
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=1.0, completed=phase.fraction, width=30), phase.detail)
    return grid


def _activity(phase: Phase, silent_s: float) -> str:
    if silent_s > _SILENT_S:
        return f"no sign of life for {silent_s:.0f} s: log and CPU are still"
    return phase.detail or "busy"


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _usual(phase: Phase) -> str:
    return "" if phase.usual_s is None else f" (usually {phase.usual_s:.0f} s)"
