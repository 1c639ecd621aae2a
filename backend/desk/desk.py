"""Desk: everything the window can ask for, room by room, and the one place that decides when to sample."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend import paths, settings
from backend.control import Control
from backend.desk.chat import Chat
from backend.desk.engines import Engines
from backend.desk.logs import Logs
from backend.desk.profiles import Profiles
from backend.desk.runs import Runs
from backend.desk.types import Event, Reading, SettingsView
from backend.events import RunState, Sample
from backend.launch.supervisor import Supervisor
from backend.telemetry.host import HostReader
from backend.telemetry.sampler import Sampler

log = logging.getLogger(__name__)

_HIDDEN_INTERVAL_S = 5.0
_SECOND_READING_S = 0.5  # rates need two readings, and nobody wants to wait a whole interval for the first


class Desk:
    """What the window holds of the backend.

    Making one is quick and may happen on any thread; its coroutines belong to the backend's event loop.

    Attributes:
        runs, profiles, engines, logs, chat: the rooms.
        settings: the user's settings as they are now.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        """Tell `emit` every event; it is called on the backend's loop and returns at once."""
        self._emit = emit
        self._control = Control()
        self.engines = Engines(emit)
        self.logs = Logs(emit)
        self.runs = Runs(self._control, self.engines, emit)
        self.profiles = Profiles(self._control, self.engines, self.runs)
        self.chat = Chat(self.runs, emit)
        self._visible = True
        self._changing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._sampling: asyncio.Task[None] | None = None

    @property
    def settings(self) -> settings.Settings:
        """The user's settings."""
        return self._control.settings

    async def begin(self) -> None:
        """Take over the engine that an earlier window left running, and sample from now on."""
        self._sampling = asyncio.create_task(self._sample())
        self.runs.on_changed(self._wake.set)
        self.runs.on_changed(self._follow_log)
        await self.chat.load()
        await self.runs.adopt_left_running()

    async def close(self, *, leave_running: bool) -> None:
        """End everything: the engine too, unless it is left running."""
        await self.chat.stop()
        await self.engines.cancel_install()
        if leave_running:
            await self.runs.leave_running()
        else:
            await self.runs.stop()
        await self.logs.close()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait({self._sampling})

    async def set_visible(self, visible: bool) -> None:
        """Sample at the set interval while the window is seen, and seldom while it is not."""
        self._visible = visible
        if visible:
            self._wake.set()

    async def settings_view(self) -> SettingsView:
        """Return settings and folders."""
        folders = paths.folders()
        return SettingsView(
            self.settings.model_dump(),
            {
                "Profiles": folders.profiles,
                "Runs and logs": folders.runs,
                "Engines": folders.engines,
                "Demo models": folders.models,
                "Install and crash logs": folders.logs,
            },
        )

    async def change_settings(self, **values: Any) -> SettingsView:
        """Change some settings and write them down.

        Raises:
            UserError: a value is out of range.
        """
        async with self._changing:  # two changes at once must not undo each other
            changed = settings.changed(self.settings, values)
            await asyncio.to_thread(settings.save, changed)
            self._control.settings = changed
        self._wake.set()
        return await self.settings_view()

    def _follow_log(self) -> None:
        view = self.runs.view()
        self.logs.current_run_changed(view.run_id, Path(view.log_file) if view.log_file else None)

    async def _sample(self) -> None:
        """Read the machine at every tick, and the engine while there is one to read."""
        host = HostReader()
        sampler: Sampler | None = None
        sampled: Supervisor | None = None
        quick = False
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            run = self.runs.readable
            engine: Sample | None = None
            if run is not sampled:
                if run is None:  # a gap, so that no line is drawn over the time without an engine
                    engine = Sample(t=time.time(), interval_s=None, state=RunState.STOPPED)
                sampled, quick = run, True
                sampler = None if run is None else Sampler(run.api, interval_s=self._interval_s)
            if run is not None and sampler is not None:
                sampler.interval_s = self._interval_s
                try:
                    engine = await sampler.read()
                except Exception:  # the charts get a gap, the window goes on
                    log.exception("Reading the engine failed.")
                else:
                    self._observe(run, sampler, engine)
            self._emit(Reading(host.read(), engine))
            self.runs.tell_if_starting()
            step_s = _SECOND_READING_S if quick and run is not None else self._interval_s
            quick = False
            due_s = max(due_s + step_s, loop.time())
            # Not wait_for: on Python 3.11 it loses a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._wake.wait()
                due_s = loop.time()
            self._wake.clear()

    @property
    def _interval_s(self) -> float:
        interval_s = self.settings.sample_interval_s
        return interval_s if self._visible else max(interval_s, _HIDDEN_INTERVAL_S)

    def _observe(self, run: Supervisor, sampler: Sampler, sample: Sample) -> None:
        """Let the supervisor know whether the engine's counters still move."""
        current = sampler.reading if sample.requests_running is not None else None
        run.observe(
            current.counters if current else None,
            requests_outstanding=bool((sample.requests_running or 0) + (sample.requests_waiting or 0)),
        )
