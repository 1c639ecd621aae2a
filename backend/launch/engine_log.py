"""The engine's log file: new text as it arrives, all lines for a diagnosis, and a limit to its size."""

import codecs
import re
from pathlib import Path

_HEAD_BYTES = 1_000_000  # the start-up and the first errors, which a diagnosis needs
_NOTICE = "\n[specdeck] The log grew past its limit: what stood here was cut; the beginning above is kept.\n"
# Lines that an engine writes although nothing happens in it: our own questions, its figures every 10 s, and the
# complaint of a process that waits for a hung one.
_NO_SIGN_OF_LIFE = re.compile(
    r'"GET /(?:health|metrics)\b|Avg prompt throughput: |SpecDecoding metrics: '
    r"|No available shared memory broadcast block"
)


class EngineLog:
    """Reads a log that an engine appends to.

    Attributes:
        size_bytes: size of the file when it was last read.
        news: lines read so far that are a sign of life.
    """

    def __init__(self, file: Path, *, limit_bytes: int) -> None:
        self._file = file
        self._limit_bytes = limit_bytes
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self.size_bytes = 0
        self.news = 0

    def read_new(self) -> str:
        """Return what was written since the last call; at most 1 MB at once, the rest comes with the next calls."""
        try:
            with self._file.open("rb") as stream:
                self.size_bytes = stream.seek(0, 2)
                stream.seek(min(self._offset, self.size_bytes))
                data = stream.read(1_000_000)
        except FileNotFoundError:
            return ""
        self._offset = min(self._offset, self.size_bytes) + len(data)
        if self.size_bytes > self._limit_bytes:
            self._cut()
        text = self._decoder.decode(data)
        *lines, self._line = (self._line + text).split("\n")
        self.news += sum(1 for line in lines if not _NO_SIGN_OF_LIFE.search(line))
        return text

    def _cut(self) -> None:
        """Keep the head; the engine goes on appending, since it writes with O_APPEND."""
        with self._file.open("r+b") as stream:
            stream.truncate(min(_HEAD_BYTES, self._limit_bytes // 2))
        with self._file.open("ab") as stream:
            stream.write(_NOTICE.encode())
        self._offset = self._file.stat().st_size

    def lines(self) -> list[str]:
        """Return every line; a progress bar's carriage returns end lines too."""
        try:
            text = self._file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
