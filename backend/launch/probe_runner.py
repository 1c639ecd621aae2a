"""Runs the probe in an environment's own interpreter, keeps its answer, and says in words why one failed."""

import hashlib
import json
import logging
import re
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend import bounded, child, paths
from backend.clean_env import clean_environment
from backend.errors import Cancelled
from backend.launch import engine_folder, probe

log = logging.getLogger(__name__)

TIME_LIMIT_S = 180.0
_SCRIPT = Path(__file__).with_name("probe_script.py")
# Failures of the moment, not of the environment: a driver that is not loaded (yet), or a machine without memory.
_PASSING = re.compile(
    r"libcuda\.so|libnvidia-ml|NVIDIA driver|CUDA driver|CUDA-capable device|NVML|MemoryError|allocate memory"
    r"|out of memory|Resource temporarily unavailable|Too many open files|No space left",
    re.IGNORECASE,
)


class ProbeCancelled(Cancelled):
    """Somebody gave the probe up; its process has ended and nothing was kept."""


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """What a probe found: `probe` when vLLM works, else `problem` in words.

    `lasting` is False for trouble that may be gone the next time, such as a busy machine or a missing driver: it
    says nothing about the environment, so it is never kept.
    """

    probe: probe.Probe | None
    problem: str = ""
    lasting: bool = True


def run(
    python: Path, *, limit_s: float = TIME_LIMIT_S, cancelled: Callable[[], bool] | None = None
) -> tuple[ProbeOutcome, Mapping[str, Any] | None]:
    """Run the probe with `python`; takes 16 to 19 s for a real vLLM, and never raises for a broken one.

    Args:
        python: the environment's interpreter.
        limit_s: the probe is ended after this many seconds.
        cancelled: the probe is ended once it says yes.

    Returns:
        The outcome and the raw answer, None when there was none.
    """
    with tempfile.TemporaryDirectory(prefix="specdeck-probe-") as empty:  # nothing to import by accident
        # The text goes in by `-c`: run as a file, the script's own folder would be searched for modules.
        argv = child.command([str(python), "-c", _SCRIPT.read_text(encoding="utf-8")])
        done = bounded.run(argv, cwd=empty, env=clean_environment(), limit_s=limit_s, cancelled=cancelled)
    if done.code is None:
        return ProbeOutcome(None, f"Its vLLM did not answer within {limit_s:.0f} s.", lasting=False), None
    if done.code != 0:
        return _ended(python, done.code, done.stderr), None
    try:
        answer: Mapping[str, Any] = json.loads(done.stdout)
        return read(answer), answer
    except ValueError as error:
        return ProbeOutcome(None, f"The probe of {python} gave no usable answer: {error}."), None


def read(answer: Mapping[str, Any]) -> ProbeOutcome:
    """Judge an answer of the probe.

    Raises:
        ValueError: it is no complete answer of this schema.
    """
    if failure := answer.get("import_error"):
        lasting = not _PASSING.search(str(failure))
        return ProbeOutcome(None, _import_words(str(failure)), lasting=lasting)
    parsed = probe.parse(answer)
    if not parsed.platform or answer["platform"].get("unspecified"):
        return ProbeOutcome(
            None,
            "Its vLLM finds no device that it can run on; a CUDA build needs an NVIDIA driver that answers.",
            lasting=False,
        )
    return ProbeOutcome(parsed)


def _import_words(failure: str) -> str:
    first = failure.strip().splitlines()[0]
    if "torchvision::" in first:
        return (
            f"Importing its vLLM fails: {first}. Its torchvision was built for another torch: uninstall "
            "torchvision, torchaudio and torchcodec there."
        )
    return f"Importing its vLLM fails: {first}."


def _ended(python: Path, code: int, stderr: bytes) -> ProbeOutcome:
    """Judge an interpreter that ended without an answer."""
    number = -code if code < 0 else code - 128  # a shell in between tells a signal as 128 + number
    if number == signal.SIGILL:
        return ProbeOutcome(
            None,
            "Importing its vLLM was ended by an illegal instruction: this CPU lacks instructions that the build "
            "uses, or it is the wrong build for this machine.",
        )
    names = {known.value: known.name for known in signal.Signals}
    if number in names:
        why = ", most likely because memory ran out." if number == signal.SIGKILL else "."
        return ProbeOutcome(None, f"Importing its vLLM was ended by {names[number]}{why}", lasting=False)
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1].strip() if lines else ""
    words = f"{python} ended with code {code}" + (f": {last}" if last else ".")
    return ProbeOutcome(None, words, lasting=not _PASSING.search(last))


def cached(python: Path, folder: Path) -> ProbeOutcome | None:
    """Return what an earlier probe of this very install found, None if there was none or it has changed since."""
    try:
        content = json.loads(_cache_file(python).read_text(encoding="utf-8"))
        if content["key"] != _key(python, folder):
            return None
        if content["answer"] is None:
            return ProbeOutcome(None, str(content["problem"]))
        return read(content["answer"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("A kept probe could not be read and is made anew: %r", error)
        return None


def probe_now(
    python: Path, folder: Path, *, limit_s: float = TIME_LIMIT_S, cancelled: Callable[[], bool] | None = None
) -> ProbeOutcome:
    """Run the probe and keep what it found, good or bad, unless the trouble may pass: then what was kept stays."""
    key = _key(python, folder)
    outcome, answer = run(python, limit_s=limit_s, cancelled=cancelled)
    if not outcome.lasting:
        return outcome
    content = {"schema": 1, "key": key, "answer": answer, "problem": outcome.problem}
    paths.write_atomic(_cache_file(python), json.dumps(content))
    return outcome


def forget(python: Path) -> None:
    """Delete what is kept about an interpreter."""
    _cache_file(python).unlink(missing_ok=True)


def _cache_file(python: Path) -> Path:
    name = hashlib.sha256(str(python).encode()).hexdigest()[:24]
    return paths.folders().cache / "probes" / f"{name}.json"


def _key(python: Path, folder: Path) -> dict[str, object]:
    """What makes a kept probe stale: another vLLM (or a re-installed one), or an environment made anew."""
    package = engine_folder.vllm_package(folder)
    return {
        "schema": probe.SCHEMA,
        "python": str(python),
        "package": None if package is None else package.folder.name,
        "package_mtime_ns": None if package is None else package.folder.stat().st_mtime_ns,
        "config_mtime_ns": _mtime_ns(folder / "pyvenv.cfg"),
    }


def _mtime_ns(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
