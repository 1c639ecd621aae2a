"""The conversation outlives windows, kills, damaged files and full disks."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from backend.desk import chat_file
from backend.desk.types import ChatSettings, ChatView
from tests.backend.desk.chat_room import Recording, Room, open_room
from tests.fakes.fixtures import StartFake, fake_vllm_fixture  # noqa: F401


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
        assert (later.chat.view().messages, later.chat.view().can_undo_clear) == ((), True)
        assert _on_disk()["messages"] == []
        await later.chat.undo_clear()
        assert later.chat.view() == view
        assert len(_on_disk()["messages"]) == 2
        await later.chat.clear()
        await later.chat.send("new")
        await later.chat.undo_clear()  # too late: another conversation has begun
        assert [message.text for message in later.chat.view().messages[::2]] == ["new"]
        assert later.chat.view().settings == view.settings


async def test_a_killed_window_loses_only_the_answer_that_streamed(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "4000", "--fault", "step_s=0.02")
    async with open_room(fake) as room:
        sending = asyncio.create_task(room.chat.send("hello"))
        await room.until_text()
        later = Room(room.api)  # what a new window finds while the old one never came to write the end
        await later.chat.load()
        question, answer = later.chat.view().messages
        assert question.text == "hello"
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
