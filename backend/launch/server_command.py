"""A vLLM server's command as any text gives it: arguments, variables, and what a container does to paths."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from backend.launch.import_text import Source, Word

SERVE_MODULES = frozenset({
    "vllm.entrypoints.openai.api_server", "vllm.entrypoints.launchers.api_server.entry", "vllm.entrypoints.api_server",
})  # fmt: skip
CLI_MODULE = "vllm.entrypoints.cli.main"
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?t?")
_PYTHON_WITH_VALUE = frozenset({"-X", "-W"})


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of this machine that a container sees under another path."""

    host: str
    inside: str


@dataclass(frozen=True, slots=True)
class Publish:
    """A port of a container that this machine has too; `address` is "" where none was given."""

    address: str
    port: int
    inside: int


@dataclass(slots=True)
class ServerCommand:
    """One server to be imported.

    Attributes:
        arguments: the words behind `vllm serve`.
        place: where the program stands, for messages.
        env: variables that it gets, in their order.
        used: names of variables that were put into the command.
        folder: what relative paths mean, "" if nobody knows.
        in_container: it has an own network, so that its address is not one of this machine.
        mounts: folders of a container; `published` its ports.
    """

    arguments: tuple[Word, ...]
    place: Word
    env: list[tuple[str, Word]] = field(default_factory=list)
    used: frozenset[str] = frozenset()
    folder: str = ""
    in_container: bool = False
    mounts: tuple[Mount, ...] = ()
    published: tuple[Publish, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Where in a list of words the server starts: `at` its program, `arguments` the first word behind it."""

    at: int
    arguments: int


def find(words: Sequence[Word]) -> Start | None:
    """Find `vllm serve` or `python -m vllm...` among words; None if neither is there."""
    for place, word in enumerate(words):
        name = word.text.rpartition("/")[2]
        following = words[place + 1].text if place + 1 < len(words) else ""
        if name == "vllm" and following == "serve":
            return Start(place, place + 2)
        if _PYTHON.fullmatch(name) and (arguments := _module(words, place + 1)) is not None:
            return Start(place, arguments)
    return None


def _module(words: Sequence[Word], at: int) -> int | None:
    """Return where the arguments of a server's module begin, None if Python runs something else."""
    while at < len(words) and words[at].text.startswith("-"):
        option = words[at].text
        following = words[at + 1].text if at + 1 < len(words) else ""
        if option.endswith("m") and not option.startswith("--"):
            if following in SERVE_MODULES:
                return at + 2
            is_serve = following == CLI_MODULE and at + 2 < len(words) and words[at + 2].text == "serve"
            return at + 3 if is_serve else None
        at += 2 if option in _PYTHON_WITH_VALUE else 1
    return None


def nothing_found(source: Source, *, what: str) -> NoReturn:
    """Say that a text starts no server.

    Raises:
        ImportTextError: always.
    """
    source.fail_at(
        Word(""),
        f"There is no vLLM server in {what}.",
        "Paste a line with `vllm serve`, with `python -m vllm.entrypoints.openai.api_server`, or a `docker run` of it.",
    )
