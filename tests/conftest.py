"""What every test gets: private XDG folders, and a check that it left no process, thread or socket behind."""

import gc
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fakes.fake_nvml import fake_nvml_fixture as fake_nvml_fixture
from tests.fakes.fake_nvml import loaded_nvml_fixture as loaded_nvml_fixture
from tests.fakes.fake_nvml import nvml_library_fixture as nvml_library_fixture

# Every process that comes from this test session inherits it, whoever becomes its parent later.
USER_ENVIRONMENT = dict(os.environ)
MARK = f"PYTEST_SESSION_MARK={uuid.uuid4().hex}"
os.environ["PYTEST_SESSION_MARK"] = MARK.partition("=")[2]


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


# Started before the leak check takes stock, since they outlive the test that asks first.
SHARED = ("engine_folder", "engine_python", "tiny_models", "tiny_engine", "demo_models")


@pytest.fixture(scope="session")
def engine_folder() -> Path:
    """Folder of the real engine environment in the user's own data folder; `make test` has installed it."""
    listed = subprocess.run(
        [sys.executable, "-P", "-m", "backend.cli", "engines", "list", "--json"],
        env=USER_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    folders = [entry["folder"] for entry in json.loads(listed.stdout) if entry["state"] == "ok"]
    assert folders, "there is no engine environment: run the tests with `make test`, which installs one"
    return Path(folders[0])


@pytest.fixture(scope="session")
def engine_python(engine_folder: Path) -> Path:
    """Interpreter of the real engine environment."""
    return engine_folder / "bin" / "python"


@pytest.fixture(scope="session")
def tiny_models(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tiny random pair, `tiny-target` and `tiny-draft`."""
    folder = tmp_path_factory.mktemp("models")
    script = Path(__file__).parent / "fakes" / "tiny_models.py"
    subprocess.run([str(engine_python), str(script), str(folder)], check=True, capture_output=True)
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of `make soak`."""
    parser.addoption("--soak-starts", type=int, default=3, help="how often the soak starts an engine")
    parser.addoption("--open-close", type=int, default=1, help="how often a window is closed in each state")
    parser.addoption("--soak-seed", type=int, default=1, help="which processes the soak kills")
