"""A bridge with its backend, for pages that are tested alone."""

import contextlib
from collections.abc import Iterator

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from gui.bridge import Bridge

LIMIT_MS = 60_000


@contextlib.contextmanager
def open_bridge(qtbot: QtBot) -> Iterator[Bridge]:
    """Give a bridge that has started; ended with its desk."""
    bridge = Bridge()
    owner = QObject()
    bridge.start()
    closed: list[None] = []
    try:
        yield bridge
    finally:
        bridge.call(owner, bridge.desk.close(leave_running=False), done=closed.append)
        try:
            qtbot.waitUntil(lambda: len(closed) == 1, timeout=LIMIT_MS)
        finally:
            bridge.close()
