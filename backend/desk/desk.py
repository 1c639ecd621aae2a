"""Desk: everything the window can ask for, room by room, and the one place that decides when to sample."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from backend import paths, settings
from backend.control import Control
from backend.desk.calibration import CalibrationRoom
from backend.desk.chat import Chat
from backend.desk.engines import Engines
from backend.desk.gpus import GpuRoom
from backend.desk.history import PastRuns
from backend.desk.logs import Logs
from backend.desk.profiles import Profiles
from backend.desk.runs import Runs
from backend.desk.traffic import Traffic
from backend.desk.types import Event, Reading, SettingsView
from backend.events import RunState, Sample
from backend.launch.supervisor import Supervisor
from backend.telemetry.host import HostReader
from backend.telemetry.sampler import Sampler

log = logging.getLogger(__name__)

_HIDDEN_INTERVAL_S = 5.0
_LEAST_GAP_S = 0.25
_SECOND_READING_S = 0.5  # rates need two readings, and nobody wants to wait a whole interval for the first


class Desk:
    """What the window holds of the backend.

    Making one is quick and may happen on any thread; its coroutines belong to the backend's event loop.

    Attributes:
        runs, profiles, engines, logs, chat, gpus, calibration, history: the rooms.
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
        self.history = PastRuns(self._control, emit)
        self.chat = Chat(self.runs, emit, on_question=lambda: self.history.mark("chat", "chat"))
        self.calibration = CalibrationRoom(self._control, emit)
        self.gpus = GpuRoom(self.runs, self.settings)
        self._traffic = Traffic(self.runs)
        self._visible = True
        self._changing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._sampling: asyncio.Task[None] | None = None
        self._host = HostReader()
        self._sampled: Supervisor | None = None
        self._sampler: Sampler | None = None

    @property
    def settings(self) -> settings.Settings:
        """The user's settings."""
        return self._control.settings

    async def begin(self) -> None:
        """Take over the engine that an earlier window left running, and sample from now on."""
        await self.history.begin()
        self._sampling = asyncio.create_task(self._sample())
        self.runs.on_changed(lambda: self.history.follow(self.runs.view()))
        self.runs.on_changed(self._on_run_changed)
        self.runs.on_changed(self._follow_log)
        await self.chat.load()
        await self.runs.adopt_left_running()
        if self.runs.readable is None:
            await self.gpus.start()

    async def close(self, *, leave_running: bool) -> None:
        """End everything: the engine too, unless it is left running. Trouble with one part does not keep the others."""
        stages: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
            ("the checks", self.profiles.close),
            ("the installs", self.engines.close),
            ("the calibration", self.calibration.close),
            ("the engine", self.runs.leave_running if leave_running else self.runs.stop),
            ("the chat", self.chat.stop),
            ("the log", self.logs.close),
            ("the sampling", self._end_sampling),
            ("the reading of models", self._traffic.close),
            ("the reading of GPUs", self.gpus.close),
            ("the recording", self.history.close),
        ]
        for what, stage in stages:
            try:
                await stage()
            except Exception:
                log.exception("Ending %s failed.", what)

    async def _end_sampling(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait({self._sampling})

    async def set_visible(self, visible: bool) -> None:
        """Sample at the set interval while the window is seen, and seldom while it is not."""
        shown_again = visible and not self._visible
        self._visible = visible
        self.gpus.set_visible(visible)
        if shown_again:
            self._wake.set()

    async def show_activity(self, shown: bool) -> None:
        """Measure what is inside GPUs (memory bandwidth, activity of units) only while its charts are seen."""
        self.gpus.show_activity(shown)

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
            before, changed = self.settings, settings.changed(self.settings, values)
            await asyncio.to_thread(settings.save, changed)
            self._control.settings = changed
            self.gpus.change_settings(changed)
        if changed.sample_interval_s < before.sample_interval_s:
            self._wake.set()
        return await self.settings_view()

    def _follow_log(self) -> None:
        view = self.runs.view()
        self.logs.current_run_changed(view.run_id, Path(view.log_file) if view.log_file else None)

    def _on_run_changed(self) -> None:
        """Read an engine as soon as it can be read, and show its end at once; nothing else disturbs the pace."""
        if self.runs.readable is not self._sampled:
            self._wake.set()

    async def _sample(self) -> None:
        """Read the machine at every tick, and the engine while there is one to read."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            began_s = loop.time()
            is_new = self.runs.readable is not self._sampled
            try:
                await self._read()
            except Exception:  # the charts get a gap, the window and the next reading go on
                log.exception("A reading failed.")
            step_s = _SECOND_READING_S if is_new and self._sampled is not None else self._interval_s
            due_s = max(due_s + step_s, began_s + _LEAST_GAP_S)
            # Not wait_for: on Python 3.11 it loses a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._wake.wait()
                due_s = loop.time()
            self._wake.clear()
            await asyncio.sleep(began_s + _LEAST_GAP_S - loop.time())  # rates over less say little
            due_s = max(due_s, loop.time() - self._interval_s)

    async def _read(self) -> None:
        run = self.runs.readable
        engine: Sample | None = None
        if run is not self._sampled:
            if run is None:  # a gap, so that no line is drawn over the time without an engine
                engine = Sample(t=time.time(), interval_s=None, state=RunState.STOPPED)
            self._sampled = run
            self._sampler = None
            if run is not None:
                self._sampler = Sampler(run.api, interval_s=self._interval_s, known_health=lambda: run.health)
        if run is not None and self._sampler is not None:
            self._sampler.interval_s = self._interval_s
            engine = await self._sampler.read()
            self._control.observe(run, self._sampler, engine)
        host, gpus, verdict = self._host.read(), self.gpus.newest(), None
        if run is not None and engine is not None and self._sampler is not None:
            engine, verdict = self._traffic.complete(run.folder.run_id, self._sampler, engine, gpus)
        self._emit(Reading(host, engine, gpus, verdict, self.history.take(host, engine, gpus)))
        if run is not None:
            await self.gpus.start()  # only now: nothing may delay the first figures of an engine
        self.runs.tell_if_starting()

    @property
    def _interval_s(self) -> float:
        interval_s = self.settings.sample_interval_s
        return interval_s if self._visible else max(interval_s, _HIDDEN_INTERVAL_S)
