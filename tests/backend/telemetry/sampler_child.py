"""A sampler child as a test starts it: its snapshots one by one, its input, its end."""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from backend.hardware import GpuSnapshot
from backend.telemetry.gpu_messages import Decoder

LIMIT_S = 60.0
ARGV = (sys.executable, "-P", "-m", "backend.telemetry.gpu_sampler")


class SamplerChild:
    """The sampler, as long as a `with` lasts; by default at its fastest pace."""

    def __init__(self, environment: Mapping[str, str], *args: str, interval: str = "0.25") -> None:
        self.process = subprocess.Popen(
            [*ARGV, "--interval", interval, *args],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._decoder = Decoder()
        self._bytes = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        self.process.wait(LIMIT_S)

    def next(self) -> GpuSnapshot:
        """The next snapshot that it writes."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + LIMIT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._bytes:
                assert selector.select(deadline - time.monotonic()), "the sampler says nothing"
                some = os.read(self.process.stdout.fileno(), 65536)
                assert some, f"the sampler ended: {self.words()}"
                self._bytes += some
        line, _, self._bytes = self._bytes.partition(b"\n")
        return self._decoder.snapshot(line)

    def until(self, condition: Callable[[GpuSnapshot], object]) -> GpuSnapshot:
        """The next snapshot of which something is true."""
        deadline = time.monotonic() + LIMIT_S
        while not condition(snapshot := self.next()):
            assert time.monotonic() < deadline, f"that did not come true: {snapshot}"
        return snapshot

    def tell(self, **changes: object) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(changes).encode() + b"\n")

    def end_input(self) -> None:
        """Close its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(LIMIT_S)

    def words(self) -> str:
        """What it wrote to its standard error until its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()
