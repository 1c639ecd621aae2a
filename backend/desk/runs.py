"""The current run: from a wish to start to a running engine, over to another window, and back to nothing."""

import asyncio
import logging
import time
from collections.abc import Callable

from backend import paths
from backend.checkpoints import demo
from backend.checkpoints.catalog import is_built
from backend.checkpoints.demo_weights import DemoStep
from backend.control import Control
from backend.desk.engines import Engines
from backend.desk.types import Event, JobProgress, LeftoverView, Question, RunView, StartAnswer
from backend.errors import EngineEnvironmentError, UserError
from backend.events import Diagnosis, Finding, RunState, Severity
from backend.launch import machine
from backend.launch.code_loading import code_loading
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import Profile
from backend.launch.supervisor import ENDED, Supervisor

log = logging.getLogger(__name__)


class Runs:
    """Holds the one run that the window works with.

    Attributes:
        current: its supervisor; None before the first, and after an engine was left running.
    """

    def __init__(self, control: Control, engines: Engines, emit: Callable[[Event], None]) -> None:
        self._control = control
        self._engines = engines
        self._emit = emit
        self._listeners: list[Callable[[], None]] = []
        self.current: Supervisor | None = None
        self._profile: Profile | None = None
        self._engine_words = ""
        self._ended_at: float | None = None
        self._preparing: asyncio.Task[StartAnswer] | None = None
        self._activity = JobProgress("", "")
        self._failed_before_spawn: RunView | None = None
        self._restart_needed = False

    # ---- what others see -------------------------------------------------------------------------------------

    @property
    def readable(self) -> Supervisor | None:
        """The run whose server answers, None when there is none."""
        run = self.current
        return run if run is not None and run.state in (RunState.READY, RunState.UNRESPONSIVE) else None

    def on_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop after every change."""
        self._listeners.append(listener)

    def view(self) -> RunView:
        """Return the run as it is now."""
        profile = self._profile
        name, title = (profile.name, profile.shown_title) if profile else ("", "")
        if self._preparing is not None:
            return RunView(
                state=RunState.PREFLIGHT,
                profile=name,
                title=title,
                activity=self._activity.text or "Checking",
                activity_fraction=self._activity.fraction,
            )
        if self._failed_before_spawn is not None:
            return self._failed_before_spawn
        run = self.current
        if run is None:
            return RunView(profile=name, title=title)
        record = run.record
        return RunView(
            state=run.state,
            profile=record.profile,
            title=title or record.profile,
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
        """Look again whether the running engine still runs what its profile says."""
        if self._profile is None or self._profile.name != name or self.readable is None:
            return
        try:
            stored = await asyncio.to_thread(self._control.profiles.get, name)
        except UserError:
            return
        self._restart_needed = stored != self._profile
        self.tell()

    # ---- starting --------------------------------------------------------------------------------------------

    async def start(self, name: str, agreed: frozenset[str] = frozenset()) -> StartAnswer:
        """Start the engine of a profile, or say what stands against it.

        Args:
            name: the profile.
            agreed: keys of the questions that were answered with yes.

        Raises:
            UserError: there is no such profile, a preparation failed, or something runs already.
        """
        if self._preparing is not None or (self.current is not None and self.current.state not in ENDED):
            raise UserError("An engine is running already.", "Stop it first.")
        profile = await asyncio.to_thread(self._control.profiles.get, name)
        self._profile, self._failed_before_spawn, self._restart_needed = profile, None, False
        self._activity = JobProgress("start", "Checking")
        self._preparing = asyncio.create_task(self._prepare(profile, agreed))
        self.tell()
        try:
            return await self._preparing
        except asyncio.CancelledError:
            if self._preparing.cancelled():  # somebody pressed Stop
                return StartAnswer(started=False)
            raise
        except UserError as error:
            self._failed_before_spawn = RunView(
                state=RunState.FAILED,
                profile=profile.name,
                title=profile.shown_title,
                diagnosis=Diagnosis(str(error)),
                ended_at=time.time(),
            )
            raise
        finally:
            self._preparing = None
            self.tell()

    async def _prepare(self, profile: Profile, agreed: frozenset[str]) -> StartAnswer:
        questions = [
            Question(
                key=f"code:{use.field}",
                title="This profile loads code or a file",
                text=f"{use.field} = {use.value}\n{use.why}.",
                yes="Allow it",
            )
            for use in code_loading(profile)
        ]
        environment = await self._engines.serving(profile.engine.environment, on_wait=self._say)
        if environment is None:
            question = await self._engines.question()
            if question.key not in agreed:
                return StartAnswer(started=False, questions=(question,))
            await self._engines.install(on_step=self._show)
            environment = await self._engines.serving(profile.engine.environment, on_wait=self._say)
            if environment is None:
                raise EngineEnvironmentError("The install ended without an engine that works.", "Look at Settings.")
        questions += await asyncio.to_thread(self._demo_questions, profile)
        if {question.key for question in questions} <= agreed:
            await self._build_demo(profile, environment)
        self._show(JobProgress("start", "Checking the profile and the models"))
        findings = await asyncio.to_thread(self._control.check, profile, environment)
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        questions += [_download(finding) for finding in errors if finding.consent]
        blocking = tuple(finding for finding in errors if not finding.consent)
        warnings = tuple(finding for finding in findings if finding.severity is Severity.WARNING)
        open_questions = tuple(question for question in questions if question.key not in agreed)
        if blocking or open_questions:
            return StartAnswer(started=False, blocking=blocking, questions=open_questions, warnings=warnings)
        self._show(JobProgress("start", "Starting the engine"))
        self.current = await asyncio.shield(
            asyncio.create_task(self._control.start(profile, environment, on_change=self._on_change))
        )
        self._engine_words = f"{environment.distribution} {environment.version}".strip()
        return StartAnswer(started=True, warnings=warnings)

    def _demo_questions(self, profile: Profile) -> list[Question]:
        if not any(is_built(files.model) for files in self._control.missing_models(profile)):
            return []
        folders = paths.folders()
        needed = demo.needs(models=folders.models, cache=folders.cache)
        text = (
            f"Download {needed.download_bytes / 1e6:.0f} MB and build the demo models in {folders.models}.\n"
            f"They take {needed.disk_bytes / 1e6:.0f} MB there; "
            f"{machine.free_bytes(folders.models) / 1e9:.1f} GB are free."
        )
        return [Question("demo", "The demo models are not built yet", text, "Build them")]

    async def _build_demo(self, profile: Profile, environment: EngineEnvironment) -> None:
        if not await asyncio.to_thread(self._demo_questions, profile):
            return
        folders = paths.folders()
        loop = asyncio.get_running_loop()

        def on_step(step: DemoStep) -> None:
            shown = JobProgress("start", f"{step.name} {step.detail}".strip(), step.fraction)
            loop.call_soon_threadsafe(self._show, shown)

        await asyncio.to_thread(
            demo.ensure,
            models=folders.models,
            cache=folders.cache,
            engine_python=environment.python,
            on_step=on_step,
        )

    def _say(self, words: str) -> None:
        self._show(JobProgress("start", words))

    def _show(self, progress: JobProgress) -> None:
        self._activity = progress
        self.tell()

    def _on_change(self, run: Supervisor) -> None:
        self.current = run
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
        """Supervise a run that nobody supervises; False when it has ended or somebody else was first."""
        if self.current is not None and self.current.state not in ENDED:
            raise UserError("An engine is running already.", "Stop it first.")
        folder = self._control.run(run_id)
        run = await self._control.adopt(folder, on_change=self._on_change)
        if run is None:
            return False
        self.current, self._failed_before_spawn = run, None
        self._profile = await asyncio.to_thread(self._control.started_profile, folder)
        self._engine_words = await asyncio.to_thread(self._engines.words, run.record.environment)
        self.tell()
        if self._profile is not None:
            await self.profile_changed(self._profile.name)
        return True

    async def end_leftover(self, run_id: str) -> str:
        """End a run that nobody supervises; returns what could not be ended, "" normally."""
        return await self._control.stop(run_id, hurry=asyncio.Event())

    # ---- ending ----------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End the run, or what prepares one; a second call while the first one waits kills at once."""
        preparing, run = self._preparing, self.current
        if preparing is not None:
            await self._engines.cancel_install()
            preparing.cancel()
            await asyncio.wait({preparing})
            run = self.current  # the engine may have been spawned just now
        if run is None or run.state in ENDED:
            return
        if run.state is RunState.STOPPING:
            run.hurry()
        await run.stop()

    async def leave_running(self) -> None:
        """Stop supervising and leave the engine as it is; a start that is only prepared is given up."""
        if self._preparing is not None:
            await self.stop()
        run, self.current = self.current, None
        if run is not None and run.state not in ENDED:
            await run.detach()

    async def forget_failure(self) -> None:
        """Go back from FAILED to a run page that waits for a start."""
        if self._preparing is None and (self.current is None or self.current.state in ENDED):
            self.current, self._failed_before_spawn = None, None
            self.tell()


def _download(finding: Finding) -> Question:
    text = "\n".join(part for part in (finding.what, finding.why, finding.fix) if part)
    return Question(f"download:{finding.what}", "Weights must be downloaded", text, "Download and start")


def _measured_note(profile: Profile | None) -> str:
    """Say what a shipped demo was measured to do, so that nobody expects more."""
    if profile is None or profile.measured is None:
        return ""
    known = profile.measured
    where = f" (on a {known.on})" if known.on else ""
    return (
        f"{known.speed_ratio:.2g}x the speed without speculation, {known.acceptance_ratio:.0%} of the guesses "
        f"accepted{where}. {known.note}"
    ).strip()
