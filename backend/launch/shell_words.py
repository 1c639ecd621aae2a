"""The words of a shell text: quotes, escapes, continuations, comments and variables, read and never run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from backend.launch.import_text import Source, Word
from backend.launch.profile_types import is_secret_variable
from backend.launch.shell_scope import BRACED, NAME, Scope, Value

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>\n|&;]{0,60}>")
_REDIRECT = re.compile(r"(\d*)(&>>|&>|>>|>\||>&|<&|<>|>|<)(-|\d+(?![^\s;&|]))?")
_OPERATOR = re.compile(r"&&|\|\||\|&|;;|;|&|\||\n")
_TYPOGRAPHIC = {  # by number, since they look like others
    "\u201c": "a typographic quote", "\u201d": "a typographic quote", "\u201e": "a typographic quote",
    "\u2018": "a typographic quote", "\u2019": "a typographic quote", "\u2013": "a typographic dash",
    "\u2014": "a typographic dash", "\u2026": "three dots in one character",
}  # fmt: skip
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b"}
_CHARACTERS, _WORDS, _RESOLVED = 50_000, 2_000, 500_000  # most in one value, in one list, from all variables
_NOT_FOLLOWED = "Specdeck reads a script and never runs it. Write here what it comes to."


@dataclass(frozen=True, slots=True)
class Assignment:
    """`NAME=value` before a command, or alone; `words` are those of an array."""

    name: str
    value: Value
    adds: bool
    word: Word


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command: what it sets, its words, and where its output goes; `ending` is the operator behind it."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Word, ...]
    ending: str
    place: Word


def commands(source: Source, scope: Scope) -> Iterator[SimpleCommand]:
    """Yield the commands of a text one by one; what the caller puts into `scope` between two counts for the next.

    Raises:
        ImportTextError: something that would have to be run, a variable that is not set, or quotes that do not end.
    """
    reader = _Reader(source, scope)
    while (command := reader.command()) is not None:
        if command.assignments or command.words or command.redirects:
            yield command


class _Reader:
    def __init__(self, source: Source, scope: Scope) -> None:
        self._source = source
        self._text = source.text
        self._scope = scope
        self._at = 0
        self._resolved = 0  # what variables came to in all

    # ---- commands ------------------------------------------------------------------------------------------------

    def command(self) -> SimpleCommand | None:
        assignments: list[Assignment] = []
        words: list[Word] = []
        redirects: list[Word] = []
        if not self._skip_blanks(newlines=True):
            return None
        start = self._at
        while self._skip_blanks(newlines=False):
            operator = _OPERATOR.match(self._text, self._at)
            if operator is not None and not self._text.startswith(("&>",), self._at):
                self._at = operator.end()
                place = self._source.word("", start, self._at)
                return SimpleCommand(tuple(assignments), tuple(words), tuple(redirects), operator.group(), place)
            if self._text[self._at] in "()":
                self._parenthesis(bool(words))
            if (redirect := self._redirect()) is not None:
                redirects.append(redirect)
            elif not words and (assignment := self._assignment()) is not None:
                assignments.append(assignment)
            else:
                words += self._words()
        place = self._source.word("", start, self._at)
        return SimpleCommand(tuple(assignments), tuple(words), tuple(redirects), "", place)

    def _skip_blanks(self, *, newlines: bool) -> bool:
        """Skip spaces, continuations and comments; False at the end of the text."""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in " \t\u00a0" or (character == "\n" and newlines):
                self._at += 1
            elif (continued := re.compile(r"\\[ \t]*(\n|\Z)").match(self._text, self._at)) is not None:
                self._at = continued.end()
            elif character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return True
        return False

    def _parenthesis(self, has_words: bool) -> NoReturn:
        what = "a function" if has_words else "a group of commands"
        self._fail(self._at, self._at + 1, f"here begins or ends {what}, which is not followed.", _NOT_FOLLOWED)

    def _redirect(self) -> Word | None:
        start = self._at
        if self._text.startswith("<<", start):
            self._fail(start, start + 2, "a text that is fed to a command is not followed.", _NOT_FOLLOWED)
        if self._text.startswith(("<(", ">("), start):
            self._fail(start, start + 2, "a command inside a command is never run.", _NOT_FOLLOWED)
        if (placeholder := _PLACEHOLDER.match(self._text, start)) is not None:
            self._fail(start, placeholder.end(), f"{placeholder.group()} is a placeholder.", "Write the real value.")
        found = _REDIRECT.match(self._text, start)
        if found is None:
            return None
        self._at = found.end()
        if found.group(3) is None:
            self._skip_blanks(newlines=False)
            if self._at >= len(self._text) or _OPERATOR.match(self._text, self._at):
                self._fail(start, found.end(), "the name of a file is missing here.")
            self._words()
        return self._source.word(self._text[start : self._at].replace("\n", " "), start, self._at)

    def _assignment(self) -> Assignment | None:
        found = _ASSIGNMENT.match(self._text, self._at)
        if found is None:
            return None
        start = self._at
        name, adds = found.group(1), bool(found.group(2))
        self._at = found.end()
        if self._text.startswith("(", self._at):
            value: Value = self._array()
            return Assignment(name, value, adds, self._source.word(name, start, self._at))
        word = self._one_word(self._at, assigning=name)
        return Assignment(name, word.text, adds, word)

    def _array(self) -> tuple[Word, ...]:
        start = self._at
        self._at += 1
        words: list[Word] = []
        while True:
            if not self._skip_blanks(newlines=True):
                self._fail(start, start + 1, "a list in ( ) does not end.")
            self._limit(start, len(words), _WORDS)
            if self._text[self._at] == ")":
                self._at += 1
                return tuple(words)
            if _OPERATOR.match(self._text, self._at) or self._text[self._at] in "<>(":
                self._fail(self._at, self._at + 1, "this does not belong into a list in ( ).")
            words += self._words()

    # ---- words ---------------------------------------------------------------------------------------------------

    def _words(self) -> list[Word]:
        """Read one word; a variable without quotes may make it several, or none."""
        start = self._at
        named = _ASSIGNMENT.match(self._text, start)
        assigning = named.group(1) if named else ""  # as in `export NAME=value`
        pieces: list[list[tuple[str, bool]]] = [[]]  # for each resulting word: (text, was quoted)
        whole: list[Word] | None = None
        from_env = ""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in " \t\n\u00a0;&|<>()":
                break
            begin = self._at
            if character == "$" and (array := self._whole_array(self._at)) is not None:
                whole = [*(whole or []), *array]
                continue
            if character == '"' and (array := self._whole_array(self._at + 1, quoted=True)) is not None:
                whole = [*(whole or []), *array]
                continue
            if character == "$" and self._text[self._at + 1 : self._at + 2] not in {"'", '"'}:
                value, name = self._variable(assigning=assigning)
                from_env = name or from_env
                if assigning or name:
                    pieces[-1].append((value, False))
                else:
                    self._split(value, pieces)
                continue
            quoted, text, name = self._piece(assigning=assigning)
            from_env = name or from_env
            pieces[-1].append((text, quoted))
            assert self._at > begin
        if whole is not None:
            self._limit(start, len(whole), _WORDS)
            if any(piece for piece in pieces):
                self._fail(start, self._at, "a list stands inside a longer word here.", "Write the words one by one.")
            return whole
        self._limit(start, sum(len(text) for piece in pieces for text, _ in piece), _CHARACTERS)
        joined = [("".join(text for text, _ in piece), any(quoted for _, quoted in piece)) for piece in pieces if piece]
        return [self._source.word(text, start, self._at, quoted=quoted, from_env=from_env) for text, quoted in joined]

    def _one_word(self, start: int, *, assigning: str) -> Word:
        """Read a value, which no variable splits."""
        parts: list[str] = []
        from_env = ""
        quoted = False
        while self._at < len(self._text) and self._text[self._at] not in " \t\n\u00a0;&|<>()":
            if self._text[self._at] == "$" and self._text[self._at + 1 : self._at + 2] not in {"'", '"'}:
                text, name = self._variable(assigning=assigning)
            else:
                was_quoted, text, name = self._piece(assigning=assigning)
                quoted = quoted or was_quoted
            from_env = name or from_env
            parts.append(text)
        value = "".join(parts)
        self._limit(start, len(value), _CHARACTERS)
        return self._source.word(value, start, max(self._at, start + 1), quoted=quoted, from_env=from_env)

    def _split(self, value: str, pieces: list[list[tuple[str, bool]]]) -> None:
        fields = value.split()
        if value[:1].isspace() and pieces[-1]:
            pieces.append([])
        for place, text in enumerate(fields):
            if place:
                pieces.append([])
            pieces[-1].append((text, False))
        if fields and value[-1:].isspace():
            pieces.append([])

    def _piece(self, *, assigning: str = "") -> tuple[bool, str, str]:
        """Read the next stretch of a word; returns whether it was quoted, its text, and an unknown variable's name."""
        character = self._text[self._at]
        if character == "'":
            end = self._text.find("'", self._at + 1)
            if end < 0:
                self._fail(self._at, self._at + 1, "this quote does not end.")
            text = self._text[self._at + 1 : end]
            self._at = end + 1
            return True, text, ""
        if character == "$":
            return (True, self._ansi(), "") if self._text[self._at + 1] == "'" else self._double(1, assigning)
        if character == '"':
            return self._double(0, assigning)
        if character == "\\":
            self._at += 2
            following = self._text[self._at - 1 : self._at]
            return True, "" if following == "\n" else following, ""
        if character == "`":
            self._fail(self._at, self._at + 1, "a command in backticks is never run.", _NOT_FOLLOWED)
        if character in _TYPOGRAPHIC:
            what = _TYPOGRAPHIC[character]
            self._fail(self._at, self._at + 1, f"{character} is {what}.", "Write the plain sign of the keyboard.")
        self._at += 1
        return False, character, ""

    def _double(self, skip: int, assigning: str) -> tuple[bool, str, str]:
        start = self._at
        self._at += skip + 1
        parts: list[str] = []
        unknown = ""
        while True:
            character = self._text[self._at : self._at + 1]
            if not character:
                self._fail(start, start + 1, "this quote does not end.")
            if character == '"':
                self._at += 1
                return True, "".join(parts), unknown
            if character == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                self._at += 2
                parts.append({"\n": "", "": ""}.get(following, following if following in '$`"\\' else f"\\{following}"))
            elif character == "$":
                value, name = self._variable(assigning=assigning)
                unknown = name or unknown
                parts.append(value)
            elif character == "`":
                self._fail(self._at, self._at + 1, "a command in backticks is never run.", _NOT_FOLLOWED)
            else:
                parts.append(character)
                self._at += 1

    def _ansi(self) -> str:
        """Read $'...', with its escapes."""
        start = self._at
        self._at += 2
        parts: list[str] = []
        while (character := self._text[self._at : self._at + 1]) != "'":
            if not character:
                self._fail(start, start + 2, "this quote does not end.")
            self._at += 1
            if character == "\\":
                following = self._text[self._at : self._at + 1]
                self._at += 1
                code = re.compile(r"[0-9a-fA-F]{1,2}").match(self._text, self._at) if following == "x" else None
                if code is not None:
                    self._at = code.end()
                    parts.append(chr(int(code.group(), 16)))
                else:
                    parts.append(_ANSI.get(following, f"\\{following}"))
            else:
                parts.append(character)
        self._at += 1
        return "".join(parts)

    # ---- variables -----------------------------------------------------------------------------------------------

    def _whole_array(self, at: int, *, quoted: bool = False) -> tuple[Word, ...] | None:
        """Read "${NAME[@]}" or "$@", which stand for several words; None if something else stands there."""
        found = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}|[@*])" + ('"' if quoted else "")).match(
            self._text, at
        )
        if found is None:
            return None
        name = found.group(1)
        if name is None:  # the script's own arguments: there are none
            self._at = found.end()
            return ()
        value = self._scope.values.get(name)
        if not isinstance(value, tuple):
            self._fail(
                at, found.end(), f"the list {name} is not set anywhere before.", "Set it above, or write the words."
            )
        self._at = found.end()
        self._scope.used.add(name)
        self._resolved += len(value)
        self._limit(at, self._resolved, _RESOLVED)
        return tuple(self._source.word(word.text, at, found.end(), quoted=True) for word in value)

    def _variable(self, *, assigning: str = "") -> tuple[str, str]:
        """Read `$NAME` or `${NAME...}`; returns its value, or "" and its name when only the person's shell knows."""
        start = self._at
        following = self._text[start + 1 : start + 2]
        if following in {"(", "["}:
            self._fail(start, start + 2, "a command inside a command is never run.", _NOT_FOLLOWED)
        if following in {"@", "*"}:
            self._at = start + 2
            return "", ""
        if following == "{":
            braced = BRACED.match(self._text, start + 1)
            if braced is None:
                end = self._text.find("}", start)
                self._fail(
                    start, (end if end > 0 else start + 1) + 1, "this use of a variable is not followed.", _NOT_FOLLOWED
                )
            self._at = braced.end()
            return self._value(braced["name"], start, braced["operation"] or "", braced["word"] or "", assigning)
        name = NAME.match(self._text, start + 1)
        if name is not None:
            self._at = name.end()
            return self._value(name.group(), start, "", "", assigning)
        if following and following in "0123456789#?$!-":
            self._fail(start, start + 2, f"${following} is known only while a script runs.", _NOT_FOLLOWED)
        self._at += 1
        return "$", ""

    def _value(self, name: str, start: int, operation: str, word: str, assigning: str) -> tuple[str, str]:
        value = self._scope.text(name)
        if name in self._scope.shell_only:
            self._fail(
                start, self._at, f"{name} is added to what your shell has, which is not known here.", _NOT_FOLLOWED
            )
        is_there = value is not None and not (operation.startswith(":") and not value)
        if operation.endswith("+"):
            value = self._plain(word, start) if is_there else ""
        elif operation.endswith(("-", "=")) and not is_there:
            value = self._plain(word, start)
            if operation.endswith("="):
                self._scope.values[name] = value
        elif not is_there and (is_secret_variable(name) or name == assigning):
            return "", name
        if value is None or (not is_there and operation.endswith("?")):
            self._fail(
                start, self._at, f"${name} is not set anywhere before.", "Set it above, or write its value here."
            )
        self._scope.used.add(name)
        self._resolved += len(value)
        self._limit(start, self._resolved, _RESOLVED)
        return value, ""

    def _plain(self, word: str, start: int) -> str:
        """Return the other value in ${NAME:-word}; variables in it are not followed."""
        if "$" in word:
            self._fail(start, self._at, "a variable inside a variable is not followed.", _NOT_FOLLOWED)
        return word.strip("\"'") if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word

    def _limit(self, start: int, size: int, most: int) -> None:
        """Variables made of variables can grow without end."""
        if size > most:
            self._fail(start, start + 1, "this grows too long.", "Write what it comes to.")

    def _fail(self, start: int, end: int, message: str, what_to_do: str = "") -> NoReturn:
        self._source.fail(start, end, message, what_to_do)
