"""`specdeck profiles`: list, show, copy and check launch profiles."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from backend.errors import EngineEnvironmentError, UsageError
from backend.events import Finding, Severity
from backend.launch import command, environments, profile_store
from backend.launch.code_loading import code_loading
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import Profile
from backend.launch.profile_store import ProfileStore, StoredProfile

app = typer.Typer(help="Launch profiles: what to run and how.", no_args_is_help=True)

_Name = Annotated[str, typer.Argument(help="Name of a profile.")]
_Engine = Annotated[str | None, typer.Option("--engine", help="Engine environment; by default the profile's.")]


@app.command("list")
def list_(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the profiles that ship and your own."""
    stored = ProfileStore().list()
    if as_json:
        typer.echo(json.dumps([_as_dict(one) for one in stored], indent=1))
        return
    table = Table("name", "from", "what", "speculation", "needs")
    table.columns[0].no_wrap = True  # a name that is cut short cannot be typed again
    for one in stored:
        source = "Specdeck" if one.read_only else "you"
        if one.profile is None:
            table.add_row(one.name, source, Text("damaged", style="red"), "", Text(one.problem))
        else:
            what, needs = Text(one.profile.shown_title), Text(one.profile.hardware)
            table.add_row(one.name, source, what, _speculation(one.profile), needs)
    Console().print(table)


@app.command()
def show(
    name: _Name,
    *,
    as_command: Annotated[bool, typer.Option("--command", help="Print the command that it runs.")] = False,
    engine: _Engine = None,
) -> None:
    """Print a profile, or the command that starts its engine."""
    store = ProfileStore()
    if as_command:
        profile = store.get(name)
        environment = environments.choose(engine or profile.engine.environment, on_wait=_wait)
        typer.echo(command.preview(profile, environment))
        return
    text = store.find(name).path.read_text(encoding="utf-8", errors="replace")
    if sys.stdout.isatty():
        Console().print(Syntax(text, "toml", background_color="default"))
    else:
        typer.echo(text, nl=False)


@app.command()
def copy(name: _Name, new_name: Annotated[str, typer.Argument(help="Name of the copy.")]) -> None:
    """Copy a profile to one of your own, which you can change."""
    typer.echo(f"Copied to {ProfileStore().copy(name, new_name)}; change it in a text editor.")


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(help="Name of a profile, or a file; by default all profiles.")] = None,
    *,
    engine: _Engine = None,
) -> None:
    """Check profiles, also against the installed vLLM if there is one; exit code 1 if one cannot be used."""
    failed = False
    unchecked: dict[str, None] = {}
    for stored in _wanted(name):
        environment = None
        if stored.profile is not None:
            try:
                environment = environments.choose(engine or stored.profile.engine.environment, on_wait=_wait)
            except (EngineEnvironmentError, UsageError) as error:
                if engine is not None and isinstance(error, UsageError):
                    raise
                unchecked[str(error)] = None
        findings = _findings(stored, environment)
        for finding in findings:
            typer.echo(f"{stored.name}: {finding.severity}: {' '.join(filter(None, (finding.what, finding.fix)))}")
            failed = failed or finding.severity is Severity.ERROR
        if not findings:
            typer.echo(f"{stored.name}: fine{_against(environment)}")
    for reason in unchecked:
        typer.echo(f"Options were not checked against a vLLM: {reason}")
    if failed:
        raise typer.Exit(1)


def _wanted(name: str | None) -> tuple[StoredProfile, ...]:
    if name is None:
        return ProfileStore().list()
    if "/" in name or name.endswith(".toml"):
        return (profile_store.read(Path(name).expanduser(), read_only=True),)
    return (ProfileStore().find(name),)


def _findings(stored: StoredProfile, environment: EngineEnvironment | None) -> list[Finding]:
    if stored.profile is None:
        return [Finding(Severity.ERROR, stored.problem)]
    asked = [
        Finding(Severity.NOTE, f"{one.field} {one.why}; you will be asked before a start.")
        for one in code_loading(stored.profile)
    ]
    return [*asked, *(command.check(stored.profile, environment) if environment is not None else ())]


def _against(environment: EngineEnvironment | None) -> str:
    if environment is None or environment.probe is None:
        return ""
    return f" for vLLM {environment.probe.version} ({environment.id})"


def _wait(words: str) -> None:
    typer.echo(words, err=True)


def _speculation(profile: Profile) -> Text:
    spec = profile.speculation
    if not spec.on:
        return Text("off")
    count = f", {spec.num_speculative_tokens} tokens" if spec.num_speculative_tokens else ""
    return Text(f"{spec.method or 'by its model'}{count}")


def _as_dict(stored: StoredProfile) -> dict[str, object]:
    return {
        "name": stored.name,
        "path": str(stored.path),
        "read_only": stored.read_only,
        "problem": stored.problem or None,
        "profile": stored.profile.model_dump(mode="json", by_alias=True, exclude_none=True) if stored.profile else None,
    }
