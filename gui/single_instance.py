"""One window for each user: a second start raises the first one and hands its wish over."""

import hashlib
import json
import logging
import os
from enum import StrEnum
from pathlib import Path

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

log = logging.getLogger(__name__)

_VERSION = 1
_LIMIT_MS = 3000


class Answer(StrEnum):
    """What the window that there is said to a second start: it comes forward, it is closing or gone, or nothing."""

    TAKEN = "ok"
    CLOSING = "closing"
    SILENT = ""


class SingleInstance(QObject):
    """Holds the lock of the user's one window and listens for further starts.

    Signals:
        start_wished(str): another start came; the profile that it wants started, "" for none.
    """

    start_wished = Signal(str)

    def __init__(self, folder: Path) -> None:
        """Lock in `folder`, which belongs to the user alone."""
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = QLockFile(str(folder / "window.lock"))
        self._lock.setStaleLockTime(0)  # only the end of its process makes a lock stale
        # The name of a socket is short; the folder's may not be.
        place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        self._name = f"specdeck-{os.getuid()}-{place}"
        self._is_closing = False
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)

    def acquire(self) -> bool:
        """Become the one window; False when there is one already."""
        if not self._lock.tryLock(0):
            return False
        QLocalServer.removeServer(self._name)  # of a window that was killed
        if not self._server.listen(self._name):
            log.warning("A second start cannot raise this window: %s", self._server.errorString())
        return True

    def hand_over(self, profile: str) -> Answer:
        """Raise the window that there is, and have it start `profile` unless that is ""."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(_LIMIT_MS):
            return Answer.CLOSING  # it listens as long as it lives
        socket.write(json.dumps({"version": _VERSION, "start": profile}).encode() + b"\n")
        socket.flush()
        answered = socket.waitForReadyRead(_LIMIT_MS)
        said = bytes(socket.readAll().data()).decode(errors="replace").strip() if answered else ""
        hung_up = socket.state() is QLocalSocket.LocalSocketState.UnconnectedState
        socket.disconnectFromServer()
        if said:
            return Answer.CLOSING if said == Answer.CLOSING else Answer.TAKEN
        return Answer.CLOSING if hung_up else Answer.SILENT

    def refuse(self) -> None:
        """Take no wish any more: the window is closing, and who makes one waits for its end."""
        self._is_closing = True

    def hang_up(self) -> None:
        """Answer nobody any more, but keep the place until all is cleared away."""
        self._server.close()

    def holder(self) -> int:
        """Pid of the process that has the window, 0 if unknown."""
        info = self._lock.getLockInfo()
        return int(info[0]) if isinstance(info, tuple) and isinstance(info[0], int) and len(info) > 1 else 0

    def release(self) -> None:
        """Give the place up."""
        self._server.close()
        self._lock.unlock()

    def _on_connection(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.readyRead.connect(self._on_ready)
            socket.disconnected.connect(socket.deleteLater)

    def _on_ready(self) -> None:
        socket = self.sender()
        assert isinstance(socket, QLocalSocket)
        if not socket.canReadLine():
            return
        try:
            wish = json.loads(bytes(socket.readLine().data()))
            profile = str(wish["start"])
        except (ValueError, TypeError, KeyError):
            profile = ""
        answer = Answer.CLOSING if self._is_closing else Answer.TAKEN
        socket.write(f"{answer}\n".encode())
        socket.flush()
        if answer is Answer.TAKEN:
            self.start_wished.emit(profile)
