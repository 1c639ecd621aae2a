"""The engine environments as the window sees them: list, install, add, probe, remove."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from backend.desk.types import EngineEntry, Event, JobProgress, Question
from backend.errors import EngineEnvironmentError, UsageError
from backend.hardware import NvidiaDriver
from backend.launch import engine_choice, engine_users, environments, install, install_plan, machine
from backend.launch.environments import EngineEnvironment
from backend.launch.install_plan import EngineWant, InstallPlan
from backend.launch.pip_output import InstallStep
from backend.launch.pip_run import InstallCancelled
from backend.telemetry import nvml

JOB = "install"
_REPLACE = "engine-replace"


class Engines:
    """Knows the installed vLLMs; blocking work runs in a worker thread."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._may_replace: Path | None = None  # the last question said that what is there would be deleted
        self._cancel = threading.Event()
        self._work: asyncio.Future[EngineEnvironment] | None = None

    async def list(self) -> tuple[EngineEntry, ...]:
        """Return the environments that were installed or added, then vLLMs found elsewhere."""
        return await asyncio.to_thread(_entries)

    async def serving(
        self, environment_id: str | None, *, on_wait: Callable[[str], None] = lambda _words: None
    ) -> EngineEnvironment | None:
        """Return the environment that a start uses, probed; None when one must be installed first.

        Args:
            environment_id: the one that the profile names, None for any.
            on_wait: told on the loop what takes its time.

        Raises:
            UserError: the named environment is unknown or cannot serve.
        """
        loop = asyncio.get_running_loop()

        def say(words: str) -> None:
            loop.call_soon_threadsafe(on_wait, words)

        return await asyncio.to_thread(engine_choice.usable, environment_id, on_wait=say)

    async def question(self, build: str | None = None, version: str | None = None) -> Question:
        """Return what an install would do, to be agreed to.

        Its key is "engine-cpu", "engine-cuda" or, when something would be deleted for it, "engine-replace".

        Raises:
            UserError: it is installed already, cannot run here, or there is no space for it.
        """
        self._may_replace = None
        plan = await asyncio.to_thread(_checked_plan, EngineWant(build, version))
        text = engine_choice.plan_text(plan)
        if plan.replaces:
            self._may_replace = plan.folder
            return Question(_REPLACE, "Delete this engine and install it anew?", text, "Delete and install")
        return Question(f"engine-{plan.build}", "Install a vLLM engine?", text, "Download and install")

    async def install(
        self,
        build: str | None = None,
        version: str | None = None,
        *,
        on_step: Callable[[JobProgress], None] | None = None,
    ) -> EngineEntry:
        """Install what `question` said; progress goes to `on_step`, by default out as events of job "install".

        Raises:
            UserError: it did not work, or an install is under way.
            CancelledError: it was given up by `cancel_install`.
        """
        if self._work is not None:
            raise EngineEnvironmentError("An engine is being installed already.", "Wait for it, or cancel it.")
        loop = asyncio.get_running_loop()
        tell = on_step or self._emit
        cancel = self._cancel = threading.Event()

        def show(step: InstallStep) -> None:
            loop.call_soon_threadsafe(tell, JobProgress(JOB, f"{step.name} {step.detail}".strip(), step.fraction))

        def agreed(plan: InstallPlan) -> bool:
            return not plan.replaces or plan.folder == self._may_replace

        def work() -> EngineEnvironment:
            plan = _plan(EngineWant(build, version))
            return install.install(plan, consent=agreed, progress=show, cancelled=cancel.is_set)

        tell(JobProgress(JOB, "Looking at this machine"))
        running = self._work = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return _entry(await asyncio.shield(running))
        except asyncio.CancelledError:
            cancel.set()
            await asyncio.wait({running})
            running.exception()  # looked at: whoever cancelled does not want to hear of it
            raise
        except InstallCancelled:
            raise asyncio.CancelledError from None
        finally:
            self._work = None

    async def cancel_install(self) -> None:
        """Give up an install that is under way; returns when its processes have ended."""
        self._cancel.set()
        if self._work is not None:
            await asyncio.wait({self._work})

    async def add(self, path: Path) -> EngineEntry:
        """Use an environment that the person made; probes it.

        Raises:
            UserError: there is no interpreter or no vLLM in it.
        """
        return _entry(await asyncio.to_thread(environments.add, path))

    async def probe(self, environment_id: str) -> EngineEntry:
        """Ask an environment again what it accepts.

        Raises:
            UserError: there is none of that name.
        """
        return await asyncio.to_thread(_probe, environment_id)

    async def remove(self, environment_id: str) -> None:
        """Delete one that was installed, forget one that was added.

        Raises:
            UserError: there is none of that name, or an engine runs from it.
        """
        await asyncio.to_thread(environments.remove, environment_id)

    def words(self, environment_id: str) -> str:
        """Return distribution and version of an environment, "" if it is gone. Blocking."""
        try:
            return _words(environments.get(environment_id))
        except UsageError:
            return ""


def _entries() -> tuple[EngineEntry, ...]:
    known = tuple(
        replace(_entry(environment), in_use=bool(engine_users.processes_using(environment.folder)))
        for environment in environments.list_environments()
    )
    return known + tuple(_entry(environment, known=False) for environment in environments.find_installed())


def _entry(environment: EngineEnvironment, *, known: bool = True) -> EngineEntry:
    return EngineEntry(
        id=environment.id,
        state=environment.state.value,
        problem=environment.problem,
        version=_words(environment),
        platform=environment.probe.platform if environment.probe else "",
        folder=environment.folder,
        managed=environment.managed,
        known=known,
    )


def _probe(environment_id: str) -> EngineEntry:
    return _entry(environments.probe(environments.get(environment_id), refresh=True))


def _words(environment: EngineEnvironment) -> str:
    return f"{environment.distribution} {environment.version}".strip()


def _plan(want: EngineWant) -> InstallPlan:
    driver = nvml.ask_child()
    found = driver if isinstance(driver, NvidiaDriver) else None
    facts = machine.machine_facts(found, driver if isinstance(driver, str) else "")
    return install_plan.plan(facts, want)


def _checked_plan(want: EngineWant) -> InstallPlan:
    """The plan, knowing what is there already."""
    plan = _plan(want)
    ready = install.existing(plan.folder)
    problem = ""
    if ready is None:
        ready, problem = install.check_again(plan.folder, on_wait=lambda: None)
    if ready is not None:
        raise EngineEnvironmentError(
            f"{_words(ready)} is installed already and works.", "Nothing needs to be downloaded."
        )
    install.require_space(plan)
    return replace(plan, replaces=problem)
