"""Finds out how serious each line of an engine's log is, over all the formats that are mixed in it."""

import re

from backend.launch.diagnosis import find_cause

# "(Worker_TP0 pid=12) ", with Ray's own prefix before it; then vLLM's and uvicorn's levels, or none.
_PROCESS = re.compile(r"(?:\(RayWorkerProc[^)]*\) ?)?\([\w. :-]+ pid=\d+\) ?")
_LEVEL = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b(?=:| \d| *\[| *$)")
# PyTorch's C++ side writes "[W1130 13:51:07.028138586 utils.cpp:68] ..."; Python "file.py:24: SomeWarning: ...".
_CPP = re.compile(r"\[([IWEF])\d{4} ")
_PYTHON_WARNING = re.compile(r"\S+:\d+: \w*Warning: ")
_NAMES = {"CRITICAL": "ERROR", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "ERROR"}
_TRACEBACK = re.compile(r"[ |+]*(?:Exception Group )?Traceback \(most recent call last\)")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")

# Where a process is in a traceback: inside one, or behind the line that names the exception.
_INSIDE, _BEHIND = "inside", "behind"


class LevelFinder:
    """Tells the level of one line after the other; the lines of a traceback are errors though they do not say so."""

    def __init__(self) -> None:
        self._tracebacks: dict[str, str] = {}

    def next(self, text: str) -> str:
        """Return the level of the next line: DEBUG, INFO, WARNING, ERROR, or "" when nothing says one."""
        process, level, traceback = self._judge(text)
        if traceback is None:
            self._tracebacks.pop(process, None)
        else:
            self._tracebacks[process] = traceback
        return level

    def peek(self, text: str) -> str:
        """Return the level of a line that is not finished yet."""
        return self._judge(text)[1]

    def _judge(self, text: str) -> tuple[str, str, str | None]:
        """The process that wrote a line, its level, and where it is in a traceback afterwards."""
        prefix = _PROCESS.match(text)
        process = prefix.group() if prefix else ""
        body = text[len(process) :]
        state = self._tracebacks.get(process)
        if found := _LEVEL.match(body) or _CPP.match(body):
            return process, _NAMES.get(found[1], found[1]), state
        if _TRACEBACK.match(body):
            return process, "ERROR", _INSIDE
        if state is not None:
            if not body or body[0] in " |+" or body.startswith(_CHAINED):
                return process, "ERROR", state
            if state == _INSIDE:
                return process, "ERROR", _BEHIND
        if _PYTHON_WARNING.match(body):
            return process, "WARNING", None
        return process, "ERROR" if body and find_cause([text]) else "", None
