"""The application: one window for each user, its signals and its end."""

import argparse
import contextlib
import gc
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from PySide6.QtCore import QObject, QSettings, QSocketNotifier, Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from backend import paths
from gui import theme
from gui.bridge import Bridge
from gui.crash import CrashHandler
from gui.main_window import MainWindow
from gui.single_instance import Answer, SingleInstance

_CLOSING_LIMIT_S = 60.0  # the stop ladder of an engine takes some 20 s at most
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What a wish like `make run` agrees to beforehand: the CPU build and the small demo models, nothing else.
_CPU_CONSENT = frozenset({"engine-cpu", "demo"})


class _Asked(QObject):
    """Says on the main thread, in the event loop, that a signal asked for an end."""

    to_end = Signal()


class _CrashTeller(QObject):
    """Brings the news of a crash to the main thread, from whatever thread it happened on."""

    crashed = Signal(str)

    def tell(self, file: Path) -> None:
        """Tell of a report."""
        self.crashed.emit(str(file))


def main(argv: Sequence[str]) -> int:
    """Open the window and return the exit code once it has closed."""
    options = _options(argv)
    QGuiApplication.setDesktopFileName("specdeck")
    QGuiApplication.setHighDpiScaleFactorRoundingPolicy(Qt.HighDpiScaleFactorRoundingPolicy.PassThrough)
    app = QApplication(["specdeck"])
    app.setApplicationName("Specdeck")
    app.setQuitOnLastWindowClosed(False)  # the window goes first, the end comes when the backend has ended
    folders = paths.folders()
    instance = SingleInstance(folders.state)
    answer = _take_place(instance, options.start)
    if answer is Answer.TAKEN:
        return 0
    if answer is not None:
        what = "has not closed in a minute" if answer is Answer.CLOSING else "does not answer"
        sys.stderr.write(
            f"Specdeck is open already (process {instance.holder()}) but {what}. "
            "End that process, then start it again.\n"
        )
        return 1
    teller = _CrashTeller()
    crash = CrashHandler(folders.logs, teller.tell)
    crash.install()
    bridge = Bridge()
    store = QSettings(str(folders.state / "window.ini"), QSettings.Format.IniFormat)
    try:
        with _signals() as asked:  # from before there is anything to end: a signal while it opens is kept, not lost
            bridge.start()  # the backend looks around while the window is built
            theme.prepare(app, bridge.desk.settings.theme)
            window = MainWindow(bridge, store, agreed=_CPU_CONSENT if options.yes_cpu else frozenset())
            asked.to_end.connect(window.close_now)
            teller.crashed.connect(window.show_crash)
            instance.start_wished.connect(window.raise_and_start)
            window.closing.began.connect(instance.refuse)
            window.closed.connect(app.exit)
            window.page_made.connect(gc.freeze)  # what a page loads stays: no collection has to look through it
            window.show()
            if options.start:
                window.start_profile(options.start)
            return app.exec()
    finally:
        instance.hang_up()
        bridge.close()
        store.sync()
        instance.release()
        crash.uninstall()


def _take_place(instance: SingleInstance, profile: str) -> Answer | None:
    """Become the one window, or hand the wish to the one there is and return what it said.

    A window that is just closing is waited for: whoever starts Specdeck anew wants a window.
    """
    end_s = time.monotonic() + _CLOSING_LIMIT_S
    before = None
    while not instance.acquire():
        answer = instance.hand_over(profile)
        # One that ends just now may have taken the question and be too late to answer it: it is asked once more.
        silent = answer is Answer.SILENT and before is Answer.SILENT
        if answer is Answer.TAKEN or silent or time.monotonic() > end_s:
            return answer
        before = answer
        time.sleep(0.1)
    return None


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="specdeck", description="The window of Specdeck.")
    parser.add_argument(
        "--start", default="", metavar="PROFILE", help='start this profile; "demo:best" is the best demo'
    )
    parser.add_argument("--yes-cpu", action="store_true", help="agree to vLLM's CPU build and the demo models")
    return parser.parse_args(argv)


@contextlib.contextmanager
def _signals() -> Iterator[_Asked]:
    """Let signals that ask for an end be heard in the event loop instead of ending the process on the spot."""
    asked = _Asked()
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    notifier = QSocketNotifier(reader.fileno(), QSocketNotifier.Type.Read)

    def on_signal() -> None:
        with contextlib.suppress(BlockingIOError):
            if any(number in _SIGNALS for number in reader.recv(64)):
                asked.to_end.emit()

    def handler(_number: int, _frame: FrameType | None) -> None:
        """Python must have a handler, or the signal keeps its default; the work is done by the notifier."""

    notifier.activated.connect(on_signal)
    old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    old = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield asked
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)
        signal.set_wakeup_fd(old_fd)
        notifier.setEnabled(False)
        reader.close()
        writer.close()
