"""Checks before a start."""

import os
import socket
from pathlib import Path

from backend.checkpoints.catalog import ModelFiles, ModelState
from backend.events import Severity
from backend.launch import preflight
from backend.launch.environments import EngineEnvironment, EnvironmentState


def test_a_taken_port_names_its_holder_and_a_free_one() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        (finding,) = preflight.check_port("127.0.0.1", port)
        free = preflight.next_free_port("127.0.0.1", port)
    assert finding.severity is Severity.ERROR
    assert not finding.consent
    assert f"pid {os.getpid()}" in finding.what
    assert free != port
    assert preflight.check_port("127.0.0.1", port) == []


def test_a_port_that_only_waits_for_old_connections_is_free() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as vLLM's server does
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()  # this side closes first, so it stays in TIME_WAIT
    assert preflight.check_port("127.0.0.1", port) == []


def test_an_environment_that_is_not_sound_stops_the_start() -> None:
    def environment(state: EnvironmentState) -> EngineEnvironment:
        return EngineEnvironment("e", Path("/e"), Path("/e/bin/python"), True, state, problem="why")

    assert preflight.check_environment(environment(EnvironmentState.OK)) == []
    (finding,) = preflight.check_environment(environment(EnvironmentState.BROKEN))
    assert finding.severity is Severity.ERROR
    assert finding.why == "why"


def test_missing_weights_need_a_yes_and_tell_their_size() -> None:
    missing = ModelFiles("a/b", ModelState.MISSING, None, 0)
    partial = ModelFiles("c/d", ModelState.PARTIAL, Path("/x"), 5, ("model.safetensors",))
    exact, about, unknown = preflight.check_weights(
        [(missing, 141_107_497_872, False), (partial, 2_471_645_608, True), (missing, None, True)]
    )
    assert all(finding.consent and finding.severity is Severity.ERROR for finding in (exact, about, unknown))
    assert "a/b is not on this machine: a download of 141.1 GB" in exact.what
    assert "c/d is only partly on this machine: a download of about 2.5 GB" in about.what
    assert "unknown size" in unknown.what
