"""The only crossing between the window and the backend: calls go out as coroutines, events come back as signals."""

import asyncio
import concurrent.futures
import contextlib
import logging
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import shiboken6
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from backend.curves import Readings
from backend.desk.desk import Desk
from backend.desk.types import ChatDelta, ChatView, Event, JobProgress, LogBatch, Reading, RunView, StoreProblem
from backend.errors import UserError
from backend.events import Mark
from backend.hardware import GpuSnapshot
from backend.telemetry.history import History

log = logging.getLogger(__name__)
T = TypeVar("T")

_TICK_MS = 50
# Going from one page to another must not have the measuring stopped and begun anew.
_SETTLE_MS = 300
# What one tick may hand over; the rest waits for the next one, so that a burst never blocks the window.
_LINES_PER_TICK = 2000
_MOST_MARKS = 500


class Bridge(QObject):
    """Owns the thread of the backend's event loop and the desk that lives there.

    Everything here belongs to the main thread. Events of the backend wait in a queue that is emptied at most every
    50 ms; text of a chat and lines of a log are joined, of a run's state only the newest is handed on.

    Attributes:
        desk: what the window works at; its methods are coroutines for `call`.
        history: every reading so far, for charts.
        run: the newest view of the run, `chat` of the conversation, `reading` the newest reading and `gpus` the newest
            snapshot of the GPUs (None before the first one): for pages that are made later.
        marks: what happened lately, for time axes.

    Signals:
        run_changed(RunView), sampled(Reading), log_lines(LogBatch), chat_changed(ChatView), chat_grew(ChatDelta),
        job_progressed(JobProgress), store_problem_changed(StoreProblem).
        call_failed(UserError): a call without a handler of its own failed.
        began: the backend has looked around; an engine that was left running has been taken over.
    """

    run_changed = Signal(object)
    sampled = Signal(object)
    log_lines = Signal(object)
    chat_changed = Signal(object)
    chat_grew = Signal(object)
    job_progressed = Signal(object)
    store_problem_changed = Signal(object)
    call_failed = Signal(object)
    began = Signal()
    _woken = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(self._from_backend)
        self.history = History(interval_s=self.desk.settings.sample_interval_s)
        self.run = RunView()
        self.chat = ChatView()
        self.reading: Reading | None = None
        self.gpus: GpuSnapshot | None = None
        self.marks: deque[Mark] = deque(maxlen=_MOST_MARKS)
        self._activity_wanted_by: set[str] = set()
        self._activity_told = False
        self._activity_timer = QTimer(self)
        self._activity_timer.setSingleShot(True)
        self._activity_timer.setInterval(_SETTLE_MS)
        self._activity_timer.timeout.connect(self._on_activity_settled)
        self._queue: deque[Event | Callable[[], None]] = deque()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._timer = QTimer(self)
        self._timer.setInterval(_TICK_MS)
        self._timer.timeout.connect(self._on_tick)
        self._woken.connect(self._on_woken)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="backend")
        self._closed = False
        self._asleep = True  # the timer is stopped: the next item must wake it

    def start(self) -> None:
        """Start the backend's thread, and the sampling."""
        self._thread.start()
        self.call(self, self.desk.begin(), done=lambda _: self.began.emit())

    def run_readings(self, names: Sequence[str], seconds: float, until: float) -> Readings:
        """Return the readings of the run that is shown, as History.readings: drafts of two runs do not add up."""
        since = math.inf if self.run.ready_at is None else self.run.ready_at
        return self.history.readings(names, seconds=seconds, until=until).after(since)

    # ---- window to backend -----------------------------------------------------------------------------------

    def call(
        self,
        owner: QObject,
        work: Coroutine[Any, Any, T],
        *,
        done: Callable[[T], None] | None = None,
        failed: Callable[[UserError], None] | None = None,
        always: Callable[[], None] | None = None,
    ) -> concurrent.futures.Future[T] | None:
        """Run a coroutine of the desk in the backend; its result comes back on the main thread.

        Nothing comes back once `owner` is gone. Errors that a person can fix go to `failed`, or to `call_failed`
        where that is not given; a bug is raised on the main thread, where the crash handler sees it. `always` is
        called last, whatever happened, also when the work was cancelled.

        Returns:
            Something whose `cancel()` ends the work, None when the bridge is closed.
        """
        if self._closed:
            work.close()
            return None
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._calls.add(future)

        def deliver() -> None:
            self._calls.discard(future)
            if not shiboken6.isValid(owner):
                return
            try:
                if not future.cancelled():
                    self._deliver(future, done, failed)
            finally:
                if always is not None:
                    always()

        future.add_done_callback(lambda _: self._put(deliver))
        return future

    def _deliver(
        self,
        future: concurrent.futures.Future[T],
        done: Callable[[T], None] | None,
        failed: Callable[[UserError], None] | None,
    ) -> None:
        error = future.exception()
        if error is None:
            if done is not None:
                done(future.result())
        elif isinstance(error, UserError):
            (failed or self.call_failed.emit)(error)
        elif isinstance(error, OSError):
            place = f": {error.filename}" if error.filename else ""
            words = UserError(f"The system refused{place}: {error.strerror or error}.", "Check space and permissions.")
            (failed or self.call_failed.emit)(words)
        else:
            raise error

    def want_activity(self, page: str, wanted: bool) -> None:
        """Note whether a page shows what GPUs are measured for: that costs something, so only then it is done."""
        (self._activity_wanted_by.add if wanted else self._activity_wanted_by.discard)(page)
        if bool(self._activity_wanted_by) == self._activity_told:
            self._activity_timer.stop()
        elif not self._activity_timer.isActive() and not self._closed:
            self._activity_timer.start()

    def _on_activity_settled(self) -> None:
        self._activity_told = bool(self._activity_wanted_by)
        self.call(self, self.desk.show_activity(self._activity_told))

    # ---- backend to window -----------------------------------------------------------------------------------

    def _from_backend(self, event: Event) -> None:
        self._put(event)

    def _put(self, item: "Event | Callable[[], None]") -> None:
        """Queue something for the main thread; any thread."""
        self._queue.append(item)
        if self._asleep and not self._closed:
            self._asleep = False
            self._woken.emit()

    @Slot()
    def _on_woken(self) -> None:
        if not self._timer.isActive():
            self._timer.start()

    @Slot()
    def _on_tick(self) -> None:
        if not self._queue:
            self._timer.stop()
            self._asleep = True
            if self._queue:  # something came just now and found us awake
                self._asleep = False
                self._timer.start()
            return
        newest_run: RunView | None = None
        n_lines = 0
        batch: list[Event | Callable[[], None]] = []
        while self._queue and n_lines < _LINES_PER_TICK:
            item = self._queue.popleft()
            n_lines += len(item.lines) if isinstance(item, LogBatch) else 0
            batch.append(item)
        for item in _joined(batch):
            if isinstance(item, RunView):
                newest_run = item
                continue
            if newest_run is not None and callable(item):  # an answer must not be older than the state
                self._safely(self._show_run, newest_run)
                newest_run = None
            self._safely(self._hand_on, item)
        if newest_run is not None:
            self._safely(self._show_run, newest_run)

    def _safely(self, act: Callable[[T], None], item: T) -> None:
        """Hand one thing on; a bug in who takes it must not cost the others of this tick."""
        try:
            act(item)
        except Exception:  # noqa: BLE001 - the crash handler writes it down
            sys.excepthook(*sys.exc_info())

    def _show_run(self, view: RunView) -> None:
        self.run = view
        self.run_changed.emit(view)

    def _hand_on(self, item: "Event | Callable[[], None]") -> None:
        match item:
            case Reading():
                self.reading = item
                self.history.expect_every(self.desk.settings.sample_interval_s)
                self.history.append_host(item.host)
                if item.engine is not None:
                    self.history.append(item.engine)
                if item.gpus is not None:
                    self.history.append_gpus(item.gpus)
                    self.gpus = item.gpus
                self.marks.extend(item.marks)
                self.sampled.emit(item)
            case LogBatch():
                self.log_lines.emit(item)
            case ChatView():
                self.chat = item
                self.chat_changed.emit(item)
            case ChatDelta():
                self.chat_grew.emit(item)
            case JobProgress():
                self.job_progressed.emit(item)
            case StoreProblem():
                self.store_problem_changed.emit(item)
            case RunView():
                self._show_run(item)
            case _:
                item()

    # ---- the thread --------------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def end(self, ended: Callable[[], None]) -> None:
        """End the thread without waiting for it; the desk must have been closed before. `ended` is called then."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._timer.stop()
        self._activity_timer.stop()
        self._queue.clear()
        watch = QTimer(self)
        watch.setInterval(_TICK_MS)

        def look() -> None:
            if not self._thread.is_alive():
                watch.stop()
                ended()

        watch.timeout.connect(look)
        watch.start()

    def close(self) -> None:
        """End the thread and wait for it, where there is no event loop any more. Safe to call twice."""
        self._closed = True
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it ends just now
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        elif not self._loop.is_closed():
            self._loop.close()
        self._timer.stop()
        self._activity_timer.stop()
        self._queue.clear()


def _joined(batch: "list[Event | Callable[[], None]]") -> "list[Event | Callable[[], None]]":
    """Join neighbours of one kind: text of a chat, lines of one log."""
    joined: list[Event | Callable[[], None]] = []
    for item in batch:
        last = joined[-1] if joined else None
        if isinstance(item, ChatDelta) and isinstance(last, ChatDelta):
            joined[-1] = ChatDelta(
                last.text + item.text, last.reasoning + item.reasoning, last.n_tokens + item.n_tokens
            )
        elif (
            isinstance(item, LogBatch)
            and isinstance(last, LogBatch)
            and item.run_id == last.run_id
            and not (item.reset or item.replaces_last)
        ):
            joined[-1] = LogBatch(last.run_id, last.lines + item.lines, last.reset, last.replaces_last)
        else:
            joined.append(item)
    return joined
