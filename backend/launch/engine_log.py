"""The engine's log file: new text as it arrives, its lines for a diagnosis, and a limit to its size."""

import codecs
import re
from pathlib import Path

# What is kept when a log is cut: the start-up and the first errors, and the newest lines, which tell of a crash.
_KEPT_BYTES = 1_000_000
_NOTICE = b"\n[specdeck] The log grew past its limit: what stood here was cut.\n"
_CHUNK_BYTES = 1_000_000
# A diagnosis reads no more than this from either end: a crash for lack of memory is no time to take much.
_READ_BYTES = 4_000_000
_LONGEST_LINE = 10_000
# Lines that an engine writes although nothing happens in it: our own questions, its figures every 10 s, and the
# complaint of a process that waits for a hung one.
_NO_SIGN_OF_LIFE = re.compile(
    r'"GET /(?:health|metrics)\b|Avg prompt throughput: |SpecDecoding metrics: '
    r"|No available shared memory broadcast block"
)


class EngineLog:
    """Reads a log that an engine appends to.

    Attributes:
        news: lines read so far that are a sign of life.
    """

    def __init__(self, file: Path, *, limit_bytes: int) -> None:
        self._file = file
        self._limit_bytes = limit_bytes
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self.news = 0

    def read_new(self) -> str:
        """Return what was written since the last call; at most 1 MB at once, the rest comes with the next calls."""
        try:
            with self._file.open("rb") as stream:
                size = stream.seek(0, 2)
                self._offset = min(self._offset, size)
                stream.seek(self._offset)
                data = stream.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return ""
        self._offset += len(data)
        text = self._decoder.decode(data)
        *lines, rest = (self._line + text).replace("\r", "\n").split("\n")
        self._line = rest[-_LONGEST_LINE:]
        self.news += sum(1 for line in lines if not _NO_SIGN_OF_LIFE.search(line))
        if size > self._limit_bytes:
            self._cut(size)
        return text

    def _cut(self, size: int) -> None:
        """Keep both ends; the engine goes on appending, since it writes with O_APPEND."""
        kept = min(_KEPT_BYTES, self._limit_bytes // 4)
        with self._file.open("r+b") as stream:
            stream.seek(size - kept)
            tail = stream.read()
            stream.truncate(kept)
        with self._file.open("ab") as stream:
            stream.write(_NOTICE + tail)
        self._offset = self._file.stat().st_size

    def lines(self) -> tuple[list[str], bool]:
        """Return the lines, a progress bar's carriage returns ending lines too, and whether these are all.

        Of a very large log only both ends are read.
        """
        try:
            with self._file.open("rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(0)
                data = stream.read(_READ_BYTES if size > 2 * _READ_BYTES else size)
                is_whole = len(data) >= size
                if not is_whole:
                    stream.seek(-_READ_BYTES, 2)
                    data += b"\n" + stream.read(_READ_BYTES)
        except FileNotFoundError:
            return [], True
        text = data.decode("utf-8", errors="replace")
        return text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), is_whole
