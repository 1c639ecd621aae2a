"""Whether the engine has let a stopped request go, read from how many requests it says it has."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum

_EVERY_S = 0.1
# A request that was stopped before the engine counted it shows nothing, so there is little to wait for.
_UNSEEN_S = 1.5


class Release(StrEnum):
    """What the engine showed after a stream was closed; UNKNOWN when it never counted the request or does not say."""

    LET_GO = "let go"
    KEPT = "kept"
    UNKNOWN = "unknown"


async def watch(count: Callable[[], Awaitable[float | None]], *, before: float | None, limit_s: float = 5.0) -> Release:
    """Watch the engine's number of requests after a stream was closed.

    Args:
        count: reads the requests that the engine runs or holds waiting; None while it does not say.
        before: the number just before the stream was closed.
        limit_s: how long to wait for it to fall.

    Returns:
        LET_GO once the number fell below the largest one seen, KEPT when it did not in time.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    most = before or 0.0
    while True:
        now = await count()
        if now is not None:
            if now < most:
                return Release.LET_GO
            most = now  # the engine may count the request only now: its gauges move when a step ends
        if loop.time() - began_s >= (limit_s if most > 0 else min(limit_s, _UNSEEN_S)):
            return Release.KEPT if most > 0 else Release.UNKNOWN
        await asyncio.sleep(_EVERY_S)
