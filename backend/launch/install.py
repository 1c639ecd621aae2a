"""Carries out an install plan: environment, packages, repairs, proof; a cut-off install is never half used."""

import contextlib
import errno
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from backend import paths, settings
from backend.errors import EngineEnvironmentError, InstallRefusedError
from backend.launch import engine_folder, engine_repair, environments, install_lock, pip_run, probe_runner
from backend.launch.environments import EngineEnvironment, EnvironmentState
from backend.launch.install_plan import CPU, CUDA, InstallPlan
from backend.launch.pip_output import InstallStep

log = logging.getLogger(__name__)

Progress = Callable[[InstallStep], None]


def existing(folder: Path) -> EngineEnvironment | None:
    """Return the environment of ours in `folder` if it is whole and known to work; starts nothing."""
    if not engine_folder.is_complete(folder):
        return None
    environment = environments.get(folder.name)
    return environment if environment.state is EnvironmentState.OK else None


def check_again(
    folder: Path, *, on_wait: Callable[[], None], cancelled: Callable[[], bool] = lambda: False
) -> tuple[EngineEnvironment | None, str]:
    """Look again at a finished environment of ours that is not known to work.

    Args:
        folder: where it is, or is not.
        on_wait: told before its interpreter runs, which takes about 20 s.
        cancelled: asked while it runs; a yes ends it.

    Returns:
        The environment if it works after all; else what is wrong with it, "" when there is no finished one.

    Raises:
        EngineEnvironmentError: it could not be checked now (a busy machine, no driver, no memory), which says
            nothing about it.
        InstallCancelled: given up.
    """
    if engine_folder.read_marker(folder).get("state") != "complete":
        return None, ""
    environment = environments.get(folder.name)
    if not engine_folder.is_complete(folder):
        return None, environment.problem
    on_wait()
    outcome = probe_runner.probe_now(environment.python, folder, cancelled=cancelled)
    if cancelled():
        raise pip_run.InstallCancelled
    if outcome.probe is not None:
        return environments.get(folder.name), ""
    if not outcome.lasting:
        raise EngineEnvironmentError(
            f"{environment.id} is installed but could not be checked now. {outcome.problem}",
            f"Try again. To make it anew, remove it in Settings or with `specdeck engines remove {environment.id}`, "
            "then install.",
        )
    return None, outcome.problem


def require_space(plan: InstallPlan) -> None:
    """Check that the plan fits on its disk.

    Raises:
        EngineEnvironmentError: it does not.
    """
    if not plan.fits:
        raise EngineEnvironmentError(
            f"There is not enough space in {plan.folder.parent}: about {_gb(plan.needed_bytes)} are needed while "
            f"installing, {_gb(plan.free_bytes)} are free.",
            "Free some space, or set XDG_DATA_HOME to a folder on a larger disk.",
        )


