"""Why an engine failed: the first real error line of its log, and its exit status in words."""

import re
import signal
from collections.abc import Sequence

from backend.events import Diagnosis
from backend.launch import colour_codes

_RAY_PREFIX = re.compile(r"^\(RayWorkerProc[^)]*\) ")
_PREFIX = re.compile(
    r"^\((?P<process>[A-Za-z_0-9]+) pid=\d+\) (?:(?:ERROR|CRITICAL|WARNING|INFO) [\d-]+ [\d:.]+ \[[^\]]+\] ?)?"
)
# "SomeError: text", with or without the modules before it; argparse writes "program: error: text".
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w]*\.)*(?P<kind>[A-Z]\w*(?:Error|Exception|Interrupt|Exit)|error): ?(?P<text>.*)$"
)
_ARGPARSE = re.compile(r"^\S+: error: .+$")
_PYDANTIC = re.compile(r"^\d+ validation errors? for \w+")
# Between two tracebacks of one chain: the exception that ended the chain follows.
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Lines that only say that another process failed; the cause stands elsewhere.
_ECHOES = (
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "See root cause above",
    "See stack trace",
    "EngineDeadError",
    "EngineCore encountered",
    "cancelled",
)
_NATIVE = (
    "Illegal instruction",
    "Segmentation fault",
    "Bus error",
    "Fatal Python error",
    "out of memory",
)
_DIED = re.compile(r"\b(?:died|exited) unexpectedly", re.IGNORECASE)


def plain(line: str) -> str:
    """Return a log line without colour codes and without the prefixes that name the process."""
    return _RAY_PREFIX.sub("", colour_codes.strip(line)).rstrip()


def _depth(process: str | None) -> int:
    """How deep in the process tree a line was written: the deepest process knows the cause."""
    if process is None or process.startswith("APIServer"):
        return 0
    return 2 if "Worker" in process else 1


def find_cause(lines: Sequence[str]) -> tuple[str, int] | None:
    """Return the first real error of a log and its 1-based line number, None if the log holds none.

    A worker's error beats the engine core's, which beats the API server's: the outer ones are echoes. Within one
    process the end of its first chain of tracebacks counts.
    """
    best: tuple[int, int, str] | None = None
    chained = False
    for index, raw in enumerate(lines):
        line = plain(raw)
        prefix = _PREFIX.match(line)
        body = line[prefix.end() :] if prefix else line
        if body.startswith(_CHAINED):
            chained = True
            continue
        found = _exception_text(body, lines, index)
        if found is None or any(echo in found for echo in _ECHOES):
            continue
        depth = _depth(prefix["process"] if prefix else None)
        if best is None or depth > best[0] or (chained and depth == best[0]):
            best = (depth, index + 1, found)
        chained = False
    return (best[2], best[1]) if best else None


def _exception_text(body: str, lines: Sequence[str], index: int) -> str | None:
    if _ARGPARSE.match(body):
        return body
    exception = _EXCEPTION.match(body)
    if exception is None:
        return body if body.startswith(_NATIVE) or _DIED.search(body) else None
    if _PYDANTIC.match(exception["text"]):  # the reason stands on the lines below
        reason = []
        for following in lines[index + 1 : index + 4]:
            text = plain(following)
            text = text[match.end() :] if (match := _PREFIX.match(text)) else text
            if text.strip().startswith("For further information"):
                break
            reason.append(text.strip().partition(" [type=")[0])
            if "[type=" in text:
                break
        return " ".join(reason).removeprefix("Value error, ").replace(" Value error, ", ": ") or body
    return body


def exit_words(status: int | None, *, asked: bool = False) -> str:
    """Say in words how a process ended.

    Args:
        status: as `subprocess` gives it (negative for a signal), None when unknown (we were not its parent).
        asked: whether somebody had asked for the end.
    """
    if status is None:
        return "the exit status is unknown, since another process had started it"
    if status > 128:  # a shell's way to report a signal
        status = 128 - status
    if status == 0:
        return "exit status 0" if asked else "exit status 0, although nobody asked it to stop: it crashed"
    if status == 2:
        return "exit status 2: vLLM did not accept its arguments"
    if status == -signal.SIGILL:
        return "illegal instruction (SIGILL): this build does not fit this CPU"
    if status == -signal.SIGKILL:
        return "killed (SIGKILL): by a person, or by the system when memory ran out"
    if status < 0:
        try:
            return f"ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"ended by signal {-status}"
    return f"exit status {status}"


def diagnose(lines: Sequence[str], *, status: int | None, health_dead: bool = False) -> Diagnosis:
    """Explain a failure from its log and exit status.

    Args:
        lines: the engine's log.
        status: exit status of the API server, None if unknown.
        health_dead: the engine said itself, by `/health`, that it was dead.
    """
    words = exit_words(status)
    cause = find_cause(lines)
    if cause:
        return Diagnosis(cause[0], words, cause[1])
    if health_dead:
        return Diagnosis("The engine's inner process died; the log holds no error.", words)
    return Diagnosis("The engine ended; the log holds no error.", words)
