"""Checks before a start: the port, the environment, and weights that would have to be downloaded."""

import errno
import socket
from collections.abc import Iterable

import psutil

from backend.checkpoints import catalog
from backend.checkpoints.catalog import ModelFiles, ModelState
from backend.events import Finding, RunStatus, Severity
from backend.launch.environments import EngineEnvironment, EnvironmentState

_TRY_PORTS = 100
_FIRST_PORT_FOR_ALL = 1024
_SHOWN_FILES = 5


def check_environment(environment: EngineEnvironment) -> list[Finding]:
    """An environment that is not sound stops the start."""
    if environment.state is EnvironmentState.OK:
        return []
    return [
        Finding(
            Severity.ERROR,
            f"The engine environment “{environment.id}” is {environment.state}.",
            environment.problem,
            "Install a sound one in Settings, or with `specdeck engines install`.",
        )
    ]


def check_port(host: str, port: int) -> list[Finding]:
    """A port or address that cannot be had stops the start: vLLM would notice only after its slow imports."""
    problem = _bind_problem(host, port)
    if problem is None:
        return []
    number = 0 if isinstance(problem, socket.gaierror | ValueError) else problem.errno
    if number == errno.EADDRINUSE:
        holder = _holder(port)
        what = f"Port {port} is taken{f' by {holder}' if holder else ''}."
        fix = f"Stop that program, or use another port{_suggestion(host, port + 1)}."
    elif number in (errno.EACCES, errno.EPERM):
        what = f"Port {port} is kept for the administrator."
        fix = f"Use a port from {_FIRST_PORT_FOR_ALL} on{_suggestion(host, max(port + 1, _FIRST_PORT_FOR_ALL))}."
    elif number == errno.EADDRNOTAVAIL:
        what = f"{host} is not an address of this machine."
        fix = "Use 127.0.0.1, which is this machine only, or an address that `ip address` shows."
    elif number == 0:
        what = f"{host} is no address, and this machine knows no such name."
        fix = "Check the spelling, or use 127.0.0.1, which is this machine only."
    else:
        what = f"Port {port} of {host} cannot be used: {problem}."
        fix = "Use 127.0.0.1, which is this machine only."
    return [Finding(Severity.ERROR, what, "vLLM would load and then fail.", fix)]


def check_runs(port: int, runs: Iterable[RunStatus]) -> list[Finding]:
    """An engine that still loads has its port, but does not listen yet: two starts would end with one that hangs."""
    return [
        Finding(
            Severity.ERROR,
            f"Port {port} belongs to {run.run_id}, which is {run.state}.",
            "Two engines cannot listen on one port.",
            f"End it in a terminal with `specdeck stop {run.run_id}`, or use another port.",
        )
        for run in runs
        if run.url.endswith(f":{port}")
    ]


def next_free_port(host: str, port: int) -> int | None:
    """Return the first free port from `port` on; None when none of the next hundred is."""
    for candidate in range(max(port, 1), min(port + _TRY_PORTS, 65536)):
        if _bind_problem(host, candidate) is None:
            return candidate
    return None


def _suggestion(host: str, port: int) -> str:
    free = next_free_port(host, port)
    return "" if free is None else f": {free} is free"


def _bind_problem(host: str, port: int) -> OSError | ValueError | None:
    """Bind as vLLM's server does; return what the system says against it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the server does: TIME_WAIT is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except (OSError, ValueError) as problem:  # ValueError: a name that no resolver could be asked for
        return problem
    return None


def _holder(port: int) -> str:
    """Name the program that listens on a port, "" when the system does not tell us."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return ""
    for connection in connections:
        is_it = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        if is_it and connection.pid:
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.NoSuchProcess:
                return ""
    return ""


def check_weights(missing: Iterable[tuple[ModelFiles, int | None, bool]]) -> list[Finding]:
    """Weights of the hub are downloaded only after a yes; a folder that is no whole model stops the start.

    Args:
        missing: for each model its files, the bytes to download (None if unknown), and whether that size is the
            profile's approximate one rather than the hub's.
    """
    findings = []
    for files, size_bytes, approximate in missing:
        if catalog.is_path(files.model):
            findings.append(_not_a_model(files))
            continue
        size = (
            "of unknown size" if size_bytes is None else f"{'about ' if approximate else ''}{size_bytes / 1e9:.1f} GB"
        )
        what = "is not on this machine" if files.state is ModelState.MISSING else "is only partly on this machine"
        findings.append(
            Finding(
                Severity.ERROR,
                f"{files.model} {what}: a download {size}."
                if size_bytes is None
                else f"{files.model} {what}: a download of {size}.",
                "vLLM would fetch it while it starts, which can take hours and fill the disk.",
                "Agree to the download, or choose a profile whose models are here.",
                consent=True,
            )
        )
    return findings


def _not_a_model(files: ModelFiles) -> Finding:
    """A model given as a path is never fetched, so no yes can help."""
    folder = catalog.folder_of(files.model)
    why = "vLLM would load and then fail."
    if files.path is None:
        fix = "Check the path, or name a model of the Hugging Face hub as owner/name."
        return Finding(Severity.ERROR, f"There is no folder {folder}.", why, fix)
    names = ", ".join(files.missing[:_SHOWN_FILES])
    more = len(files.missing) - _SHOWN_FILES
    what = f"The folder {folder} holds no whole model: missing or cut short: {names}"
    return Finding(
        Severity.ERROR,
        f"{what}{f' and {more} more' if more > 0 else ''}.",
        why,
        "Copy these files into it, or choose another model.",
    )
