"""Which processes are a run's own: by session and start time, or by the run id in their environment."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend.launch import processes
from backend.launch.processes import Identity
from tests.backend.launch import runs as helpers

# Starts a child in the same session and one in a session of its own, and waits.
FAMILY = (
    "import subprocess, sys;"
    "wait = [sys.executable, '-c', 'import time; time.sleep(600)'];"
    "a = subprocess.Popen(wait); b = subprocess.Popen(wait, start_new_session=True);"
    "print(a.pid, b.pid, flush=True); sys.stdin.read()"
)


class Family:
    def __init__(self, run_id: str) -> None:
        self.leader = subprocess.Popen(
            [sys.executable, "-c", FAMILY],
            env={**os.environ, "SPECDECK_RUN_ID": run_id},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        assert self.leader.stdout is not None
        self.inside, self.outside = map(int, self.leader.stdout.readline().split())
        ticks = int(Path(f"/proc/{self.leader.pid}/stat").read_text().rpartition(")")[2].split()[19])
        self.identity = Identity(run_id, processes.boot_id(), self.leader.pid, ticks)

    def kill_leader(self) -> None:
        self.leader.kill()
        self.leader.wait()
        for pipe in (self.leader.stdin, self.leader.stdout):
            assert pipe is not None
            pipe.close()

    def end(self) -> None:
        for pid in (self.inside, self.outside):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kill_leader()
        helpers.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (self.inside, self.outside)))


@pytest.fixture
def family(no_leaks: None) -> Iterator[Family]:
    made = Family("run-of-a-test")
    yield made
    made.end()


def _pids(identity: Identity, *, everywhere: bool = True) -> set[int]:
    return {stat.pid for stat in processes.members(identity, everywhere=everywhere)}


def test_members_are_the_session_and_whatever_carries_the_run_id(family: Family) -> None:
    assert _pids(family.identity) == {family.leader.pid, family.inside, family.outside}
    assert _pids(family.identity, everywhere=False) == {family.leader.pid, family.inside}


def test_orphans_are_proven_by_the_run_id_once_the_leader_is_gone(family: Family) -> None:
    family.kill_leader()
    assert processes.leader_gone(family.identity)
    assert _pids(family.identity) == {family.inside, family.outside}


def test_a_reused_session_number_proves_nothing(family: Family) -> None:
    stranger = replace(family.identity, run_id="another run", start_ticks=1)
    assert _pids(stranger) == set()


def test_nothing_survives_a_reboot(family: Family) -> None:
    assert _pids(replace(family.identity, boot_id="another boot")) == set()
    assert processes.leader(replace(family.identity, boot_id="another boot")) is None


def test_a_run_that_was_never_written_down_is_proven_by_its_run_id(family: Family) -> None:
    assert family.inside in _pids(replace(family.identity, session=None, start_ticks=None))


def test_a_zombie_is_gone(family: Family) -> None:
    family.leader.send_signal(signal.SIGKILL)
    stat = Path(f"/proc/{family.leader.pid}/stat")
    helpers.wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    assert processes.leader_gone(family.identity)
    assert family.leader.pid not in _pids(family.identity)


def test_a_signal_meant_for_a_dead_process_hits_nobody(family: Family) -> None:
    stat = processes.read_stat(family.inside)
    assert stat is not None
    processes.send(replace(stat, start_ticks=stat.start_ticks - 1), signal.SIGKILL)
    assert family.inside in _pids(family.identity)
    processes.send(stat, signal.SIGKILL)
    helpers.wait_for(lambda: family.inside not in _pids(family.identity))
    processes.send(replace(stat, pid=2**22 - 1), signal.SIGKILL)


def test_names_with_brackets_and_blanks_are_read(tmp_path: Path) -> None:
    rename = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a) S (b', 0, 0, 0); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        stat = processes.read_stat(child.pid)
        assert stat is not None
        assert stat.name == "a) S (b"
        assert stat.session == os.getsid(child.pid)
        child.kill()


def test_a_semaphore_is_known_though_its_mapped_name_is_gone() -> None:
    hold = (
        "import multiprocessing as m, sys; s = m.get_context('spawn').Semaphore();"
        "print(s._semlock.name, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        name = "sem." + child.stdout.readline().strip().lstrip("/")
        stat = processes.read_stat(child.pid)
        assert stat is not None
        assert name in processes.shared_memory_of([stat])
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
    assert name not in processes.shared_memory_in_use()


def test_the_members_among_pids_that_somebody_names(family: Family) -> None:
    named = {family.leader.pid, family.inside, family.outside, os.getpid(), 2**22 + 7}
    assert processes.belonging(family.identity, named) == {family.leader.pid, family.inside, family.outside}
    assert processes.belonging(family.identity, {family.outside}) == {family.outside}
    assert processes.belonging(family.identity, set()) == frozenset()


def test_named_pids_are_proven_like_all_others(family: Family) -> None:
    named = {family.leader.pid, family.inside, family.outside}
    stranger = replace(family.identity, run_id="another run", start_ticks=1)
    assert processes.belonging(stranger, named) == frozenset()
    assert processes.belonging(replace(family.identity, boot_id="another boot"), named) == frozenset()
    family.kill_leader()
    assert processes.belonging(family.identity, named) == {family.inside, family.outside}


def test_in_a_container_named_pids_are_ours_when_they_are_all_here(monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = os.getpid(), 2**22 + 7
    first = os.stat("/proc/self/ns/pid").st_ino
    monkeypatch.setattr(processes, "_FIRST_PID_NAMESPACE", first)
    assert processes.are_of_this_namespace({here, elsewhere})
    assert processes.are_of_this_namespace(set())
    monkeypatch.setattr(processes, "_FIRST_PID_NAMESPACE", first + 1)
    assert processes.are_of_this_namespace({here, os.getppid()})
    assert not processes.are_of_this_namespace({here, elsewhere})
    assert not processes.are_of_this_namespace(set())
