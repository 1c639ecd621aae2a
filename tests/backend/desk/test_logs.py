"""The logs as the window gets them: the list of runs, history, new lines, and the change to another run."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from backend import paths
from backend.desk import logs as logs_module
from backend.desk.logs import Logs
from backend.desk.types import Event, JobProgress, LogBatch, LogLine
from backend.errors import UsageError
from backend.events import RunState
from backend.launch.log_tail import LogTail
from backend.launch.processes import boot_id
from backend.launch.run_folder import RunFolder, RunRecord

LIMIT_S = 30.0


class Screen:
    """Keeps the lines as a window would, from nothing but the events."""

    def __init__(self) -> None:
        self.batches: list[LogBatch] = []
        self.lines: list[LogLine] = []
        self.troubles: list[str] = []
        self.run_id = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobProgress):
            assert event.job == "logs"
            self.troubles.append(event.text)
            return
        assert isinstance(event, LogBatch)
        self.batches.append(event)
        if event.reset:
            self.run_id, self.lines = event.run_id, []
        assert event.run_id == self.run_id
        if event.replaces_last:
            self.lines.pop()
        self.lines += event.lines

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def make_run(name: str, log: bytes | None, *, state: RunState = RunState.STOPPED, ended: bool = True) -> RunFolder:
    path = paths.folders().runs / name
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.write(
        RunRecord(
            run_id=name,
            profile=name[16:-7],
            environment="e",
            host="127.0.0.1",
            port=1,
            url="http://127.0.0.1:1",
            served_model_name="m",
            argv=["x"],
            state=state,
            temp_dir="",
            created_at=1000.0,
            ended_at=2000.0 if ended else None,
            boot_id=boot_id(),
        )
    )
    if log is not None:
        folder.log_file.write_bytes(log)
    return folder


@contextlib.asynccontextmanager
async def open_logs() -> AsyncIterator[tuple[Logs, Screen]]:
    screen = Screen()
    logs = Logs(screen)
    try:
        yield logs, screen
    finally:
        await logs.close()


OLD, NEW = "20261130-100000-mine-aaaaaa", "20261130-110000-other-bbbbbb"


async def test_runs_newest_first_and_only_those_with_a_log() -> None:
    make_run(OLD, b"x\n", state=RunState.FAILED)
    make_run(NEW, b"y\n")
    make_run("20261130-120000-none-cccccc", None)
    # Its supervisor was killed and so was its engine: nobody wrote the end down.
    make_run("20261130-090000-lost-dddddd", b"z\n", state=RunState.READY, ended=False)
    async with open_logs() as (logs, _):
        entries = await logs.runs()
    assert [(e.run_id, e.profile, e.state) for e in entries] == [
        (NEW, "other", RunState.STOPPED),
        (OLD, "mine", RunState.FAILED),
        ("20261130-090000-lost-dddddd", "lost", RunState.FAILED),
    ]
    assert entries[0].log_file.read_bytes() == b"y\n"
    assert entries[0].started_at == 1000.0


async def test_history_in_batches_then_new_lines() -> None:
    folder = make_run(OLD, b"".join(b"INFO 11-30 10:00:00 [a.py:1] %d\n" % number for number in range(60_000)))
    async with open_logs() as (logs, screen):
        await logs.follow(OLD)
        await screen.wait(lambda: len(screen.lines) == 50_000)
        assert screen.batches[0].reset
        assert not any(batch.reset or batch.replaces_last for batch in screen.batches[1:])
        assert max(len(batch.lines) for batch in screen.batches) <= 2000
        assert screen.lines[0] == LogLine(10_001, "INFO 11-30 10:00:00 [a.py:1] 10000", "INFO")
        assert [line.number for line in screen.lines] == list(range(10_001, 60_001))
        with folder.log_file.open("ab") as stream:
            stream.write(b"new\nbar 1%\r")
            stream.flush()
            await screen.wait(lambda: screen.texts[-1] == "bar 1%")
            stream.write(b"bar 2%\n")
        await screen.wait(lambda: screen.texts[-2:] == ["new", "bar 2%"])
        assert screen.lines[-1].number == 60_003


async def test_the_current_run_is_followed_and_changed_to_another() -> None:
    old, new = make_run(OLD, b"old 1\n"), make_run(NEW, b"new 1\n")
    async with open_logs() as (logs, screen):
        await logs.follow(None)
        await screen.wait(lambda: len(screen.batches) == 1)
        assert screen.batches == [LogBatch("", (), reset=True)]
        logs.current_run_changed(OLD, old.log_file)
        await screen.wait(lambda: screen.texts == ["old 1"])
        for _ in range(20):
            logs.current_run_changed(OLD, old.log_file)
        logs.current_run_changed("", None)  # a start is prepared: the old log is still what one reads
        with old.log_file.open("ab") as stream:
            stream.write(b"old 2\n")
        await screen.wait(lambda: screen.texts == ["old 1", "old 2"])
        assert sum(batch.reset for batch in screen.batches) == 2
        logs.current_run_changed(NEW, new.log_file)
        await screen.wait(lambda: screen.texts == ["new 1"])
        assert screen.run_id == NEW


async def test_a_log_that_does_not_exist_yet_clears_the_window_and_comes_later() -> None:
    old = make_run(OLD, b"old\n")
    file = paths.folders().runs / NEW / "engine.log"
    async with open_logs() as (logs, screen):
        logs.current_run_changed(OLD, old.log_file)
        await logs.follow(None)
        await screen.wait(lambda: screen.texts == ["old"])
        logs.current_run_changed(NEW, file)
        await screen.wait(lambda: screen.run_id == NEW and not screen.lines)
        make_run(NEW, b"first\n")
        await screen.wait(lambda: screen.texts == ["first"])


async def test_a_chosen_run_stays_whatever_becomes_current() -> None:
    make_run(OLD, b"old\n")
    new = make_run(NEW, b"new\n")
    async with open_logs() as (logs, screen):
        await logs.follow(OLD)
        await screen.wait(lambda: screen.texts == ["old"])
        logs.current_run_changed(NEW, new.log_file)
        with (paths.folders().runs / OLD / "engine.log").open("ab") as stream:
            stream.write(b"more\n")
        await screen.wait(lambda: screen.texts == ["old", "more"])
        await logs.follow(None)
        await screen.wait(lambda: screen.texts == ["new"])


async def test_unfollowed_nothing_is_told_and_resumed_nothing_is_told_twice() -> None:
    folder = make_run(OLD, b"one\n")
    async with open_logs() as (logs, screen):
        await logs.follow(OLD)
        await screen.wait(lambda: screen.texts == ["one"])
        await logs.unfollow()
        told = len(screen.batches)
        with folder.log_file.open("ab") as stream:
            stream.write(b"two\n")
        await asyncio.sleep(0.3)  # three readings, if there were any
        assert len(screen.batches) == told
        await logs.follow(OLD, resume=True)
        await screen.wait(lambda: screen.texts == ["one", "two"])
        assert sum(batch.reset for batch in screen.batches) == 1
        await logs.follow(OLD)
        await screen.wait(lambda: sum(batch.reset for batch in screen.batches) == 2)
        assert screen.texts == ["one", "two"]


async def test_ten_thousand_lines_a_second_arrive_while_they_are_written() -> None:
    folder = make_run(OLD, b"")
    line = b"(APIServer pid=10212) INFO 11-30 13:51:59 [model.py:2152] %07d and some more text of usual length\n"
    async with open_logs() as (logs, screen):
        await logs.follow(OLD)
        n_written, begin = 0, time.monotonic()
        behind = 0
        with folder.log_file.open("ab") as stream:
            while n_written < 20_000:
                stream.write(b"".join(line % number for number in range(n_written, n_written + 500)))
                stream.flush()
                n_written += 500
                await asyncio.sleep(max(begin + n_written / 10_000 - time.monotonic(), 0))
                behind = max(behind, n_written - len(screen.lines))
        await screen.wait(lambda: len(screen.lines) == 20_000)
        assert [line.number for line in screen.lines] == list(range(1, 20_001))
        assert max(len(batch.lines) for batch in screen.batches) <= 1000
        assert behind < 15_000  # it does not wait for the end


async def test_a_cut_log_begins_anew() -> None:
    folder = make_run(OLD, b"".join(b"%d\n" % number for number in range(1000)))
    async with open_logs() as (logs, screen):
        await logs.follow(OLD)
        await screen.wait(lambda: len(screen.lines) == 1000)
        folder.log_file.write_bytes(b"kept\n")
        await screen.wait(lambda: screen.texts == ["kept"])
        assert screen.lines[0].number == 1


async def test_a_run_that_is_gone_is_said(tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("no run")
    async with open_logs() as (logs, screen):
        for name in ("20261130-000000-gone-eeeeee", "../..", str(tmp_path)):
            with pytest.raises(UsageError, match="gone"):
                await logs.follow(name)
        assert screen.batches == []


async def test_a_log_that_cannot_be_read_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_module, "_AGAIN_S", 0.05)
    old, new = make_run(OLD, b"old\n"), make_run(NEW, None)
    new.log_file.mkdir()
    async with open_logs() as (logs, screen):
        await logs.follow(OLD)
        await screen.wait(lambda: screen.texts == ["old"])
        assert screen.troubles == []
        await logs.follow(NEW)
        await screen.wait(lambda: screen.run_id == NEW and len(screen.troubles) == 1)
        assert screen.troubles == ["The log cannot be read: Is a directory. It is tried again."]
        assert screen.lines == []
        new.log_file.rmdir()
        new.log_file.write_bytes(b"new\n")
        await screen.wait(lambda: screen.texts == ["new"])
        await screen.wait(lambda: screen.troubles[1:] == [""])

        def fail(_tail: object) -> None:
            raise ValueError("something else")

        with monkeypatch.context() as patch:
            patch.setattr(LogTail, "read", fail)
            await screen.wait(lambda: "something else" in screen.troubles[-1])
            assert screen.texts == ["new"]  # what was read stays
        with new.log_file.open("ab") as stream:
            stream.write(b"more\n")
        await screen.wait(lambda: screen.texts == ["new", "more"] and screen.troubles[-1] == "")
        assert old.log_file.exists()


@pytest.mark.parametrize("n_steps", range(6))
async def test_a_cancellation_that_comes_together_with_news_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, n_steps: int
) -> None:
    monkeypatch.setattr(logs_module, "_TICK_S", LIMIT_S)  # it waits until it is woken
    make_run(OLD, b"old\n")
    async with open_logs() as (logs, screen):
        await logs.follow(OLD)
        await screen.wait(lambda: screen.texts == ["old"])
        await asyncio.sleep(0.05)
        task, logs._task = logs._task, None
        assert task is not None
        logs._wake.set()
        for _ in range(n_steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()
