"""Cuts a Markdown text into pieces that are rendered one by one: runs of prose, and code blocks."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

# What rendering costs, in microseconds as measured on a slow machine; a turn of the event loop must stay below 16,000.
_LINE_COST, _CHAR_COST, _MARK_COST, _IMAGE_COST, _CELL_COST = 50, 1, 12, 40, 60
_ENOUGH = 2000  # a piece that costs this much ends at the next blank line
_MOST = 4000  # one without a blank line ends at a line's end, and a single line at a space
_TABLE_MOST = 4500
_PAUSE_LINES = 250
_TABLE_ROWS = 15  # rows below one heading
_TABLE_COLUMNS = 10  # a wider one is shown as it was written, where it can be scrolled
_MARK = re.compile(r"[`*_~\[<>&]|://")
_ITEM = re.compile(r"^[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_RULER = re.compile(r":?-+:?")
_BAR = re.compile(r"(?<!\\)\|")
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


def split(markdown: str) -> Iterator[Prose | Code | None]:
    """Cut a text; a code block whose end is missing goes on to the end of the text.

    Yields:
        The pieces in order, and None now and then where the work may be interrupted.
    """
    prose: list[str] = []
    code: list[str] = []
    fence: re.Match[str] | None = None
    in_list = False  # the last code block was indented
    for number, line in enumerate(markdown.split("\n"), 1):
        if number % _PAUSE_LINES == 0:
            yield None
        if fence is not None:
            if _closes(fence, line):
                yield Code("\n".join(code), _language(fence))
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
            yield from _prose(_outdented(prose) if in_list else prose)
            prose, in_list = [], bool(fence["indent"])
    if fence is not None:
        yield Code("\n".join(code), _language(fence))
    yield from _prose(_outdented(prose) if in_list else prose)


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


def _prose(lines: list[str]) -> Iterator[Prose | Code | None]:
    """Join lines to pieces of a size that renders quickly; a table is one or more pieces of its own."""
    at = begin = 0
    in_list = False
    while at < len(lines):
        if at % _PAUSE_LINES == 0:
            yield None
        end = _table_end(lines, at)
        if end == at:
            in_list = _still_in_list(lines[at], in_list)
            at += 1
            continue
        yield from _text(lines[begin:at])
        yield from _table([line.lstrip(" \t") for line in lines[at:end]] if in_list else lines[at:end])
        if in_list:  # what follows in the list would read as code without it
            lines = [*lines[:end], *_outdented(lines[end:])]
        at = begin = end
    yield from _text(lines[begin:])


def _text(lines: list[str]) -> Iterator[Prose | None]:
    """Cut lines without tables."""
    waiting = deque(lines)
    piece: list[str] = []
    size = n_lines = 0
    in_list = False
    while waiting:
        n_lines += 1
        if n_lines % _PAUSE_LINES == 0:
            yield None
        line = waiting[0]
        cost = _cost(line)
        if cost > _MOST:
            waiting.popleft()
            waiting.extendleft(reversed(_short(line, cost)))
            continue
        # An indented line may belong to the list above.
        at_gap = bool(piece) and not piece[-1].strip() and bool(line.strip()) and not line[0].isspace()
        if piece and ((size > _ENOUGH and at_gap) or size + cost > _MOST):
            yield from _joined(piece)
            piece, size = [], 0
            if in_list and line[:1].isspace():
                waiting = deque(_outdented(list(waiting)))
                continue
        in_list = _still_in_list(line, in_list)
        piece.append(waiting.popleft())
        size += cost
    yield from _joined(piece)


def _joined(lines: list[str]) -> Iterator[Prose]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield Prose(text)


def _still_in_list(line: str, in_list: bool) -> bool:
    """Whether a line begins an item of a list or may belong to one."""
    return bool(_ITEM.match(line)) or (in_list and (not line.strip() or line[0].isspace()))


def _cost(line: str) -> int:
    return (
        _LINE_COST
        + _CHAR_COST * len(line) * (1 if line.isascii() else 2)
        + _MARK_COST * len(_MARK.findall(line))
        + _IMAGE_COST * line.count("![")
    )


def _short(line: str, cost: int) -> list[str]:
    """Cut a line that is too long for one piece."""
    room = max(1, len(line) * (_MOST // 2) // cost)
    parts = []
    while len(line) > room:
        at = line.rfind(" ", room // 2, room) + 1 or room
        parts.append(line[:at])
        line = line[at:]
    return [*parts, line]


def _table_end(lines: list[str], at: int) -> int:
    """Where the table ends whose heading is line `at`; `at` itself if none begins there."""
    if at + 1 == len(lines) or "|" not in lines[at] or "|" not in lines[at + 1]:
        return at
    ruler = _cells(lines[at + 1])
    if not all(_RULER.fullmatch(cell.strip()) for cell in ruler) or len(_cells(lines[at])) != len(ruler):
        return at
    end = at + 2
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end


def _cells(line: str) -> list[str]:
    return _BAR.split(line.strip(" \t>").removeprefix("|").removesuffix("|"))


def _table(lines: list[str]) -> Iterator[Prose | Code]:
    """Cut a table between rows, and give each piece its heading."""
    columns = len(_cells(lines[0]))
    costs = [_cost(line) + _CELL_COST * columns for line in lines]
    if columns > _TABLE_COLUMNS or costs[0] + max(costs[2:], default=0) > _TABLE_MOST:
        yield Code("\n".join(lines), "table")
        return
    piece, size = lines[:2], costs[0]
    for row, cost in zip(lines[2:], costs[2:], strict=True):
        if len(piece) > 2 and (len(piece) == 2 + _TABLE_ROWS or size + cost > _TABLE_MOST):
            yield Prose("\n".join(piece))
            piece, size = lines[:2], costs[0]
        piece.append(row)
        size += cost
    yield Prose("\n".join(piece))


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
