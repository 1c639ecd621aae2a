"""`specdeck doctor`: what is installed, what is missing, and which packages to install."""

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backend import paths
from backend.checkpoints import demo
from backend.cli import runs
from backend.control import Control
from backend.errors import EngineEnvironmentError, UserError
from backend.hardware import NvidiaDriver
from backend.launch import environments, install_plan, machine
from backend.launch.environments import EnvironmentState
from backend.launch.install_plan import EngineWant, MachineFacts
from backend.telemetry import nvml


class _Mark(StrEnum):
    """GOOD works, TO_DO works after a step that Specdeck can do, BAD needs a person."""

    GOOD = "ok"
    TO_DO = "to do"
    BAD = "problem"


_STYLES = {_Mark.GOOD: "green", _Mark.TO_DO: "yellow", _Mark.BAD: "red"}


@dataclass(frozen=True, slots=True)
class _Row:
    what: str
    mark: _Mark
    words: str


def doctor() -> None:
    """Check this machine: Python, engines, GPU driver, disk, demo models, leftovers. Installs nothing."""
    table = Table("", "", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = list(_rows())
    for row in rows:
        # Text, since brackets in foreign words (folders, messages of the loader) are no markup.
        table.add_row(row.what, Text(row.mark, style=_STYLES[row.mark]), Text(row.words))
    Console().print(table)
    if any(row.mark is _Mark.BAD for row in rows):
        raise UserError("Specdeck cannot start an engine on this machine yet.", "See the lines marked as a problem.")


def _rows() -> Iterator[_Row]:
    yield _Row(
        "Specdeck",
        _Mark.GOOD,
        f"{metadata.version('specdeck')} with Python {platform.python_version()} ({sys.executable})",
    )
    answer = nvml.ask_child()
    driver = answer if isinstance(answer, NvidiaDriver) else None
    if driver is None:
        yield _Row("NVIDIA driver", _Mark.GOOD, f"none: {answer}. Engines run on the CPU")
    else:
        cuda = ".".join(map(str, driver.cuda))
        yield _Row("NVIDIA driver", _Mark.GOOD, f"{driver.version}, CUDA up to {cuda}, {len(driver.gpus)} GPUs")
    facts = machine.machine_facts(driver, "" if driver else str(answer))
    sound = [env for env in environments.list_environments() if env.state is EnvironmentState.OK]
    yield from _pythons(facts, needed=not sound)
    yield from _engines(facts)
    yield _Row("Disk", _Mark.GOOD, f"{facts.free_bytes / 1e9:.1f} GB free in {paths.folders().data}")
    yield from _models()
    yield from _leftovers()


def _pythons(facts: MachineFacts, *, needed: bool) -> Iterator[_Row]:
    for python in facts.pythons:
        version = ".".join(map(str, python.version))
        if python.version not in install_plan.PYTHONS:
            continue
        if python.has_venv:
            yield _Row("Python for engines", _Mark.GOOD, f"{version} ({python.path})")
            return
    try:
        install_plan.plan(facts)
    except EngineEnvironmentError as error:
        yield _Row("Python for engines", _Mark.BAD if needed else _Mark.TO_DO, str(error))


def _engines(facts: MachineFacts) -> Iterator[_Row]:
    known = environments.list_environments()
    for environment in known:
        good = environment.state is EnvironmentState.OK
        words = f"{environment.id}: {environment.distribution} {environment.version}"
        yield _Row(
            "Engine",
            _Mark.GOOD if good else _Mark.TO_DO,
            words if good else f"{environment.id} is {environment.state}: {environment.problem}",
        )
    usable = {EnvironmentState.OK, EnvironmentState.UNCHECKED}
    if any(environment.state in usable for environment in known):
        return
    try:
        plan = install_plan.plan(facts, EngineWant())
    except EngineEnvironmentError as error:
        yield _Row("Engine", _Mark.BAD, str(error))
        return
    size = f"about {plan.download_bytes / 1e9:.1f} GB to download, {plan.installed_bytes / 1e9:.1f} GB on disk"
    words = f"none yet; `specdeck engines install` makes one ({plan.distribution} {plan.version}, {size})"
    if plan.fits:
        yield _Row("Engine", _Mark.TO_DO, words)
    else:
        yield _Row("Engine", _Mark.BAD, f"{words}; only {plan.free_bytes / 1e9:.1f} GB are free in {plan.folder}")


def _models() -> Iterator[_Row]:
    folders = paths.folders()
    needed = demo.needs(models=folders.models, cache=folders.cache)
    if needed.build:
        words = f"not built yet; `specdeck run demo` builds them ({needed.download_bytes / 1e6:.0f} MB to download)"
        yield _Row("Demo models", _Mark.TO_DO, words)
    else:
        yield _Row("Demo models", _Mark.GOOD, str(folders.models))


def _leftovers() -> Iterator[_Row]:
    found = Control().leftovers()
    for leftover in found:
        words = f"{leftover.folder.run_id} holds {runs.memory_words(leftover.status)}"
        yield _Row("Leftover", _Mark.TO_DO, f"{words}; `specdeck stop {leftover.folder.run_id}` ends it")
    if not found:
        yield _Row("Leftovers", _Mark.GOOD, "none")
