"""What happens when the window itself makes a mistake: it is written down, shown, and the window goes on."""

import faulthandler
import logging
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import metadata
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TextIO

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

log = logging.getLogger("specdeck.window")

_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


class CrashHandler:
    """Catches what nobody caught, on every thread, and what crashes the interpreter itself.

    Args:
        folder: where reports and the window's own log go.
        tell: called with the file of a report; from whatever thread made the mistake.
    """

    def __init__(self, folder: Path, tell: Callable[[Path], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._faults: TextIO | None = None
        self._faults_file = folder / "window-faults.txt"
        self._handler: RotatingFileHandler | None = None

    def install(self) -> None:
        """Take over the hooks of this process."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._handler = RotatingFileHandler(
            self._folder / "window.log", maxBytes=1_000_000, backupCount=1, encoding="utf-8"
        )
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(self._handler)
        self._faults = self._faults_file.open("a", encoding="utf-8")
        faulthandler.enable(self._faults)
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        qInstallMessageHandler(_on_qt_message)

    def uninstall(self) -> None:
        """Give the hooks back; an empty file of faults is removed."""
        sys.excepthook = sys.__excepthook__
        threading.excepthook = threading.__excepthook__
        qInstallMessageHandler(None)
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
            self._handler.close()
        if self._faults is not None:
            faulthandler.disable()
            self._faults.close()
            if self._faults_file.stat().st_size == 0:
                self._faults_file.unlink()

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None, thread: str = "main"
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        log.error("A mistake of the window, on thread %s:\n%s", thread, text)
        file = self._folder / f"window-crash-{time.strftime('%Y%m%d-%H%M%S')}.txt"
        head = (
            f"specdeck {metadata.version('specdeck')}, Python {platform.python_version()}, {platform.platform()}\n"
            f"thread {thread}\n\n"
        )
        try:
            with file.open("a", encoding="utf-8") as report:
                report.write(head + text)
        except OSError as problem:
            log.error("The report could not be written: %s", problem)  # noqa: TRY400 - the trace is there already
        self._tell(file)

    def _on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else "?"
        error = args.exc_value if args.exc_value is not None else args.exc_type()
        self._on_exception(args.exc_type, error, args.exc_traceback, name)


def _on_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    logging.getLogger("qt").log(_LEVELS.get(kind, logging.WARNING), "%s", message)
