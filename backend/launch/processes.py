"""Which living processes belong to a run, by proof: the recorded session, or the run id in their environment."""

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from backend.events import ProcessInfo

RUN_ID_VARIABLE = "SPECDECK_RUN_ID"
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SHM = "/dev/shm/"  # noqa: S108
SHARED_MEMORY_KINDS = ("psm_", "sem.mp-", "vllm_dist_", "nccl-")
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of the kernel
_GONE = frozenset("ZX")  # a zombie holds no memory, port or GPU: it counts as gone


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of /proc/PID/stat that we use: ticks are clock ticks, `start_ticks` since boot."""

    pid: int
    name: str
    state: str
    session: int
    cpu_ticks: int
    start_ticks: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one run's processes from all others, since pids are reused and names prove nothing.

    Attributes:
        run_id: written into the environment of every process of the run.
        boot_id: of the machine's boot in which it ran.
        session: session id, which is the pid of the API server; None if it died before it was written down.
        start_ticks: start time of the API server in clock ticks since boot, None likewise.
    """

    run_id: str
    boot_id: str
    session: int | None
    start_ticks: int | None


def boot_id() -> str:
    """Return the id that the kernel drew at this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_stat(pid: int) -> Stat | None:
    """Read one process; None when it does not exist (any more)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold brackets and blanks itself: split at the last one.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Stat(
        pid=pid,
        name=head.partition("(")[2],
        state=fields[0],
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        memory_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def _all() -> Iterator[Stat]:
    for pid in psutil.pids():
        stat = read_stat(pid)
        if stat is not None:
            yield stat


def _run_id_of(pid: int) -> str | None:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = RUN_ID_VARIABLE.encode() + b"="
    for entry in environ.split(b"\0"):
        if entry.startswith(prefix):
            return entry.removeprefix(prefix).decode(errors="replace")
    return None


def leader(identity: Identity) -> Stat | None:
    """Return the API server's process, None when it is gone or its pid now belongs to another program."""
    if identity.session is None or identity.boot_id != boot_id():
        return None
    stat = read_stat(identity.session)
    return stat if stat is not None and stat.start_ticks == identity.start_ticks else None


def leader_gone(identity: Identity) -> bool:
    """Whether the API server has ended; a zombie has."""
    stat = leader(identity)
    return stat is None or stat.state in _GONE


def members(identity: Identity, *, everywhere: bool = True) -> list[Stat]:
    """Return the living processes of a run; zombies count as gone.

    Args:
        identity: the run.
        everywhere: also look for processes that left the session, by the run id in their environment. Reading
            every environment is slow, so what runs each second leaves it out.
    """
    if identity.boot_id != boot_id():
        return []
    session_is_proven = leader(identity) is not None
    found = []
    for stat in _all():
        if stat.state in _GONE or stat.pid == os.getpid():
            continue
        in_session = stat.session == identity.session
        # Without its leader a session number may have been given to strangers: then only the run id proves it.
        if (in_session and session_is_proven) or (
            (in_session or everywhere) and _run_id_of(stat.pid) == identity.run_id
        ):
            found.append(stat)
    return found


def belonging(identity: Identity, pids: Iterable[int]) -> frozenset[int]:
    """Return those of `pids` that are living processes of a run; reads only these, so it is quick."""
    if identity.boot_id != boot_id():
        return frozenset()
    session_is_proven = leader(identity) is not None
    found = set()
    for pid in pids:
        stat = read_stat(pid)
        if stat is None or stat.state in _GONE:
            continue
        if (session_is_proven and stat.session == identity.session) or _run_id_of(pid) == identity.run_id:
            found.add(pid)
    return frozenset(found)


def are_of_this_namespace(pids: Collection[int]) -> bool:
    """Whether pids that the kernel's drivers name mean our processes: in a container they may be the host's.

    There, they are ours when all of them exist here; when the driver names none, it may hide them.
    """
    if os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE:
        return True
    return bool(pids) and all(read_stat(pid) is not None for pid in pids)


def send(stat: Stat, signal_number: int) -> None:
    """Signal this very process; another one that got its pid meanwhile is left alone."""
    try:
        handle = os.pidfd_open(stat.pid)
    except ProcessLookupError:
        return
    try:
        if alive(stat):
            signal.pidfd_send_signal(handle, signal_number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def alive(stat: Stat) -> bool:
    """Whether this very process (not another one with its pid) still lives; a zombie does not."""
    now = read_stat(stat.pid)
    return now is not None and now.start_ticks == stat.start_ticks and now.state not in _GONE


def title(stat: Stat) -> str:
    """Return the process title (vLLM sets it, for example "VLLM::EngineCore"), else the short name."""
    try:
        command = Path(f"/proc/{stat.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    return command if command.startswith("VLLM::") else stat.name


def describe(stats: list[Stat]) -> tuple[ProcessInfo, ...]:
    """Turn processes into what front ends show."""
    return tuple(ProcessInfo(stat.pid, title(stat), stat.state, stat.memory_bytes) for stat in stats)


def shared_memory_of(stats: list[Stat]) -> set[str]:
    """Return the names of vLLM's kinds of shared-memory files that these processes hold open or mapped.

    Those of Python (`psm_*`, `sem.mp-*`), of vLLM's CPU workers (`vllm_dist_*`) and of NCCL (`nccl-*`).
    """
    # By inode: a semaphore is mapped under a temporary name that is gone at once.
    names = {}
    for entry in os.scandir(_SHM):
        if entry.name.startswith(SHARED_MEMORY_KINDS):
            names[entry.inode()] = entry.name
    held = {inode for stat in stats for inode in (*_open_inodes(stat.pid), *_mapped_inodes(stat.pid))}
    return {name for inode, name in names.items() if inode in held}


def _open_inodes(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{entry}"
            with contextlib.suppress(OSError):
                if os.readlink(path).startswith(_SHM):
                    yield os.stat(path).st_ino


def _mapped_inodes(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            if _SHM in line:
                yield int(line.split(maxsplit=5)[4])


def shared_memory_in_use() -> set[str]:
    """Return the names of such files that any living process holds open or mapped."""
    return shared_memory_of(list(_all()))


def listens_on(stats: list[Stat], port: int) -> bool:
    """Whether one of these processes listens on TCP `port`."""
    return any(
        connection.status == psutil.CONN_LISTEN and connection.laddr.port == port for connection in _connections(stats)
    )


def foreign_clients(stats: list[Stat], port: int) -> frozenset[object]:
    """Return the addresses from which other processes than this one are connected to TCP `port` of these."""
    own = {connection.laddr for connection in psutil.Process().net_connections("tcp")}
    return frozenset(
        connection.raddr
        for connection in _connections(stats)
        if connection.status == psutil.CONN_ESTABLISHED
        and connection.laddr.port == port
        and connection.raddr not in own
    )


def _connections(stats: list[Stat]) -> Iterator[Any]:
    for stat in stats:
        try:
            yield from psutil.Process(stat.pid).net_connections("tcp")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
