"""The stop ladder: TERM, wait, KILL, verify that nothing is left, and remove the dead run's own files."""

import asyncio
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from backend.launch import processes
from backend.launch.processes import Identity, Stat

_POLL_S = 0.1
_KILL_WAIT_S = 5.0
_TEMP_PREFIX = "specdeck-"


async def end_processes(
    identity: Identity,
    *,
    grace_s: float,
    hurry: asyncio.Event,
    reap: Callable[[], object] = lambda: None,
    note: Callable[[list[Stat]], object] = lambda _left: None,
) -> list[Stat]:
    """End every process of a run and return those that could not be ended.

    Args:
        identity: the run.
        grace_s: seconds between TERM and KILL. Half of it when only the API server is left: with a stream open it
            may wait for ever, although its engine is gone.
        hurry: when set, KILL comes at once.
        reap: called while waiting, so that a parent can collect its zombies.
        note: told what lives before each signal and while waiting: a process that is just starting may get shared
            memory now, and die without removing it.
    """
    loop = asyncio.get_running_loop()
    left = await asyncio.to_thread(processes.members, identity)
    await asyncio.to_thread(note, left)
    for stat in left:
        processes.send(stat, signal.SIGTERM)
    asked_s = loop.time()
    while left:
        waited_s = loop.time() - asked_s
        only_server = len(left) == 1 and left[0].pid == identity.session
        if hurry.is_set() or waited_s > (grace_s / 2 if only_server else grace_s):
            break
        await asyncio.sleep(_POLL_S)
        reap()
        left = await _still_alive(identity, left)
        await asyncio.to_thread(note, left)
    killed_s = loop.time()
    # Processes may be born while we look, so look again after each round.
    while left := await asyncio.to_thread(processes.members, identity):
        await asyncio.to_thread(note, left)
        for stat in left:
            processes.send(stat, signal.SIGKILL)
        if loop.time() - killed_s > _KILL_WAIT_S:
            break
        await asyncio.sleep(_POLL_S)
        reap()
    return left


async def _still_alive(identity: Identity, known: list[Stat]) -> list[Stat]:
    in_session = await asyncio.to_thread(processes.members, identity, everywhere=False)
    pids = {stat.pid for stat in in_session}
    return in_session + [stat for stat in known if stat.pid not in pids and processes.alive(stat)]


def unkillable_words(left: Iterable[Stat]) -> str:
    """Say which processes survived SIGKILL, why, and what helps; "" when there are none."""
    names = ", ".join(f"{processes.title(stat)} (pid {stat.pid}, state {stat.state})" for stat in left)
    if not names:
        return ""
    return (
        f"Could not be ended, even by SIGKILL: {names}. It hangs inside the kernel, mostly in the GPU driver; "
        "its memory comes back only with a restart of the machine."
    )


def temp_prefix(run_id: str) -> str:
    """Return how the name of a run's private folder of temporary files begins; short, since sockets lie in it."""
    return f"{_TEMP_PREFIX}{run_id[-6:]}-"


def remove_files(*, shared_memory: Iterable[str], temp_dir: Path) -> None:
    """Remove what a dead run left: its shared memory and its private folder of temporary files.

    Shared memory that a living process still holds open is left alone.
    """
    names = set(shared_memory)
    if names:
        names -= processes.shared_memory_in_use()
    for name in names:
        if name.startswith(processes.SHARED_MEMORY_KINDS) and "/" not in name:
            Path("/dev/shm", name).unlink(missing_ok=True)  # noqa: S108
    if temp_dir.name.startswith(_TEMP_PREFIX):
        shutil.rmtree(temp_dir, ignore_errors=True)
