"""A mistake of the window is written down with its cause, from every thread, and the window is told."""

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import qWarning

from gui.crash import CrashHandler


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[tuple[CrashHandler, list[Path]]]:
    told: list[Path] = []
    hooks = (sys.excepthook, threading.excepthook)
    made = CrashHandler(tmp_path, told.append)
    made.install()
    try:
        yield made, told
    finally:
        made.uninstall()
        sys.excepthook, threading.excepthook = hooks


def test_a_mistake_on_the_main_thread(handler: tuple[CrashHandler, list[Path]]) -> None:
    _, told = handler
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        sys.excepthook(*sys.exc_info())
    assert len(told) == 1
    report = told[0].read_text()
    assert "ZeroDivisionError: division by zero" in report
    assert "test_a_mistake_on_the_main_thread" in report
    assert report.startswith("specdeck ")


def test_a_mistake_on_another_thread(handler: tuple[CrashHandler, list[Path]]) -> None:
    _, told = handler

    def work() -> None:
        raise LookupError("lost")

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
    assert "thread worker" in told[0].read_text()
    assert "LookupError: lost" in told[0].read_text()


def test_what_qt_says_goes_into_the_log(handler: tuple[CrashHandler, list[Path]], tmp_path: Path) -> None:
    qWarning("a warning of Qt")
    for entry in logging.getLogger().handlers:
        entry.flush()
    assert "WARNING qt: a warning of Qt" in (tmp_path / "window.log").read_text()


def test_nothing_is_left_of_a_session_without_faults(tmp_path: Path) -> None:
    hooks = (sys.excepthook, threading.excepthook)
    made = CrashHandler(tmp_path, lambda _file: None)
    made.install()
    made.uninstall()
    sys.excepthook, threading.excepthook = hooks
    assert [file.name for file in tmp_path.iterdir()] == ["window.log"]
