"""A shell script read for the one server that it starts; nothing of it is ever run."""

import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from backend.launch import import_docker, server_command
from backend.launch.change_list import ChangeKind, Gathered
from backend.launch.import_text import Source, Word
from backend.launch.profile_types import is_secret_variable
from backend.launch.server_command import ServerCommand
from backend.launch.shell_scope import NAME, Scope
from backend.launch.shell_words import Assignment, SimpleCommand, commands
from backend.launch.vllm_arguments import shown

_KEYWORDS = frozenset({
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "select",
    "{", "}", "coproc", "!",
})  # fmt: skip
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_PROGRAMS = Path(__file__).parent / "data" / "script_programs.toml"
_SETTERS = frozenset({"export", "declare", "typeset", "readonly", "local"})
_DEPTH = 3


@functools.cache
def _programs() -> tuple[frozenset[str], dict[str, str]]:
    """Programs that start others, and why each of those that are left out is."""
    content = tomllib.loads(_PROGRAMS.read_text(encoding="utf-8"))
    left_out = [(name, group["why"]) for group in content["left_out"] for name in group["programs"]]
    return frozenset(content["starters"]), dict(reversed(left_out))


def read(source: Source, out: Gathered, *, folder: str = "") -> ServerCommand:
    """Find the server that a script starts, and tell what the rest of the script did.

    Args:
        source: the script, or a line of it.
        out: gets a change for everything that is left out.
        folder: the folder in which the script would run, "" if unknown.

    Raises:
        ImportTextError: no server or several, or something that cannot be read without running it.
    """
    script = _Script(out, folder)
    script.read(source, depth=0)
    found = script.found
    if found is None:
        server_command.nothing_found(source, what="this text")
    script.tell_unused()
    return found