def install(
    plan: InstallPlan,
    *,
    consent: Callable[[InstallPlan], bool],
    progress: Progress,
    options: settings.Settings | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> EngineEnvironment:
    """Install what the plan says, or return at once what is already there; blocks for minutes.

    Only what a cut-off install left is deleted by itself. A finished environment is probed again first, and replaced
    only with a consent to a plan that says so (`replaces`).

    Args:
        plan: from `install_plan.plan`.
        consent: asked before anything is downloaded or deleted.
        progress: told each step, in this thread.
        options: the user's settings.
        cancelled: asked again and again, in this thread; a yes ends what runs and gives up.

    Raises:
        InstallRefusedError: no consent.
        InstallCancelled: given up; the next install makes it anew.
        EngineEnvironmentError: it did not work; names the reason and the log. What is half done stays marked as
            such and the next install makes it anew.
    """
    if (ready := existing(plan.folder)) is not None:
        return ready
    ready, problem = check_again(
        plan.folder,
        on_wait=lambda: progress(InstallStep("Checking what is installed")),
        cancelled=cancelled,
    )
    if ready is not None:
        return ready
    plan = replace(plan, replaces=problem)
    require_space(plan)
    if not consent(plan):
        raise InstallRefusedError("Nothing was installed.", "Start it again and agree to the download.")
    with install_lock.hold():
        if (ready := existing(plan.folder)) is not None:  # another installer was first
            return ready
        if engine_folder.read_marker(plan.folder).get("state") == "complete" and not plan.replaces:
            raise EngineEnvironmentError(
                f"Another Specdeck has just installed {plan.folder.name}, and it does not work.", "Try again."
            )
        record = _new_log(plan)
        with _disk_errors(plan, record):
            _install(plan, progress, record, options or settings.load(), cancelled)
    return environments.get(plan.folder.name)


def _install(
    plan: InstallPlan,
    progress: Progress,
    record: Path,
    options: settings.Settings,
    cancelled: Callable[[], bool],
) -> None:
    if plan.folder.exists():
        what = "the environment that does not work" if plan.replaces else "what a cut-off install left"
        progress(InstallStep(f"Removing {what}"))
        environments.delete_managed(plan.folder)
    plan.folder.mkdir(parents=True, mode=0o700)
    mark = {"distribution": plan.distribution, "version": plan.version}
    engine_folder.write_marker(plan.folder, state="installing", **mark)
    # pip's downloads lie here: on the disk that was measured, and gone with the folder after a cut-off.
    scratch = plan.folder / "tmp"
    scratch.mkdir()
    pip = pip_run.Pip(
        python=engine_folder.interpreter(plan.folder),
        folder=plan.folder,
        scratch=scratch,
        record=record,
        cancelled=cancelled,
    )
    progress(InstallStep("Making the environment", detail=f"Python {plan.python_version[0]}.{plan.python_version[1]}"))
    pip.make_environment(plan.python)
    pip.install(
        plan.requirements,
        download_bytes=plan.download_bytes,
        progress=progress,
        torch_index=options.torch_cpu_index if plan.build == CPU else "",
        torch_index_timeout_s=options.torch_cpu_index_timeout_s,
    )
    progress(InstallStep("Repairing known traps"))
    if unwanted := engine_repair.mismatched(plan.folder):
        pip.uninstall(unwanted)
    engine_repair.write_alias(plan.folder)
    shutil.rmtree(scratch)
    progress(InstallStep("Checking that it works", detail="importing vLLM, about 20 s"))
    _verify(plan, record, cancelled)
    engine_folder.write_marker(plan.folder, state="complete", **mark)


def _verify(plan: InstallPlan, record: Path, cancelled: Callable[[], bool]) -> None:
    where = f"The log is {record}."
    if plan.build == CUDA and engine_repair.torch_label(plan.folder) == "cpu":
        raise EngineEnvironmentError(
            "pip took a CPU build of torch from one of the indexes or wheel folders that it is set up with.",
            f"Take that place out of pip's settings (`pip config list`) for this install. {where}",
        )
    outcome = probe_runner.probe_now(engine_folder.interpreter(plan.folder), plan.folder, cancelled=cancelled)
    if cancelled():
        raise pip_run.InstallCancelled
    if outcome.probe is None:
        raise EngineEnvironmentError(f"vLLM was installed but does not work. {outcome.problem}", where)
    if outcome.probe.platform != plan.build:
        raise EngineEnvironmentError(
            f"The {plan.build.upper()} build was installed, but vLLM found the platform {outcome.probe.platform!r}.",
            where,
        )


@contextlib.contextmanager
def _disk_errors(plan: InstallPlan, record: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise EngineEnvironmentError(
            f"The disk that holds {plan.folder} is full.", f"Free some space and install again. The log is {record}."
        ) from error


def _new_log(plan: InstallPlan) -> Path:
    name = f"install-{plan.distribution}-{plan.version}-{time.strftime('%Y%m%d-%H%M%S')}.log"
    record = paths.folders().logs / name
    record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    record.touch(mode=0o600)
    return record


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
