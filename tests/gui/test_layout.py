"""No text is cut on any page, at the smallest size that is promised and at a usual one."""

import contextlib
import os
import signal

import pytest
from PySide6.QtWidgets import QAbstractButton, QLabel, QWidget
from pytestqt.exceptions import TimeoutError as QtTimeoutError

from backend.events import RunState
from gui.main_window import PAGES
from tests.e2e.fake_environment import Traces
from tests.gui.panel import Panel

SLACK_PX = 1


def cut(window: QWidget) -> list[str]:
    """Labels and buttons on screen that are smaller than what they say needs."""
    found = []
    for label in window.findChildren(QLabel):
        if not label.isVisible() or not label.text():
            continue
        if label.wordWrap():
            if label.heightForWidth(label.width()) > label.height() + SLACK_PX:
                found.append(f"label {label.text()!r}: {label.heightForWidth(label.width())} in {label.height()}")
        elif label.sizeHint().width() > label.width() + SLACK_PX:
            found.append(f"label {label.text()!r}: {label.sizeHint().width()} in {label.width()}")
    found += [
        f"button {button.text()!r}: {button.minimumSizeHint().width()} in {button.width()}"
        for button in window.findChildren(QAbstractButton)
        if button.isVisible() and button.text() and button.minimumSizeHint().width() > button.width() + SLACK_PX
    ]
    return found


@pytest.mark.parametrize("size", [(1100, 700), (1440, 900)], ids=["1100x700", "1440x900"])
def test_nothing_is_cut(panel: Panel, size: tuple[int, int]) -> None:
    window = panel.window
    window.resize(*size)

    def look(what: str) -> None:
        with contextlib.suppress(QtTimeoutError):  # pages are built in slices, and nothing tells when they have settled
            panel.wait(lambda: not cut(window), limit_ms=15_000)
        assert (window.width(), window.height()) == size, f"{what}: the window wants to be larger"
        assert cut(window) == [], what

    look("idle")
    panel.start_and_wait()
    panel.ask("Hello there, how are you?")
    panel.wait(lambda: window.status.queue.text() == "0")
    for key, title in PAGES:
        window.show_page(key)
        panel.wait(window.page(key).isVisible)
        look(title)
    os.kill(Traces.of_listener(panel.port).session, signal.SIGKILL)
    panel.wait_for(RunState.FAILED)
    window.show_page("run")
    look("failed")
