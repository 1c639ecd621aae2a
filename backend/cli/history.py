"""`specdeck history`: the runs that were recorded, their figures, and files of them for other programs."""

import asyncio
import dataclasses
import json
import sys
import textwrap
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backend.cli.words import UNKNOWN, figure
from backend.control import Control
from backend.curves import Floats, RecordedRun
from backend.desk.history import PastRuns
from backend.errors import UsageError, UserError
from backend.events import PastRun
from backend.hardware import GpuInfo
from backend.telemetry.export import Kind

_OUTCOME_WIDTH = 48

app = typer.Typer(help="Runs that were recorded: list, show, export and delete them.", no_args_is_help=True)

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Run = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run of `specdeck history list`, its beginning, or `last` for the newest."),
]


@app.command("list")
def list_(*, as_json: _Json = False) -> None:
    """Show the recorded runs, newest first."""
    found = asyncio.run(_room().list())
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(run) for run in found], indent=1))
        return
    if not found:
        typer.echo("No run was recorded yet. Start one with `specdeck run PROFILE`.")
        return
    table = Table("run", "engine", "started", "lasted", "tokens/s", "accepted", "how it ended")
    table.columns[0].no_wrap = True  # a name that is cut short cannot be typed again
    for run in found:
        words = textwrap.shorten(run.outcome, _OUTCOME_WIDTH, placeholder=" …")  # `show` has all of it
        outcome = Text(words, style="red" if run.failed else "")
        table.add_row(run.run_id, run.engine or UNKNOWN, _date(run.started_at), _length(run), *_figures(run), outcome)
    Console().print(table)


@app.command()
def show(run: _Run, *, as_json: _Json = False) -> None:
    """Show one run: what is known of it, what happened, and least, mean and greatest value of each series."""
    recorded = asyncio.run(_open(run))
    if as_json:
        typer.echo(json.dumps(_as_dict(recorded), indent=1))
        return
    known = recorded.run
    rate, accepted = _figures(known)
    typer.secho(known.run_id, bold=True)
    typer.echo(f"  profile {known.profile} ({known.title}), engine {known.engine or UNKNOWN}")
    typer.echo(f"  since {_date(known.started_at)}, lasted {_length(known)}: {known.outcome}")
    typer.echo(f"  {rate} tokens/s while any were made, {accepted} of the drafted tokens accepted")
    for mark in recorded.marks:
        typer.echo(f"  {_date(mark.t)}  {mark.kind}: {mark.text}")
    table = Table("series", "readings", "least", "mean", "greatest")
    table.columns[0].no_wrap = True
    for name, values in zip(recorded.readings.names, recorded.readings.values, strict=True):
        summary = _summary(values)
        if summary["readings"]:
            shown = [_shown(summary[key]) for key in ("least", "mean", "greatest")]
            table.add_row(_shown_name(name, recorded.gpus), f"{summary['readings']:,.0f}", *shown)
    Console().print(table)


@app.command()
def export(
    run: _Run,
    file: Annotated[Path, typer.Argument(help="File to write; a name in .json gives JSON, else CSV.")],
    *,
    kind: Annotated[str | None, typer.Option("--format", help="csv or json, whatever the name is.")] = None,
    last_s: Annotated[float | None, typer.Option("--last", min=0, help="Only so many seconds up to its end.")] = None,
) -> None:
    """Write the readings and what happened into a file for other programs."""
    chosen = kind or ("json" if file.suffix.lower() == ".json" else "csv")
    if chosen not in ("csv", "json"):
        raise UsageError(f"{chosen} is no format.", "Use csv or json.")
    wanted: Kind = "json" if chosen == "json" else "csv"
    asyncio.run(_export(run, file.expanduser(), wanted, last_s))
    typer.echo(f"Written to {file}.")


@app.command()
def delete(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs of `specdeck history list`.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete recorded runs for good; their logs are kept as long as others."""
    chosen = asyncio.run(_find_all(runs))
    for run in chosen:
        typer.echo(f"{run.run_id}: {run.outcome}, {run.size_bytes / 1e6:,.1f} MB", err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("Runs are deleted only after a yes.", "Add --yes.")
        if not typer.confirm("Delete them for good?", err=True):
            raise UserError("Nothing was deleted.")
    asyncio.run(_room().delete([run.run_id for run in chosen]))
    typer.echo("Deleted.")


def _room() -> PastRuns:
    return PastRuns(Control(), lambda _: None)


async def _open(name: str) -> RecordedRun:
    room = _room()
    return await room.open(_find(await room.list(), name).run_id)


async def _export(name: str, file: Path, kind: Kind, last_s: float | None) -> None:
    room = _room()
    run_id = _find(await room.list(), name).run_id
    begin = None
    if last_s is not None:
        newest = await room.open(run_id, names=(), seconds=0.0)  # a span that begins with its newest reading
        begin = newest.readings.begin - last_s
    await room.export(run_id, file, kind, begin)


async def _find_all(names: list[str]) -> list[PastRun]:
    found = await _room().list()
    return list({run.run_id: run for run in (_find(found, name) for name in names)}.values())


def _find(found: tuple[PastRun, ...], name: str) -> PastRun:
    """Return the run that a person means.

    Raises:
        UsageError: there is none, or more than one.
    """
    if name == "last" and found:
        return found[0]
    chosen = [run for run in found if run.run_id == name] or [run for run in found if run.run_id.startswith(name)]
    if len(chosen) != 1:
        what = "No recorded run" if not chosen else f"More than one recorded run ({len(chosen)})"
        raise UsageError(f"{what} is called {name}.", "`specdeck history list` shows them.")
    return chosen[0]


def _as_dict(recorded: RecordedRun) -> dict[str, object]:
    readings = recorded.readings
    return {
        **dataclasses.asdict(recorded.run),
        "gpus": [{"uuid": gpu.uuid, "name": gpu.name, "index": gpu.index} for gpu in recorded.gpus],
        "marks": [dataclasses.asdict(mark) for mark in recorded.marks],
        "series": {name: _summary(values) for name, values in zip(readings.names, readings.values, strict=True)},
    }


def _summary(values: Floats) -> dict[str, float | None]:
    known = values[np.isfinite(values)]
    if not len(known):
        return {"readings": 0, "least": None, "mean": None, "greatest": None}
    return {
        "readings": len(known),
        "least": float(known.min()),
        "mean": float(known.mean()),
        "greatest": float(known.max()),
    }


def _figures(run: PastRun) -> tuple[str, str]:
    accepted = UNKNOWN if run.acceptance_rate is None else f"{run.acceptance_rate * 100:.1f} %"
    return figure(run.tokens_per_s, ",.1f"), accepted


def _shown(value: float | None) -> str:
    """Format a figure of any size: four digits, and of large ones all before the point."""
    return figure(value, ".4g" if value is not None and abs(value) < 1000 else ",.0f")


def _shown_name(name: str, gpus: tuple[GpuInfo, ...]) -> str:
    """Name a series of a GPU by its number, which people know."""
    uuid, slash, rest = name.partition("/")
    index = next((gpu.index for gpu in gpus if gpu.uuid == uuid), None)
    return f"GPU {index} {rest}" if slash and index is not None else name


def _date(t: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(t))


def _length(run: PastRun) -> str:
    seconds = round((time.time() if run.ended_at is None else run.ended_at) - run.started_at)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds % 60:02} s" if minutes else f"{seconds} s"
