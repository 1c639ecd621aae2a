"""One run of an engine: start or adopt it, know its state, and bring it back to nothing."""

import asyncio
import logging
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from backend.engine_api import EngineApi
from backend.errors import EngineError
from backend.events import Diagnosis, Health, Phase, RunState, RunStatus
from backend.launch import ending, processes
from backend.launch.command import Launch
from backend.launch.diagnosis import diagnose
from backend.launch.engine_log import EngineLog
from backend.launch.run_folder import OwnerLock, RunFolder, RunRecord
from backend.launch.stall import Signs, StallDetector, Verdict
from backend.launch.startup_log import StartupTracker
from backend.settings import Settings

log = logging.getLogger(__name__)

_TICK_S = 0.25
_LOOK_S = 1.0
_EXIT_WAIT_S = 10.0  # after its engine died, the API server ends by itself within some seconds
_SHARED_MEMORY_S = 30.0
_HEALTH_TIMEOUT_S = 5.0
RUNNING = frozenset({RunState.STARTING, RunState.READY, RunState.UNRESPONSIVE})
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
    ) -> None:
        self.folder = folder
        self.record = record
        self.state = RunState.STARTING
        self.diagnosis: Diagnosis | None = None
        self.stalled_s: float | None = None
        self.left_behind = ""
        self.api = EngineApi(record.url, api_key=folder.key())
        self._lock = lock
        self._settings = settings
        self._on_change = on_change
        self._child: subprocess.Popen[bytes] | None = None
        self._log = EngineLog(folder.log_file, limit_bytes=settings.engine_log_limit_bytes)
        self._tracker = StartupTracker(usual)
        self._spawned_s = time.monotonic() - (time.time() - record.created_at)
        self._stall = StallDetector(stall_s=settings.stall_s, now_s=time.monotonic())
        self._health = Health.REFUSED
        self._bad_health = 0
        self._counters: object = None
        self._outstanding = False
        self._looked_s = 0.0
        self._shared_memory_s = 0.0
        self._stop_wanted = False
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._changed = asyncio.Event()
        self._probe_task: asyncio.Task[None] | None = None
        self._main_task: asyncio.Task[None]
        self._health_task: asyncio.Task[None]

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
        record = RunRecord(
            run_id=folder.run_id,
            profile=launch.profile_name,
            environment=launch.environment_id,
            host=launch.host,
            port=launch.port,
            url=launch.url,
            served_model_name=launch.served_model_name,
            argv=list(launch.argv),
            temp_dir=str(temp_dir),
            created_at=time.time(),
            boot_id=processes.boot_id(),
        )
        if launch.api_key is not None:
            folder.write_key(launch.api_key)
        folder.write(record)  # before the spawn: if we die in between, the run id still proves the orphans ours
        try:
            child = await asyncio.to_thread(_spawn, launch, folder)
        except OSError as error:
            record.ended_at, record.state, record.cause = time.time(), RunState.FAILED, str(error)
            folder.write(record)
            lock.release()
            raise EngineError(
                f"The engine's Python could not be started: {error}.",
                "Run `specdeck engines list` to see which environments are sound.",
            ) from error
        stat = processes.read_stat(child.pid)
        record.pid = child.pid
        record.start_ticks = stat.start_ticks if stat else None
        folder.write(record)
        run = cls(folder, record, lock, settings=settings, usual=usual, on_change=on_change)
        run._child = child
        run._watch()
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
        if record is None or record.ended_at is not None or processes.leader(record.identity) is None:
            lock.release()
            return None
        run = cls(folder, record, lock, settings=settings, usual=usual, on_change=on_change)
        if record.ready_at is not None:
            run.state = RunState.READY
        run._watch()
        return run

    def _watch(self) -> None:
        self._health_task = asyncio.create_task(self._ask_health())
        self._main_task = asyncio.create_task(self._main())

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
        return time.monotonic() - self._stall.moved_s

    def status(self) -> RunStatus:
        """Return a snapshot, with the living processes and their memory."""
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
        self._counters = counters
        self._outstanding = requests_outstanding

    # ---- ending ------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Kill at once what a stop still waits for."""
        self._hurry.set()

    async def stop(self) -> RunState:
        """End the run and verify that nothing is left."""
        if self.state in ENDED:
            await self._main_task
            return self.state
        self._stop_wanted = True
        self.folder.request_stop()
        self._wake.set()
        await self._main_task
        return self.state

    async def detach(self) -> None:
        """Stop watching and leave the engine running; another process may adopt it."""
        for task in (self._health_task, self._main_task):
            task.cancel()
        await asyncio.gather(self._health_task, self._main_task, return_exceptions=True)
        if self._child is not None and self._child.poll() is None:
            self._child.returncode = 0  # we will not wait for it, so keep Popen from complaining when it is deleted
        await self.api.aclose()
        self._lock.release()

    # ---- watching ----------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        leader = processes.leader(self.record.identity)
        handle = os.pidfd_open(leader.pid) if leader is not None else None
        loop = asyncio.get_running_loop()
        if handle is not None:
            loop.add_reader(handle, self._wake.set)
        try:
            while not await self._step():
                try:
                    await asyncio.wait_for(self._wake.wait(), _TICK_S)
                except TimeoutError:
                    continue
                self._wake.clear()
        except Exception:
            log.exception("Watching run %s failed; its engine may still run.", self.folder.run_id)
            self.record.cause = "Specdeck made a mistake while it watched this run; the engine may still run."
            self._set(RunState.FAILED)
            raise
        finally:
            self._cancel_questions()
            if handle is not None:
                loop.remove_reader(handle)
                os.close(handle)

    async def _step(self) -> bool:
        """Look once; True when the run has ended."""
        self._read_log()
        if self._stop_wanted or self.folder.stop_requested():
            await self._end(asked=True)
            return True
        if processes.leader_gone(self.record.identity):
            await self._end(asked=False)
            return True
        if self._bad_health >= 2:
            await self._wait_for_exit()
            await self._end(asked=False, health_dead=True)
            return True
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            await self._look()
        return False

    def _read_log(self) -> None:
        text = self._log.read_new()
        if text and self.state is RunState.STARTING:
            before = self._tracker.phases
            self._tracker.feed(text, at_s=self.elapsed_s)
            if self._tracker.phases != before:
                self._on_change(self)

    async def _ask_health(self) -> None:
        while self.state not in ENDED:
            self._health = await self.api.health(timeout_s=_HEALTH_TIMEOUT_S)
            if self._health is Health.OK:
                self._bad_health = 0
                if self.state is RunState.STARTING:
                    await self._become_ready()
            elif self._health in {Health.DEAD, Health.REFUSED} and self.state in RUNNING - {RunState.STARTING}:
                self._bad_health += 1
                self._wake.set()
            await asyncio.sleep(_TICK_S if self.state is RunState.STARTING or self._bad_health else _LOOK_S)

    async def _become_ready(self) -> None:
        stats = await asyncio.to_thread(processes.members, self.record.identity, everywhere=False)
        if not await asyncio.to_thread(processes.listens_on, stats, self.record.port):
            return  # another server sits on the port and gave the answer
        self._note_shared_memory(stats)
        self._read_log()
        self._tracker.finish(at_s=self.elapsed_s)
        if self.record.ready_at is None:
            self.record.ready_at = time.time()
            self.record.phases = [
                (phase.name, (phase.ended_s or phase.started_s) - phase.started_s) for phase in self.phases
            ]
            self.folder.write(self.record)
        self._set(RunState.READY)

    async def _look(self) -> None:
        stats = await asyncio.to_thread(processes.members, self.record.identity, everywhere=False)
        if time.monotonic() - self._shared_memory_s >= _SHARED_MEMORY_S or self.state is RunState.STARTING:
            self._shared_memory_s = time.monotonic()
            self._note_shared_memory(stats)
        inner = [stat for stat in stats if stat.pid != self.record.pid] or stats
        foreign = await asyncio.to_thread(processes.has_foreign_clients, stats, self.record.port)
        signs = Signs(
            now_s=time.monotonic(),
            log_news=self._log.news,
            counters=self._counters,
            cpu_s=sum(stat.cpu_ticks for stat in inner) / processes.CLOCK_TICKS_PER_S,
            processes=len(inner),
            request_outstanding=self._outstanding or self.api.open_streams > 0,
            suspicious=foreign or self._health is Health.TIMEOUT or any(stat.state in "TtD" for stat in inner),
        )
        still_before_s = self.silent_s
        verdict = self._stall.look(signs)
        if self.state is RunState.STARTING:
            return
        if verdict is Verdict.PROBE and self._probe_task is None:
            self._probe_task = asyncio.create_task(self._probe())
        if verdict is Verdict.STALLED:
            self.stalled_s = self.silent_s
            self._set(RunState.UNRESPONSIVE)
        elif verdict is Verdict.FINE and self.state is RunState.UNRESPONSIVE:
            self.stalled_s = still_before_s
            self._set(RunState.READY)

    async def _probe(self) -> None:
        """Ask a silent engine for one token."""
        limit_s = self._settings.probe_timeout_s
        answered = await self.api.probe(self.record.served_model_name, timeout_s=limit_s)
        self._stall.probe_answered(answered=answered, now_s=time.monotonic())
        self._probe_task = None

    def _note_shared_memory(self, stats: list[processes.Stat]) -> None:
        names = processes.shared_memory_of(stats) | set(self.record.shared_memory)
        if names != set(self.record.shared_memory):
            self.record.shared_memory = sorted(names)
            self.folder.write(self.record)

    async def _wait_for_exit(self) -> None:
        """Give an API server whose engine died the time to end by itself, so that its exit status is known."""
        deadline = time.monotonic() + _EXIT_WAIT_S
        while time.monotonic() < deadline and not processes.leader_gone(self.record.identity):
            if self._stop_wanted:
                return
            await asyncio.sleep(_TICK_S)

    async def _end(self, *, asked: bool, health_dead: bool = False) -> None:
        """Climb down the stop ladder and write down how the run ended."""
        if asked:
            self._set(RunState.STOPPING)
        self._cancel_questions()
        await self.api.close_streams()
        self._note_shared_memory(await asyncio.to_thread(processes.members, self.record.identity, everywhere=False))
        left = await ending.end_processes(
            self.record.identity, grace_s=self._settings.stop_grace_s, hurry=self._hurry, reap=self._reap
        )
        self.left_behind = ending.unkillable_words(left)
        if not left:
            await asyncio.to_thread(
                ending.remove_files, shared_memory=self.record.shared_memory, temp_dir=Path(self.record.temp_dir)
            )
        status = self._reap()
        self._read_log()
        asked = asked or self.folder.stop_requested()
        if not asked:
            self.diagnosis = diagnose(await asyncio.to_thread(self._log.lines), status=status, health_dead=health_dead)
            self.record.cause, self.record.cause_line = self.diagnosis.cause, self.diagnosis.log_line
            self.record.exit_words = self.diagnosis.exit_words
        self.record.ended_at = time.time() if not left else None
        self._tracker.finish(at_s=self.elapsed_s)
        await self.api.aclose()
        self._write(RunState.STOPPED if asked else RunState.FAILED)
        self._lock.release()
        self._set(RunState.STOPPED if asked else RunState.FAILED)

    def _cancel_questions(self) -> None:
        self._health_task.cancel()
        if self._probe_task is not None:
            self._probe_task.cancel()

    def _reap(self) -> int | None:
        return self._child.poll() if self._child is not None else None

    def _set(self, state: RunState) -> None:
        if state is self.state:
            return
        if self.record.state != state:
            self._write(state)
        self.state = state
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change(self)

    def _write(self, state: RunState) -> None:
        self.record.state = state
        self.folder.write(self.record)


def _spawn(launch: Launch, folder: RunFolder) -> subprocess.Popen[bytes]:
    """Start the engine in a session of its own, writing into the run's log, never into a pipe: it outlives us."""
    handle = os.open(folder.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            launch.argv,
            env=dict(launch.env),
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(handle)
