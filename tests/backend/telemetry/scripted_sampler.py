"""Samplers that do what a test writes down: each is Python code that speaks the real protocol."""

import sys
import textwrap
from pathlib import Path

_PRELUDE = """
import json, os, signal, sys, time
from pathlib import Path
from backend.hardware import GpuInfo, GpuProcess, GpuReading, GpuSnapshot
from backend.telemetry.gpu_messages import Encoder

LIVES = Path({lives!r})
with LIVES.open("a") as file:
    file.write(f"{{os.getpid()}} {{time.monotonic()}}\\n")
life = len(LIVES.read_text().splitlines())
encoder = Encoder()

def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def say(*uuids, used=3e9, processes=None, interval_s=0.5, **parts):
    t = time.time()
    parts.setdefault("gpus", tuple(GpuInfo(uuid, "Test GPU", index) for index, uuid in enumerate(uuids)))
    parts.setdefault("readings", tuple(
        GpuReading(uuid, t, memory_used_bytes=used, processes=processes) for uuid in uuids
    ))
    write(encoder.line(GpuSnapshot(t=t, interval_s=interval_s, **parts)))

def go_on(*uuids, **parts):
    while True:
        say(*uuids, **parts)
        time.sleep(0.05)

def hang():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(600)
"""


class Script:
    """A sampler that runs `code`; in it `life` says the how manieth start this is."""

    def __init__(self, folder: Path, code: str) -> None:
        self._lives = folder / "lives"
        file = folder / "sampler.py"
        file.write_text(_PRELUDE.format(lives=str(self._lives)) + textwrap.dedent(code))
        self.argv = (sys.executable, "-P", str(file))

    @property
    def pids(self) -> list[int]:
        """Of every start so far."""
        return [int(line.split()[0]) for line in self._lines()]

    @property
    def starts_s(self) -> list[float]:
        """When each came to its first statement, on the monotonic clock."""
        return [float(line.split()[1]) for line in self._lines()]

    def _lines(self) -> list[str]:
        try:
            text = self._lives.read_text()
        except FileNotFoundError:
            return []
        return text[: text.rfind("\n") + 1].splitlines()


def is_alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
