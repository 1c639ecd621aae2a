"""`specdeck` without a command, and `specdeck demo`: opens the window where there is a display."""

import ctypes
import os
import sys
from importlib.util import find_spec
from typing import Annotated, NoReturn

import typer

from backend.cli import run as terminal
from backend.errors import UserError

_BEST_DEMO = "demo:best"
# Qt's X11 plugin ends the program without these, in a way that nobody understands.
_X11_LIBRARIES = {
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}


def obstacle() -> str:
    """Say why no window can be opened here, "" when one can."""
    if find_spec("PySide6") is None:
        return "PySide6 is not installed, so there is no window. Install Specdeck again with its dependencies."
    if os.environ.get("QT_QPA_PLATFORM"):
        return ""
    if os.environ.get("WAYLAND_DISPLAY"):
        return ""
    if not os.environ.get("DISPLAY"):
        return "There is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set), so no window was opened."
    missing = [package for library, package in _X11_LIBRARIES.items() if not _loads(library)]
    if missing:
        return (
            f"The window needs system libraries that are missing. On Debian and Ubuntu: "
            f"sudo apt-get install {' '.join(missing)}"
        )
    return ""


def open_window(*, start: str = "", yes_cpu: bool = False) -> NoReturn:
    """Become the window; `start` is a profile to start at once, `yes_cpu` as in `specdeck run`."""
    # -P: a folder named gui or backend in the current folder must not be taken for ours.
    argv = [sys.executable, "-P", "-m", "gui"]
    argv += ["--start", start] if start else []
    argv += ["--yes-cpu"] if yes_cpu else []
    sys.stdout.flush()
    os.execv(sys.executable, argv)  # noqa: S606


def demo(
    *,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0, help="In the terminal: watch for so many seconds, then stop.")
    ] = None,
    chat: Annotated[str | None, typer.Option("--chat", help="In the terminal: text of the first chat.")] = None,
    in_terminal: Annotated[
        bool, typer.Option("--terminal", help="Stay in the terminal although there is a display.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to every download.")] = False,
    yes_cpu: Annotated[
        bool, typer.Option("--yes-cpu", help="Agree to the download of vLLM's CPU build and the demo model only.")
    ] = False,
) -> None:
    """Start the demo in the window, or in the terminal where there is no display."""
    problem = obstacle()
    if not problem and not in_terminal and seconds is None and chat is None:
        open_window(start=_BEST_DEMO, yes_cpu=yes or yes_cpu)
    if problem and not in_terminal and seconds is None and chat is None:
        typer.echo(f"{problem} The demo runs in the terminal.", err=True)
    terminal.run(None, chat=chat, seconds=seconds, yes=yes, yes_cpu=yes_cpu, allow_code=False)


def open_or_explain(context: typer.Context) -> None:
    """Open the window; without a display print the help and say why.

    Raises:
        UserError: no window can be opened here.
    """
    problem = obstacle()
    if not problem:
        open_window()
    typer.echo(context.get_help())
    raise UserError(problem, "Everything works from the command line too.")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
