"""The arguments of a vLLM server as given: which option each word belongs to, as vLLM's own parser would see it."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from backend.launch.import_text import Source, Word, redacted
from backend.launch.option_table import KnownOption, OptionKind, table
from backend.launch.probe import Probe

COMPILATION = "--compilation-config"
OPTIMIZATION = "--optimization-level"
_NEGATIVE_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_PLACEHOLDER = re.compile(
    r"<[A-Za-z][^<>]{0,60}>|\.\.\.|…|\[(?:[A-Z_]+|options|model)\]|\{\{? ?[a-z_-]+ ?\}?\}"
    r"|(?:your|YOUR)[-_][\w-]+(?:/(?:your[-_])?[\w.-]+)?|/path/to(?:/.*)?|path/to/.*"
)
_PLACEHOLDERS_ALLOWED = frozenset({"--chat-template"})  # a template may well hold {name}


@dataclass(frozen=True, slots=True)
class GivenOption:
    """One option as it was given.

    Attributes:
        flag: its long spelling in the table or the parser; as spelled when neither has it.
        words: every word that belongs to it, its own first.
        values: what stands behind it, or behind its "=".
        keys: for a dotted option the keys behind the dots; `appends` when a "+" ends them.
        off: the form with "--no-", or a switch set to false.
        known: what the table or the parser says of it, None if neither has it.
        note: how its spelling was understood, "" when it is one that vLLM gives it.
        problem: why nobody can say which option is meant, "" when it is clear.
    """

    flag: str
    words: tuple[Word, ...]
    values: tuple[Word, ...]
    keys: tuple[str, ...] = ()
    appends: bool = False
    off: bool = False
    known: KnownOption | None = None
    note: str = ""
    problem: str = ""

    def shown(self, source: Source) -> str:
        """Return it as it was written, on one line, secrets hidden."""
        return shown(self.words, source)

    @property
    def value(self) -> str:
        """Its first value, "" for none."""
        return self.values[0].text if self.values else ""


def shown(words: Sequence[Word], source: Source) -> str:
    """Return words as a person would type them, on one line, secrets hidden."""
    return redacted(" ".join(_quoted(word.text) for word in words), source.secrets)


def _quoted(text: str) -> str:
    """Quote a word where that helps to read it; the name of an option stays as it is."""
    if text.startswith("-") and "=" in text:
        name, _, value = text.partition("=")
        return f"{name}={_quoted(value)}"
    plain = "".join(" " if ord(c) < 32 or ord(c) == 127 else c for c in text)
    if not plain or re.search(r"[\s\"'{}$;&|<>]", plain):
        return f"'{plain}'" if "'" not in plain else shlex.quote(plain)
    return plain


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a command gives: the model if it stands alone, and the options in their order."""

    model: Word | None
    options: tuple[GivenOption, ...]


def parse(words: Sequence[Word], *, probe: Probe, source: Source) -> Arguments:
    """Sort the words behind `vllm serve`.

    Args:
        words: everything behind the program and its subcommand.
        probe: what the vLLM that is meant accepts; options of other releases are known too.
        source: the text they come from.

    Raises:
        ImportTextError: a placeholder, an option without its value, or a word that belongs to nothing.
    """
    return _Parser(words, probe, source).parse()


def is_option(text: str) -> bool:
    """Whether a word would be read as an option rather than a value."""
    return len(text) > 1 and text.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(text)


def is_placeholder(text: str, *, braces: bool = True) -> bool:
    """Whether a value only says what should stand there: <your-model>, ..., /path/to/model, {name}.

    Args:
        text: the value.
        braces: False where a name in braces may well be meant, as in a template.
    """
    stripped = text.strip()
    return _PLACEHOLDER.fullmatch(stripped) is not None and (braces or not stripped.startswith("{"))


def truth(text: str) -> bool | None:
    """Return what a word behind a switch says, None when it says neither."""
    return _TRUTH.get(text.lower())


