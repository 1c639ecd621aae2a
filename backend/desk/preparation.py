"""What happens before an engine is spawned: find or install a vLLM, build the demo models, check, and ask."""

import asyncio
import threading
from collections.abc import Callable

from backend import paths
from backend.checkpoints import demo
from backend.checkpoints.catalog import is_built
from backend.checkpoints.demo_weights import DemoStep
from backend.control import Control
from backend.desk.engines import Engines
from backend.desk.types import JobProgress, Question, StartAnswer
from backend.errors import EngineEnvironmentError
from backend.events import Finding, Severity
from backend.launch import machine
from backend.launch.code_loading import code_loading
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import Profile

JOB = "start"


class Preparation:
    """Prepares starts; tells `show` what it does."""

    def __init__(self, control: Control, engines: Engines, show: Callable[[JobProgress], None]) -> None:
        self._control = control
        self._engines = engines
        self._show = show

    async def prepare(self, profile: Profile, agreed: frozenset[str]) -> tuple[EngineEnvironment | None, StartAnswer]:
        """Do what a start needs, as far as it was agreed to.

        Args:
            profile: what is to be started.
            agreed: keys of the questions that were answered with yes.

        Returns:
            The environment to start in and the warnings; no environment when something blocks or must be asked.

        Raises:
            UserError: a preparation failed.
        """
        questions = [
            Question(
                key=f"code:{profile.name}:{use.field}={use.value}",
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
                return None, StartAnswer(started=False, questions=(question,))
            await self._engines.install(on_step=self._show)
            environment = await self._engines.serving(profile.engine.environment, on_wait=self._say)
            if environment is None:
                raise EngineEnvironmentError("The install ended without an engine that works.", "Look at Settings.")
        questions += await asyncio.to_thread(self._demo_questions, profile)
        if {question.key for question in questions} <= agreed:
            await self._build_demo(profile, environment)
        self._show(JobProgress(JOB, "Checking the profile and the models"))
        findings = await asyncio.to_thread(self._control.check, profile, environment)
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        questions += [_download(finding) for finding in errors if finding.consent]
        answer = StartAnswer(
            started=False,
            blocking=tuple(finding for finding in errors if not finding.consent),
            questions=tuple(question for question in questions if question.key not in agreed),
            warnings=tuple(finding for finding in findings if finding.severity is Severity.WARNING),
        )
        return (None if answer.blocking or answer.questions else environment), answer

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
            shown = JobProgress(JOB, f"{step.name} {step.detail}".strip(), step.fraction)
            loop.call_soon_threadsafe(self._show, shown)

        cancel = threading.Event()
        work = asyncio.ensure_future(
            asyncio.to_thread(
                demo.ensure,
                models=folders.models,
                cache=folders.cache,
                engine_python=environment.python,
                on_step=on_step,
                cancelled=cancel.is_set,
            )
        )
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:  # its processes end before anything else happens
            cancel.set()
            await asyncio.gather(work, return_exceptions=True)
            raise

    def _say(self, words: str) -> None:
        self._show(JobProgress(JOB, words))


def _download(finding: Finding) -> Question:
    text = "\n".join(part for part in (finding.what, finding.why, finding.fix) if part)
    return Question(f"download:{finding.what}", "Weights must be downloaded", text, "Download and start")
