"""What every front end does before a start: find an engine that can serve, or say what installing one means."""

from collections.abc import Callable

from backend.bounded import never
from backend.errors import EngineEnvironmentError
from backend.launch import environments
from backend.launch.environments import EngineEnvironment, EnvironmentState
from backend.launch.install_plan import InstallPlan


def usable(
    environment_id: str | None = None,
    *,
    on_wait: Callable[[str], None],
    add_found: bool = True,
    cancelled: Callable[[], bool] = never,
) -> EngineEnvironment | None:
    """Return an environment fit to serve: the named one, else one that is known, else one that lies in reach.

    Args:
        environment_id: the one a profile names, None for any.
        on_wait: told in words what takes its time, and why something could not be used.
        add_found: one that lies in reach is added and probed; False only looks at those that are known, as who
            only looks at a profile must not bring back what a person removed.
        cancelled: asked again and again while an interpreter runs, in this thread; a yes ends it.

    Returns:
        The environment, probed; None when one must be installed first.

    Raises:
        UsageError: there is no environment of that name.
        EngineEnvironmentError: the named one cannot serve.
        ProbeCancelled: given up.
    """
    if environment_id is not None or environments.list_environments():
        try:
            return environments.choose(environment_id, on_wait=on_wait, cancelled=cancelled)
        except EngineEnvironmentError as error:
            if environment_id is not None:
                raise
            on_wait(error.message)
    for found in environments.find_installed() if add_found else ():
        on_wait(f"Found vLLM {found.version} in {found.folder}; asking it what it accepts (about 20 s, once) ...")
        environment = environments.add(found.folder, cancelled=cancelled)
        if environment.state is EnvironmentState.OK:
            return environment
        on_wait(f"It cannot be used: {environment.problem}")
    return None


def plan_text(plan: InstallPlan) -> str:
    """Say what an install will do, for a person who has to agree."""
    major, minor = plan.python_version
    lines = [
        f"vLLM {plan.version}, {plan.build.upper()} build. {plan.reason}",
        f"  folder     {plan.folder}",
        f"  Python     {major}.{minor} ({plan.python})",
        f"  download   about {_gb(plan.download_bytes)} (less what pip already has)",
        f"  on disk    about {_gb(plan.installed_bytes)}",
        f"  free       {_gb(plan.free_bytes)}",
    ]
    if plan.replaces:
        lines.append(f"  DELETES     the environment in that folder, which does not work: {plan.replaces}")
    return "\n".join([*lines, *(f"  note       {note}" for note in plan.notes)])


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
