"""Runs the probe in an environment's own interpreter, keeps its answer, and says in words why one failed."""

import hashlib
import json
import logging
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend import child, paths
from backend.launch import engine_folder, probe

log = logging.getLogger(__name__)

TIME_LIMIT_S = 180.0
_SCRIPT = Path(__file__).with_name("probe_script.py")


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """What a probe found: `probe` when vLLM works, else `problem` in words."""

    probe: probe.Probe | None
    problem: str = ""


def run(python: Path, *, limit_s: float = TIME_LIMIT_S) -> tuple[ProbeOutcome, Mapping[str, Any] | None]:
    """Run the probe with `python`; takes 16 to 19 s for a real vLLM, and never raises for a broken one.

    Args:
        python: the environment's interpreter.
        limit_s: the probe is ended after this many seconds.

    Returns:
        The outcome and the raw answer, None when there was none.
    """
    with tempfile.TemporaryDirectory(prefix="specdeck-probe-") as empty:  # nothing to import by accident
        # The text goes in by `-c`: run as a file, the script's own folder would be searched for modules.
        argv = child.command([str(python), "-c", _SCRIPT.read_text(encoding="utf-8")])
        try:
            done = subprocess.run(
                argv,
                cwd=empty,
                env=engine_folder.clean_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ProbeOutcome(None, f"Its vLLM did not answer within {limit_s:.0f} s."), None
    if done.returncode != 0:
        return ProbeOutcome(None, _exit_words(python, done.returncode, done.stderr)), None
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
        return ProbeOutcome(None, _import_words(str(failure)))
    parsed = probe.parse(answer)
    if not parsed.platform or answer["platform"].get("unspecified"):
        return ProbeOutcome(
            None,
            "Its vLLM finds no device that it can run on; a CUDA build needs an NVIDIA driver that answers.",
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


def _exit_words(python: Path, code: int, stderr: bytes) -> str:
    if code in (-signal.SIGILL, 128 + signal.SIGILL):
        return (
            "Importing its vLLM was ended by an illegal instruction: this CPU lacks instructions that the build "
            "uses, or it is the wrong build for this machine."
        )
    if code < 0:
        name = signal.Signals(-code).name
        return f"Importing its vLLM was ended by {name}" + (
            ", most likely because memory ran out." if code == -signal.SIGKILL else "."
        )
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    return f"{python} ended with code {code}" + (f": {lines[-1].strip()}" if lines else ".")


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


def probe_now(python: Path, folder: Path, *, limit_s: float = TIME_LIMIT_S) -> ProbeOutcome:
    """Run the probe and keep what it found, good or bad."""
    key = _key(python, folder)
    outcome, answer = run(python, limit_s=limit_s)
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