class _Script:
    def __init__(self, out: Gathered, folder: str) -> None:
        self.found: ServerCommand | None = None
        self._out = out
        self._folder = folder
        self._scope = Scope()
        self._set: dict[str, Word] = {}
        self._export_all = False

    def read(self, source: Source, *, depth: int) -> None:
        for command in commands(source, self._scope):
            self._command(command, source, depth)

    def tell_unused(self) -> None:
        """Variables that neither the server nor its command saw."""
        for name, word in self._set.items():
            if name not in self._scope.exported and name not in self._scope.used:
                given = f"{name}={word.text}"
                self._out.tell(ChangeKind.DROPPED, given, why="It is a variable of the script that nothing uses.")

    def _command(self, command: SimpleCommand, source: Source, depth: int) -> None:
        words = command.words
        if words and words[0].text in {"$", "%", ">"} and not words[0].quoted:
            words = words[1:]  # a prompt that was copied along
        if not words:
            for assignment in command.assignments:
                self._assign(assignment)
            self._tell_redirects(command.redirects)
            return
        first = words[0].text.rpartition("/")[2]
        if words[0].text in _KEYWORDS:
            source.fail_at(
                words[0], f"{words[0].text}: conditions, loops and functions are not followed.",
                "Specdeck reads a script and never runs it. Write here what it comes to.",
            )  # fmt: skip
        if first in _SETTERS:
            self._setter(words)
            return
        nested = _nested(words)
        start = server_command.find(words)
        container = _container(words) if first in _programs()[0] else None
        if container is not None:
            self._prefix(words[:container], source)
            server = import_docker.read(words[container:], source, self._out, folder=self._folder)
            self._keep(server, command, source)
        elif nested is not None and depth < _DEPTH and "vllm" in nested.text:
            prefix = words[: words.index(nested)]
            self._prefix(prefix, source)
            self._remember(command.assignments)
            self.read(source.inner(nested.text, nested), depth=depth + 1)
        elif start is not None and (first in _programs()[0] or start.at == 0):
            env = self._prefix(words[: start.at], source)
            server = ServerCommand(
                arguments=words[start.arguments :], place=words[start.at], env=env, folder=self._folder
            )
            self._program(words[start.at : start.arguments])
            self._keep(server, command, source)
        else:
            self._other(first, words, command, source)

    def _program(self, words: Sequence[Word]) -> None:
        given = shown(words, self._out.source)
        if [word.text for word in words] == ["vllm", "serve"]:
            self._out.tell(ChangeKind.KEPT, given, "vllm serve", "Specdeck starts the same server.")
        else:
            why = "The same server; Specdeck starts it with the program of the engine environment."
            self._out.tell(ChangeKind.TRANSLATED, given, "vllm serve", why)

    def _keep(self, server: ServerCommand, command: SimpleCommand, source: Source) -> None:
        if self.found is not None:
            source.fail_at(server.place, "a second server starts here.", "Import one at a time: take the other out.")
        own = [(one.name, one.word) for one in command.assignments]
        exported = [(name, self._set[name]) for name in self._scope.exported if name in self._set]
        names = {name for name, _ in (*own, *server.env)}
        server.env = [*(pair for pair in sorted(exported) if pair[0] not in names), *own, *server.env]
        server.used = frozenset(self._scope.used)
        if server.in_container:  # it sees its own variables only
            server.env = [pair for pair in server.env if pair not in exported and pair not in own]
        self._tell_redirects(command.redirects)
        self.found = server

    def _tell_redirects(self, redirects: Sequence[Word]) -> None:
        for word in redirects:
            self._out.tell(ChangeKind.DROPPED, word.text, why="Specdeck keeps the log of each run by itself.")

    # ---- variables -----------------------------------------------------------------------------------------------

    def _assign(self, assignment: Assignment, *, export: bool = False) -> None:
        name, value = assignment.name, assignment.value
        if assignment.adds:
            old = self._scope.values.get(name, () if isinstance(value, tuple) else "")
            if isinstance(old, tuple) and isinstance(value, tuple):
                value = (*old, *value)
            elif isinstance(old, str) and isinstance(value, str):
                value = old + value
        self._scope.values[name] = value
        if assignment.word.from_env == name:
            self._scope.shell_only.add(name)
        text = value if isinstance(value, str) else " ".join(word.text for word in value)
        word = assignment.word
        if is_secret_variable(name):
            self._out.source.hide(text)
        self._set[name] = Word(text, word.line, word.column, word.length, word.quoted, word.from_env)
        if export or self._export_all:
            self._scope.exported.add(name)

    def _remember(self, assignments: Sequence[Assignment]) -> None:
        for assignment in assignments:
            self._assign(assignment, export=True)

    def _setter(self, words: Sequence[Word]) -> None:
        """`export A=b C`, `declare -x A=b`, `readonly A=b`."""
        flags = "".join(word.text for word in words[1:] if word.text.startswith("-"))
        export = words[0].text == "export" or "x" in flags
        for word in words[1:]:
            name, equals, value = word.text.partition("=")
            if word.text.startswith("-") or not NAME.fullmatch(name.removesuffix("+")):
                continue
            if not equals:
                if export:
                    self._scope.exported.add(name)
                continue
            inner = word.part(len(name) + 1)
            self._assign(Assignment(name.removesuffix("+"), value, name.endswith("+"), inner), export=export)

    # ---- what stands before a server, and what is none -------------------------------------------------------------

    def _prefix(self, words: Sequence[Word], source: Source) -> list[tuple[str, Word]]:
        """Take variables from what stands before the program; the rest is told and left out."""
        env: list[tuple[str, Word]] = []
        rest: list[Word] = []
        for word in words:
            name, equals, _ = word.text.partition("=")
            if equals and NAME.fullmatch(name):
                if is_secret_variable(name):
                    self._out.source.hide(word.text.partition("=")[2])
                env.append((name, word.part(len(name) + 1)))
            else:
                rest.append(word)
        if rest:
            name = rest[0].text.rpartition("/")[2]
            if name not in _programs()[0] and name not in _SHELLS:
                source.fail_at(rest[0], f"{rest[0].text} is no program that Specdeck knows here.", "Take it out.")
            kind = ChangeKind.REFUSED if name in {"sudo", "doas"} else ChangeKind.DROPPED
            why = "Specdeck starts the engine by itself, as you, and in a session of its own."
            if name in {"numactl", "taskset"}:
                why += " To bind it to a part of the machine, vLLM has --numa-bind."
            self._out.tell(kind, shown(rest, self._out.source), why=why)
        return env

    def _other(self, first: str, words: Sequence[Word], command: SimpleCommand, source: Source) -> None:
        if first not in _programs()[1]:
            source.fail_at(
                words[0],
                f"{words[0].text or 'An empty word'} is no command that Specdeck knows in a script that starts vLLM.",
                "Take out what does not belong to the command.",
            )
        if first == "set":
            flags = [word.text for word in words[1:]]
            self._export_all = self._export_all or "allexport" in flags or any(
                re.fullmatch(r"-[a-z]*a[a-z]*", flag) for flag in flags
            )  # fmt: skip
        if first == "unset":
            for word in words[1:]:
                self._scope.values.pop(word.text, None)
                self._set.pop(word.text, None)
        if first == "cd" and len(words) == 2 and not words[1].from_env:
            self._cd(words[1].text)
        self._out.tell(ChangeKind.DROPPED, shown(words, self._out.source), why=_programs()[1][first])
        self._tell_redirects(command.redirects)
        for assignment in command.assignments:
            given = f"{assignment.name}={assignment.word.text}"
            self._out.tell(ChangeKind.DROPPED, given, why="It is for that command only.")

    def _cd(self, folder: str) -> None:
        if folder.startswith(("/", "~")):
            self._folder = folder
        elif self._folder:
            self._folder = f"{self._folder.rstrip('/')}/{folder}"


def _container(words: Sequence[Word]) -> int | None:
    """Return where `docker run` begins, None if nothing runs a container."""
    for place, word in enumerate(words):
        if word.text.rpartition("/")[2] in _CONTAINERS:
            return place if import_docker.is_run(words[place:]) else None
    return None


def _nested(words: Sequence[Word]) -> Word | None:
    """Return the script in `bash -c "script"`, whatever stands before it."""
    for place, word in enumerate(words[:-1]):
        if word.text.rpartition("/")[2] in _SHELLS:
            for at in range(place + 1, len(words) - 1):
                if re.fullmatch(r"-[a-z]*c", words[at].text):
                    return words[at + 1]
    return None
