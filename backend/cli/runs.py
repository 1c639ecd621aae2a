"""`specdeck status` and `specdeck stop`: the engines that run on this machine, whoever supervises them."""

import asyncio
import dataclasses
import json
import sys
import time
from typing import Annotated

import typer

from backend.cli import signals
from backend.control import Control
from backend.errors import UsageError, UserError
from backend.events import RunState, RunStatus

_STATE_COLOURS = {
    RunState.READY: "green",
    RunState.STARTING: "yellow",
    RunState.UNRESPONSIVE: "yellow",
    RunState.STOPPING: "yellow",
    RunState.FAILED: "red",
}


def status(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the engines that run on this machine, with their processes and memory, and what was left behind."""
    found = Control().live_runs()
    if as_json:
        typer.echo(json.dumps([_as_dict(run) for run in found], indent=1))
        return
    if not found:
        typer.echo("No engine runs. Start one with `specdeck run PROFILE`.")
        return
    for run in found:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started_at))
        owner = f"process {run.owner_pid}" if run.owner_pid else "nobody"
        typer.secho(run.run_id, bold=True, nl=False)
        typer.secho(f"  {_state_words(run)}", fg=_STATE_COLOURS.get(run.state))
        typer.echo(f"  profile {run.profile} at {run.url}, since {since}, supervised by {owner}")
        typer.echo(f"  {memory_words(run)}")
    if any(run.owner_pid is None for run in found):
        typer.echo(
            "Nobody supervises some of them: `specdeck run PROFILE` takes an engine over again, "
            "`specdeck stop RUN` ends it."
        )


def stop(
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run of `specdeck status`, or its profile.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="End every engine and leftover of this machine.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """End an engine and verify that nothing is left; without a name, the one that runs."""
    control = Control()
    found = control.live_runs()
    if run_id is not None:
        chosen = [run for run in found if run.run_id == run_id] or [
            run for run in found if run.profile == run_id or run.run_id.startswith(run_id)
        ]
        if len(chosen) != 1:
            what = "No run" if not chosen else f"More than one run ({len(chosen)})"
            raise UsageError(f"{what} is called {run_id}.", "`specdeck status` shows what runs.")
    elif everything or len(found) <= 1:
        chosen = found
    else:
        raise UsageError(f"{len(found)} engines run.", "Name one of `specdeck status`, or use --all.")
    if not chosen:
        typer.echo("No engine runs.")
        return
    orphans = [run for run in chosen if _is_orphan(run)]
    if orphans and run_id is None and not yes:
        confirm_leftovers(orphans)
    left = [words for run in chosen if (words := asyncio.run(_stop(control, run)))]
    if left:
        raise UserError("\n".join(left))


async def _stop(control: Control, run: RunStatus) -> str:
    hurry = asyncio.Event()
    with signals.handled(hurry.set):
        typer.echo(f"Stopping {run.run_id} ...", err=True)
        words = await control.stop(run.run_id, hurry=hurry)
    if not words:
        typer.echo(f"{run.run_id} has ended; nothing is left of it.")
    return words


def confirm_leftovers(orphans: list[RunStatus]) -> None:
    """List leftovers with their memory and ask whether to end them.

    Raises:
        UserError: the answer was no, or nobody can be asked.
    """
    for run in orphans:
        typer.echo(f"Left over from {run.run_id}: {memory_words(run)}", err=True)
    if not sys.stdin.isatty():
        raise UserError("Leftovers are ended only after a yes.", "Add --yes, or name the run.")
    if not typer.confirm("End them?", err=True):
        raise UserError("Nothing was ended.")


def only_url() -> str:
    """Return the address of the one engine that runs, for `specdeck watch`.

    Raises:
        UsageError: none or several run.
    """
    found = [run for run in Control().live_runs() if not _is_orphan(run)]
    if len(found) != 1:
        raise UsageError(
            "No engine runs." if not found else f"{len(found)} engines run.",
            "Say which one to watch with --url http://127.0.0.1:8000.",
        )
    return found[0].url


def memory_words(run: RunStatus) -> str:
    """Say what a run holds: resident memory and number of processes."""
    held = sum(process.memory_bytes for process in run.processes)
    names = ", ".join(f"{process.name} {process.pid}" for process in run.processes)
    return f"{held / 2**30:.1f} GiB in {len(run.processes)} processes ({names})"


def _is_orphan(run: RunStatus) -> bool:
    return run.owner_pid is None and run.state is RunState.FAILED


def _state_words(run: RunStatus) -> str:
    return "leftover" if _is_orphan(run) else run.state.value


def _as_dict(run: RunStatus) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "profile": run.profile,
        "state": run.state.value,
        "leftover": _is_orphan(run),
        "url": run.url,
        "started_at": run.started_at,
        "owner_pid": run.owner_pid,
        "cause": run.cause,
        "stalled_s": run.stalled_s,
        "processes": [dataclasses.asdict(process) for process in run.processes],
        "memory_bytes": sum(process.memory_bytes for process in run.processes),
    }
