"""A conversation keeps what was said, and nothing of a question that failed."""

import pytest

from backend.chat.conversation import Conversation
from backend.engine_api import EngineApi
from backend.engine_stream import ChatStream
from backend.errors import EngineError
from tests.fakes.fixtures import StartFake, fake_vllm_fixture  # noqa: F401


async def _hear(talk: Conversation, question: str) -> ChatStream:
    """Ask, and read the answer to its end."""
    async with talk.ask(question) as stream:
        async for _ in stream:
            pass
    return stream


async def test_questions_and_answers_are_kept_in_order(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "6")
    api = EngineApi(fake.url)
    talk = Conversation(api, model="fake", system="be brief", max_tokens=20)
    await _hear(talk, "one")
    stream = await _hear(talk, "two words")
    await api.aclose()
    answer = fake.state()["answers"][0]["text"]
    assert [message["role"] for message in talk.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [message["content"] for message in talk.messages] == ["be brief", "one", answer, "two words", answer]
    # The fake counts 4 tokens around each message and one for each word: system, question, answer, question.
    assert stream.usage.prompt_tokens == 4 * 4 + 2 + 1 + len(answer.split()) + 2


async def test_a_failed_question_leaves_the_conversation_as_it_was(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    api = EngineApi(fake.url)
    talk = Conversation(api, model="fake")
    fake.faults(error_after_tokens=3)
    with pytest.raises(EngineError):
        await _hear(talk, "hello")
    assert talk.messages == []
    fake.faults(error_after_tokens=None)
    async with talk.ask("hello") as stream:
        async for chunk in stream:
            if chunk.text:
                break
    await api.aclose()
    assert [message["role"] for message in talk.messages] == ["user", "assistant"]
    assert talk.messages[1]["content"] == stream.text != ""
