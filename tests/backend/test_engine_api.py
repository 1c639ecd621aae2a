"""EngineApi against the fake server as a process of its own, and against recorded streams of a real engine."""

import asyncio
import errno
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from backend.engine_api import EngineApi
from backend.engine_stream import ChatStream
from backend.errors import EngineError, EngineUnreachableError, UsageError
from backend.events import Health, TokenChunk
from tests.fakes.fixtures import FakeVllm, StartFake, fake_vllm_fixture, wait_for  # noqa: F401

HI = [{"role": "user", "content": "hi there"}]


@asynccontextmanager
async def _api(url: str, api_key: str | None = None) -> AsyncIterator[EngineApi]:
    """An EngineApi that is shown to leave no task behind."""
    api = EngineApi(url, api_key=api_key)
    try:
        yield api
    finally:
        await api.aclose()
    assert [task for task in asyncio.all_tasks() if "/backend/engine_" in repr(task)] == []
    assert api.open_streams == 0


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _server(handler: Handler) -> AsyncIterator[str]:
    """A small server; gives its address, and ends only when all its connections have."""
    busy: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        try:
            await handler(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    if busy:
        await asyncio.wait(busy, timeout=30)


async def _all(stream: ChatStream) -> list[TokenChunk]:
    async with stream:
        return [chunk async for chunk in stream]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _counter(fake: FakeVllm, name: str) -> float:
    lines = fake.request("GET", "/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


async def test_health(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    async with _api(fake.url) as api:
        assert await api.health() is Health.OK
        for status, expected in (("503", Health.DEAD), ("500", Health.DEAD), ("404", Health.ABSENT)):
            fake.faults(health=status)
            assert await api.health() is expected
        fake.faults(health="hang")
        assert await api.health(timeout_s=0.2) is Health.TIMEOUT
    async with _api(f"http://127.0.0.1:{_free_port()}") as api:
        assert await api.health() is Health.REFUSED


def _failing(number: int) -> Callable[..., Awaitable[None]]:
    """What asyncio does when the system gives no connection, for a reason of this machine."""

    async def connect(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    return connect


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.ENETUNREACH])
async def test_a_lack_of_this_machine_is_no_refusal(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a supervisor that runs out of files or ports would end a healthy engine."""
    loop = asyncio.get_running_loop()
    async with _api(f"http://127.0.0.1:{_free_port()}") as api:
        assert await api.health() is Health.REFUSED
        monkeypatch.setattr(loop, "create_connection", _failing(number))
        for _ in range(2):  # also while a refusal is being handled, which then stands in the chain of causes
            assert await api.health() is Health.TIMEOUT
            try:
                await _failing(errno.ECONNREFUSED)()
            except ConnectionRefusedError:
                assert await api.health() is Health.TIMEOUT
        with pytest.raises(EngineUnreachableError, match=os.strerror(number)) as metrics:
            await api.metrics()
        with pytest.raises(EngineUnreachableError, match=os.strerror(number)) as chat:
            await _all(api.stream_chat(HI, model="fake"))
        assert not metrics.value.refused
        assert not chat.value.refused


async def test_no_more_files_is_no_refusal(fake_vllm: StartFake) -> None:
    """The real thing: this process may open no further file."""
    fake = fake_vllm()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with _api(fake.url) as api:
        assert await api.health() is Health.OK
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
        try:
            got = await api.health()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert got is Health.TIMEOUT
        assert await api.health() is Health.OK


@pytest.mark.parametrize(
    ("first", "second", "health"),
    [
        (errno.ECONNREFUSED, errno.ECONNREFUSED, Health.REFUSED),
        (errno.EADDRNOTAVAIL, errno.ECONNREFUSED, Health.REFUSED),  # localhost is ::1 too, and there is no IPv6
        (errno.ECONNREFUSED, errno.EMFILE, Health.TIMEOUT),
        (errno.EADDRNOTAVAIL, errno.EADDRNOTAVAIL, Health.TIMEOUT),
    ],
)
async def test_a_name_with_two_addresses(
    first: int, second: int, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def addresses(*args: object, **kwargs: object) -> list[tuple[object, ...]]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9)),
        ]

    async def connect(protocol: object, host: str, *args: object, **kwargs: object) -> None:
        await _failing(first if host == "::1" else second)()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", addresses)
    monkeypatch.setattr(loop, "create_connection", connect)
    async with _api("http://localhost:9") as api:
        assert await api.health() is health


async def test_an_unknown_name_is_no_refusal() -> None:
    async with _api("http://no-such-host.invalid:8000") as api:
        assert await api.health(timeout_s=30) is Health.TIMEOUT


async def test_health_and_metrics_of_something_that_is_no_http_server() -> None:
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()

    async with _server(drop) as url, _api(url) as api:
        assert await api.health() is Health.TIMEOUT
        with pytest.raises(EngineUnreachableError) as caught:
            await api.metrics()
        assert not caught.value.refused


async def test_metrics_models_version(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--served-model-name", "small", "--version", "0.32.0")
    async with _api(fake.url + "/v1/") as api:
        assert 'vllm:generation_tokens_total{engine="0",model_name="small"} 0.0' in await api.metrics()
        assert await api.models() == ("small",)
        assert await api.version() == "0.32.0"
        fake.faults(metrics="empty")
        assert await api.metrics() == ""
        fake.faults(metrics="hang")
        with pytest.raises(EngineUnreachableError) as slow:
            await api.metrics(timeout_s=0.2)
        assert not slow.value.refused
        fake.faults(metrics="404")
        with pytest.raises(EngineError, match="no vLLM engine: it has no /metrics"):
            await api.metrics()
        fake.process.terminate()
        await asyncio.to_thread(fake.process.wait, 30)
        with pytest.raises(EngineUnreachableError) as gone:
            await api.metrics()
        assert gone.value.refused


async def test_a_dripping_answer_is_cut_off_by_the_limit() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while True:  # each byte arrives in time, all of them never would
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with _server(drip) as url, _api(url) as api:
        assert await api.health(timeout_s=0.3) is Health.TIMEOUT


async def test_proxy_variables_are_ignored(fake_vllm: StartFake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_vllm()
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{_free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with _api(fake.url) as api:
        assert await api.health() is Health.OK


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://[::1", "http://a:b"])
def test_a_bad_address_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="not an engine's address"):
        EngineApi(url)


async def test_streamed_answer_equals_the_servers_own_account(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--spec-tokens", "4")
    before = _counter(fake, "vllm:generation_tokens_total")
    async with _api(fake.url) as api:
        stream = api.stream_chat(HI, model="fake", max_tokens=37, temperature=0, extra={"ignore_eos": True})
        chunks = await _all(stream)
    truth = fake.state()["answers"][-1]
    assert "".join(chunk.text for chunk in chunks) == stream.text == truth["text"]
    assert "👩\u200d💻" in stream.text
    assert sum(chunk.n_tokens for chunk in chunks) == 37 == _counter(fake, "vllm:generation_tokens_total") - before
    assert len(chunks) < 37  # so chunks are not tokens
    assert chunks[0].n_tokens == 0  # the role
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["length"]
    usage = stream.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.finish_reason) == (6, 37, "length")
    assert usage.ttft_s is not None
    assert usage.tokens_per_s is not None


async def test_answer_that_ends_by_itself(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--answer-tokens", "9", "--no-spec")
    async with _api(fake.url) as api:
        stream = api.stream_chat(HI, model="fake")
        chunks = await _all(stream)
    assert stream.usage.finish_reason == "stop"
    # One token a step; some are held back ("") until their character is complete, and still count.
    assert [chunk.n_tokens for chunk in chunks] == [0] + [1] * 9


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "both"])
async def test_reasoning_under_either_name(fake_vllm: StartFake, field: str) -> None:
    fake = fake_vllm("--reasoning-tokens", "7", "--reasoning-field", field)
    async with _api(fake.url) as api:
        stream = api.stream_chat(HI, model="fake", max_tokens=20)
        chunks = await _all(stream)
    truth = fake.state()["answers"][-1]
    assert "".join(chunk.reasoning for chunk in chunks) == stream.reasoning == truth["reasoning"] != ""
    assert stream.text == truth["text"] != ""
    assert stream.usage.completion_tokens == 20


async def test_an_error_event_is_a_failure_although_done_follows(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--fault", "error_after_tokens=5")
    async with _api(fake.url) as api:
        with pytest.raises(EngineError, match="failed while answering: EngineCore encountered an issue"):
            await _all(api.stream_chat(HI, model="fake"))


@pytest.mark.parametrize("fault", ["end_after_tokens", "cut_after_tokens"])
async def test_an_end_without_done_means_the_server_stopped(fake_vllm: StartFake, fault: str) -> None:
    fake = fake_vllm("--fault", f"{fault}=5")
    async with _api(fake.url) as api:
        stream = api.stream_chat(HI, model="fake")
        async with stream:
            with pytest.raises(EngineError, match="stopped before the answer was complete"):
                _ = [chunk async for chunk in stream]
        assert stream.usage.completion_tokens is not None
        assert stream.usage.completion_tokens >= 5


async def test_death_of_the_engine_in_mid_stream(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    async with _api(fake.url) as api, api.stream_chat(HI, model="fake", extra={"ignore_eos": True}) as stream:
        await anext(stream)
        os.kill(fake.pids()["worker"], signal.SIGKILL)
        with pytest.raises(EngineError, match="EngineCore encountered an issue"):
            _ = [chunk async for chunk in stream]


async def test_refusals_in_words(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--max-model-len", "64")
    long = [{"role": "user", "content": "word " * 80}]
    async with _api(fake.url) as api:
        with pytest.raises(EngineError, match="maximum context length is 64 tokens") as too_long:
            await _all(api.stream_chat(long, model="fake"))
        assert "Shorten" in too_long.value.what_to_do
        with pytest.raises(EngineError, match="max_tokens=500 cannot be greater") as too_many:
            await _all(api.stream_chat(HI, model="fake", max_tokens=500))
        assert "Shorten" in too_many.value.what_to_do
        with pytest.raises(EngineError, match="temperature must be non-negative"):
            await _all(api.stream_chat(HI, model="fake", temperature=-1))
        with pytest.raises(EngineError, match=r"`other` does not exist. Valid aliases: fake"):
            await _all(api.stream_chat(HI, model="other"))
        fake.faults(completions="500")
        with pytest.raises(EngineError, match=r"failed \(500\)"):
            await _all(api.stream_chat(HI, model="fake"))
        fake.faults(completions="hang")
        with pytest.raises(EngineUnreachableError, match=r"sent nothing for 0.2 s"):
            await _all(api.stream_chat(HI, model="fake", silence_s=0.2))
    async with _api(f"http://127.0.0.1:{_free_port()}") as api:
        with pytest.raises(EngineUnreachableError) as refused:
            await _all(api.stream_chat(HI, model="fake"))
        assert refused.value.refused


async def test_api_key(fake_vllm: StartFake) -> None:
    fake = fake_vllm(env={"VLLM_API_KEY": "k-123"})
    async with _api(fake.url, "k-123") as api:
        assert await api.models() == ("fake",)
        assert "k-123" not in repr(api)
    async with _api(fake.url) as api:
        assert await api.health() is Health.OK
        with pytest.raises(EngineError, match="another API key"):
            await api.models()
        with pytest.raises(EngineError, match="another API key"):
            await _all(api.stream_chat(HI, model="fake"))


async def test_cancelling_the_reader_makes_the_engine_drop_the_request(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    async with _api(fake.url) as api:
        started = asyncio.Event()

        async def read() -> None:
            async with api.stream_chat(HI, model="fake", extra={"ignore_eos": True}) as stream:
                async for _ in stream:
                    started.set()

        task = asyncio.create_task(read())
        await started.wait()
        assert api.open_streams == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert api.open_streams == 0
        await asyncio.to_thread(wait_for, lambda: fake.state()["aborted"] == 1)
        assert fake.state()["open_streams"] == 0
        assert _counter(fake, "vllm:num_requests_running") == 0


async def test_leaving_the_block_early_closes_the_stream(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    async with _api(fake.url) as api:
        async with api.stream_chat(HI, model="fake", extra={"ignore_eos": True}) as stream:
            async for chunk in stream:
                if chunk.n_tokens:
                    break
        await asyncio.to_thread(wait_for, lambda: fake.state()["aborted"] == 1)
    assert stream.usage.finish_reason == "abort"
    _ = [chunk async for chunk in stream]  # what had arrived can still be read, and then the iteration ends


async def test_close_streams_ends_all_of_them_quietly(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    async with _api(fake.url) as api:
        streams = [api.stream_chat(HI, model="fake", extra={"ignore_eos": True}) for _ in range(3)]
        readers = [asyncio.create_task(_all(stream)) for stream in streams]
        await asyncio.to_thread(wait_for, lambda: fake.state()["open_streams"] == 3)
        assert api.open_streams == 3
        await api.close_streams()
        await asyncio.gather(*readers)
        assert [stream.usage.finish_reason for stream in streams] == ["abort"] * 3
        assert api.open_streams == 0
        await asyncio.to_thread(wait_for, lambda: fake.state()["open_streams"] == 0)
        fake.process.terminate()  # which now ends it, as the streams are gone
        assert await asyncio.to_thread(fake.process.wait, 30) == 0


async def test_a_stream_that_waits_for_its_first_token_can_be_closed(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--fault", "freeze=true")
    async with _api(fake.url) as api:
        reader = asyncio.create_task(_all(api.stream_chat(HI, model="fake")))
        await asyncio.to_thread(wait_for, lambda: fake.state()["open_streams"] == 1)
        await api.close_streams()
        await reader
        await asyncio.to_thread(wait_for, lambda: fake.state()["open_streams"] == 0)


async def test_probe(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    async with _api(fake.url) as api:
        assert await api.probe("fake", timeout_s=30)
        assert _counter(fake, "vllm:generation_tokens_total") == 1
        assert await api.probe("unknown name", timeout_s=30)  # refused before the engine was asked: proves nothing
        fake.faults(freeze=True)
        assert not await api.probe("fake", timeout_s=0.2)
        fake.faults(freeze=False, completions="500")
        assert not await api.probe("fake", timeout_s=30)
    async with _api(f"http://127.0.0.1:{_free_port()}") as api:
        assert not await api.probe("fake", timeout_s=30)


async def test_comment_lines_are_ignored(fake_vllm: StartFake) -> None:
    fake = fake_vllm("--sse-keep-alive-interval", "0.01", "--fault", "step_s=0.05")
    async with _api(fake.url) as api:
        stream = api.stream_chat(HI, model="fake", max_tokens=5)
        chunks = await _all(stream)
    assert sum(chunk.n_tokens for chunk in chunks) == 5
    assert stream.text == fake.state()["answers"][-1]["text"]


def test_one_object_serves_several_loops_in_turn(fake_vllm: StartFake) -> None:
    fake = fake_vllm()
    api = EngineApi(fake.url)

    async def once() -> str:
        stream = api.stream_chat(HI, model="fake", max_tokens=5)
        await _all(stream)
        await api.aclose()
        return stream.text

    assert asyncio.run(once()) == asyncio.run(once()) != ""


@pytest.mark.parametrize("charset", ["utf-16", "idna", "undefined", "zlib"])
async def test_a_page_is_read_as_utf8_whatever_its_header_says(charset: str) -> None:
    page = b"# TYPE x gauge\nx 1.0\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset={charset}\r\nContent-Length: {len(page)}\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + page)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        api = EngineApi(f"HTTP://127.0.0.1:{port}")
        assert await api.metrics(timeout_s=30.0) == page.decode()
        await api.aclose()
