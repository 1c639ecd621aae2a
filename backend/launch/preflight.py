"""Checks before a start: the port, the environment, and weights that would have to be downloaded."""

import socket
from collections.abc import Iterable

import psutil

from backend.checkpoints.catalog import ModelFiles
from backend.events import Finding, Severity
from backend.launch.environments import EngineEnvironment, EnvironmentState

_TRY_PORTS = 100


def check_environment(environment: EngineEnvironment) -> list[Finding]:
    """An environment that is not sound stops the start."""
    if environment.state is EnvironmentState.OK:
        return []
    return [
        Finding(
            Severity.ERROR,
            f"The engine environment “{environment.id}” is {environment.state}.",
            environment.problem,
            "Run `specdeck engines install` to make a sound one.",
        )
    ]


def check_port(host: str, port: int) -> list[Finding]:
    """A port that something else holds stops the start: vLLM would notice only after its slow imports."""
    if _is_free(host, port):
        return []
    holder = _holder(port)
    return [
        Finding(
            Severity.ERROR,
            f"Port {port} is taken{f' by {holder}' if holder else ''}.",
            "vLLM would load and then fail.",
            f"Stop that program, or use another port: {next_free_port(host, port + 1)} is free.",
        )
    ]


def next_free_port(host: str, port: int) -> int:
    """Return the first free port from `port` on."""
    for candidate in range(port, min(port + _TRY_PORTS, 65536)):
        if _is_free(host, candidate):
            return candidate
    return 0


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT is no obstacle
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


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
    """Weights that are not on disk are downloaded only after a yes.

    Args:
        missing: for each model its files, the bytes to download (None if unknown), and whether that size is the
            profile's approximate one rather than the hub's.
    """
    findings = []
    for files, size_bytes, approximate in missing:
        size = (
            "of unknown size" if size_bytes is None else f"{'about ' if approximate else ''}{size_bytes / 1e9:.1f} GB"
        )
        what = "is not on this machine" if files.state == "missing" else "is only partly on this machine"
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
