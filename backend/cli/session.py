"""One run in the terminal: start or take over an engine, chat, show numbers, and always end the engine."""

import asyncio
import contextlib
import os
import sys

import typer
from rich.console import Console

from backend.chat.conversation import Conversation
from backend.cli import signals, words
from backend.cli.startup_view import StartupView
from backend.control import Control
from backend.desk.history import PastRuns
from backend.desk.types import RunView
from backend.errors import EngineError, UsageError, UserError
from backend.events import RunState, Sample
from backend.launch import environments, preflight
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import Profile
from backend.launch.supervisor import ENDED, Supervisor
from backend.telemetry import engine_metrics, window
from backend.telemetry.engine_metrics import EngineReading
from backend.telemetry.history import History

_DEFAULT_PROMPT = "In two sentences: why does a small draft model make a big one faster?"
_CHAT_TOKENS = 120
_METRICS_TIMEOUT_S = 10.0


class Session:
    """The terminal's side of one run.

    Whatever happens to the terminal (closed, a broken pipe), the engine is ended.
    """

    def __init__(self, control: Control, profile: Profile, console: Console, *, show_measured: bool) -> None:
        self._control = control
        self._profile = profile
        self._console = console
        self._show_measured = show_measured and profile.measured is not None
        self._view = StartupView(console)
        self._history = History()
        self._past = PastRuns(control, lambda _: None)  # the recorder warns by itself
        self._engine_words: str | None = None  # until that is known nothing is recorded
        self._run: Supervisor | None = None
        self._asked = asyncio.Event()

    async def adopt(self, run_id: str, *, chat: str | None, seconds: float | None) -> int | None:
        """Take over an engine that was left running; returns the exit code, None when there is none to take."""
        with signals.handled(self._on_signal):
            self._run = await self._control.adopt(self._control.run(run_id), on_change=self._on_change)
            if self._run is None:
                return None
            self._say(f"Took over the engine that was left running, with the settings it has: {run_id}")
            return await self._until_the_end(self._run, chat=chat, seconds=seconds)

    async def start(self, environment: EngineEnvironment, *, chat: str | None, seconds: float | None) -> int:
        """Start an engine; returns the exit code."""
        with signals.handled(self._on_signal):
            self._run = await self._control.start(self._profile, environment, on_change=self._on_change)
            self._say(f"Starting {self._profile.shown_title}; log: {self._run.folder.log_file}")
            return await self._until_the_end(self._run, chat=chat, seconds=seconds)

    async def _until_the_end(self, run: Supervisor, *, chat: str | None, seconds: float | None) -> int:
        try:
            await self._begin_recording(run)
            work = asyncio.create_task(self._work(run, chat=chat, seconds=seconds))
            asked = asyncio.create_task(self._asked.wait())
            ended = asyncio.create_task(run.until(ENDED))
            await asyncio.wait({work, asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, asked, ended):
                task.cancel()
            await asyncio.wait({work, asked, ended})
        finally:
            stopped_by_us = run.state not in ENDED
            with contextlib.suppress(Exception):  # the engine is ended first, whatever the terminal does
                self._view.end()
            if stopped_by_us:
                self._say("Stopping the engine ...")
            await run.stop()
            await self._past.close()
        failure = None if work.cancelled() else work.exception()
        if failure is not None and not isinstance(failure, UserError):
            raise failure
        return self._report(run, failure, stopped_by_us=stopped_by_us)

    def _on_signal(self) -> None:
        if self._asked.is_set() and self._run is not None:
            self._run.hurry()
        self._asked.set()

    def _on_change(self, run: Supervisor) -> None:
        self._view.update()
        if run is self._run and self._engine_words is not None:
            self._past.follow(self._seen(run))
        if run.state is RunState.UNRESPONSIVE:
            self._say(f"The engine does not respond: log, counters and CPU have been still for {run.silent_s:.0f} s.")
        elif run.state is RunState.READY and run.stalled_s is not None:
            self._say(f"The engine moves again; it stood still for {run.stalled_s:.0f} s.")

    async def _begin_recording(self, run: Supervisor) -> None:
        self._engine_words = await asyncio.to_thread(_engine_words, run.record.environment)
        await self._past.begin()
        self._past.follow(self._seen(run))

    def _seen(self, run: Supervisor) -> RunView:
        """Return a run as the window would see it, for the recording."""
        record = run.record
        return RunView(
            state=run.state,
            profile=record.profile,
            title=self._profile.shown_title,
            run_id=run.folder.run_id,
            engine=self._engine_words or "",
            started_at=record.created_at,
            ready_at=record.ready_at,
            ended_at=record.ended_at,
            stalled_s=run.stalled_s,
            diagnosis=run.diagnosis,
        )

    async def _work(self, run: Supervisor, *, chat: str | None, seconds: float | None) -> None:
        if run.state is RunState.STARTING:
            async with self._view.shown(run):
                await run.until(ENDED | {RunState.READY})
            if run.state in ENDED:
                return
            self._say(f"Ready after {run.elapsed_s:.1f} s at {run.record.url}")
        newest: list[Sample] = []
        sampling = asyncio.create_task(self._sample(run, newest))
        try:
            prompt = chat or (self._profile.demo.prompt.strip() if self._profile.demo else _DEFAULT_PROMPT)
            refused = await self._chat(run, prompt)
            if self._show_measured:
                self._say(words.measured(self._profile))
            if seconds is None:
                self._say(f"Watching; Ctrl-C stops the engine. Others can use it at {run.record.url}/v1")
            await self._show(newest, seconds)
            if refused is not None:
                raise refused
        except OSError:  # nobody reads the standard output any more
            _leave_closed_output()
        finally:
            sampling.cancel()
            await asyncio.wait({sampling})

    async def _sample(self, run: Supervisor, newest: list[Sample]) -> None:
        async with contextlib.aclosing(self._control.samples(run, self._history)) as samples:
            async for sample, host in samples:
                self._past.take(host, sample, None)
                newest[:] = [sample]

    async def _chat(self, run: Supervisor, prompt: str) -> EngineError | None:
        """Stream one answer, and tell what the engine's counters say of it; returns why there was no answer."""
        typer.echo(f"> {prompt}\n")
        self._past.mark("chat", "chat")
        before = await _reading(run)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        talk = Conversation(run.api, model=run.record.served_model_name, max_tokens=_CHAT_TOKENS, temperature=0.0)
        try:
            async with talk.ask(prompt) as stream:
                async for chunk in stream:
                    sys.stdout.write(chunk.reasoning + chunk.text)
                    sys.stdout.flush()
        except EngineError as error:
            typer.echo()
            self._say(f"The chat failed: {error}")
            return error
        typer.echo("\n")
        after = await _reading(run)
        rates = window.rates(before, after, seconds=loop.time() - began_s) if before and after else None
        typer.echo(words.chat(stream.usage, rates))
        return None

    async def _show(self, newest: list[Sample], seconds: float | None) -> None:
        """Show a line of numbers each second: rewritten in a terminal, one below the other elsewhere."""
        loop = asyncio.get_running_loop()
        end_s = None if seconds is None else loop.time() + seconds
        is_terminal = sys.stdout.isatty()
        shown: Sample | None = None
        try:
            while end_s is None or loop.time() < end_s:
                if newest and newest[0] is not shown:
                    shown = newest[0]
                    line = words.live(shown)
                    sys.stdout.write(f"\r\x1b[K{line}" if is_terminal else f"{line}\n")
                    sys.stdout.flush()
                await asyncio.sleep(0.1)
        finally:
            if is_terminal:
                with contextlib.suppress(OSError):
                    typer.echo()

    def _say(self, text: str) -> None:
        """Print for people; a terminal that is gone must not keep us from ending the engine."""
        # Rich turns a broken pipe into SystemExit.
        with contextlib.suppress(OSError, SystemExit):
            self._console.print(text, markup=False)

    def _report(self, run: Supervisor, failure: UserError | None, *, stopped_by_us: bool) -> int:
        if run.left_behind:
            raise UserError(run.left_behind)
        if run.state is RunState.FAILED:
            diagnosis = run.diagnosis
            cause = diagnosis.cause if diagnosis else run.record.cause
            where = f", line {diagnosis.log_line}" if diagnosis and diagnosis.log_line else ""
            how = f" ({diagnosis.exit_words})" if diagnosis else ""
            taken = preflight.check_port(run.record.host, run.record.port) if "already in use" in cause else []
            words = " ".join(f"{finding.what} {finding.fix}" for finding in taken)
            raise EngineError(
                f"The engine failed{how}: {cause}", f"{words} The whole log: {run.folder.log_file}{where}".strip()
            )
        if failure is not None:
            raise failure
        if stopped_by_us:
            self._say("The engine has ended; no process, port or shared memory is left of it.")
        else:
            self._say("Somebody else stopped the engine; nothing is left of it.")
        return 0


def _engine_words(environment_id: str) -> str:
    """Return distribution and version of an environment, "" if it is gone. Blocking."""
    try:
        found = environments.get(environment_id)
    except UsageError:  # it was removed since
        return ""
    return f"{found.distribution} {found.version}".strip()


async def _reading(run: Supervisor) -> EngineReading | None:
    """Read the counters once; None when the engine is too busy to tell."""
    try:
        return engine_metrics.parse(await run.api.metrics(timeout_s=_METRICS_TIMEOUT_S))
    except EngineError:
        return None


def _leave_closed_output() -> None:
    """Point the standard output at nothing: the interpreter flushes it once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
