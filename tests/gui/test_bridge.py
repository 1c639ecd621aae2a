"""The crossing: results and errors come back on the main thread, events are joined, nothing is lost or late."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from backend import settings
from backend.desk.types import ChatDelta, Event, LogBatch, LogLine, Reading, RunView
from backend.errors import UserError
from backend.events import HostSample, Mark, RunState
from backend.hardware import GpuSnapshot
from gui.bridge import Bridge
from tests.gui import gpu_scenes

HOST = HostSample(t=1.0, cpu_ratio=0.5, memory_used_bytes=1, memory_total_bytes=2)


@pytest.fixture
def bridge(qtbot: QtBot, no_leaks: None) -> Iterator[Bridge]:
    made = Bridge()
    made.start()
    with qtbot.waitSignal(made.began, timeout=30_000):
        pass
    yield made
    closing: list[None] = []
    made.call(made, made.desk.close(leave_running=False), done=closing.append)
    qtbot.waitUntil(lambda: bool(closing), timeout=30_000)
    made.close()
    made.deleteLater()


def from_thread(bridge: Bridge, *events: Event) -> None:
    """Tell events from another thread, as the backend does."""

    def tell() -> None:
        for event in events:
            bridge._from_backend(event)

    thread = threading.Thread(target=tell)
    thread.start()
    thread.join()


def test_a_result_comes_back_on_the_main_thread(qtbot: QtBot, bridge: Bridge) -> None:
    seen: list[tuple[str, threading.Thread, threading.Thread]] = []

    async def work() -> threading.Thread:
        await asyncio.sleep(0)
        return threading.current_thread()

    bridge.call(bridge, work(), done=lambda thread: seen.append(("done", thread, threading.current_thread())))
    qtbot.waitUntil(lambda: bool(seen))
    assert seen[0][1].name == "backend"
    assert seen[0][2] is threading.main_thread()


def test_a_mistake_of_the_person_goes_to_the_caller_or_to_everybody(qtbot: QtBot, bridge: Bridge) -> None:
    async def fail() -> None:
        raise UserError("This went wrong.", "Do that.")

    own: list[UserError] = []
    bridge.call(bridge, fail(), failed=own.append)
    qtbot.waitUntil(lambda: bool(own))
    assert own[0].message == "This went wrong."
    with qtbot.waitSignal(bridge.call_failed) as told:
        bridge.call(bridge, fail())
    assert told.args[0].what_to_do == "Do that."


def test_trouble_of_the_system_becomes_words(qtbot: QtBot, bridge: Bridge) -> None:
    async def fail() -> None:
        raise PermissionError(13, "Permission denied", "/some/file")

    with qtbot.waitSignal(bridge.call_failed) as told:
        bridge.call(bridge, fail())
    assert str(told.args[0]) == "The system refused: /some/file: Permission denied. Check space and permissions."


def test_a_bug_reaches_the_main_thread(qtbot: QtBot, bridge: Bridge) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("a bug")

    with qtbot.captureExceptions() as caught:
        bridge.call(bridge, fail())
        qtbot.waitUntil(lambda: bool(caught))
    assert caught[0][0] is ZeroDivisionError


def test_nothing_comes_back_to_an_owner_that_is_gone(qtbot: QtBot, bridge: Bridge) -> None:
    owner = QObject()
    seen: list[str] = []
    gate = asyncio.Event()

    async def late() -> str:
        await gate.wait()
        return "late"

    async def open_gate() -> None:
        gate.set()

    bridge.call(owner, late(), done=seen.append)
    owner.deleteLater()
    qtbot.waitSignal(owner.destroyed, timeout=5000).wait()
    after: list[None] = []
    bridge.call(bridge, open_gate(), done=after.append)
    qtbot.waitUntil(lambda: bool(after) and not bridge._calls)
    assert seen == []


def test_text_is_joined_and_of_the_run_only_the_newest_is_told(qtbot: QtBot, bridge: Bridge) -> None:
    texts: list[ChatDelta] = []
    runs: list[RunView] = []
    bridge.chat_grew.connect(texts.append)
    bridge.run_changed.connect(runs.append)
    events: list[Event] = []
    for number in range(500):
        events += [ChatDelta(f"{number} ", n_tokens=1)]
    events += [RunView(state=RunState.STARTING), RunView(state=RunState.READY)]
    from_thread(bridge, *events)
    qtbot.waitUntil(lambda: bridge.run.state is RunState.READY)
    assert "".join(delta.text for delta in texts) == "".join(f"{number} " for number in range(500))
    assert sum(delta.n_tokens for delta in texts) == 500
    assert len(texts) == 1
    assert [view.state for view in runs] == [RunState.READY]


def test_lines_are_handed_on_in_order_and_in_slices(qtbot: QtBot, bridge: Bridge) -> None:
    batches: list[LogBatch] = []
    bridge.log_lines.connect(batches.append)
    sent = [LogLine(number, f"line {number}") for number in range(1, 10_001)]
    from_thread(
        bridge,
        LogBatch("run", (LogLine(0, "first"),), reset=True),
        *(LogBatch("run", tuple(sent[start : start + 500])) for start in range(0, 10_000, 500)),
    )
    qtbot.waitUntil(lambda: sum(len(batch.lines) for batch in batches) == 10_001)
    assert [line for batch in batches for line in batch.lines][1:] == sent
    assert batches[0].reset
    assert max(len(batch.lines) for batch in batches) <= 2501


def test_a_progress_bar_keeps_its_place(qtbot: QtBot, bridge: Bridge) -> None:
    batches: list[LogBatch] = []
    bridge.log_lines.connect(batches.append)
    from_thread(
        bridge,
        LogBatch("run", (LogLine(1, "10 %"),)),
        LogBatch("run", (LogLine(1, "20 %"),), replaces_last=True),
    )
    qtbot.waitUntil(lambda: len(batches) == 2)
    assert batches[1].replaces_last


def test_the_timer_rests_while_nothing_happens(qtbot: QtBot, bridge: Bridge) -> None:
    done: list[None] = []
    bridge.call(bridge, bridge.desk.set_visible(False), done=done.append)  # a reading each 5 s from now on
    qtbot.waitUntil(lambda: bool(done))
    qtbot.waitUntil(lambda: not bridge._timer.isActive())
    with qtbot.waitSignal(bridge.chat_grew, timeout=5000):
        from_thread(bridge, ChatDelta("woken"))


def test_readings_fill_the_history(qtbot: QtBot, bridge: Bridge) -> None:
    with qtbot.waitSignal(bridge.sampled, timeout=10_000) as told:
        pass
    reading = told.args[0]
    assert isinstance(reading, Reading)
    curve = bridge.history.last("memory_used_bytes", seconds=60)
    assert float(curve.values[-1]) == reading.host.memory_used_bytes
    assert float(curve.times[-1]) == pytest.approx(reading.host.t)


def test_another_interval_makes_no_gaps_in_the_history(qtbot: QtBot, bridge: Bridge) -> None:
    bridge.desk._control.settings = settings.changed(bridge.desk.settings, {"sample_interval_s": 60.0})
    later = time.time() + 1000
    for number in range(5):
        bridge._hand_on(Reading(HostSample(later + 60 * number, 0.1, number, 8)))
    values = bridge.history.last("memory_used_bytes", seconds=240, until=later + 240).values
    assert values.tolist() == [0, 1, 2, 3, 4]


def test_gpus_are_measured_while_any_page_wants_it_and_not_stopped_in_between(
    qtbot: QtBot, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    async def show_activity(shown: bool) -> None:
        told.append(shown)

    monkeypatch.setattr(bridge.desk, "show_activity", show_activity)
    bridge.want_activity("run", True)
    qtbot.waitUntil(lambda: told == [True], timeout=30_000)
    bridge.want_activity("run", False)  # from one page to another
    bridge.want_activity("gpus", True)
    assert not bridge._activity_timer.isActive()
    bridge.want_activity("gpus", True)
    bridge.want_activity("gpus", False)
    qtbot.waitUntil(lambda: told == [True, False], timeout=30_000)
    bridge.want_activity("run", True)
    bridge.want_activity("run", False)
    assert not bridge._activity_timer.isActive(), "it would say what was said already"


def test_marks_are_kept_for_charts_before_a_reading_is_told_and_not_without_bound(qtbot: QtBot, bridge: Bridge) -> None:
    marks = tuple(Mark(float(n), "chat", f"chat {n}") for n in range(1200))
    seen: list[list[Mark]] = []
    bridge.sampled.connect(lambda reading: seen.append(list(bridge.marks)) if reading.marks else None)
    from_thread(bridge, Reading(HOST, marks=marks[:2]), Reading(HOST, marks=marks[2:]))
    qtbot.waitUntil(lambda: len(seen) == 2, timeout=30_000)
    assert seen[0] == list(marks[:2])
    assert seen[1][-1] == marks[-1]
    assert len(seen[1]) < len(marks)


def test_the_newest_snapshot_is_kept_for_pages_that_are_made_later(qtbot: QtBot, bridge: Bridge) -> None:
    snapshot = gpu_scenes.snapshot(0, 2)
    seen: list[GpuSnapshot | None] = []
    bridge.sampled.connect(lambda reading: seen.append(bridge.gpus) if reading.gpus is snapshot else None)
    from_thread(bridge, Reading(HOST, None, snapshot))
    qtbot.waitUntil(lambda: seen == [snapshot], timeout=30_000)


def test_a_closed_bridge_refuses_calls_and_leaves_no_coroutine(qtbot: QtBot) -> None:
    closed = Bridge()

    async def work() -> None: ...

    closed.close()
    assert closed.call(closed, work()) is None
    closed.close()
    closed.deleteLater()
