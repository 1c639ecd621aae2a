"""Cuts a Markdown text into pieces that are rendered one by one: runs of prose, and code blocks."""

import re
from dataclasses import dataclass

# Rendering this much takes about a millisecond; a piece is cut at the next blank line.
_PROSE_CHARS = 1500
# A paragraph or table without a blank line is cut at a line's end beyond this, and a single line at a space.
_HARD_CHARS = 4000
_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>.*)$")


@dataclass(frozen=True, slots=True)
class Prose:
    """Markdown without code blocks."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """A fenced code block without its fences; `language` as written behind the first one."""

    text: str
    language: str


def split(markdown: str) -> tuple[Prose | Code, ...]:
    """Cut a text; a code block whose end is missing goes on to the end of the text."""
    pieces: list[Prose | Code] = []
    prose: list[str] = []
    code: list[str] = []
    fence: re.Match[str] | None = None
    in_list = False  # the last code block was indented
    for line in markdown.split("\n"):
        if fence is not None:
            if _closes(fence, line):
                pieces.append(Code("\n".join(code), _language(fence)))
                fence, code = None, []
            else:
                code.append(_unindented(line, len(fence["indent"])))
            continue
        fence = _FENCE.match(line)
        if fence is not None and fence["marks"][0] == "`" and "`" in fence["info"]:
            fence = None  # inline code that stands at the start of a line
        if fence is None:
            prose.append(line)
        else:
            pieces += _prose(_outdented(prose) if in_list else prose)
            prose, in_list = [], bool(fence["indent"])
    if fence is not None:
        pieces.append(Code("\n".join(code), _language(fence)))
    return (*pieces, *_prose(_outdented(prose) if in_list else prose))


def _closes(fence: re.Match[str], line: str) -> bool:
    marks = line.strip()
    return len(marks) >= len(fence["marks"]) and set(marks) == {fence["marks"][0]}


def _language(fence: re.Match[str]) -> str:
    words = fence["info"].split()
    return words[0].strip("{}.") if words else ""


def _unindented(line: str, width: int) -> str:
    """Drop the indentation that a block inside a list shares with its fence."""
    blank = len(line) - len(line.lstrip(" \t"))
    return line[min(blank, width) :]


def _prose(lines: list[str]) -> list[Prose | Code]:
    """Join lines to pieces of a size that renders quickly."""
    lines = [part for line in lines for part in _short(line)]
    pieces: list[Prose | Code] = []
    piece: list[str] = []
    size = 0
    for number, line in enumerate(lines):
        piece.append(line)
        size += len(line) + 1
        following = lines[number + 1] if number + 1 < len(lines) else ""
        # An indented line may belong to the list above.
        at_gap = not line.strip() and bool(following.strip()) and not following[0].isspace()
        if (size > _PROSE_CHARS and at_gap) or size > _HARD_CHARS:
            pieces.append(Prose("\n".join(piece).strip("\n")))
            piece, size = [], 0
    pieces.append(Prose("\n".join(piece).strip("\n")))
    return [piece for piece in pieces if piece.text.strip()]


def _short(line: str) -> list[str]:
    """Cut a line that is too long for one piece."""
    parts = []
    while len(line) > _HARD_CHARS:
        at = line.rfind(" ", _HARD_CHARS // 2, _HARD_CHARS) + 1 or _HARD_CHARS
        parts.append(line[:at])
        line = line[at:]
    return [*parts, line]


def _outdented(lines: list[str]) -> list[str]:
    """Take away the indentation of text that follows a code block inside a list, or it would read as code."""
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if not filled:
        return lines
    width = len(lines[filled[0]]) - len(lines[filled[0]].lstrip(" "))
    result = list(lines)
    for number in range(filled[0], len(lines) if width >= 2 else 0):
        if lines[number].strip() and not lines[number].startswith(" " * width):
            break
        result[number] = lines[number][width:]
    return result
