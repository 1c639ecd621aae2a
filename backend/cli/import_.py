"""`specdeck import`: a pasted command, a script or a running engine becomes a launch profile; nothing is run."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from backend.cli import versions
from backend.errors import UsageError
from backend.events import Finding, Severity
from backend.launch import importers, kept_secrets, profile_toml
from backend.launch.change_list import ChangeKind
from backend.launch.import_profile import ImportResult
from backend.launch.profile_store import ProfileStore

_STYLES = {
    ChangeKind.KEPT: "green",
    ChangeKind.TRANSLATED: "cyan",
    ChangeKind.DROPPED: "yellow",
    ChangeKind.REFUSED: "red",
    ChangeKind.UNKNOWN: "red",
}
_FINDINGS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def import_(
    file: Annotated[
        str | None,
        typer.Argument(
            help="Script, docker run, compose file, manifest or unit; - reads what you paste, until Ctrl-D."
        ),
    ] = None,
    *,
    for_vllm: Annotated[
        str | None,
        typer.Option(
            "--for-vllm", help="Version of vLLM that will run it, for example 0.10.2; by default the installed."
        ),
    ] = None,
    save: Annotated[str | None, typer.Option("--save", help="Keep the profile under this name.")] = None,
    pid: Annotated[
        int | None, typer.Option("--pid", help="Read a running vLLM of your own, by its process id.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a profile of a command from anywhere, and tell what became of each option. Runs nothing."""
    if (file is None) == (pid is None):
        raise UsageError(
            "Say what to import: a file, - for pasted text, or --pid.", "For example: specdeck import serve.sh"
        )
    probe = versions.accepted(for_vllm)
    if pid is not None:
        result = importers.from_process(pid, probe=probe, name=save or "")
    else:
        text, folder = _read(file or "-")
        result = importers.from_text(text, probe=probe, name=save or "", folder=folder)
    place = _save(result) if save else None
    if as_json:
        typer.echo(json.dumps(_as_dict(result, place), indent=1, ensure_ascii=False))
    else:
        _print(result, place)


def _read(file: str) -> tuple[str, str]:
    """Return the text and the folder that relative paths in it mean."""
    if file == "-":
        return sys.stdin.read(importers.MAX_CHARACTERS + 1), str(Path.cwd())
    path = Path(file).expanduser()
    try:
        if not path.is_file():
            raise UsageError(f"There is no file {file}.", "Check the path, or use - and paste the command.")
        with path.open(encoding="utf-8") as opened:
            return opened.read(importers.MAX_CHARACTERS + 1), str(path.resolve().parent)
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no text in UTF-8.", "Choose another file.") from error


def _save(result: ImportResult) -> Path:
    store = ProfileStore()
    if any(stored.name == result.profile.name for stored in store.list()):
        raise UsageError(f"There is already a profile named {result.profile.name}.", "Choose another name with --save.")
    path = store.save(result.profile)
    kept_secrets.keep(result.profile.name, result.secrets)
    return path


def _as_dict(result: ImportResult, place: Path | None) -> dict[str, object]:
    profile = result.profile.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        "profile": {"name": result.profile.name, **profile},
        "vllm": result.version,
        "changes": [change.as_dict() for change in result.changes],
        "findings": [_finding(finding) for finding in result.findings],
        "moved": [{"what": name, "to": _moved_to(place)} for name in sorted(result.secrets)],
        "saved": None if place is None else str(place),
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity.value,
        "what": finding.what,
        "why": finding.why,
        "fix": finding.fix,
        "field": finding.field,
        "fixes": [
            {
                "text": fix.text,
                "profile_changes": [{"path": change.path, "value": change.value} for change in fix.changes],
                "action": fix.action,
            }
            for fix in finding.fixes
        ],
    }


def _moved_to(place: Path | None) -> str:
    return str(kept_secrets.file()) if place is not None else "left out; with --save it is kept apart from the profile"


def _print(result: ImportResult, place: Path | None) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"# {result.profile.name}, for vLLM {result.version}", style="bold", markup=False)
    console.print(profile_toml.dumps(result.profile), markup=False)
    for change in result.changes:
        line = Text(f"{change.kind.value:<11}", style=_STYLES[change.kind])
        line.append(change.from_, style="bold")
        if change.to:
            line.append(f"  ->  {change.to}")
        console.print(line)
        if change.why:
            console.print(f"{'':<11}{change.why}", style="dim", markup=False)
    for finding in result.findings:
        console.print(Text(f"{finding.severity.value:<11}", style=_FINDINGS[finding.severity]).append(finding.what))
        for words in (finding.why, finding.fix):
            if words:
                console.print(f"{'':<11}{words}", style="dim", markup=False)
    for name in sorted(result.secrets):
        console.print(f"{'moved':<11}{name}: {_moved_to(place)}", markup=False)
    if place is not None:
        console.print(f"Saved to {place}; start it with: specdeck run {result.profile.name}", markup=False)
    else:
        console.print("Nothing was saved; --save NAME keeps it.", markup=False)
