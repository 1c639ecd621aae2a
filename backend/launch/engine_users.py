"""Which living processes use an engine environment, so that it is not deleted under them."""

from collections.abc import Mapping
from pathlib import Path

import psutil

from backend import paths
from backend.launch.processes import RUN_ID_VARIABLE
from backend.launch.run_folder import RunFolder


def processes_using(folder: Path) -> list[int]:
    """Return the pids of processes that run from an environment of ours or belong to a run of it.

    A process counts by its program or first argument, by a library of the environment that it has loaded (vLLM's
    processes replace their command line by a title such as "VLLM::EngineCore"), or by the run id in its variables.

    Args:
        folder: the environment's top folder; its name is the id that runs write down.
    """
    prefixes = {f"{folder}/", f"{folder.resolve()}/"}
    found = []
    for process in psutil.process_iter(["cmdline", "exe", "environ"]):
        told = [*(process.info["cmdline"] or [""])[:1], process.info["exe"] or ""]
        if (
            any(text.startswith(prefix) for text in told for prefix in prefixes)
            or _of_run(process.info["environ"] or {}, folder)
            or _has_loaded(process.pid, prefixes)
        ):
            found.append(process.pid)
    return found


def _of_run(variables: Mapping[str, str], folder: Path) -> bool:
    """Whether a process carries the id of a run that was started from the environment."""
    run_id = variables.get(RUN_ID_VARIABLE, "")
    if not run_id or "/" in run_id:
        return False
    record = RunFolder(paths.folders().runs / run_id).record()
    return record is not None and (record.environment == folder.name or record.argv[0].startswith(f"{folder}/"))


def _has_loaded(pid: int, prefixes: set[str]) -> bool:
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended, or is another user's
        return False
    return any(f" {prefix}" in maps for prefix in prefixes)
