"""Reads an engine's log as it grows: bytes in, lines out, ready to be shown and with the level of each."""

import codecs
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from backend.launch import colour_codes
from backend.launch.log_levels import LevelFinder

_CHUNK_BYTES = 1_000_000
_SCAN_BYTES = 4_000_000
# Who has not read for so long takes up the last lines again, rather than everything in between.
_FAR_BYTES = 20_000_000
_LONGEST_LINE = 4_000
# What is kept of a line that has no end; enough for a whole shown line however many codes stand in it.
_LONGEST_RAW = 64_000

# Controls, and the marks that turn the order of the letters around them: text in a log must look as it is.
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ENDS = re.compile(r"\r\n|\n|\r")


class TailLine(NamedTuple):
    """One shown line: its 1-based number as `EngineLog.lines` counts, text without codes, level or ""."""

    number: int
    text: str
    level: str


@dataclass(frozen=True, slots=True)
class Tail:
    """What one reading found.

    Attributes:
        lines: in order; the last one may be unfinished, then the next reading replaces it.
        reset: everything before this is void: it is the first reading, or the log was cut or has grown too much.
        replaces_last: the first line stands for the last one of the reading before.
        more: the file holds more that can be read at once.
    """

    lines: tuple[TailLine, ...]
    reset: bool = False
    replaces_last: bool = False
    more: bool = False


class LogTail:
    """Follows one file; not for several threads at once."""

    def __init__(self, file: Path, *, keep_lines: int = 50_000) -> None:
        """Begin with the last `keep_lines` lines of what is there already."""
        self._file = file
        self._keep_lines = keep_lines
        self._begun = False
        self._offset = 0
        self._size = 0
        self._lines = Lines()

    def read(self) -> Tail:
        """Read on, at most 1 MB at once; a file that is not there yet brings nothing.

        Raises:
            OSError: it cannot be read; the next reading goes on where this one began.
        """
        try:
            with self._file.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                reset = not self._begun or size < self._size or size - self._size > _FAR_BYTES
                if reset:
                    self._offset, number = _start_of_last(stream.fileno(), self._keep_lines)
                    self._lines = Lines(number)
                stream.seek(self._offset)
                data = stream.read(_CHUNK_BYTES)
                if os.fstat(stream.fileno()).st_size < size:  # it is being cut: what was read may be torn
                    self._begun = False
                    return Tail((), more=True)
        except FileNotFoundError:
            return Tail(())
        except _WasCut:
            self._begun = False
            return Tail((), more=True)
        self._begun, self._size = True, size
        self._offset += len(data)
        lines, replaces_last = self._lines.feed(data, is_all=self._offset >= size)
        return Tail(lines, reset, replaces_last and not reset, more=self._offset < size)


class Lines:
    """Turns bytes, cut anywhere, into lines.

    A lone carriage return lets the following text take the line's place, as progress bars want it, but counts as the
    end of a line, so that numbers agree with those of a diagnosis.
    """

    def __init__(self, first_number: int = 1) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._levels = LevelFinder()
        self._number = first_number  # of the piece in `_raw`
        self._raw = ""  # text since the last end of a line or carriage return
        self._n_raw = 0  # its whole length
        self._row: tuple[int, str] | None = None  # what carriage returns have left standing in this line
        self._shown = False  # the unfinished line was told
        self._withheld = False  # it was not, since more was at hand

    def feed(self, data: bytes, *, is_all: bool = True) -> tuple[tuple[TailLine, ...], bool]:
        """Take bytes; return lines, and whether the first replaces the last one told.

        The unfinished line is told too, unless more is at hand (`is_all` is False).
        """
        text = self._decoder.decode(data)
        if not text and not (is_all and self._withheld):
            return (), False
        self._withheld = not is_all
        lines: list[TailLine] = []
        if self._raw.endswith("\r"):
            self._raw, self._n_raw, text = self._raw[:-1], self._n_raw - 1, "\r" + text
        # A carriage return at the end waits: a line feed may follow, and then it is no lone one.
        held = "\r" if text.endswith("\r") else ""
        start = 0
        for end in _ENDS.finditer(text, 0, len(text) - len(held)):
            self._keep(text[start : end.start()])
            start = end.end()
            self._end_piece()
            if end.group() != "\r":
                lines.append(self._finished())
        self._keep(text[start : len(text) - len(held)])
        unfinished = self._unfinished() if is_all else None
        self._raw, self._n_raw = self._raw + held, self._n_raw + len(held)
        if unfinished is not None:
            lines.append(TailLine(*unfinished, self._levels.peek(unfinished[1])))
        if not lines:
            return (), False
        replaces_last, self._shown = self._shown, unfinished is not None
        return tuple(lines), replaces_last

    def _keep(self, text: str) -> None:
        self._n_raw += len(text)
        self._raw += text[: max(_LONGEST_RAW - len(self._raw), 0)]

    def _end_piece(self) -> None:
        self._row = self._unfinished() or self._row
        self._number += 1
        self._raw, self._n_raw = "", 0

    def _unfinished(self) -> tuple[int, str] | None:
        """Number and text of the line as it stands; an empty piece wipes nothing out."""
        text = shown(self._raw, self._n_raw)
        return (self._number, text) if text else self._row

    def _finished(self) -> TailLine:
        number, text = self._row or (self._number - 1, "")
        self._row = None
        return TailLine(number, text, self._levels.next(text))


def shown(raw: str, length: int | None = None) -> str:
    """Return text without terminal codes, with other controls made visible, and cut when it is monstrous.

    Args:
        raw: the text.
        length: how long the line really is, if `raw` is only its beginning.
    """
    length = len(raw) if length is None else length
    text = colour_codes.strip(raw)
    if "\t" in text:
        text = text.expandtabs(8)
    if not text.isprintable():
        text = _CONTROLS.sub(_visible, text)
    text = text.rstrip()
    if len(text) > _LONGEST_LINE or length > len(raw):
        return f"{text[:_LONGEST_LINE]} … [cut here: the line has {length:,} characters]"
    return text


def _visible(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


class _WasCut(Exception):
    """The file was cut between counting its lines and looking at them."""


def _start_of_last(handle: int, keep_lines: int) -> tuple[int, int]:
    """Return where the last `keep_lines` lines of a file begin, and the number of the first of them.

    Raises:
        _WasCut: the file is no longer what was counted.
    """
    chunks: list[tuple[int, int]] = []  # line feeds, and all ends of lines
    offset, last = 0, b""
    while data := os.pread(handle, _SCAN_BYTES, offset):
        feeds = data.count(b"\n")
        pairs = data.count(b"\r\n") + (last == b"\r" and data[:1] == b"\n")
        chunks.append((feeds, feeds + data.count(b"\r") - pairs))
        offset, last = offset + len(data), data[-1:]
    skip = sum(feeds for feeds, _ in chunks) - keep_lines
    if skip <= 0:
        return 0, 1
    number = 1
    for index, (feeds, ends) in enumerate(chunks):
        if feeds >= skip:
            data = os.pread(handle, _SCAN_BYTES, index * _SCAN_BYTES)
            place = -1
            for _ in range(skip):
                place = data.find(b"\n", place + 1)
                if place < 0:
                    raise _WasCut
            before = data[: place + 1]
            ends = before.count(b"\n") + before.count(b"\r") - before.count(b"\r\n")
            if index and before[:1] == b"\n" and os.pread(handle, 1, index * _SCAN_BYTES - 1) == b"\r":
                ends -= 1
            return index * _SCAN_BYTES + place + 1, number + ends
        skip -= feeds
        number += ends
    raise AssertionError("the line feeds were counted before")
