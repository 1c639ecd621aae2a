"""Checks before a start."""

import errno
import os
import re
import socket
from pathlib import Path

import pytest

from backend.checkpoints import catalog
from backend.checkpoints.catalog import ModelFiles, ModelState
from backend.events import RunState, RunStatus, Severity
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
    assert free is not None
    assert free > port
    assert re.search(r"another port: \d+ is free", finding.fix)
    assert preflight.check_port("127.0.0.1", port) == []


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("192.0.2.1", "192.0.2.1 is not an address of this machine."),  # a block for examples, nobody has it
        ("2001:db8::1", "2001:db8::1"),  # no such address, or no IPv6 at all
        ("no-such-host.invalid", "no-such-host.invalid is no address, and this machine knows no such name."),
        ("a..b", "a..b is no address, and this machine knows no such name."),
    ],
)
def test_an_address_that_cannot_be_had_is_not_called_a_taken_port(host: str, what: str) -> None:
    (finding,) = preflight.check_port(host, 8000)
    assert finding.severity is Severity.ERROR
    assert not finding.consent
    assert finding.what.startswith(what)
    assert "taken" not in finding.what
    assert "127.0.0.1" in finding.fix
    assert "is free" not in finding.fix


def test_a_port_of_the_administrator_is_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = socket.socket.bind

    def as_a_user(self: socket.socket, address: tuple[str, int]) -> None:  # the tests may run as root
        if address[1] < 1024:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", as_a_user)
    (finding,) = preflight.check_port("127.0.0.1", 80)
    assert finding.what == "Port 80 is kept for the administrator."
    offered = re.search(r"(\d+) is free", finding.fix)
    assert offered is not None
    assert 1024 <= int(offered[1]) < 1124


def test_where_no_port_is_free_none_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(self: socket.socket, address: tuple[str, int]) -> None:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    monkeypatch.setattr(socket.socket, "bind", taken)
    assert preflight.next_free_port("127.0.0.1", 8000) is None
    for port in (8000, 65535):
        (finding,) = preflight.check_port("127.0.0.1", port)
        assert finding.what.startswith(f"Port {port} is taken")
        assert finding.fix == "Stop that program, or use another port."


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


def test_a_path_is_never_offered_as_a_download(tmp_path: Path) -> None:
    """Even with a size at hand: nobody could fetch it."""
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    paths = [tmp_path / "nowhere", tmp_path / "empty", tmp_path / "half"]
    located = [catalog.locate(str(path), built=tmp_path / "built") for path in paths]
    findings = preflight.check_weights([(files, 1_000_000, True) for files in located])
    for path, finding in zip(paths, findings, strict=True):
        assert finding.severity is Severity.ERROR
        assert not finding.consent
        assert str(path) in finding.what
        assert "download" not in finding.what + finding.why + finding.fix
    nowhere, empty, half = (finding.what for finding in findings)
    assert "There is no folder" in nowhere
    assert "config.json, model.safetensors" in empty
    assert "config.json" not in half
    assert "model.safetensors" in half


def test_of_many_missing_files_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    names = tuple(f"model-{number:05}-of-00030.safetensors" for number in range(1, 31))
    (finding,) = preflight.check_weights([(ModelFiles("~/m", ModelState.PARTIAL, Path("/x"), 1, names), None, True)])
    assert "/home/someone/m" in finding.what
    assert "model-00005-of-00030.safetensors and 25 more." in finding.what
    assert "00006" not in finding.what


def test_a_port_of_a_living_run_is_not_free() -> None:
    run = RunStatus("run-1", "p", RunState.STARTING, "http://127.0.0.1:8000", 0.0)
    (finding,) = preflight.check_runs(8000, [run])
    assert "run-1" in finding.what
    assert preflight.check_runs(800, [run]) == []
