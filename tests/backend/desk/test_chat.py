"""The chat against a fake engine over real HTTP: what is asked, streamed, stopped and told."""

import asyncio
import dataclasses
from typing import Any

import pytest

from backend.desk import chat_file
from backend.desk.types import ChatMessage, ChatSettings, ChatView
from backend.errors import UserError
from tests.backend.desk.chat_room import Recording, Room, open_room
from tests.fakes.fixtures import StartFake, fake_vllm_fixture, wait_for  # noqa: F401

LET_GO = "Stopped; the engine has let it go."
NOT_LET_GO = "Stopped here, but the engine still works on a request."


async def test_an_answer_streams_and_ends_with_its_figures(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "30", "--reasoning-tokens", "5")
    async with open_room(fake) as room:
        await room.chat.send("one two three")
        truth = fake.state()["answers"][0]
        assert room.told_text() == room.last.text == truth["text"] != ""
        assert room.last.reasoning == truth["reasoning"] != ""
        usage = room.last.usage
        assert usage is not None
        assert (usage.completion_tokens, usage.finish_reason) == (30, "stop")
        assert room.told_tokens() == 30
        assert usage.prompt_tokens == 4 + 3
        assert usage.ttft_s is not None
        assert usage.tokens_per_s is not None
        views = [event for event in room.events if isinstance(event, ChatView)]
        assert [view.streaming for view in views] == [True, False]
        assert views[0].messages == (ChatMessage("user", "one two three"), ChatMessage("assistant", ""))


async def test_without_an_engine_nothing_is_asked_or_changed(fake_vllm: StartFake) -> None:
    async with open_room(fake_vllm()) as room:
        room.runs.readable = None
        with pytest.raises(UserError, match="Start an engine"):
            await room.chat.send("hello")
        assert room.chat.view().messages == ()
        assert room.api.asked == []


async def test_a_second_question_while_one_is_answered_is_refused(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "40")
    async with open_room(fake) as room:
        first = asyncio.create_task(room.chat.send("first"))
        await room.until(lambda: room.chat.view().streaming)
        for refused in (room.chat.send("second"), room.chat.regenerate(), room.chat.edit(0, "x"), room.chat.clear()):
            with pytest.raises(UserError, match="being written"):
                await refused
        await first
        assert [message.text for message in room.chat.view().messages[::2]] == ["first"]
        assert room.last.usage is not None
        assert room.last.usage.completion_tokens == 40
        with pytest.raises(UserError, match="empty"):
            await room.chat.send(" \n")


async def test_the_engine_gets_settings_and_the_pairs_that_have_an_answer(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "3")
    async with open_room(fake) as room:
        await room.chat.send("one")
        assert room.api.asked[0] == {
            "messages": [{"role": "user", "content": "one"}],
            "model": "fake",
            "max_tokens": None,
            "temperature": None,
            "extra": {},
        }
        answer = room.last.text
        fake.faults(completions="500")
        await room.chat.send("failed")
        fake.faults(completions="ok")
        settings = ChatSettings(system="be brief", temperature=0.0, top_p=0.5, max_tokens=2, seed=7)
        await room.chat.change_settings(settings)
        await room.chat.send("two")
        assert room.api.asked[2] == {
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": answer},
                {"role": "user", "content": "two"},
            ],
            "model": "fake",
            "max_tokens": 2,
            "temperature": 0.0,
            "extra": {"top_p": 0.5, "seed": 7},
        }
        assert room.last.usage is not None
        assert (room.last.usage.completion_tokens, room.last.usage.finish_reason) == (2, "length")


async def test_a_stopped_answer_is_gone_at_the_engine(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "4000", "--fault", "step_s=0.02")
    async with open_room(fake) as room:
        sending = asyncio.create_task(room.chat.send("long"))
        await room.until_text()
        await room.chat.stop()
        assert fake.state()["requests_running"] == 0
        assert fake.state()["aborted"] == 1
        await sending
        assert room.last.note == LET_GO
        assert room.last.error == ""
        assert room.last.text == room.told_text() != ""
        assert room.last.usage is not None
        assert room.last.usage.finish_reason == "abort"
        assert not room.chat.view().streaming
        await room.chat.stop()  # nothing to stop is no error


