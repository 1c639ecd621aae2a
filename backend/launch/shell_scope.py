"""The variables of a pasted text: what it set, and how a value is looked up in it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from backend.launch.import_text import Source, Word
from backend.launch.profile_types import is_secret_variable

Value = str | tuple[Word, ...]
"""What a variable of the script holds: a text, or the words of an array."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BRACED = re.compile(
    r"\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<array>\[[@*]\])?(?:(?P<operation>:?[-=+?])(?P<word>[^{}`]*))?\}"
)
"""${NAME} and its forms with another value, behind the dollar."""


@dataclass(slots=True)
class Scope:
    """The variables of a script as far as it was read.

    Attributes:
        values: what the script set; `exported` the names that programs see.
        shell_only: names whose value only the person's own shell can know, such as a PATH that was added to.
        home: what $HOME means.
        used: names that were put into a command.
    """

    home: str = "~"
    values: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    shell_only: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    def text(self, name: str) -> str | None:
        """Return what a variable says, None if it is not set."""
        value = self.values.get(name)
        if isinstance(value, tuple):
            return value[0].text if value else ""
        return self.home if value is None and name == "HOME" else value


def interpolate(source: Source, lookup: Callable[[str], str | None]) -> tuple[str, str]:
    """Resolve ${NAME}, ${NAME:-word} and $$ in a value of a compose file; returns it and an unknown secret's name.

    Raises:
        ImportTextError: a variable that is not set, or a use of one that is not followed.
    """
    parts: list[str] = []
    unknown = ""
    at = 0
    text = source.text
    while at < len(text):
        if text.startswith("$$", at):
            parts.append("$")
            at += 2
        elif text[at] != "$":
            parts.append(text[at])
            at += 1
        else:
            braced = BRACED.match(text, at + 1)
            named = NAME.match(text, at + 1)
            found = braced or named
            if found is None:
                source.fail(at, at + 2, "a $ stands here that is no variable.", "Write $$ for a plain $.")
            name = braced["name"] if braced else named.group() if named else ""
            operation, word = (braced["operation"] or "", braced["word"] or "") if braced else ("", "")
            value = lookup(name)
            if not value and operation.endswith("-"):
                value = word
            elif operation.endswith("+"):
                value = word if value else ""
            if value is None and is_secret_variable(name):
                unknown = name
            elif value is None:
                source.fail(at, found.end(), f"${name} is not set anywhere.", "Write its value here.")
            parts.append(value or "")
            at = found.end()
    return "".join(parts), unknown
