"""A systemd unit read for the server in its ExecStart, with systemd's own rules for quotes, variables and percents."""

import re
from collections.abc import Iterator

from backend.launch import server_command
from backend.launch.change_list import ChangeKind, Gathered
from backend.launch.import_text import Source, Word
from backend.launch.profile_types import is_secret_variable
from backend.launch.server_command import ServerCommand

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "\\": "\\", '"': '"', "'": "'", "a": "\a", "b": "\b", "f": "\f",
            "v": "\v"}  # fmt: skip
_SETTING = re.compile(r"\s*([A-Za-z]+)\s*=\s*")


def is_unit(source: Source) -> bool:
    """Whether a text is a unit with a service."""
    return re.search(r"^\[Service\]\s*$", source.text, re.MULTILINE) is not None


def read(source: Source, out: Gathered) -> ServerCommand:
    """Find the server that a unit starts.

    Args:
        source: the unit's text.
        out: gets a change for each setting that is left out.

    Raises:
        ImportTextError: it starts none, several, or with words that cannot be read.
    """
    start: tuple[int, str] | None = None
    variables: list[tuple[str, Word]] = []
    folder = ""
    for at, name, value in _settings(source):
        if name == "ExecStart" and value:
            if start is not None:
                source.fail(at, at + len(value), "a second command starts here.", "Import one at a time.")
            start = (at, value)
        elif name == "Environment":
            for word in _words(source, at, value, None):
                key, _, rest = word.text.partition("=")
                variables.append((key, word.part(len(key) + 1)))
                if is_secret_variable(key):
                    source.hide(rest)
        elif name == "EnvironmentFile":
            why = "Its variables are not in this text; add them to the profile, or keep secrets in your shell."
            out.tell(ChangeKind.REFUSED, f"{name}={value}", why=why)
        elif name == "PassEnvironment":
            variables += [(word, Word("", from_env=word)) for word in value.split()]
        else:
            if name == "WorkingDirectory":
                folder = value.removeprefix("-").replace("%h", "~")
            out.tell(ChangeKind.DROPPED, f"{name}={value}", why="Specdeck starts and ends the engine by itself.")
    if start is None:
        server_command.nothing_found(source, what="this unit")
    known = {name: word.text for name, word in variables}
    words = _words(source, start[0], start[1], known)
    found = server_command.find(words)
    if found is None:
        source.fail(start[0], start[0] + len(start[1]), "this starts no vLLM server.", "Write `vllm serve` here.")
    out.tell(ChangeKind.TRANSLATED, " ".join(word.text for word in words[: found.arguments]), "vllm serve",
             "The same server; Specdeck starts it with the program of the engine environment.")  # fmt: skip
    return ServerCommand(arguments=tuple(words[found.arguments :]), place=words[found.at], env=variables, folder=folder)


def _settings(source: Source) -> Iterator[tuple[int, str, str]]:
    """Yield (where the value begins, name, value) of the service; lines that end in a backslash are one."""
    section = ""
    at = 0
    text = source.text
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        while end < len(text) and text[at:end].endswith("\\"):
            following = text.find("\n", end + 1)
            end = len(text) if following < 0 else following
        line = text[at:end]
        if header := re.match(r"\s*\[(\w+)\]", line):
            section = header.group(1)
        elif section == "Service" and not re.match(r"\s*[#;]", line) and (setting := _SETTING.match(line)):
            yield at + setting.end(), setting.group(1), line[setting.end() :].rstrip()
        at = end + 1


def _words(source: Source, start: int, value: str, variables: dict[str, str] | None) -> list[Word]:
    """Split a value into words; one that is a variable alone is split at spaces, as systemd does.

    Without `variables` a dollar is a dollar, as in a setting that is no command.
    """
    words: list[Word] = []
    at = 0
    while at < len(value):
        if value[at].isspace() or value.startswith("\\\n", at):
            at += 1
            continue
        begin = at
        text, at, quoted = _one(source, start, value, at)
        alone = re.fullmatch(r"\$([A-Za-z_]\w*)", value[begin:at])
        if alone is not None and variables is not None:
            name = alone.group(1)
            if name not in variables:
                source.fail(start + begin, start + at, f"${name} is not set in this unit.", "Write its value here.")
            words += [source.word(part, start + begin, start + at) for part in variables[name].split()]
            continue
        text = _resolved(text, variables, source, start + begin, start + at)
        words.append(source.word(text, start + begin, start + at, quoted=quoted))
    if words and variables is not None:
        words[0] = words[0].part(len(words[0].text) - len(words[0].text.lstrip("-@:+!")))
    return words


def _one(source: Source, start: int, value: str, at: int) -> tuple[str, int, bool]:
    """Read one word from `at` on; returns it, the next place, and whether it was quoted."""
    parts: list[str] = []
    quote = ""
    opened = at
    quoted = False
    while at < len(value):
        character = value[at]
        if character == "\\":
            escape, at = _escape(value, at)
            parts.append(escape)
            continue
        if quote and character == quote:
            quote = ""
        elif not quote and character in {'"', "'"}:
            quote, opened, quoted = character, at, True
        elif not quote and character.isspace():
            break
        else:
            parts.append(character)
        at += 1
    if quote:
        source.fail(start + opened, start + opened + 1, "this quote does not end.")
    return "".join(parts), at, quoted


def _escape(value: str, at: int) -> tuple[str, int]:
    following = value[at + 1 : at + 2]
    if following == "\n":
        return " ", at + 2
    for letter, digits in (("x", 2), ("u", 4), ("U", 8)):
        found = re.compile(rf"\\{letter}([0-9a-fA-F]{{{digits}}})").match(value, at)
        if found is not None and int(found.group(1), 16) < 0x110000:
            return chr(int(found.group(1), 16)), found.end()
    return _ESCAPES.get(following, f"\\{following}"), at + 2


def _resolved(text: str, variables: dict[str, str] | None, source: Source, start: int, end: int) -> str:
    """Resolve ${NAME}, $$, %% and %h; other percents depend on the machine."""

    def one(found: re.Match[str]) -> str:
        whole = found.group()
        if variables is None and whole.startswith("$"):
            return whole
        if whole in {"$$", "%%"}:
            return whole[0]
        if whole == "%h":
            return "~"
        if whole.startswith("%"):
            source.fail(start, end, f"{whole} is known only to systemd.", "Write its value here.")
        name = found.group(1)
        if variables is None or name not in variables:
            source.fail(start, end, f"${name} is not set in this unit.", "Write its value here.")
        return variables[name]

    return re.sub(r"\$\$|%%|\$\{([A-Za-z_]\w*)\}|%[A-Za-z]", one, text)
