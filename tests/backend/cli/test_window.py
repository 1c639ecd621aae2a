"""When a window can be opened, and what is said where it cannot."""

import os
from collections.abc import Sequence
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from backend.cli import app, window
from backend.cli import run as terminal
from backend.errors import UserError


class Opened(Exception):
    """Stands for the process that would have become the window."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that the process wanted to become."""
    commands: list[list[str]] = []

    def execv(_program: str, argv: Sequence[str]) -> NoReturn:
        commands.append(list(argv)[1:])
        raise Opened

    monkeypatch.setattr(os, "execv", execv)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    return commands


def test_without_a_display_the_help_is_printed_and_the_reason(opened: list[list[str]]) -> None:
    result = CliRunner().invoke(app, [])
    assert isinstance(result.exception, UserError)
    assert "There is no display here" in str(result.exception)
    assert "run" in result.stdout
    assert "profiles" in result.stdout
    assert opened == []


def test_with_a_display_the_window_is_opened_safe_from_foreign_folders(
    opened: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert isinstance(CliRunner().invoke(app, []).exception, Opened)
    assert opened == [["-P", "-m", "gui"]]


def test_missing_libraries_of_x11_are_named(opened: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(window, "_X11_LIBRARIES", {"libc.so.6": "libc6", "libnothing.so.7": "libnothing7"})
    assert window.obstacle().endswith("sudo apt-get install libnothing7")
    monkeypatch.setattr(window, "_X11_LIBRARIES", {"libc.so.6": "libc6"})
    assert window.obstacle() == ""


@pytest.mark.parametrize(
    ("arguments", "argv"),
    [
        (["demo"], ["-P", "-m", "gui", "--start", "demo:best"]),
        (["demo", "--yes-cpu"], ["-P", "-m", "gui", "--start", "demo:best", "--yes-cpu"]),
    ],
)
def test_the_demo_opens_in_the_window(
    opened: list[list[str]], monkeypatch: pytest.MonkeyPatch, arguments: list[str], argv: list[str]
) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    assert isinstance(CliRunner().invoke(app, arguments).exception, Opened)
    assert opened == [argv]


@pytest.mark.parametrize(
    "arguments", [["demo"], ["demo", "--terminal"], ["demo", "--for", "3"], ["demo", "--chat", "x"]]
)
def test_the_demo_runs_in_the_terminal_otherwise(
    opened: list[list[str]], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    if arguments != ["demo"]:
        monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    runs: list[dict[str, object]] = []
    monkeypatch.setattr(terminal, "run", lambda profile, **options: runs.append({"profile": profile, **options}))
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None
    assert opened == []
    assert len(runs) == 1
    assert runs[0]["seconds"] == (3.0 if "--for" in arguments else None)
    assert runs[0]["chat"] == ("x" if "--chat" in arguments else None)
