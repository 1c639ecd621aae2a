"""Places in a pasted text: words that know where they stand, errors that point at them, secrets out of sight."""

import bisect
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from backend.errors import UserError

_SNIPPET = 100
HIDDEN = "********"
_HIDDEN_FROM, _SURE_FROM = 6, 10  # characters: shorter ones stand in other words too

# Long enough that no name of an option or a field is taken for a token.
_LOOKS_SECRET = re.compile(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{12,}|sk-[A-Za-z0-9_-]{12,}|gh[pousr]_[A-Za-z0-9]{12,}|AKIA[A-Z0-9]{12,}"
    r"|nvapi-[\w-]{12,})(?!\w)"
)
_NAMED = re.compile(
    r"(?P<before>(?:--(?:api|hf)[-_](?:key|token)|--(?:token|password)|Authorization:(?:\s*Bearer|\s*Basic)?|Bearer)"
    r"[=\s]+[\"']?"
    r"|\b[A-Za-z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_KEY|ACCESS_KEY)\b[\"']?\s*[=:]\s*[\"']?)"
    r"(?P<secret>(?!\$)[^\s\"',;]+)"
)
_CREDENTIALS = re.compile(r"(?P<before>://[^/\s:@]+:)(?P<secret>[^/\s@]+)(?=@)")


class ImportTextError(UserError):
    """A text that cannot be imported, and the place where it went wrong.

    Attributes:
        line: 1-based line number, `column` 1-based, `length` characters that are meant; 0 when it is no place.
    """

    def __init__(self, message: str, what_to_do: str = "", *, line: int = 0, column: int = 0, length: int = 0) -> None:
        super().__init__(message, what_to_do)
        self.line = line
        self.column = column
        self.length = length


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command line as the program would get it.

    Attributes:
        text: its value, quotes and variables resolved.
        line: where it begins in the whole text, 1-based; `column` likewise, `length` characters there.
        quoted: some of it stood in quotes.
        from_env: the variable, if the whole word is one that only the person's own shell can know.
    """

    text: str
    line: int = 0
    column: int = 0
    length: int = 0
    quoted: bool = False
    from_env: str = ""

    def part(self, start: int) -> "Word":
        """Return the rest of the word from a character on; its place is exact where nothing was resolved."""
        exact = self.length == len(self.text)
        return replace(
            self,
            text=self.text[start:],
            column=self.column + start if exact else self.column,
            length=self.length - start if exact else self.length,
        )


@dataclass(frozen=True, slots=True)
class Source:
    """A text to be read, whole or a part of a larger one.

    Attributes:
        text: what is read.
        whole: the text that a person sees, to show a line of it.
        line: where `text` begins in it; `column` likewise.
        exact: each character of `text` stands there as it is; else only the beginning can be pointed at.
        length: characters of `text` as they stand there, when it is not exact.
        secrets: texts that must never be shown.
    """

    text: str
    whole: str
    line: int = 1
    column: int = 1
    exact: bool = True
    length: int = 1
    secrets: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "Source":
        """Return a whole text, with line ends made alike."""
        plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        return cls(plain, plain)

    def place(self, index: int) -> tuple[int, int]:
        """Return line and column in the whole text of a character of `text`."""
        if not self.exact:
            return self.line, self.column
        starts = _line_starts(self.text)
        lines = bisect.bisect_right(starts, index) - 1
        column = index - starts[lines] + 1
        return self.line + lines, column if lines else self.column + column - 1

    def word(self, text: str, start: int, end: int, *, quoted: bool = False, from_env: str = "") -> Word:
        """Return a word that stands from `start` to `end`."""
        line, column = self.place(start)
        return Word(text, line, column, max(1, end - start if self.exact else self.length), quoted, from_env)

    def fail(self, start: int, end: int, message: str, what_to_do: str = "") -> NoReturn:
        """Raise an error that points at a stretch of `text`.

        Raises:
            ImportTextError: always.
        """
        self.fail_at(self.word("", start, end), message, what_to_do)

    def fail_at(self, word: Word, message: str, what_to_do: str = "") -> NoReturn:
        """Raise an error that points at a word.

        Raises:
            ImportTextError: always.
        """
        if not word.line:
            raise ImportTextError(redacted(message, self.secrets), what_to_do)
        lines = self.whole.split("\n")
        shown = lines[word.line - 1] if word.line <= len(lines) else ""
        shown = "".join(
            " " if ord(c) < 32 or ord(c) == 127 else c for c in redacted(shown, self.secrets, same_length=True)
        )
        cut = max(0, word.column - 1 - _SNIPPET // 2)
        snippet = shown[cut : cut + _SNIPPET].rstrip()
        caret = " " * (word.column - 1 - cut) + "^" * max(1, min(word.length, len(snippet) - (word.column - 1 - cut)))
        raise ImportTextError(
            f"Line {word.line}, column {word.column}: {redacted(message, self.secrets)}\n  {snippet}\n  {caret}",
            what_to_do,
            line=word.line,
            column=word.column,
            length=word.length,
        )

    def inner(self, text: str, word: Word) -> "Source":
        """Return a text that stands inside a word: a command that is given to another shell."""
        exact = word.length == len(text) and "\n" not in text
        return replace(self, text=text, line=word.line, column=word.column, exact=exact, length=word.length)

    def hide(self, secret: str) -> None:
        """Never show this text again; very short ones would make everything unreadable."""
        if len(secret) >= _HIDDEN_FROM:
            self.secrets[secret] = None

    def holds_secret(self, text: str) -> bool:
        """Whether a text holds a secret that was found, or what looks like one, whatever its name."""
        known = any(secret in text for secret in self.secrets if len(secret) >= _SURE_FROM)
        return known or _LOOKS_SECRET.search(text) is not None or _CREDENTIALS.search(text) is not None


@functools.lru_cache(maxsize=8)
def _line_starts(text: str) -> tuple[int, ...]:
    return (0, *(found.end() for found in re.finditer("\n", text)))


def redacted(text: str, secrets: Mapping[str, None] | None = None, *, same_length: bool = False) -> str:
    """Return a text with everything that is or looks like a secret hidden.

    Args:
        text: what is to be shown.
        secrets: texts that are known to be secrets.
        same_length: keep the length, so that columns still fit.
    """

    def cover(secret: str) -> str:
        return "*" * len(secret) if same_length else HIDDEN

    for secret in sorted(secrets or (), key=len, reverse=True):
        text = text.replace(secret, cover(secret))
    text = _NAMED.sub(lambda found: found["before"] + cover(found["secret"]), text)
    text = _CREDENTIALS.sub(lambda found: found["before"] + cover(found["secret"]), text)
    return _LOOKS_SECRET.sub(lambda found: cover(found.group()), text)
