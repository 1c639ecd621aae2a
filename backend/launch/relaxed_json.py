"""JSON as it arrives in pasted commands: with quotes lost to a shell, Python's True and None, or stray backslashes."""

import json
import re
from typing import Any, NoReturn

_DEPTH = 40
_BARE = re.compile(r"[^\s,:{}\[\]\"']+")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class RelaxedJsonError(ValueError):
    """No way of reading makes sense; `position` is where the first one got stuck."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def loads(text: str) -> tuple[Any, bool]:
    """Read a value as JSON, or as what is left of JSON after a shell had its way with it.

    Returns:
        The value, and whether the text was strict JSON as it stood.

    Raises:
        RelaxedJsonError: it cannot be read; the message says why.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant)
        if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
            return loads(value)[0], False  # quoted once more by a wrapper
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # half a surrogate pair is no text either
        pass
    else:
        return value, True
    first: RelaxedJsonError | None = None
    stripped = _without_outer_quotes(text)
    for attempt in (stripped, _without_backslashes(stripped)):
        reader = _Reader(attempt)
        try:
            value = reader.document()
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            first = first or RelaxedJsonError("it holds half a character", 0)
        except RelaxedJsonError as error:
            first = first or error
        else:
            return value, False
    assert first is not None
    raise first


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


def _without_outer_quotes(text: str) -> str:
    stripped = text.strip()
    for quote in ("'", '"'):
        if len(stripped) > 1 and stripped.startswith(quote) and stripped.endswith(quote) and stripped[1:2] in "{[\\":
            return stripped[1:-1]
    return stripped


def _without_backslashes(text: str) -> str:
    return re.sub(r"\\([\"'{}\[\],:])", r"\1", text)


class _Reader:
    """Reads JSON with single quotes, bare words and trailing commas."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._at != len(self._text):
            self._fail("something stands after the end of the value")
        return value

    def _fail(self, message: str) -> NoReturn:
        raise RelaxedJsonError(message, self._at)

    def _skip(self) -> str:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        if depth > _DEPTH:
            self._fail("it is nested too deeply")
        character = self._skip()
        if character == "{":
            return self._object(depth)
        if character == "[":
            return self._array(depth)
        if character in {'"', "'"}:
            return self._string(character)
        return self._bare()

    def _object(self, depth: int) -> dict[str, Any]:
        self._at += 1
        result: dict[str, Any] = {}
        while True:
            character = self._skip()
            if character == "}":
                self._at += 1
                return result
            key = self._string(character) if character in {'"', "'"} else self._word("a key")
            if self._skip() != ":":
                self._fail("a colon is missing after a key")
            self._at += 1
            if key in result:
                self._fail(f"the key {key} stands there twice")
            result[key] = self._value(depth + 1)
            self._comma("}")

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        result: list[Any] = []
        while True:
            if self._skip() == "]":
                self._at += 1
                return result
            result.append(self._value(depth + 1))
            self._comma("]")

    def _comma(self, end: str) -> None:
        character = self._skip()
        if character == ",":
            self._at += 1
        elif character != end:
            self._fail(f"a comma or {end} is missing")

    def _string(self, quote: str) -> str:
        self._at += 1
        parts: list[str] = []
        while True:
            character = self._text[self._at : self._at + 1]
            if not character:
                self._fail("a quoted text does not end")
            self._at += 1
            if character == quote:
                return "".join(parts)
            if character == "\\":
                parts.append(self._escape())
            else:
                parts.append(character)

    def _escape(self) -> str:
        character = self._text[self._at : self._at + 1]
        self._at += 1
        if character == "u":
            digits = self._text[self._at : self._at + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                self._fail("\\u needs four digits")
            self._at += 4
            return chr(int(digits, 16))
        return _ESCAPES.get(character, character)

    def _word(self, what: str) -> str:
        found = _BARE.match(self._text, self._at)
        if found is None:
            self._fail(f"{what} is missing")
        self._at = found.end()
        return found.group()

    def _bare(self) -> Any:
        """A word without quotes: a number, true, false, null, or a text (a model's name may hold colons)."""
        word = self._word("a value")
        while self._text[self._at : self._at + 1] == ":":
            self._at += 1
            word += ":"
            found = _BARE.match(self._text, self._at)
            if found is not None:
                self._at = found.end()
                word += found.group()
        if word in _WORDS:
            return _WORDS[word]
        if _NUMBER.fullmatch(word):
            return float(word) if re.search(r"[.eE]", word) else int(word)
        return word
