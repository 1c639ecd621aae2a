"""`specdeck run`: the main job in the terminal: start, watch, chat, stop."""

import asyncio
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from backend import paths
from backend.checkpoints import demo
from backend.checkpoints.catalog import BUILT_PREFIX
from backend.cli import engines, runs, signals
from backend.cli.session import Session
from backend.control import Control
from backend.errors import UserError
from backend.events import Finding, Severity
from backend.launch import machine
from backend.launch.code_loading import code_loading
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import Profile


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
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Allow every setting of the profile that loads code or a path.")
    ] = False,
) -> None:
    """Start an engine, chat with it and watch it until Ctrl-C; then stop it and leave nothing behind.

    Without a PROFILE it is the demo that costs the least speed on this kind of machine.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    control = Control()
    chosen = control.default_demo() if profile is None else control.profiles.get(profile)
    with signals.raised():
        environment = engines.ensure_engine(chosen.engine.environment, yes=yes, yes_cpu=yes or yes_cpu, console=console)
        _build_demo_models(chosen, control, environment, yes=yes or yes_cpu, console=console)
        adoptable = _adoptable(control, chosen)
    # What was measured holds for the preset as it ships and for its own prompt.
    is_preset = control.profiles.find(chosen.name).read_only
    session = Session(control, chosen, console, show_measured=is_preset and chat is None)
    if adoptable is not None:
        code = asyncio.run(session.adopt(adoptable, chat=chat, seconds=seconds))
        if code is not None:
            raise typer.Exit(code)
    with signals.raised():
        _settle(control.check(chosen, environment), yes=yes, console=console)
        _settle_code(chosen, allow=allow_code, console=console)
    raise typer.Exit(asyncio.run(session.start(environment, chat=chat, seconds=seconds)))


def _build_demo_models(
    profile: Profile, control: Control, environment: EngineEnvironment, *, yes: bool, console: Console
) -> None:
    """Build the demo models that the profile uses and that are missing, after a yes.

    Raises:
        UserError: the answer was no, nobody can be asked, or the build failed.
    """
    if not any(files.model.startswith(BUILT_PREFIX) for files in control.missing_models(profile)):
        return
    folders = paths.folders()
    needed = demo.needs(models=folders.models, cache=folders.cache)
    free = machine.free_bytes(folders.models)
    text = (
        f"The demo models are not built yet: {needed.download_bytes / 1e6:.0f} MB to download, "
        f"{needed.disk_bytes / 1e6:.0f} MB on disk in {folders.models} ({free / 1e9:.1f} GB are free)."
    )
    _ask(text, question="Build them?", yes=yes, console=console, fix="")
    with console.status("Building the demo models") as status:
        demo.ensure(
            models=folders.models,
            cache=folders.cache,
            engine_python=environment.python,
            on_step=lambda step: status.update(Text(f"{step.name} {step.detail}")),
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


def _settle_code(profile: Profile, *, allow: bool, console: Console) -> None:
    """Ask for every setting that loads code, one by one."""
    for use in code_loading(profile):
        text = f"{use.field} = {use.value}: {use.why}."
        _ask(text, question="Allow it?", yes=allow, console=console, fix="Or take it out.", option="--allow-code")


def _ask(text: str, *, question: str, yes: bool, console: Console, fix: str, option: str = "--yes") -> None:
    console.print(text, markup=False)
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError("Nobody is here to say yes.", f"Add {option} to agree. {fix}".rstrip())
    if not typer.confirm(question, err=True):
        raise UserError("Nothing was started.", fix)
