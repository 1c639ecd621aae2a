"""One run of an engine: start or adopt it, know its state, and bring it back to nothing."""

import asyncio
import contextlib
import logging
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

from backend.engine_api import EngineApi
from backend.events import Diagnosis, Health, Phase, RunState, RunStatus
from backend.launch import ending, processes
from backend.launch.command import Launch
from backend.launch.diagnosis import diagnose
from backend.launch.engine_log import EngineLog
from backend.launch.liveness import Liveness
from backend.launch.run_folder import OwnerLock, RunFolder, RunRecord
from backend.launch.spawn import spawn
from backend.launch.stall import Verdict
from backend.launch.startup_log import StartupTracker
from backend.settings import Settings

log = logging.getLogger(__name__)

_TICK_S = 0.25
_READY_TICK_S = 0.5  # its end is no tick's matter: the pidfd tells
_LOOK_S = 1.0
_LISTEN_S = 10.0  # from "startup complete" to the port; it takes milliseconds
_EXIT_WAIT_S = 10.0  # after its engine died, the API server ends by itself within some seconds
_SHARED_MEMORY_S = 30.0
ENDED = frozenset({RunState.STOPPED, RunState.FAILED})


class Supervisor:
    """Owns one run: holds its lock, watches it, and ends it.

    Every method belongs to the event loop on which the run was started or adopted. `on_change` is called there,
    after each change of the state and each new phase, and must return at once.

    Attributes:
        state: where the run is.
        diagnosis: why it failed, None unless FAILED.
        stalled_s: length of the last stall in seconds, None if there was none.
        left_behind: what could not be ended, in words; "" normally.
    """

    def __init__(
        self,
        folder: RunFolder,
        record: RunRecord,
        lock: OwnerLock,
        *,
        settings: Settings,
        usual: dict[str, float],
        on_change: "Callable[[Supervisor], None]",
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.folder = folder
        self.record = record
        self.state = RunState.STARTING if record.ready_at is None else RunState.READY
        self.diagnosis: Diagnosis | None = None
        self.stalled_s: float | None = None
        self.left_behind = ""
        self.api = EngineApi(record.url, api_key=folder.key())
        self._lock = lock
        self._settings = settings
        self._on_change = on_change
        self._child = child
        self._log = EngineLog(folder.log_file, limit_bytes=settings.engine_log_limit_bytes)
        self._tracker = StartupTracker(usual)
        self._spawned_s = time.monotonic() - (time.time() - record.created_at)
        self._live = Liveness(
            record.identity,
            port=record.port,
            model=record.served_model_name,
            api=self.api,
            engine_log=self._log,
            settings=settings,
        )
        self._looked_s = self._shared_memory_s = 0.0
        self._up_s = time.monotonic()  # an adopted server may have said just now that it is up
        self._stop_wanted = False
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._changed = asyncio.Event()
        self._health_task = asyncio.create_task(self._ask_health())
        self._main_task = asyncio.create_task(self._main())

    # ---- beginning -------------------------------------------------------------------------------------------

    @classmethod
    async def start(
        cls,
        folder: RunFolder,
        launch: Launch,
        *,
        temp_dir: Path,
        settings: Settings,
        usual: dict[str, float],
        on_change: "Callable[[Supervisor], None]",
    ) -> Self:
        """Spawn the engine and watch it; returns at once, in state STARTING.

        Raises:
            EngineError: the interpreter could not be run.
        """
        lock = folder.take_ownership()
        assert lock is not None, "a new run has no other owner"
        try:
            record, child = await asyncio.to_thread(spawn, folder, launch, temp_dir=temp_dir)
        except BaseException:
            lock.release()
            raise
        run = cls(folder, record, lock, settings=settings, usual=usual, on_change=on_change, child=child)
        run._write()
        return run

    @classmethod
    async def adopt(
        cls,
        folder: RunFolder,
        *,
        settings: Settings,
        usual: dict[str, float],
        on_change: "Callable[[Supervisor], None]",
    ) -> Self | None:
        """Supervise a run whose owner is gone; None if it has an owner, or no API server to adopt."""
        lock = folder.take_ownership()
        if lock is None:
            return None
        record = folder.record()
        if record is None or record.ended_at is not None or processes.leader_gone(record.identity):
            lock.release()
            return None
        return cls(folder, record, lock, settings=settings, usual=usual, on_change=on_change)

    # ---- what others see ---------------------------------------------------------------------------------------

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The start-up so far."""
        return self._tracker.phases

    @property
    def elapsed_s(self) -> float:
        """Seconds since the spawn."""
        return time.monotonic() - self._spawned_s

    @property
    def silent_s(self) -> float:
        """Seconds without any movement of log, counters and CPU: tells busy from stuck."""
        return self._live.silent_s

    @property
    def health(self) -> Health | None:
        """The newest answer of `/health`, None before the first."""
        return self._live.health if self._live.was_asked else None

    @property
    def was_spawned_here(self) -> bool:
        """Whether this supervisor spawned the engine; False for an adopted one."""
        return self._child is not None

    def status(self) -> RunStatus:
        """Return a snapshot, with the living processes and their memory. Blocking for some milliseconds."""
        return RunStatus(
            run_id=self.folder.run_id,
            profile=self.record.profile,
            state=self.state,
            url=self.record.url,
            started_at=self.record.created_at,
            owner_pid=os.getpid(),
            processes=processes.describe(processes.members(self.record.identity, everywhere=False)),
            cause=self.record.cause,
            exit_words=self.record.exit_words,
            phases=self.phases,
            stalled_s=self.stalled_s,
        )

    async def until(self, states: frozenset[RunState]) -> RunState:
        """Wait until the run is in one of `states`, and return which."""
        while self.state not in states:
            changed = self._changed
            await changed.wait()
        return self.state

    def observe(self, counters: object, *, requests_outstanding: bool) -> None:
        """Take what the sampler read from /metrics: a value that changes with the counters, None if no answer."""
        self._live.observe(counters, requests_outstanding=requests_outstanding)

    # ---- ending ------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Kill at once what a stop still waits for."""
        self._hurry.set()

    async def stop(self) -> RunState:
        """End the run and verify that nothing is left."""
        self._stop_wanted = True
        with contextlib.suppress(OSError):  # a full disk must not keep an engine alive
            self.folder.request_stop()
        self._wake.set()
        await asyncio.wait({self._main_task})
        if self.record.ended_at is None and not self.left_behind:  # the watching itself broke
            await self._end(asked=True)
        return self.state

    async def detach(self) -> None:
        """Stop watching and leave the engine running; another process may adopt it."""
        for task in (self._health_task, self._main_task):
            task.cancel()
        await asyncio.wait({self._health_task, self._main_task})
        if self._child is not None and self._child.poll() is None:
            self._child.returncode = 0  # we will not wait for it, so keep Popen from complaining when it is deleted
        await self.api.aclose()
        self._lock.release()

    # ---- watching ----------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        handle = -1
        with contextlib.suppress(OSError):  # without it the end is seen at the next tick
            if not processes.leader_gone(self.record.identity):
                handle = os.pidfd_open(self.record.pid or 0)
                loop.add_reader(handle, self._wake.set)
        try:
            while not await self._step():
                # Not wait_for: on Python 3.11 it loses a cancellation that comes together with the event.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_S if self.state is RunState.STARTING else _READY_TICK_S):
                        await self._wake.wait()
                    self._wake.clear()
        except Exception:
            log.exception("Watching run %s failed; its engine may still run.", self.folder.run_id)
            self.record.cause = "Specdeck made a mistake while it watched this run; the engine may still run."
            self._set(RunState.FAILED)
        finally:
            self._health_task.cancel()
            self._live.close()
            if handle >= 0:
                loop.remove_reader(handle)
                os.close(handle)

    async def _step(self) -> bool:
        """Look once; True when the run has ended."""
        self._read_log()
        if self._is_stop_wanted():
            await self._end(asked=True)
            return True
        if processes.leader_gone(self.record.identity):
            await self._end(asked=False)
            return True
        if self.state is RunState.STARTING and await self._lost_its_port():
            await self._end(asked=False, cause=f"Port {self.record.port} was taken while the engine loaded.")
            return True
        if self.state is not RunState.STARTING and self._live.is_dead:
            await self._wait_for_exit()
            await self._end(asked=False, health_dead=True)
            return True
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            await self._look()
        return False

    async def _lost_its_port(self) -> bool:
        """Whether the server says that it is up but does not listen.

        VLLM binds its port early and listens only after loading; when another server was quicker, it hangs.
        """
        if not self._tracker.is_up:
            self._up_s = time.monotonic()
        return time.monotonic() - self._up_s > _LISTEN_S and not await self._live.listens()

    def _is_stop_wanted(self) -> bool:
        return self._stop_wanted or self.folder.stop_requested()

    def _read_log(self) -> None:
        text = self._log.read_new()
        if text and self.state is RunState.STARTING:
            before = self._tracker.phases
            self._tracker.feed(text, at_s=self.elapsed_s)
            if self._tracker.phases != before:
                self._tell()

    async def _ask_health(self) -> None:
        while True:
            health = await self._live.ask_health()
            starting = self.state is RunState.STARTING
            if starting and health is Health.OK and await self._live.listens():
                self._become_ready()
            if self._live.is_dead and not starting:
                self._wake.set()
            await asyncio.sleep(_TICK_S if starting or self._live.seems_dead else _LOOK_S)

    def _become_ready(self) -> None:
        self._read_log()
        self._tracker.finish(at_s=self.elapsed_s)
        self._note_shared_memory()
        self.record.ready_at = time.time()
        if self.was_spawned_here:  # else the times of the phases are not known
            self.record.phases = [
                (phase.name, (phase.ended_s or phase.started_s) - phase.started_s) for phase in self.phases
            ]
        self._set(RunState.READY)

    async def _look(self) -> None:
        verdict = await self._live.look()
        if self.state is RunState.STARTING or time.monotonic() - self._shared_memory_s >= _SHARED_MEMORY_S:
            self._note_shared_memory()
        if self.state is RunState.STARTING:
            return
        if verdict is Verdict.PROBE:
            self._live.probe()
        elif verdict is Verdict.STALLED:
            self.record.stalled_s = self.stalled_s = self._live.silent_s
            self._set(RunState.UNRESPONSIVE)
        elif self.state is RunState.UNRESPONSIVE:
            self._set(RunState.READY)

    def _note_shared_memory(self) -> None:
        """Remember what must be removed should the engine be killed: then nobody else does it."""
        self._shared_memory_s = time.monotonic()
        if self.record.note_shared_memory(self._live.stats):
            self._write()

    async def _wait_for_exit(self) -> None:
        """Give an API server whose engine died the time to end by itself, so that its exit status is known."""
        deadline = time.monotonic() + _EXIT_WAIT_S
        while time.monotonic() < deadline and not processes.leader_gone(self.record.identity):
            if self._is_stop_wanted():
                return
            await asyncio.sleep(_TICK_S)

    async def _end(self, *, asked: bool, health_dead: bool = False, cause: str = "") -> None:
        """Climb down the stop ladder and write down how the run ended; `cause` if that is known."""
        if asked:
            self._set(RunState.STOPPING)
        self._health_task.cancel()
        self._live.close()
        await self.api.close_streams()
        self._live.stats = await asyncio.to_thread(processes.members, self.record.identity)
        self._note_shared_memory()
        left = await ending.end_processes(
            self.record.identity,
            grace_s=self._settings.stop_grace_s,
            hurry=self._hurry,
            reap=self._reap,
            note=self.record.note_shared_memory,
        )
        self.left_behind = ending.unkillable_words(left)
        status = self._reap()
        if not left:
            self.record.ended_at = time.time()
            memory, temp_dir = self.record.shared_memory, Path(self.record.temp_dir)
            await asyncio.to_thread(ending.remove_files, shared_memory=memory, temp_dir=temp_dir)
        self._tracker.finish(at_s=self.elapsed_s)
        asked = asked or self.folder.stop_requested()
        if not asked:
            found = await asyncio.to_thread(self._diagnose, status, health_dead=health_dead)
            self.diagnosis = Diagnosis(cause) if cause else found
            self.record.cause, self.record.cause_line = self.diagnosis.cause, self.diagnosis.log_line
            self.record.exit_words = self.diagnosis.exit_words
        await self.api.aclose()
        self.record.state = RunState.STOPPED if asked else RunState.FAILED
        self._write()
        self._lock.release()
        self._set(self.record.state)

    def _diagnose(self, status: int | None, *, health_dead: bool) -> Diagnosis:
        lines, is_whole = self._log.lines()
        found = diagnose(lines, status=status, health_dead=health_dead)
        return found if is_whole else replace(found, log_line=None)

    def _reap(self) -> int | None:
        return self._child.poll() if self._child is not None else None

    def _set(self, state: RunState) -> None:
        if state is self.state:
            return
        self.state = state
        self._changed.set()
        self._changed = asyncio.Event()
        if self.record.state is not state:
            self.record.state = state
            self._write()
        self._tell()

    def _tell(self) -> None:
        """Call the front end; its mistakes must not end the watching."""
        try:
            self._on_change(self)
        except Exception:
            log.exception("A front end failed to take a change of run %s.", self.folder.run_id)

    def _write(self) -> None:
        """Write the record; a full disk must not end the watching."""
        try:
            self.folder.write(self.record)
        except OSError as error:
            log.warning("The record of run %s could not be written: %s", self.folder.run_id, error)