async def test_a_stop_that_the_engine_does_not_follow_is_said(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "4000", "--fault", "step_s=0.02")
    async with open_room(fake) as room:
        sending = asyncio.create_task(room.chat.send("long"))
        await room.until_text()
        _, page = fake.request("GET", "/metrics")
        assert fake.state()["requests_running"] == 1
        fake.faults(metrics_text=page)  # the engine goes on saying that the request runs
        await asyncio.gather(room.chat.stop(), room.chat.stop())
        await sending
        assert room.last.note == NOT_LET_GO
        fake.faults(metrics_text=None)


async def test_a_stop_before_the_first_token_and_without_metrics(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--fault", 'completions="hang"', "--fault", 'metrics="404"')
    async with open_room(fake) as room:
        sending = asyncio.create_task(room.chat.send("long"))
        await asyncio.to_thread(wait_for, lambda: fake.state()["requests"].get("/v1/chat/completions"))
        await room.chat.stop()
        await sending
        assert room.last.text == ""
        assert room.last.usage is not None
        assert room.last.usage.finish_reason == "abort"
        assert "does not say" in room.last.note


async def test_an_engine_that_is_stopped_ends_the_answer_with_what_was_there(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "4000", "--fault", "step_s=0.02")
    async with open_room(fake) as room:
        sending = asyncio.create_task(room.chat.send("long"))
        await room.until_text()
        await room.api.close_streams()  # what the supervisor does when Stop is pressed
        await sending
        assert room.last.text == room.told_text() != ""
        assert room.last.error == room.last.note == ""
        assert room.last.usage is not None
        assert room.last.usage.finish_reason == "abort"


@pytest.mark.parametrize("fault", ["error_after_tokens", "end_after_tokens", "cut_after_tokens"])
async def test_a_failed_answer_keeps_its_text_and_can_be_asked_again(fake_vllm: StartFake, fault: str) -> None:
    fake = fake_vllm("--answer-tokens", "20")
    async with open_room(fake) as room:
        fake.faults(**{fault: 8})
        await room.chat.send("hello")
        failed = room.last
        assert failed.error != ""
        assert failed.text == room.told_text() != ""
        fake.faults(**{fault: None})
        since = len(room.events)
        await room.chat.regenerate()
        assert [message.role for message in room.chat.view().messages] == ["user", "assistant"]
        assert room.chat.view().messages[0].text == "hello"
        assert room.last.error == ""
        assert room.last.text == room.told_text(since) == fake.state()["answers"][-1]["text"]


@pytest.mark.parametrize("way", ["regenerate", "edit"])
@pytest.mark.parametrize("fault", ["500", "gone", "hang"])
async def test_what_was_replaced_comes_back_when_nothing_takes_its_place(
    fake_vllm: StartFake, way: str, fault: str
) -> None:
    fake = fake_vllm("--answer-tokens", "5")
    async with open_room(fake) as room:
        await room.chat.send("one")
        await room.chat.send("two")
        before = room.chat.view()

        async def ask() -> None:
            await (room.chat.regenerate() if way == "regenerate" else room.chat.edit(0, "other"))

        if fault == "hang":
            fake.faults(completions="hang")
            asking = asyncio.create_task(ask())
            await asyncio.to_thread(wait_for, lambda: fake.state()["requests"].get("/v1/chat/completions") == 3)
            assert room.chat.view().streaming
            assert chat_file.read().messages == before.messages  # a window that is killed now loses nothing
            await room.chat.stop()
            await asking
        else:
            if fault == "gone":
                await asyncio.to_thread(fake.kill, "api")
            else:
                fake.faults(completions=fault)
            with pytest.raises(UserError, match="Nothing answers" if fault == "gone" else "engine"):
                await ask()
        assert room.chat.view() == before
        assert chat_file.read().messages == before.messages
        assert room.events[-1] == before


async def test_what_was_replaced_can_be_brought_back_until_the_next_question(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "5")
    async with open_room(fake) as room:
        for text in ("one", "two"):
            await room.chat.send(text)
        first = room.chat.view()
        assert first.undo == ""
        since = len(room.events)
        await room.chat.regenerate()
        views = [event for event in room.events[since:] if isinstance(event, ChatView)]
        assert [(view.streaming, view.undo) for view in views] == [
            (True, ""),
            (False, "The earlier answer was replaced."),
        ]
        assert room.last != first.messages[-1]
        await room.chat.undo()
        assert room.chat.view() == first
        await room.chat.edit(0, "other")
        second = room.chat.view()
        assert (len(second.messages), second.undo) == (2, "The question and what followed were replaced.")
        await room.chat.undo()
        assert room.chat.view() == first
        assert chat_file.read().messages == first.messages
        await room.chat.edit(0, "other")
        await room.chat.send("next")
        assert room.chat.view().undo == ""
        await room.chat.undo()  # too late
        assert [message.text for message in room.chat.view().messages[::2]] == ["other", "next"]
        fake.faults(error_after_tokens=2)
        await room.chat.regenerate()  # something came, so it stays, and can be undone
        assert room.last.error != ""
        assert room.chat.view().undo != ""


async def test_the_death_of_the_engine_is_told_on_the_answer(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "4000", "--fault", "step_s=0.02")
    async with open_room(fake) as room:
        sending = asyncio.create_task(room.chat.send("hello"))
        await room.until_text()
        await asyncio.to_thread(fake.kill, "api")
        await sending
        assert "stopped before the answer was complete" in room.last.error
        assert room.last.text == room.told_text() != ""
        await room.chat.send("again")
        assert "Nothing answers" in room.last.error
        assert len(room.chat.view().messages) == 4


async def test_an_edited_question_drops_what_followed(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "3")
    async with open_room(fake) as room:
        for text in ("one", "two", "three"):
            await room.chat.send(text)
        kept = room.chat.view().messages[:2]
        await room.chat.edit(2, "other")
        assert room.chat.view().messages[:2] == kept
        assert [message.text for message in room.chat.view().messages[::2]] == ["one", "other"]
        assert room.api.asked[-1]["messages"][-1] == {"role": "user", "content": "other"}
        for index in (1, 4, -1):
            with pytest.raises(UserError, match="no longer"):
                await room.chat.edit(index, "x")


async def test_a_cut_answer_is_continued_in_place(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "40", "--reasoning-tokens", "4")
    async with open_room(fake) as room:
        await room.chat.change_settings(ChatSettings(max_tokens=10))
        await room.chat.send("hello")
        first = room.last
        assert first.usage is not None
        assert first.usage.finish_reason == "length"
        since = len(room.events)
        await room.chat.go_on()
        asked = room.api.asked[-1]
        assert asked["messages"][-1] == {"role": "assistant", "content": first.text}
        assert asked["extra"] == {"add_generation_prompt": False, "continue_final_message": True}
        assert room.last.text == first.text + room.told_text(since)
        assert room.last.text != first.text
        assert room.last.reasoning.startswith(first.reasoning)
        assert room.last.usage is not None
        assert room.last.usage.completion_tokens == 20
        assert room.last.usage.prompt_tokens == first.usage.prompt_tokens
        assert len(room.chat.view().messages) == 2
        fake.faults(completions="500")
        before = room.last
        await room.chat.go_on()
        assert room.last.error != ""
        assert room.last.text == before.text
        fake.faults(completions="ok")
        await room.chat.go_on()  # a failure to continue can be tried again
        assert room.last.error == ""
        assert room.last.text != before.text


async def test_only_an_answer_cut_by_its_length_is_continued(fake_vllm: StartFake) -> None:
    async with open_room(fake_vllm("--answer-tokens", "4", "--reasoning-tokens", "20")) as room:
        with pytest.raises(UserError, match="not cut"):
            await room.chat.go_on()
        await room.chat.send("hello")
        with pytest.raises(UserError, match="not cut"):
            await room.chat.go_on()
        await room.chat.change_settings(ChatSettings(max_tokens=2))
        await room.chat.send("hello")
        with pytest.raises(UserError, match="still reasoning"):
            await room.chat.go_on()


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"max_tokens": 0},
        {"seed": 2**63},
    ],
)
async def test_settings_that_no_engine_takes_are_refused(change: dict[str, Any]) -> None:
    room = Room(Recording("http://127.0.0.1:9"))
    with pytest.raises(UserError, match=r"is not possible|too large"):
        await room.chat.change_settings(dataclasses.replace(ChatSettings(), **change))
    assert room.chat.view().settings == ChatSettings()
