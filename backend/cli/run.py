"""`specdeck run`: the main job in the terminal: start, watch, chat, stop."""

import asyncio
import contextlib
import sys
from typing import Annotated

import typer
from rich.console import Console

from backend import paths
from backend.chat.conversation import Conversation
from backend.checkpoints import demo
from backend.cli import engines, runs, signals, words
from backend.cli.startup_view import StartupView
from backend.control import Control
from backend.errors import EngineError, UserError
from backend.events import Finding, RunState, Sample, Severity
from backend.launch.code_loading import code_loading
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import Profile
from backend.launch.supervisor import ENDED, Supervisor
from backend.telemetry import engine_metrics, window
from backend.telemetry.history import History

_DEFAULT_PROMPT = "In two sentences: why does a small draft model make a big one faster?"
_CHAT_TOKENS = 120


def run(
    profile: Annotated[
        str | None, typer.Argument(metavar="[PROFILE]", help="A profile of `specdeck profiles list`.")
    ] = None,
    *,
    chat: Annotated[str | None, typer.Option("--chat", help="Text of the first chat.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0, help="Watch for so many seconds after the chat, then stop.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to every download.")] = False,
    yes_cpu: Annotated[
        bool, typer.Option("--yes-cpu", help="Agree to the download of vLLM's CPU build and the demo model only.")
    ] = False,
) -> None:
    """Start an engine, chat with it and watch it until Ctrl-C; then stop it and leave nothing behind.

    Without a PROFILE it is the demo that costs the least speed on this kind of machine.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    control = Control()
    chosen = control.profiles.get(profile) if profile else default_demo(control)
    with signals.raised():
        environment = engines.ensure_engine(chosen.engine.environment, yes=yes, yes_cpu=yes or yes_cpu, console=console)
        _build_demo_models(chosen, control, environment, console)
        adopted = _adoptable(control, chosen)
        if adopted is None:
            _settle(control.check(chosen, environment), yes=yes, console=console)
            _settle_code(chosen, yes=yes, console=console)
    code = asyncio.run(_Session(control, chosen, environment, console).main(adopted, chat=chat, seconds=seconds))
    raise typer.Exit(code)


def default_demo(control: Control) -> Profile:
    """Return the shipped demo with the best measured ratio to no speculation."""
    demos = [
        stored.profile
        for stored in control.profiles.list()
        if stored.read_only and stored.profile and stored.profile.demo and stored.profile.measured
    ]
    assert demos, "demos ship with the program"
    return max(demos, key=lambda profile: profile.measured.speed_ratio if profile.measured else 0.0)


def _build_demo_models(profile: Profile, control: Control, environment: EngineEnvironment, console: Console) -> None:
    missing = control.missing_models(profile)
    if not any(files.model.startswith("specdeck://") for files in missing):
        return
    folders = paths.folders()
    needed = demo.needs(models=folders.models, cache=folders.cache)
    console.print(
        f"Building the demo models in {folders.models} "
        f"(download {needed.download_bytes / 1e6:.0f} MB, {needed.disk_bytes / 1e6:.0f} MB on disk) ..."
    )
    with console.status("Building the demo models") as status:
        demo.ensure(
            models=folders.models,
            cache=folders.cache,
            engine_python=environment.python,
            on_step=lambda step: status.update(f"{step.name} {step.detail}"),
        )


def _adoptable(control: Control, profile: Profile) -> str | None:
    """Return the run id of an engine of this profile that nobody supervises; ask about other leftovers."""
    found = control.leftovers()
    for leftover in found:
        if leftover.adoptable and leftover.record.profile == profile.name and not leftover.folder.stop_requested():
            return leftover.folder.run_id
    for leftover in found:
        typer.echo(f"Left over from {leftover.folder.run_id}: {runs.memory_words(leftover.status)}.", err=True)
        if sys.stdin.isatty() and typer.confirm("End it?", err=True):
            asyncio.run(control.stop(leftover.folder.run_id, hurry=asyncio.Event()))
        else:
            typer.echo(f"  To end it: specdeck stop {leftover.folder.run_id}", err=True)
    return None


def _settle(findings: list[Finding], *, yes: bool, console: Console) -> None:
    """Show findings; those that stop a start end it, unless a yes is enough and given.

    Raises:
        UserError: the start must not go on.
    """
    for finding in findings:
        if finding.severity is Severity.WARNING:  # notes are for `profiles check`
            console.print(f"{finding.severity.capitalize()}: {finding.what} {finding.fix}".rstrip(), markup=False)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    blocking = [finding for finding in errors if not finding.consent]
    if blocking:
        first = blocking[0]
        raise UserError("\n".join(f"{finding.what} {finding.why}".rstrip() for finding in blocking), first.fix)
    for finding in errors:
        _ask(f"{finding.what} {finding.why}", question="Go on?", yes=yes, console=console, fix=finding.fix)


def _settle_code(profile: Profile, *, yes: bool, console: Console) -> None:
    """Ask for every setting that loads code, one by one."""
    for use in code_loading(profile):
        text = f"{use.field} = {use.value}: {use.why}."
        _ask(text, question="Allow it?", yes=yes, console=console, fix="Take it out of the profile.")


def _ask(text: str, *, question: str, yes: bool, console: Console, fix: str) -> None:
    console.print(text, markup=False)
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError("Nobody is here to say yes.", f"Add --yes to agree. {fix}".rstrip())
    if not typer.confirm(question, err=True):
        raise UserError("Nothing was started.", fix)


class _Session:
    """One run in the terminal, from the start or the adoption of the engine to its end."""

    def __init__(self, control: Control, profile: Profile, environment: EngineEnvironment, console: Console) -> None:
        self._control = control
        self._profile = profile
        self._environment = environment
        self._console = console
        self._view = StartupView(console)
        self._history = History()
        self._run: Supervisor | None = None
        self._asked = asyncio.Event()

    async def main(self, adopted: str | None, *, chat: str | None, seconds: float | None) -> int:
        """Return the exit code."""
        with signals.handled(self._on_signal):
            run = await self._begin(adopted)
            work = asyncio.create_task(self._work(run, chat=chat, seconds=seconds))
            asked = asyncio.create_task(self._asked.wait())
            ended = asyncio.create_task(run.until(ENDED))
            await asyncio.wait({work, asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            for task in (asked, ended):
                task.cancel()
            failure = await _outcome(work)
            self._view.end()
            if run.state not in ENDED:
                self._console.print("Stopping the engine ...")
            asked_by_us = run.state not in ENDED
            await run.stop()
        return self._report(run, failure, stopped_by_us=asked_by_us)

    def _on_signal(self) -> None:
        if self._asked.is_set() and self._run is not None:
            self._run.hurry()
        self._asked.set()

    async def _begin(self, adopted: str | None) -> Supervisor:
        if adopted is not None:
            run = await self._control.adopt(self._control.run(adopted), on_change=self._on_change)
            if run is not None:
                self._console.print(f"Took over the engine that was left running: {run.folder.run_id}")
                self._run = run
                return run
        if self._profile.measured is not None:
            self._console.print(words.measured(self._profile))
        self._run = await self._control.start(self._profile, self._environment, on_change=self._on_change)
        return self._run

    def _on_change(self, run: Supervisor) -> None:
        self._view.update()
        if run.state is RunState.UNRESPONSIVE:
            self._console.print(
                f"The engine does not respond: log, counters and CPU have been still for {run.silent_s:.0f} s."
            )
        elif run.state is RunState.READY and run.stalled_s is not None:
            self._console.print(f"The engine moves again; it stood still for {run.stalled_s:.0f} s.")

    async def _work(self, run: Supervisor, *, chat: str | None, seconds: float | None) -> None:
        self._console.print(f"Starting {self._profile.shown_title}; log: {run.folder.log_file}", markup=False)
        self._view.begin(run)
        await run.until(ENDED | {RunState.READY})
        self._view.end()
        if run.state in ENDED:
            return
        self._console.print(f"Ready after {run.elapsed_s:.1f} s at {run.record.url}")
        newest: list[Sample] = []
        sampling = asyncio.create_task(self._sample(run, newest))
        try:
            prompt = chat or (self._profile.demo.prompt if self._profile.demo else _DEFAULT_PROMPT)
            await self._chat(run, prompt)
            if self._profile.measured is not None:
                self._console.print(words.measured(self._profile))
            await self._show(newest, seconds)
        finally:
            sampling.cancel()
            await asyncio.wait({sampling})

    async def _sample(self, run: Supervisor, newest: list[Sample]) -> None:
        async with contextlib.aclosing(self._control.samples(run, self._history)) as samples:
            async for sample, _host in samples:
                newest[:] = [sample]

    async def _chat(self, run: Supervisor, prompt: str) -> None:
        """Stream one answer to the standard output, and tell what the engine's counters say of it."""
        typer.echo(f"> {prompt}\n")
        before = engine_metrics.parse(await run.api.metrics())
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        talk = Conversation(run.api, model=run.record.served_model_name, max_tokens=_CHAT_TOKENS, temperature=0.0)
        async with talk.ask(prompt) as stream:
            async for chunk in stream:
                sys.stdout.write(chunk.reasoning + chunk.text)
                sys.stdout.flush()
        typer.echo("\n")
        after = engine_metrics.parse(await run.api.metrics())
        rates = window.rates(before, after, seconds=loop.time() - began_s) if before and after else None
        typer.echo(words.chat(stream.usage, rates))

    async def _show(self, newest: list[Sample], seconds: float | None) -> None:
        """Show a line of numbers each second: rewritten in a terminal, one below the other elsewhere."""
        loop = asyncio.get_running_loop()
        end_s = None if seconds is None else loop.time() + seconds
        is_terminal = sys.stdout.isatty()
        shown: Sample | None = None
        while end_s is None or loop.time() < end_s:
            if newest and newest[0] is not shown:
                shown = newest[0]
                sys.stdout.write(f"\r\x1b[K{words.live(shown)}" if is_terminal else f"{words.live(shown)}\n")
                sys.stdout.flush()
            await asyncio.sleep(0.1)
        if is_terminal:
            typer.echo()

    def _report(self, run: Supervisor, failure: UserError | None, *, stopped_by_us: bool) -> int:
        if run.left_behind:
            self._console.print(run.left_behind, style="bold red")
            return 1
        if run.state is RunState.FAILED:
            diagnosis = run.diagnosis
            cause = diagnosis.cause if diagnosis else run.record.cause
            where = f", line {diagnosis.log_line}" if diagnosis and diagnosis.log_line else ""
            how = f" ({diagnosis.exit_words})" if diagnosis else ""
            raise EngineError(f"The engine failed{how}: {cause}", f"The whole log: {run.folder.log_file}{where}")
        if failure is not None:
            raise failure
        if not stopped_by_us:
            self._console.print("Somebody else stopped the engine; nothing is left of it.")
        else:
            self._console.print("The engine has ended; no process, port or shared memory is left of it.")
        return 0


async def _outcome(work: asyncio.Task[None]) -> UserError | None:
    """Cancel the work if it still runs; return what a person can mend, raise what is a bug."""
    work.cancel()
    await asyncio.wait({work})
    if work.cancelled():
        return None
    error = work.exception()
    if error is None or isinstance(error, UserError):
        return error
    raise error
