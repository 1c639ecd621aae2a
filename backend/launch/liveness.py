"""Asks a running engine how it is: `/health`, and whether anything in it still moves."""

import asyncio
import logging
import time

from backend.engine_api import EngineApi
from backend.events import Health
from backend.launch import processes
from backend.launch.engine_log import EngineLog
from backend.launch.processes import Identity, Stat
from backend.launch.stall import Signs, StallDetector, Verdict
from backend.settings import Settings

log = logging.getLogger(__name__)

_HEALTH_TIMEOUT_S = 5.0
_RESCAN_S = 5.0
_BAD_ANSWERS = 2  # one refusal may be an accident


class Liveness:
    """Watches one engine; belongs to the event loop that calls it.

    Attributes:
        health: the newest answer of `/health`; `was_asked` tells whether there was one.
        stats: the engine's processes as last seen.
    """

    def __init__(
        self, identity: Identity, *, port: int, model: str, api: EngineApi, engine_log: EngineLog, settings: Settings
    ) -> None:
        self.health = Health.REFUSED
        self.was_asked = False
        self.stats: list[Stat] = []
        self._identity = identity
        self._port = port
        self._model = model
        self._api = api
        self._log = engine_log
        self._settings = settings
        self._stall = StallDetector(stall_s=settings.stall_s, now_s=time.monotonic())
        self._bad_answers = 0
        self._scanned_s = 0.0
        self._counters: object = None
        self._outstanding = False
        self._clients: frozenset[object] = frozenset()
        self._probe: asyncio.Task[None] | None = None

    @property
    def silent_s(self) -> float:
        """Seconds without any movement of log, counters and CPU."""
        return time.monotonic() - self._stall.moved_s

    @property
    def is_dead(self) -> bool:
        """Whether an engine that was ready says that it is dead, or no longer listens."""
        return self._bad_answers >= _BAD_ANSWERS

    @property
    def seems_dead(self) -> bool:
        """Whether the newest answer was a bad one."""
        return self._bad_answers > 0

    def observe(self, counters: object, *, requests_outstanding: bool) -> None:
        """Take what the sampler read from /metrics: a value that changes with the counters, None if no answer."""
        self._counters = counters
        self._outstanding = requests_outstanding

    async def ask_health(self) -> Health:
        """Ask `/health` once."""
        self.health = await self._api.health(timeout_s=_HEALTH_TIMEOUT_S)
        self.was_asked = True
        self._bad_answers = self._bad_answers + 1 if self.health in {Health.DEAD, Health.REFUSED} else 0
        return self.health

    async def listens(self) -> bool:
        """Whether the engine itself listens on its port: another server may sit there and answer."""
        self.stats = await asyncio.to_thread(processes.members, self._identity, everywhere=False)
        return await asyncio.to_thread(processes.listens_on, self.stats, self._port)

    async def look(self) -> Verdict:
        """Look at log, counters and CPU once; call it about once a second."""
        await self._refresh()
        inner = [stat for stat in self.stats if stat.pid != self._identity.session] or self.stats
        return self._stall.look(
            Signs(
                now_s=time.monotonic(),
                log_news=self._log.news,
                counters=self._counters,
                cpu_s=sum(stat.cpu_ticks for stat in inner) / processes.CLOCK_TICKS_PER_S,
                processes=len(inner),
                request_outstanding=self._outstanding or self._api.open_streams > 0,
                suspicious=await self._is_suspicious(inner),
            )
        )

    def probe(self) -> None:
        """Ask for one token in the background, unless that is under way."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._ask_for_a_token())

    def close(self) -> None:
        """Give up what is under way."""
        if self._probe is not None:
            self._probe.cancel()

    async def _refresh(self) -> None:
        """Read the known processes again; look through all of /proc only now and then, or when one is gone."""
        now_s = time.monotonic()
        if now_s - self._scanned_s < _RESCAN_S and self.stats:
            known = [processes.read_stat(stat.pid) for stat in self.stats]
            if all(
                new is not None and new.start_ticks == old.start_ticks
                for new, old in zip(known, self.stats, strict=True)
            ):
                self.stats = [stat for stat in known if stat is not None]
                return
        self._scanned_s = now_s
        self.stats = await asyncio.to_thread(processes.members, self._identity, everywhere=False)

    async def _is_suspicious(self, inner: list[Stat]) -> bool:
        """Whether something speaks for a request that the engine cannot count; costly, so only for a still one."""
        if self.silent_s < self._settings.stall_s / 2:
            return False
        if self.health is Health.TIMEOUT or any(stat.state in "TtD" for stat in inner):
            return True
        before = self._clients
        self._clients = await asyncio.to_thread(processes.foreign_clients, self.stats, self._port)
        return bool(before & self._clients)  # one that only asks for /metrics is gone by the next look

    async def _ask_for_a_token(self) -> None:
        answered = await self._api.probe(self._model, timeout_s=self._settings.probe_timeout_s)
        self._stall.probe_answered(answered=answered, now_s=time.monotonic())