class _Parser:
    def __init__(self, words: Sequence[Word], probe: Probe, source: Source) -> None:
        self._words = words
        self._source = source
        self._at = 0
        self._taken = 0  # words that the option at hand took as values
        self._parser = _flags_of(probe)
        self._switches = {flag for option in probe.options if option.type == "bool" for flag in option.flags}
        self._union = {**{flag: (flag, False) for flag in table().options}, **self._parser}

    def parse(self) -> Arguments:
        model: Word | None = None
        options: list[GivenOption] = []
        while self._at < len(self._words):
            word = self._words[self._at]
            if word.text == "--":
                self._fail(word, "vLLM would read everything behind a lone -- as models.", "Take it out.")
            if is_option(word.text):
                options.append(self._option(word))
                continue
            self._check_placeholder(word)
            if model is not None:
                self._fail(
                    word,
                    f"{word.text or 'an empty word'} belongs to no option, and the model is already {model.text}.",
                    "Take it out, or write the option that it belongs to.",
                )
            model = word
            self._at += 1
        return Arguments(model, tuple(options))

    def _option(self, word: Word) -> GivenOption:
        self._at += 1
        if word.text.startswith("-O"):
            return self._optimization(word)
        name, equals, _ = word.text.partition("=")
        inline = word.part(len(name) + 1) if equals else None
        head, *keys = name.split(".")
        appends = bool(keys) and keys[-1].endswith("+")
        if appends:
            keys[-1] = keys[-1].removesuffix("+")
        if any(not key for key in keys):
            keys = []
        flag, off, note, problem = self._resolve(head)
        known = table().options.get(flag) or self._from_parser(flag)
        kind = OptionKind.VALUE if keys else known.kind if known else None
        values = self._values(word, kind, inline, known is not None)
        for value in values:
            if flag not in _PLACEHOLDERS_ALLOWED:
                self._check_placeholder(value)
        if kind is OptionKind.SWITCH and values:
            said = truth(values[0].text)
            if said is None:
                self._fail(values[0], f"{flag} is a switch and takes no value.", "Take the value out.")
            off = off != (not said)
            note = note or "a switch needs no value"
        words = (word, *self._words[self._at - self._taken : self._at])
        return GivenOption(flag, words, values, tuple(keys), appends, off, known, note, problem)

    def _values(self, word: Word, kind: OptionKind | None, inline: Word | None, known: bool) -> tuple[Word, ...]:
        """Take the words that are an option's values, or the one behind its "="."""
        self._taken = 0
        if inline is not None:
            if kind is OptionKind.JSON:
                return (self._joined(inline),)
            return (inline,)
        following = self._next()
        if kind is OptionKind.SWITCH:
            if following is not None and not following.quoted and following.text.lower() in {"true", "false"}:
                return (self._take(),)
            return ()
        if kind is OptionKind.LIST:
            values = []
            while self._next() is not None:
                values.append(self._take())
            if not values:
                self._fail(word, f"{word.text} needs a value.", "Write one behind it, or take it out.")
            return tuple(values)
        if following is None:
            if known and kind is not OptionKind.OPTIONAL:
                self._fail(word, f"{word.text} needs a value.", "Write one behind it, or take it out.")
            return ()
        value = self._take()
        return (self._joined(value),) if kind is OptionKind.JSON else (value,)

    def _joined(self, value: Word) -> Word:
        """JSON whose quotes a shell took comes in pieces: put them together again."""
        text = value.text
        while text.lstrip("'\"")[:1] in {"{", "["} and _open(text) and self._next() is not None:
            text = f"{text} {self._take().text}"
        return value if text == value.text else Word(text, value.line, value.column, value.length, value.quoted)

    def _next(self) -> Word | None:
        if self._at < len(self._words) and not is_option(self._words[self._at].text):
            return self._words[self._at]
        return None

    def _take(self) -> Word:
        self._at += 1
        self._taken += 1
        return self._words[self._at - 1]

    def _resolve(self, head: str) -> tuple[str, bool, str, str]:
        """Return (flag, off, note, problem) for the name of an option as it was written."""
        short = table().short.get(head)
        if short is not None:
            return short, False, "", ""
        if not head.startswith("--"):
            found = self._parser.get(head)
            return (*found, "", "") if found else (head, False, "", "")
        flag = head.replace("_", "-")  # vLLM takes both
        exact = self._union.get(flag) or self._no_form(flag)
        if exact is not None:
            return (*exact, f"it is another name of {table().same[flag]}" if flag in table().same else "", "")
        for names in (self._parser, self._union):
            meant = {found for name, found in names.items() if name.startswith(flag)}
            if len(meant) == 1 and len(flag) > len("--"):
                found = meant.pop()
                return *found, f"short for {'--no-' if found[1] else '--'}{found[0].removeprefix('--')}", ""
            if meant:
                could = ", ".join(sorted(found[0] for found in meant)[:4])
                return flag, False, "", f"it could mean {could}{' and others' if len(meant) > 4 else ''}"
        return flag, False, "", ""

    def _no_form(self, flag: str) -> tuple[str, bool] | None:
        """`--no-x` of a switch; options that begin with "no" are found before."""
        plain = f"--{flag.removeprefix('--no-')}"
        known = table().options.get(plain)
        if flag.startswith("--no-") and known is not None and known.kind is OptionKind.SWITCH:
            return plain, True
        return None

    def _from_parser(self, flag: str) -> KnownOption | None:
        """What the installed parser says of an option that the table lacks."""
        if flag not in self._parser:
            return None
        return KnownOption(flag, OptionKind.SWITCH if flag in self._switches else OptionKind.VALUE, ())

    def _optimization(self, word: Word) -> GivenOption:
        """`-O3`, `-O 3`, `-O=3`, `-O {json}` and `-O.key value`: a level, or the settings of the compiler."""
        self._taken = 0
        rest = word.text[2:]
        if rest.startswith("."):
            name, equals, _ = rest.partition("=")
            keys = tuple(key for key in name.split(".") if key)
            value = word.part(len(name) + 3) if equals else self._needed(word)
            words = (word, *(() if equals else (value,)))
            return GivenOption(
                COMPILATION, words, (value,), keys, known=table().options[COMPILATION], note=f"short for {COMPILATION}"
            )
        inline = rest.removeprefix("=")
        value = word.part(len(word.text) - len(inline)) if inline else self._needed(word)
        value = self._joined(value)
        words = (word, *self._words[self._at - self._taken : self._at])
        is_level = re.fullmatch(r"\d+", value.text) is not None
        flag = OPTIMIZATION if is_level else COMPILATION
        return GivenOption(flag, words, (value,), known=table().options[flag], note=f"short for {flag}")

    def _needed(self, word: Word) -> Word:
        if self._next() is None:
            self._fail(word, f"{word.text} needs a value.", "Write one behind it, or take it out.")
        return self._take()

    def _check_placeholder(self, word: Word) -> None:
        if is_placeholder(word.text):
            self._fail(word, f"{word.text} is a placeholder.", "Write the real value.")

    def _fail(self, word: Word, message: str, what_to_do: str) -> NoReturn:
        self._source.fail_at(word, message, what_to_do)


def _open(text: str) -> bool:
    """Whether braces or brackets are still open at the end of a text."""
    return text.count("{") > text.count("}") or text.count("[") > text.count("]")


def _flags_of(probe: Probe) -> dict[str, tuple[str, bool]]:
    """For each spelling that a parser takes: its option's first long spelling, and whether it switches off."""
    found: dict[str, tuple[str, bool]] = {}
    for option in probe.options:
        longs = [flag for flag in option.flags if flag.startswith("--")]
        first = next((flag for flag in longs if not flag.startswith("--no-")), longs[0] if longs else "")
        for flag in option.flags:
            off = flag != first and flag == f"--no-{first.removeprefix('--')}"
            found[flag] = (first, off)
    return found
