"""The one HTTP and SSE client of an engine: health, metrics, models, and streamed chat."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from backend.engine_stream import CONNECT_S, ChatStream, not_an_engine, refusal, unreachable
from backend.errors import EngineUnreachableError, UsageError
from backend.events import Health

# A stream may be silent while a long prompt is read; longer than this is a hang, whatever the model.
_SILENCE_S = 600.0
# Shorter than the 5 s of vLLM's server, so that we never send into a connection that it is just closing.
_KEEP_ALIVE_S = 2.0


class EngineApi:
    """Talks to one engine; belongs to the asyncio loop that first uses it, until `aclose`.

    Args:
        url: base address, with or without "/v1" at its end.
        api_key: key that requests must carry, None if the engine asks for none.
    """

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        try:
            parsed = httpx2.URL(url)
        except httpx2.InvalidURL:
            parsed = httpx2.URL("")
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise UsageError(f"{url!r} is not an engine's address.", "It looks like http://127.0.0.1:8000.")
        self.url = str(parsed).rstrip("/").removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client: httpx2.AsyncClient | None = None
        self._streams: set[ChatStream] = set()

    @property
    def open_streams(self) -> int:
        """Chat streams that the engine is still answering."""
        return sum(1 for stream in self._streams if stream.is_open)

    async def health(self, *, timeout_s: float = 2.0) -> Health:
        """Ask `/health`; never raises for anything an engine or its absence can do."""
        try:
            response = await self._send("GET", "/health", timeout_s=timeout_s)
        except EngineUnreachableError as error:
            return Health.REFUSED if error.refused else Health.TIMEOUT
        if response.status_code == 200:
            return Health.OK
        return Health.DEAD if response.status_code >= 500 else Health.ABSENT

    async def metrics(self, *, timeout_s: float = 2.0) -> str:
        """Return the text of `/metrics`.

        Raises:
            EngineUnreachableError: nothing listens, no answer in time, or a broken connection.
            EngineError: an answer that is no metrics page.
        """
        return (await self._ask("GET", "/metrics", timeout_s=timeout_s)).content.decode("utf-8", errors="replace")

    async def version(self, *, timeout_s: float = 2.0) -> str | None:
        """Return the engine's vLLM version, None if it does not say; raises as `metrics`."""
        answer = _as_object(await self._ask("GET", "/version", timeout_s=timeout_s))
        version = answer.get("version")
        return version if isinstance(version, str) else None

    async def models(self, *, timeout_s: float = 5.0) -> tuple[str, ...]:
        """Return the names that requests can use; raises as `metrics`."""
        cards = _as_object(await self._ask("GET", "/v1/models", timeout_s=timeout_s)).get("data")
        if not isinstance(cards, list):
            raise not_an_engine(self.url, "/v1/models")
        return tuple(str(card["id"]) for card in cards if isinstance(card, dict) and "id" in card)

    async def probe(self, model: str, *, timeout_s: float) -> bool:
        """Have the engine make one token, the only proof that it works; True if it did within `timeout_s`.

        An engine that refuses the request itself (wrong key, unknown model) was not tested and counts as working;
        one that fails at it, does not answer in time or is not there gives False.
        """
        # One token id needs no tokenizer; every vocabulary has a token 1.
        body = {"model": model, "prompt": [1], "max_tokens": 1, "temperature": 0}
        try:
            response = await self._send("POST", "/v1/completions", body=body, timeout_s=timeout_s)
        except EngineUnreachableError:
            return False
        return response.status_code < 500

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        model: str,
        max_tokens: int | None = None,
        temperature: float | None = None,
        silence_s: float = _SILENCE_S,
        extra: dict[str, Any] | None = None,
    ) -> ChatStream:
        """Ask for an answer; nothing is sent before the returned stream is entered with `async with`.

        Args:
            messages: the conversation, each with "role" and "content".
            model: name the engine serves.
            max_tokens: longest answer, None for the engine's own limit.
            temperature: None for the model's own default.
            silence_s: give up when the engine sends nothing for so long.
            extra: further fields of the request, for example {"ignore_eos": True}.
        """
        body: dict[str, Any] = {
            "model": model,
            "messages": [dict(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **(extra or {}),
        }
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        if temperature is not None:
            body["temperature"] = temperature
        return ChatStream(self._open, body, url=self.url, silence_s=silence_s, registry=self._streams)

    async def close_streams(self) -> None:
        """End every open chat stream; their readers see the end of the answer, not an error."""
        for stream in tuple(self._streams):
            await stream.aclose()

    async def aclose(self) -> None:
        """Close streams and connections; the object can be used again afterwards, on any loop."""
        await self.close_streams()
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                base_url=self.url,
                headers=self._headers,
                verify=self.url.startswith("https:"),  # reading certificates takes 0.1 s, and http needs none
                trust_env=False,  # a proxy from the environment must not see requests to this machine
                timeout=httpx2.Timeout(_SILENCE_S, connect=CONNECT_S),
                limits=httpx2.Limits(max_connections=None, keepalive_expiry=_KEEP_ALIVE_S),
            )
        return self._client

    async def _send(
        self, method: str, path: str, *, timeout_s: float, body: dict[str, Any] | None = None
    ) -> httpx2.Response:
        """Send one request with a limit for all of it; errors of the connection become words."""
        try:
            async with asyncio.timeout(timeout_s):
                # A new connection for each question shows whether the port still takes one: a server that stopped
                # listening may go on answering on the connections it has.
                close = {"connection": "close"} if method == "GET" else None
                return await self._open().request(method, path, json=body, headers=close)
        except (TimeoutError, httpx2.HTTPError) as error:
            raise unreachable(self.url, error, limit_s=timeout_s) from error

    async def _ask(
        self, method: str, path: str, *, timeout_s: float, body: dict[str, Any] | None = None
    ) -> httpx2.Response:
        response = await self._send(method, path, timeout_s=timeout_s, body=body)
        if response.status_code != 200:
            raise refusal(self.url, path, response)
        return response


def _as_object(response: httpx2.Response) -> dict[str, Any]:
    """The body as a JSON object, an empty one if it is anything else."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
