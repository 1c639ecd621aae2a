"""The current run: from a wish to start to a running engine, over to another window, and back to nothing."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from backend import asyncio_tasks
from backend.control import Control
from backend.desk.engines import Engines
from backend.desk.preparation import JOB, Preparation
from backend.desk.types import Event, JobProgress, LeftoverView, RunView, StartAnswer
from backend.errors import UserError
from backend.events import Diagnosis, RunState
from backend.launch.profile import Profile
from backend.launch.supervisor import ENDED, Supervisor

log = logging.getLogger(__name__)
T = TypeVar("T")


class Runs:
    """Holds the one run that the window works with.

    A start or a take-over claims the place before anything else, so two of them never meet.

    Attributes:
        current: its supervisor; None before the first, and after an engine was left running.
    """

    def __init__(self, control: Control, engines: Engines, emit: Callable[[Event], None]) -> None:
        self._control = control
        self._engines = engines
        self._emit = emit
        self._listeners: list[Callable[[], None]] = []
        self.current: Supervisor | None = None
        self._profile: Profile | None = None  # of `current`, as it was when that was started
        self._engine_words = ""
        self._restart_needed = False
        self._busy: asyncio.Task[Any] | None = None  # a start that is prepared, or a take-over
        self._spawning: asyncio.Task[Supervisor] | None = None
        self._before_spawn: RunView | None = None  # shown instead of `current` while a start is prepared or refused
        self._preparation = Preparation(control, engines, self._show)
        self._comparing: set[asyncio.Task[None]] = set()

    # ---- what others see -------------------------------------------------------------------------------------

    @property
    def readable(self) -> Supervisor | None:
        """The run whose server answers, None when there is none."""
        run = self.current
        return run if run is not None and run.state in (RunState.READY, RunState.UNRESPONSIVE) else None

    @property
    def started_profile(self) -> Profile | None:
        """The profile of the current run as it was started; None when that is not known."""
        return self._profile

    @property
    def on_cpu(self) -> bool:
        """Whether the current run's engine is vLLM's CPU build."""
        return self._engine_words.startswith("vllm-cpu")

    @property
    def _is_live(self) -> bool:
        return self.current is not None and self.current.state not in ENDED

    def on_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop after every change."""
        self._listeners.append(listener)

    def view(self) -> RunView:
        """Return the run as it is now."""
        if self._before_spawn is not None:
            return self._before_spawn
        run = self.current
        if run is None:
            return RunView()
        record, profile = run.record, self._profile
        return RunView(
            state=run.state,
            profile=record.profile,
            title=profile.shown_title if profile else record.profile,
            run_id=run.folder.run_id,
            url=f"{record.url}/v1",
            model=record.served_model_name,
            engine=self._engine_words,
            log_file=run.folder.log_file,
            started_at=record.created_at,
            ready_at=record.ready_at,
            ended_at=record.ended_at,
            phases=run.phases,
            activity="Ending the engine's processes" if run.state is RunState.STOPPING else "",
            silent_s=run.silent_s,
            stalled_s=run.stalled_s,
            diagnosis=run.diagnosis,
            left_behind=run.left_behind,
            restart_needed=self._restart_needed and run.state not in ENDED,
            measured_note=_measured_note(profile),
            memory_utilisation=None if self.on_cpu else _memory_utilisation(profile),
            prompt=profile.demo.prompt.strip() if profile and profile.demo else "",
        )

    def tell(self) -> None:
        """Tell the window and the other rooms how the run is."""
        self._emit(self.view())
        for listener in self._listeners:
            listener()

    def tell_if_starting(self) -> None:
        """Refresh what changes by itself while an engine starts."""
        if self.current is not None and self.current.state is RunState.STARTING:
            self._emit(self.view())

    async def profile_changed(self, name: str) -> None:
        """Look again whether the engine runs what its profile says now."""
        started = self._profile
        if started is None or started.name != name or not self._is_live:
            return
        try:
            stored = await asyncio.to_thread(self._control.profiles.get, name)
        except UserError:
            return
        if self._profile is started and self._restart_needed != (stored != started):
            self._restart_needed = stored != started
            self.tell()

    # ---- starting --------------------------------------------------------------------------------------------

    async def start(self, name: str, agreed: frozenset[str] = frozenset()) -> StartAnswer:
        """Start the engine of a profile, or say what stands against it.

        Args:
            name: the profile.
            agreed: keys of the questions that were answered with yes.

        Returns:
            What became of it; not started and nothing else when somebody stopped it meanwhile.

        Raises:
            UserError: there is no such profile, a preparation failed, or something runs already.
        """
        self._require_free()
        self._before_spawn = RunView(state=RunState.PREFLIGHT, profile=name, title=name, activity="Checking")
        answer = await self._claim(self._start(name, agreed))
        return answer or StartAnswer(started=False)

    def _require_free(self) -> None:
        if self._busy is not None or self._is_live:
            raise UserError("An engine is running already.", "Stop it first.")

    async def _claim(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do what ends in another `current`, alone; None when it was stopped. Call it when the place is free."""
        task = asyncio.create_task(work)
        self._busy = task
        self.tell()
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled() and not asyncio_tasks.is_cancelled():
                return None
            raise
        finally:
            self._busy = None
            if self._before_spawn is not None and self._before_spawn.state is RunState.PREFLIGHT:
                self._before_spawn = None
            self.tell()

    async def _start(self, name: str, agreed: frozenset[str]) -> StartAnswer:
        profile = await asyncio.to_thread(self._control.profiles.get, name)
        try:
            self._show(JobProgress(JOB, "Checking"), profile)
            environment, answer = await self._preparation.prepare(profile, agreed)
            if environment is None:
                return answer
            self._show(JobProgress(JOB, "Starting the engine"))
            self._spawning = asyncio.create_task(self._control.start(profile, environment, on_change=self._on_change))
            run = await asyncio.shield(self._spawning)  # what was spawned must never be lost
        except UserError as error:
            self._before_spawn = RunView(
                state=RunState.FAILED,
                profile=profile.name,
                title=profile.shown_title,
                diagnosis=Diagnosis(str(error)),
                ended_at=time.time(),
            )
            raise
        self._take(run, profile, f"{environment.distribution} {environment.version}".strip())
        return StartAnswer(started=True, warnings=answer.warnings)

    def _take(self, run: Supervisor, profile: Profile | None, engine_words: str) -> None:
        """Make a run the current one."""
        self.current, self._profile, self._engine_words = run, profile, engine_words
        self._restart_needed, self._before_spawn, self._spawning = False, None, None

    def _show(self, progress: JobProgress, profile: Profile | None = None) -> None:
        """Tell what is done before the spawn."""
        before = self._before_spawn
        if before is None or before.state is not RunState.PREFLIGHT:
            return  # a step that comes late, after the end
        self._before_spawn = RunView(
            state=RunState.PREFLIGHT,
            profile=before.profile,
            title=profile.shown_title if profile else before.title,
            activity=progress.text,
            activity_fraction=progress.fraction,
        )
        self.tell()

    def _on_change(self, run: Supervisor) -> None:
        if run is not self.current:
            return  # not taken yet, or no longer
        if run.state is RunState.READY and self._profile is not None:  # it may have been changed during the start
            task = asyncio.get_running_loop().create_task(self.profile_changed(self._profile.name))
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)
        self.tell()

    # ---- taking over -----------------------------------------------------------------------------------------

    async def leftovers(self) -> tuple[LeftoverView, ...]:
        """Return the runs that nobody supervises."""
        found = await asyncio.to_thread(self._control.leftovers)
        return tuple(
            LeftoverView(
                run_id=leftover.folder.run_id,
                profile=leftover.record.profile,
                state=leftover.status.state,
                url=leftover.record.url,
                started_at=leftover.record.created_at,
                n_processes=len(leftover.status.processes),
                memory_bytes=leftover.memory_bytes,
                adoptable=leftover.adoptable,
            )
            for leftover in found
        )

    async def adopt_left_running(self) -> bool:
        """Supervise the engine that an earlier window left running, if there is exactly one."""
        found = [leftover for leftover in await self.leftovers() if leftover.adoptable]
        return len(found) == 1 and await self.adopt(found[0].run_id)

    async def adopt(self, run_id: str) -> bool:
        """Supervise a run that nobody supervises; False when it has ended or somebody else was first.

        Raises:
            UserError: something runs already.
        """
        self._require_free()
        return bool(await self._claim(self._adopt(run_id)))

    async def _adopt(self, run_id: str) -> bool:
        folder = self._control.run(run_id)
        profile = await asyncio.to_thread(self._control.started_profile, folder)
        record = await asyncio.to_thread(folder.record)
        words = await asyncio.to_thread(self._engines.words, record.environment) if record else ""
        run = await self._control.adopt(folder, on_change=self._on_change)
        if run is None:
            return False
        self._take(run, profile, words)
        if profile is not None:
            await self.profile_changed(profile.name)
        return True

    async def end_leftover(self, run_id: str) -> str:
        """End a run that nobody supervises; returns what could not be ended, "" normally."""
        return await self._control.stop(run_id, hurry=asyncio.Event())

    # ---- ending ----------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End the run, or what prepares one; a second call while the first one waits kills at once."""
        await self._give_up_start()
        run = self.current
        if run is None or run.state in ENDED:
            return
        if run.state is RunState.STOPPING:
            run.hurry()
        await run.stop()

    async def _give_up_start(self) -> None:
        """End a start that is prepared; an engine that was spawned just then becomes the current run."""
        busy = self._busy
        if busy is not None:
            busy.cancel()
            await asyncio.wait({busy})
        if self._spawning is not None:
            await asyncio.wait({self._spawning})
            spawning, self._spawning = self._spawning, None
            if spawning.exception() is None and not self._is_live and spawning.result().state not in ENDED:
                self._take(spawning.result(), None, "")

    async def leave_running(self) -> None:
        """Stop supervising and leave the engine as it is.

        A start that is only prepared is given up, and an engine that is being ended is ended.
        """
        await self._give_up_start()
        run = self.current
        if run is None or run.state in ENDED:
            return
        if run.state is RunState.STOPPING:
            await run.stop()
            return
        self.current = None
        await run.detach()

    async def dismiss(self) -> None:
        """Put a run that has ended away: the view is that of no run then."""
        if self._busy is None and not self._is_live:
            self.current = self._profile = self._before_spawn = None
            self.tell()


def _measured_note(profile: Profile | None) -> str:
    """Say what a shipped demo was measured to do, so that nobody expects more."""
    if profile is None or profile.measured is None:
        return ""
    known = profile.measured
    where = f" ({known.on})" if known.on else ""
    return (
        f"{known.speed_ratio:.2g}x the speed without speculation, {known.acceptance_ratio * 100:.0f} % accepted. "
        f"{known.note}{where}"
    ).strip()


def _memory_utilisation(profile: Profile | None) -> float | None:
    """Return the part of each GPU that a started profile gives its engine; a size of the KV cache takes its place."""
    if profile is None or profile.memory.kv_cache_bytes is not None:
        return None
    return profile.memory.gpu_memory_utilization
