"""Chat streams byte by byte: recorded streams of a real engine, any chunking, known clocks, broken events."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine_api import EngineApi
from backend.engine_stream import ChatStream
from backend.errors import EngineError
from backend.events import TokenChunk

SSE = Path(__file__).resolve().parent.parent / "data" / "sse"


async def _all(stream: ChatStream) -> list[TokenChunk]:
    async with stream:
        return [chunk async for chunk in stream]


def _events(name: str) -> list[object]:
    return [event for _, event in json.loads((SSE / name).read_text(encoding="utf-8"))]


def _encode(events: list[object]) -> bytes:
    texts = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def _offline(pieces: list[bytes], *, on_piece: object = None) -> ChatStream:
    """A stream whose server sends exactly these pieces, without a socket."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            if callable(on_piece):
                on_piece()
            yield piece
            await asyncio.sleep(0)

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=body())

    client = httpx2.AsyncClient(base_url="http://engine", transport=httpx2.MockTransport(answer))
    return ChatStream(lambda: client, {}, url="http://engine", silence_s=5, registry=set())


@pytest.mark.parametrize("name", ["sse_chat_spec.json", "sse_completions_spec.json"])
async def test_recorded_stream_gives_the_recorded_tokens(name: str) -> None:
    events = _events(name)
    served = _encode(events)

    closed = asyncio.Event()

    async def replay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n" + served)
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(replay, "127.0.0.1", 0)
    async with server:
        api = EngineApi(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        stream = api.stream_chat([{"role": "user", "content": "hi"}], model="tiny")
        chunks = await _all(stream)
        await api.aclose()
        await closed.wait()
    objects = [event for event in events if isinstance(event, dict)]
    totals = [event["usage"]["completion_tokens"] for event in objects]
    steps = [new - old for old, new in zip([0, *totals], totals, strict=False)]
    ids = [len(event["choices"][0].get("token_ids") or []) for event in objects if event["choices"]]
    assert [chunk.n_tokens for chunk in chunks] == steps[: len(chunks)] == ids
    assert sum(ids) == 60 == stream.usage.completion_tokens
    assert stream.usage.finish_reason == "length"
    texts = [event["choices"][0].get("delta", {}).get("content", "") for event in objects if event["choices"]]
    assert stream.text == "".join(texts)


_TEXTS = ["Grüße", " ☕", "", "👩", "\u200d💻", "\u2028 line\nbreak", ' "quoted"', "終"]


def _event(text: str, total: int) -> dict[str, object]:
    usage = {"prompt_tokens": 3, "completion_tokens": total, "total_tokens": 3 + total}
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], "usage": usage}


@given(cuts=st.lists(st.integers(0, 2000), max_size=60), newline=st.sampled_from(["\n", "\r\n", "\r"]))
@settings(deadline=None, max_examples=60)
def test_any_chunking_of_the_bytes_gives_the_same_text(cuts: list[int], newline: str) -> None:
    events: list[object] = [_event(text, number + 1) for number, text in enumerate(_TEXTS)]
    data = b": hello\n\n" + _encode([*events, "[DONE]"])
    data = data.replace(b"\n", newline.encode())
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    stream = _offline([data[start:end] for start, end in pairwise(bounds)])
    chunks = asyncio.run(_all(stream))
    assert [chunk.text for chunk in chunks] == _TEXTS
    assert [chunk.n_tokens for chunk in chunks] == [1] * len(_TEXTS)


async def test_times_and_rate_by_a_known_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)

    def tick() -> None:
        clock.now += 0.5

    monkeypatch.setattr("backend.engine_stream.time", SimpleNamespace(monotonic=lambda: clock.now))
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": {"completion_tokens": 0}}
    thought = {"choices": [{"delta": {"reasoning": "hm"}}], "usage": {"completion_tokens": 2}}
    pieces = [_encode([event]) for event in (role, thought, _event("a", 3), _event("b", 8), "[DONE]")]
    stream = _offline(pieces, on_piece=tick)
    await _all(stream)
    # Pieces arrive at 0.5, 1.0, 1.5, 2.0 s: the first tokens (2, reasoning) at 1.0 s, then 6 more in 1.0 s.
    assert stream.usage.ttft_s == pytest.approx(1.0)
    assert stream.usage.tokens_per_s == pytest.approx(6.0)


@pytest.mark.parametrize("body", [b"data: nonsense\n\n", b'data: ["a list"]\n\n'])
async def test_events_that_are_no_answer_are_an_error(body: bytes) -> None:
    with pytest.raises(EngineError, match="something that is no answer"):
        await _all(_offline([body]))


async def test_old_error_shape() -> None:
    body = b'data: {"object": "error", "message": "broken", "code": 500}\n\ndata: [DONE]\n\n'
    with pytest.raises(EngineError, match="failed while answering: broken"):
        await _all(_offline([body]))
