"""The conversation outlives windows, kills, damaged files and full disks."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.desk import chat, chat_file
from backend.desk.types import ChatSettings, ChatView
from tests.backend.desk.chat_room import Recording, Room, open_room
from tests.fakes.fixtures import LIMIT_S, StartFake, fake_vllm_fixture, wait_for  # noqa: F401


def _on_disk() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(chat_file.file().read_text(encoding="utf-8"))
    return content


async def test_the_conversation_outlives_the_window(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "5")
    async with open_room(fake) as room:
        await room.chat.change_settings(ChatSettings(system="brief", seed=3))
        await room.chat.send("grüße \ud83d und 你好")  # half a surrogate pair can neither be sent nor written
        view = room.chat.view()
        assert view.messages[0].text == "grüße ? und 你好"
        later = Room(room.api)
        await later.chat.load()
        assert later.chat.view() == view
        await later.chat.clear()
        assert (later.chat.view().messages, later.chat.view().undo) == ((), "The conversation is cleared.")
        assert _on_disk()["messages"] == []
        await later.chat.undo()
        assert later.chat.view() == view
        assert len(_on_disk()["messages"]) == 2
        await later.chat.clear()
        await later.chat.send("new")
        await later.chat.undo()  # too late: another conversation has begun
        assert [message.text for message in later.chat.view().messages[::2]] == ["new"]
        assert later.chat.view().settings == view.settings


async def test_a_killed_window_keeps_the_part_of_the_answer_that_came(
    fake_vllm: StartFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "_KEEP_EVERY_S", 0.05)
    fake = fake_vllm("--answer-tokens", "4000", "--fault", "step_s=0.02")
    async with open_room(fake) as room:
        sending = asyncio.create_task(room.chat.send("hello"))
        await room.until_text()
        await asyncio.to_thread(wait_for, lambda: len(_on_disk()["messages"][1]["text"]) > 20)
        later = Room(room.api)  # what a new window finds while the old one never came to write the end
        await later.chat.load()
        question, answer = later.chat.view().messages
        assert question.text == "hello"
        assert len(answer.text) > 20
        assert room.told_text().startswith(answer.text)
        assert answer.error == chat_file.CUT_BY_THE_END
        assert answer.usage is not None
        assert answer.usage.finish_reason == "abort"
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert not room.chat.view().streaming
        assert room.last.usage is not None
        assert room.last.usage.finish_reason == "abort"
        assert _on_disk()["messages"][1]["text"] == room.told_text()


async def test_never_two_writes_at_once_and_the_newest_one_stays(
    fake_vllm: StartFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "_KEEP_EVERY_S", 0.01)
    write, running, most = chat_file.write, 0, 0
    begun, go_on = threading.Event(), threading.Event()

    def slow(*args: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if args[0] and args[0][-1].text and args[0][-1].usage is None:  # a write while the answer streams
            begun.set()
            assert go_on.wait(LIMIT_S)
        problem = write(*args)
        running -= 1
        return problem

    monkeypatch.setattr(chat_file, "write", slow)
    fake = fake_vllm("--answer-tokens", "4000", "--fault", "step_s=0.01")
    async with open_room(fake) as room:
        sending = asyncio.create_task(room.chat.send("hello"))
        assert await asyncio.to_thread(begun.wait, LIMIT_S)
        sending.cancel()  # its last write must wait for the one that has begun
        await asyncio.to_thread(wait_for, lambda: not room.chat.view().streaming)
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert most == 1
        assert _on_disk()["messages"][1]["text"] == room.last.text
        assert _on_disk()["messages"][1]["usage"]["finish_reason"] == "abort"


async def test_a_write_whose_turn_comes_too_late_does_not_undo_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(Recording("http://127.0.0.1:9"))
    late: list[Callable[[], str]] = []

    async def first_waits(write: Callable[..., str], *args: Any) -> str:
        if not late:  # a thread that gets its turn only after the next one
            late.append(lambda: write(*args))
            return ""
        return write(*args)

    monkeypatch.setattr(asyncio, "to_thread", first_waits)
    await room.chat.change_settings(ChatSettings(seed=1))
    await room.chat.change_settings(ChatSettings(seed=2))
    late[0]()
    assert _on_disk()["settings"]["seed"] == 2


GOOD = {"schema": 1, "settings": {}, "messages": [{"role": "user", "text": "a"}, {"role": "assistant", "text": "b"}]}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        json.dumps({**GOOD, "schema": 2}),
        json.dumps({**GOOD, "messages": GOOD["messages"][:1]}),  # type: ignore[index]
        json.dumps({**GOOD, "messages": GOOD["messages"][::-1]}),  # type: ignore[index]
        json.dumps({**GOOD, "messages": [{"role": "user"}]}),
        json.dumps({**GOOD, "settings": {"temperature": "hot"}}),
        "\udcff\udcfe",
    ],
)
async def test_a_damaged_file_is_set_aside(
    content: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = chat_file.file()
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    room = Room(Recording("http://127.0.0.1:9"))
    await room.chat.load()
    view = room.events[-1]
    assert isinstance(view, ChatView)
    assert view.messages == ()
    aside = path.with_name("conversation.json.damaged-1")
    assert aside.name in view.notice
    assert aside.read_bytes() == content.encode("utf-8", "surrogateescape")
    assert "damaged" in caplog.text
    await room.chat.change_settings(ChatSettings(seed=1))
    assert _on_disk()["settings"]["seed"] == 1


async def test_a_good_file_is_read_as_it_is() -> None:
    path = chat_file.file()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(GOOD))
    room = Room(Recording("http://127.0.0.1:9"))
    await room.chat.load()
    assert [message.text for message in room.chat.view().messages] == ["a", "b"]
    assert room.chat.view().notice == ""


async def test_a_disk_that_takes_nothing_is_told_and_not_fatal(fake_vllm: StartFake, xdg: Path) -> None:
    async with open_room(fake_vllm("--answer-tokens", "5")) as room:
        chat_file.file().parent.parent.mkdir(parents=True, exist_ok=True)
        chat_file.file().parent.write_text("a file where the folder should be")
        await room.chat.send("hello")
        assert room.last.usage is not None
        assert room.last.usage.finish_reason == "stop"
        assert "cannot be kept" in room.chat.view().notice
