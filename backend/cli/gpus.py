"""`specdeck gpus`: what the GPU sampler knows."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from backend.cli import gpu_table, signals, watch
from backend.control import Control
from backend.hardware import GpuSnapshot, Why
from backend.launch import processes
from backend.telemetry import gpu_owners
from backend.telemetry.gpu_messages import SamplerOptions
from backend.telemetry.gpus import Gpus

_LOOK_S = 0.05
_WIDTH = 120  # where nobody looks (a file, a pipe), so that no figure is broken
_MOST_WAITED_FOR = 5  # readings: a rate takes two, and the first may be made before the sampler knows its options
_OWNERS_S = 5.0


def gpus(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything that is known as one JSON object.")] = False,
    again: Annotated[bool, typer.Option("--watch", help="Print again and again until Ctrl-C.")] = False,
    interval: Annotated[
        float | None, typer.Option("--interval", min=0.25, max=600.0, help="Seconds from one reading to the next.")
    ] = None,
) -> None:
    """Show the NVIDIA GPUs: memory and whose it is, bandwidth, load, power, clocks, links and processes."""
    with watch.quiet_end():
        asyncio.run(_show(as_json=as_json, again=again, interval_s=interval))


async def _show(*, as_json: bool, again: bool, interval_s: float | None) -> None:
    task = asyncio.current_task()
    assert task is not None
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = max(out.width, _WIDTH)
    with signals.handled(task.cancel):
        async with contextlib.aclosing(_readings(interval_s)) as readings:
            async for snapshot in readings:
                if as_json:
                    typer.echo(json.dumps(asdict(snapshot), allow_nan=False, indent=None if again else 1))
                else:
                    typer.echo(_text(out, snapshot), nl=False)
                sys.stdout.flush()
                if not again:
                    return


def _text(console: Console, snapshot: GpuSnapshot) -> str:
    # Not printed by it: it ends the program when nobody reads on.
    with console.capture() as capture:
        for part in gpu_table.parts(snapshot):
            is_table = isinstance(part, Table)
            console.print(part, soft_wrap=not is_table)
            if is_table:
                console.print()
    return capture.get()


async def _readings(interval_s: float | None) -> AsyncGenerator[GpuSnapshot, None]:
    """Yield each new snapshot, the first once there are rates or a problem."""
    control = Control()
    chosen = control.settings
    sampler = Gpus(
        SamplerOptions(
            interval_s=interval_s or chosen.gpu_interval_s,
            activity=chosen.gpu_profiling,
            pcie_snapshot=chosen.gpu_pcie_snapshot,
            peaks=chosen.gpu_peak_bytes_per_s,
        )
    )
    await sampler.start()
    try:
        loop = asyncio.get_running_loop()
        pids: frozenset[int] | None = frozenset()
        told: GpuSnapshot | None = None
        n_told, matched_s = 0, -_OWNERS_S
        while True:
            snapshot = sampler.snapshot
            if snapshot is not None and (told is None or _is_news(snapshot, told)):
                told, n_told = snapshot, n_told + 1
                if (
                    n_told >= _MOST_WAITED_FOR
                    or snapshot.problem
                    or not _lacks_rates(snapshot, activity=chosen.gpu_profiling)
                ):
                    if loop.time() - matched_s >= _OWNERS_S:
                        matched_s, pids = loop.time(), await asyncio.to_thread(_engine_pids, control, snapshot)
                    yield gpu_owners.attribute(snapshot, pids)
            await asyncio.sleep(_LOOK_S)
    finally:
        await sampler.close()


def _lacks_rates(snapshot: GpuSnapshot, *, activity: bool) -> bool:
    return any(
        Why.NOT_YET in reading.why.values() or (activity and reading.why.get("dram_ratio") is Why.NOT_READ)
        for reading in snapshot.readings
    )


def _is_news(snapshot: GpuSnapshot, told: GpuSnapshot) -> bool:
    """Whether it says another thing; the time goes on also while nothing is read."""
    return snapshot.problem != told.problem if snapshot.problem else snapshot.t != told.t


def _engine_pids(control: Control, snapshot: GpuSnapshot) -> frozenset[int] | None:
    """Processes of all engines that Specdeck runs here; None when the driver's pids are not those of our /proc."""
    own = frozenset(process.pid for run in control.live_runs() for process in run.processes)
    named = {process.pid for reading in snapshot.readings for process in reading.processes or ()}
    return None if own and not own & named and not processes.are_of_this_namespace(named) else own
