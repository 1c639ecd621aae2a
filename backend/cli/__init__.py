"""The `specdeck` command; each module holds the commands of one room."""

import io
import logging
import os
import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.logging import RichHandler

from backend.cli import (
    calibrate,
    doctor,
    engines,
    export,
    gpus,
    history,
    import_,
    profiles,
    run,
    runs,
    watch,
    window,
)
from backend.errors import EngineError, UsageError, UserError

app = typer.Typer(
    help="Runs a local vLLM engine with speculative decoding: start, watch, chat, stop. Without a command: the window.",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(window.demo)
app.command()(run.run)
app.command()(runs.status)
app.command()(runs.stop)
app.command()(watch.command(default_url=runs.only_url))
app.command()(doctor.doctor)
app.command("import")(import_.import_)
app.command()(export.export)
app.command()(gpus.gpus)
app.command()(calibrate.calibrate)
app.add_typer(engines.app, name="engines")
app.add_typer(profiles.app, name="profiles")
app.add_typer(history.app, name="history")


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        typer.echo(f"specdeck {metadata.version('specdeck')}")
    elif context.invoked_subcommand is None:
        window.open_or_explain(context)
    else:
        return
    raise typer.Exit


def main() -> None:
    """Run the command line; errors that a person can fix become a message and an exit code.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the engine failed.
    """
    _prepare_output()
    logging.basicConfig(
        level=logging.WARNING,
        format="%(message)s",
        handlers=[RichHandler(console=Console(stderr=True), show_time=False, show_path=False)],
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        app()
    except UserError as error:
        _fail(error, 2 if isinstance(error, UsageError) else 3 if isinstance(error, EngineError) else 1)
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        _fail(UserError(f"The system refused{place}: {error.strerror or error}.", "Check space and permissions."), 1)


def _prepare_output() -> None:
    """Let no character that the terminal cannot show, and no closed stream, end the program."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(error: UserError, code: int) -> NoReturn:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(error.message, style="bold red", markup=False)
    if error.what_to_do:
        console.print(error.what_to_do, markup=False)
    sys.exit(code)
