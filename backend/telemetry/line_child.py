"""A child process that talks in lines: bounded in all it may say, and never waited for once it hangs."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

from backend import bounded, child

LONGEST_LINE_BYTES = 1 << 20
_TAIL_BYTES = 4096
_DRAIN_BYTES = 1 << 20
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: `code` as of `subprocess`, None when it could not be killed; `stderr` its last words."""

    code: int | None
    stderr: str


class LineChild:
    """A child with pipes on its standard streams; enter it to start it, and leave it to be sure that it ends.

    It ends with this process, however this one dies, and belongs to the event loop in which it was entered: the
    thread of that loop must live as long as the child should.
    """

    def __init__(self, argv: Sequence[str], *, grace_s: float = 0.5) -> None:
        """Keep the command for later.

        Args:
            argv: the command.
            grace_s: how long it may take to end after its input was closed, and again after it was killed.
        """
        self._argv = argv
        self._grace_s = grace_s
        self._tail = b""
        self._ended: Ended | None = None
        self._pipe: asyncio.ReadTransport | None = None

    async def __aenter__(self) -> Self:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        stdout = self._spawn()
        loop = asyncio.get_running_loop()
        self._lines = asyncio.StreamReader(limit=LONGEST_LINE_BYTES, loop=loop)
        try:
            self._pipe, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(self._lines, loop=loop), stdout
            )
        except BaseException:
            stdout.close()
            await self.end(at_once=True)
            raise
        return self

    def _spawn(self) -> IO[bytes]:
        """Start it in this very thread, which is what its end hangs on; returns its standard output."""
        self._process = subprocess.Popen(
            child.command(self._argv),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._stdin, self._stderr = stdin, stderr
        os.set_blocking(stdin.fileno(), False)
        os.set_blocking(stderr.fileno(), False)
        return stdout

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it, if that was not done before."""
        await self.end()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def line(self) -> bytes | None:
        """Return its next whole line without the end of line; None once it says no more.

        One that is too long comes as several empty ones. Giving up waiting loses nothing.
        """
        self._drain()  # nobody else reads what it complains about, and a full pipe would stop it
        try:
            line = await self._lines.readline()
        except ValueError:
            return b""
        return line[:-1] if line.endswith(b"\n") else None

    def send(self, line: bytes) -> bool:
        """Give it a line to read; False when it has ended, or has not read what it was given for long."""
        try:
            return os.write(self._stdin.fileno(), line + b"\n") == len(line) + 1
        except (OSError, ValueError):  # a full or broken pipe, a closed one
            return False

    async def end(self, *, at_once: bool = False) -> Ended:
        """End it: by closing its input, then by force; one that hangs inside the kernel is left behind.

        Args:
            at_once: kill it without asking.
        """
        if self._ended is not None:
            return self._ended
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            if at_once or not await self._is_gone(self._grace_s):
                self._process.kill()
                await self._is_gone(self._grace_s)
        finally:  # also when the wait is cut short
            if self._process.poll() is None:
                self._process.kill()
                bounded.leave_behind(self._process)
            self._drain()
            self._stderr.close()
            if self._pipe is not None:
                self._pipe.close()
            self._ended = Ended(self._process.poll(), self._tail.decode(errors="replace"))
        await asyncio.sleep(0)  # the loop closes a pipe in its next round, and may be about to stop
        return self._ended

    async def _is_gone(self, limit_s: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while self._process.poll() is None:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    def _drain(self) -> None:
        """Take what it wrote to its standard error, at most so much at a time, and keep the end."""
        for _ in range(_DRAIN_BYTES // (1 << 16)):
            try:
                some = os.read(self._stderr.fileno(), 1 << 16)
            except (OSError, ValueError):
                return
            if not some:
                return
            self._tail = (self._tail + some)[-_TAIL_BYTES:]
