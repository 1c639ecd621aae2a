"""Reads pip's output: lines -> steps of an install, and the reason when it failed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_UNITS = {"bytes": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
_DOWNLOADING = re.compile(r"(?:Downloading|Using cached) (\S+) \(([\d.]+) (bytes|kB|MB|GB)\)")
_COLLECTING = re.compile(r"(?:Collecting|Processing) (\S+)")
_INSTALLING = re.compile(r"Installing collected packages: (.+)")
_MISSING = re.compile(r"No matching distribution found for (\S+)")
_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|Temporary failure in name resolution"
    r"|Max retries exceeded|ProxyError|Network is unreachable|ConnectionResetError|RemoteDisconnected"
    r"|Connection refused|Failed to establish a new connection"
)


@dataclass(frozen=True, slots=True)
class InstallStep:
    """How far an install is.

    Attributes:
        name: what is going on, in words.
        fraction: 0..1 of this step, None where it cannot be known.
        detail: the file or package at work.
    """

    name: str
    fraction: float | None = None
    detail: str = ""


class PipReader:
    """Turns pip's lines into steps; keeps what is needed to explain a failure.

    Attributes:
        packages: packages that pip said it installs, () before.
    """

    def __init__(self, *, download_bytes: int) -> None:
        self._expected = max(download_bytes, 1)
        self._seen = 0.0
        self._lines: list[str] = []
        self.packages: tuple[str, ...] = ()

    def feed(self, line: str) -> InstallStep | None:
        """Take one line; return a step if it tells one."""
        line = line.strip()
        if line:
            self._lines = [*self._lines[-400:], line]
        if match := _DOWNLOADING.match(line):
            self._seen += float(match[2]) * _UNITS[match[3]]
            detail = f"{match[1].split('/')[-1].split('-')[0]} ({match[2]} {match[3]})"
            return InstallStep("Downloading", self._downloaded(), detail)
        if match := _COLLECTING.match(line):
            name = match[1].split("/")[-1]
            return InstallStep("Downloading", self._downloaded(), re.split(r"[-<>=!~\[;]", name)[0])
        if match := _INSTALLING.match(line):
            self.packages = tuple(match[1].split(", "))
            return InstallStep("Unpacking", 0.0, f"{len(self.packages)} packages")
        return None

    def _downloaded(self) -> float:
        return min(self._seen / self._expected, 0.99)  # the expected size is approximate

    @property
    def missing(self) -> str:
        """The requirement for which pip found no distribution, "" if it found all."""
        return next((match[1] for line in self._lines if (match := _MISSING.search(line))), "")

    @property
    def network_trouble(self) -> bool:
        """Whether pip could not reach an index."""
        return any(_NETWORK.search(line) for line in self._lines)

    @property
    def last_error(self) -> str:
        """The last line that says what went wrong."""
        return last_error(self._lines)


def last_error(lines: Sequence[str]) -> str:
    """Return the last error line, else the last line that is no notice."""
    errors = [line for line in lines if line.startswith(("ERROR:", "error:", "OSError", "MemoryError"))]
    plain = [line for line in lines if not line.startswith(("WARNING", "[notice]", "DEPRECATION"))]
    return (errors or plain or ["pip said nothing"])[-1]
