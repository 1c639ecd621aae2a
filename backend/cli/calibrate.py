"""`specdeck calibrate`: measures what memory, cores or GPUs of this machine reach, with the engine's own PyTorch."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from backend.calibration import Calibration, Rate
from backend.cli import signals
from backend.cli.words import UNKNOWN
from backend.control import Control
from backend.desk import calibration as desk
from backend.errors import UserError
from backend.launch.calibrate import CalibrationStep
from backend.telemetry import calibration as store


def calibrate(
    *,
    engine: Annotated[str | None, typer.Option(help="Engine environment whose PyTorch measures.")] = None,
    gpus: Annotated[str, typer.Option(help="UUIDs of the GPUs to measure, with commas between; all without.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats.")] = False,
) -> None:
    """Measure memory bandwidth, matrix products and all-reduce of this machine; replaces the earlier result."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    chosen = tuple(word.strip() for word in gpus.split(",") if word.strip())
    try:
        with signals.raised(), _View(console) as view:
            found = desk.measure(
                Control(),
                environment_id=engine,
                gpus=chosen,
                quick=quick,
                on_wait=view.say,
                on_step=view.show,
            )
    except KeyboardInterrupt:
        raise UserError("The calibration was given up.", "What was measured before stays.") from None
    if as_json:
        typer.echo(json.dumps(store.as_dict(found), indent=1))
    else:
        _print(found, Console(highlight=False))


class _View:
    """A progress line on a terminal; elsewhere one line for each step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("Looking at this machine", total=None)

    def __enter__(self) -> "_View":
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._console.is_terminal:  # elsewhere it would print an empty line
            self._progress.stop()

    def say(self, words: str) -> None:
        """Print a line that stays."""
        self._console.print(words, markup=False)

    def show(self, step: CalibrationStep) -> None:
        """Show what is measured now."""
        if not self._console.is_terminal:
            self.say(step.text)
        self._progress.update(
            self._task,
            description=step.text,
            total=None if step.fraction is None else 1.0,
            completed=step.fraction or 0.0,
        )


def _print(found: Calibration, console: Console) -> None:
    dtypes = list(dict.fromkeys(dtype for device in found.devices for dtype in device.flops_per_s))
    table = Table(title="Best of the repeats, the median in brackets", title_justify="left", title_style="dim")
    table.add_column("device", overflow="fold")
    rates = [rate.best for device in found.devices for rate in device.flops_per_s.values() if rate is not None]
    unit, word = (1e12, "TFLOP/s") if max(rates, default=0.0) >= 1e12 else (1e9, "GFLOP/s")
    for title in ("copy GB/s", "read GB/s", *(f"{dtype} {word}" for dtype in dtypes)):
        table.add_column(title, justify="right")
    for device in found.devices:
        name = device.name if device.id == "cpu" else f"{device.name}\n{device.id}"
        bandwidths = (_words(device.copy_bytes_per_s, 1e9), _words(device.read_bytes_per_s, 1e9))
        products = (_words(device.flops_per_s.get(dtype), unit) for dtype in dtypes)
        table.add_row(*(Text(cell) for cell in (name, *bandwidths, *products)))
    console.print(table)
    if found.all_reduce is not None:
        console.print(f"All-reduce between {len(found.all_reduce.gpus)} GPUs:")
        for point in found.all_reduce.points:
            console.print(f"  {point.size_bytes // 1024:>9,} KiB  {point.time_s * 1e6:>10,.1f} us")
    for remark in found.remarks:
        console.print(remark, markup=False)
    driver = f", driver {found.driver}" if found.driver else ""
    where = store.file_of(found.machine)
    console.print(
        f"Measured with PyTorch {found.torch} of {found.engine}{driver}. Kept in {where}.", markup=False, soft_wrap=True
    )


def _words(rate: Rate | None, unit: float) -> str:
    return UNKNOWN if rate is None else f"{_short(rate.best / unit)}\n({_short(rate.median / unit)})"


def _short(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"
