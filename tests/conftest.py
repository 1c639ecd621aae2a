"""What every test gets: private XDG folders, and a check that it left no process, thread or socket behind."""

import gc
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# Every process that comes from this test session inherits it, whoever becomes its parent later.
MARK = f"PYTEST_SESSION_MARK={uuid.uuid4().hex}"
os.environ.update([MARK.split("=")])


@pytest.fixture(autouse=True)
def xdg(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every XDG folder and the Hugging Face home into a folder of this test."""
    home = tmp_path_factory.mktemp("home")
    for name in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    monkeypatch.setenv("HF_HOME", str(home / "huggingface"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    return home


def _processes() -> dict[int, str]:
    """Our children, and every process that carries our mark (an engine is no child once its starter died)."""
    found = {child.pid: child.name() for child in _children()}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if MARK.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found


def _children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    ]


def _sockets() -> set[str]:
    """Sockets that this process holds, by inode."""
    links = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:"):
            links.add(target)
    return links


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process, a thread or a socket behind (session fixtures start before it)."""
    for name in request.fixturenames:  # what a whole module or session shares is no leak of one test
        if name in SHARED:
            request.getfixturevalue(name)
    processes, threads, sockets = set(_processes()), set(threading.enumerate()), _sockets()
    yield
    deadline = time.monotonic() + 10
    while True:
        new_processes = {pid: name for pid, name in _processes().items() if pid not in processes}
        new_threads = [thread for thread in threading.enumerate() if thread not in threads]
        new_sockets = _sockets() - sockets
        if not (new_processes or new_threads or new_sockets):
            return
        if time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.05)  # the end of a process is not an event that we could wait for here
    pytest.fail(f"left behind: processes {new_processes}, threads {new_threads}, sockets {new_sockets}")


SHARED = {"engine_python", "engine_folder", "tiny_models", "tiny_engine"}


@pytest.fixture(scope="session")
def engine_folder() -> Path:
    """Folder of the real engine environment; `make test` installs it and says where in this variable."""
    folder = os.environ.get("SPECDECK_TEST_ENGINE")
    assert folder, "SPECDECK_TEST_ENGINE is not set: run the tests with `make test`"
    return Path(folder)


@pytest.fixture(scope="session")
def engine_python(engine_folder: Path) -> Path:
    """Interpreter of the real engine environment."""
    python = engine_folder / "bin" / "python"
    assert python.exists(), f"{python} is missing: run the tests with `make test`"
    return python
