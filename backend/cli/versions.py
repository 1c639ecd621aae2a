"""Which vLLM a command means: a version by name, else the installed one, else the newest that is known."""

from backend.launch import environments, option_table
from backend.launch.environments import EnvironmentState
from backend.launch.probe import Probe


def accepted(version: str | None, *, environment_id: str | None = None) -> Probe:
    """Return what the vLLM accepts that is meant; starts no interpreter.

    Args:
        version: as a person wrote it, None for the one that is installed.
        environment_id: the engine environment to prefer.

    Raises:
        UsageError: it is no version, or one that is too old.
    """
    sound = [
        (one.id, one.probe)
        for one in environments.list_environments()
        if one.state is EnvironmentState.OK and one.probe is not None and one.probe.options
    ]
    if version is not None:
        wanted = option_table.parse_version(version)
        for _, probe in sound:
            if option_table.parse_version(probe.version) == wanted:
                return probe
        return option_table.probe_of(version)
    for identity, probe in sound:
        if environment_id in {None, identity}:
            return probe
    return sound[0][1] if sound else option_table.probe_of(option_table.table().newest)
