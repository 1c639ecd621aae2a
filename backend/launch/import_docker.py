"""`docker run` of a vLLM image: its options, mounts and ports become what they mean without a container."""

import re
from collections.abc import Callable, Sequence

from backend.launch import server_command
from backend.launch.change_list import ChangeKind, Gathered
from backend.launch.import_text import Source, Word
from backend.launch.profile_types import is_secret_variable
from backend.launch.server_command import Mount, Publish, ServerCommand
from backend.launch.shell_scope import NAME
from backend.launch.vllm_arguments import shown

_SWITCHES = frozenset({
    "detach", "interactive", "tty", "rm", "privileged", "init", "read-only", "publish-all", "no-healthcheck",
    "oom-kill-disable", "quiet", "help", "replace", "tls-verify", "rmi", "no-hosts",
})  # fmt: skip
_SHORT = {
    "d": "detach", "i": "interactive", "t": "tty", "e": "env", "v": "volume", "p": "publish", "P": "publish-all",
    "q": "quiet", "u": "user", "w": "workdir", "h": "hostname", "m": "memory", "c": "cpu-shares",
    "l": "label", "a": "attach",
}  # fmt: skip
_SHORT_SWITCHES = frozenset({"d", "i", "t", "P", "q"})
_NO_CONTAINER = "It concerns the container, and Specdeck runs the engine without one."
_HUB_FOLDERS = {
    "/root/.cache/huggingface": "HF_HOME", "/root/.cache/huggingface/hub": "HF_HUB_CACHE",
    "/home/vllm/.cache/huggingface": "HF_HOME", "/.cache/huggingface": "HF_HOME",
}  # fmt: skip
_HUB_HERE = re.compile(r"(~|/root|/home/[^/]+|\$HOME)/\.cache/huggingface(/hub)?/?")


def is_run(words: Sequence[Word]) -> bool:
    """Whether the words are `docker run` or `docker container run`, perhaps with options of docker before."""
    texts = [word.text for word in words[:4]]
    return "run" in texts[1:] and all(
        text == "container" or text.startswith("-") for text in texts[1 : texts.index("run")]
    )


def read(words: Sequence[Word], source: Source, out: Gathered, *, folder: str) -> ServerCommand:
    """Read the words of a `docker run`.

    Args:
        words: all of them, `docker` first.
        source: the text they come from.
        out: gets a change for each option of docker.
        folder: what relative paths of mounts mean, "" if unknown.

    Raises:
        ImportTextError: there is no image, or it runs no vLLM server.
    """
    container = Container(out, source, folder)
    at = [word.text for word in words].index("run") + 1
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "-":
        at = _option(words, at, container, source)
    if at >= len(words):
        source.fail_at(words[0], "the name of an image is missing.", "Write it behind the options of docker run.")
    return container.command(words[at], words[at + 1 :])


def _option(words: Sequence[Word], at: int, container: "Container", source: Source) -> int:
    """Read one option and return where the next word is."""
    word = words[at]
    text = word.text
    if text.startswith("--"):
        name, equals, _ = text[2:].partition("=")
        if name in _SWITCHES or equals:
            container.option(name, word.part(len(name) + 3) if equals else None, (word,))
            return at + 1
    else:
        letters = text[1:]
        while len(letters) > 1 and letters[0] in _SHORT_SWITCHES:
            letters = letters[1:]
        name = _SHORT.get(letters[0], letters[0])
        if letters in _SHORT_SWITCHES:
            container.option(name, None, (word,))
            return at + 1
        if len(letters) > 1:
            value = word.part(len(text) - len(letters) + 1)
            container.option(name, value.part(1) if value.text.startswith("=") else value, (word,))
            return at + 1
    if at + 1 >= len(words):
        source.fail_at(word, f"{text} needs a value.", "Write one behind it, or take it out.")
    container.option(name, words[at + 1], (word, words[at + 1]))
    return at + 2


class Container:
    """What a container is told, by the names of docker's options."""

    def __init__(self, out: Gathered, source: Source, folder: str) -> None:
        self._out = out
        self._source = source
        self._folder = folder
        self._env: list[tuple[str, Word]] = []
        self._mounts: list[Mount] = []
        self._published: list[Publish] = []
        self._entrypoint: tuple[Word, ...] = ()
        self._own_network = True

    def option(self, name: str, value: Word | None, words: Sequence[Word]) -> None:
        """Take one option; `words` are what a person sees of it."""
        handlers: dict[str, Callable[[Word, str], None]] = {
            "env": self.variable, "env-file": self._env_file, "volume": self.volume, "mount": self._mount,
            "publish": self.publish, "gpus": self._gpus, "network": self._network, "net": self._network,
            "entrypoint": self._set_entrypoint,
        }  # fmt: skip
        if value is not None and name == "env" and is_secret_variable(value.text.partition("=")[0]):
            self._source.hide(value.text.partition("=")[2])
        given = shown(words, self._out.source)
        handler = handlers.get(name)
        if handler is None or value is None:
            self._out.tell(ChangeKind.DROPPED, given, why=_NO_CONTAINER)
        else:
            handler(value, given)

    def variable(self, word: Word, given: str) -> None:
        """`NAME=value`, or a NAME whose value is in the person's shell."""
        name, equals, _ = word.text.partition("=")
        if not NAME.fullmatch(name):
            self._out.tell(ChangeKind.REFUSED, given, why=f"{name} is no name of a variable.")
        elif equals:
            self._env.append((name, word.part(len(name) + 1)))
        else:
            self._env.append((name, Word("", word.line, word.column, word.length, from_env=name)))

    def _env_file(self, word: Word, given: str) -> None:
        self._out.tell(ChangeKind.REFUSED, given, why="Its variables are not in this text; add them to the profile.")

    def volume(self, word: Word, given: str) -> None:
        """`/here:/there`, with options behind another colon."""
        parts = word.text.split(":")
        if len(parts) < 2 or not parts[1].startswith("/"):
            self._out.tell(
                ChangeKind.DROPPED, given, why="A volume without a folder of this machine is empty at first."
            )
            return
        self.mount(parts[0], parts[1], word, given)

    def _mount(self, word: Word, given: str) -> None:
        values = dict(part.partition("=")[::2] for part in word.text.split(","))
        host = values.get("source") or values.get("src") or ""
        inside = values.get("target") or values.get("destination") or values.get("dst") or ""
        if values.get("type") != "bind" or not host or not inside:
            self._out.tell(ChangeKind.DROPPED, given, why=_NO_CONTAINER)
            return
        self.mount(host, inside, word, given)

    def mount(self, host: str, inside: str, word: Word, given: str) -> None:
        """A folder of this machine under another path."""
        inside = inside.rstrip("/") or "/"
        if host.startswith("."):
            if not self._folder:
                self._source.fail_at(word, f"{host} is a relative path, and nobody knows of which folder.",
                                     "Write the whole path.")  # fmt: skip
            host = f"{self._folder.rstrip('/')}/{host.removeprefix('./')}" if host != "." else self._folder
        if not host.startswith(("/", "~")):
            self._out.tell(
                ChangeKind.REFUSED, given, why=f"{host} is a volume of docker, which Specdeck cannot see into."
            )
            return
        variable = _HUB_FOLDERS.get(inside)
        if variable is None:
            self._mounts.append(Mount(host.rstrip("/") or "/", inside))
            why = f"Paths below {inside} are paths below {host} here."
            self._out.tell(ChangeKind.TRANSLATED, given, host, why)
        elif _HUB_HERE.fullmatch(host):
            self._out.tell(ChangeKind.DROPPED, given, why="The engine uses this folder of models anyway.")
        else:
            self._mounts.append(Mount(host.rstrip("/") or "/", inside))
            self._out.set_env(
                variable, host, ChangeKind.TRANSLATED, given, "It is where the models of the hub are kept."
            )

    def publish(self, word: Word, given: str) -> None:
        """`8000:8000`, with an address of this machine before."""
        found = re.fullmatch(r"(?:(\[[0-9a-fA-F:]+\]|[\d.]+):)?(\d{1,5}):(\d{1,5})(?:/tcp)?", word.text)
        if found is None:
            self._out.tell(
                ChangeKind.REFUSED, given, why="Specdeck needs one port of this machine and one of the container."
            )
            return
        address, port, inside = found.groups()
        self.published(Publish((address or "").strip("[]"), int(port), int(inside)), given)

    def published(self, publish: Publish, given: str) -> None:
        """A port of the container that this machine has."""
        self._published.append(publish)
        where = f"{publish.address or '127.0.0.1'}:{publish.port}"
        why = "It is the port that counts here."
        if not publish.address:
            why += " The container's port can be reached by other machines; Specdeck listens on this one only."
        self._out.tell(ChangeKind.TRANSLATED, given, f"server.host and server.port = {where}", why)

    def _gpus(self, word: Word, given: str) -> None:
        text = word.text.strip("\"'")
        found = re.search(r"device=([\w,.-]+)", text)
        if found is not None:
            self.devices(tuple(found.group(1).split(",")), given)
        elif text == "all":
            self._out.tell(
                ChangeKind.DROPPED, given, why="An engine sees all GPUs unless parallel.device_ids names some."
            )
        else:
            self._out.tell(ChangeKind.DROPPED, given, why="An engine takes as many GPUs as it is spread over.")

    def devices(self, names: tuple[str, ...], given: str) -> None:
        """GPUs by number or UUID."""
        why = "GPUs are named in the profile; numbers count in PCI order, as nvidia-smi shows them."
        self._out.set_field("parallel.device_ids", [name for name in names if name], ChangeKind.TRANSLATED, given, why)

    def _network(self, word: Word, given: str) -> None:
        self._own_network = word.text != "host"
        why = "The engine uses this machine's network." if word.text == "host" else _NO_CONTAINER
        self._out.tell(ChangeKind.DROPPED, given, why=why)

    def _set_entrypoint(self, word: Word, given: str) -> None:
        self._out.tell(ChangeKind.DROPPED, given, why="Specdeck starts the server by itself.")
        self._entrypoint = (word,) if word.text else ()

    def entrypoint(self, words: tuple[Word, ...]) -> None:
        """The program that the container starts, told elsewhere."""
        self._entrypoint = words

    def command(self, image: Word, words: Sequence[Word]) -> ServerCommand:
        """Return the server that an image runs with the words behind it.

        Raises:
            ImportTextError: it runs none.
        """
        whole = (*self._entrypoint, *words)
        start = server_command.find(whole)
        nested = _script_in(whole)
        name = image.text.rpartition("@")[0] or image.text
        if nested is not None:
            inner = self._source.inner(nested.text, nested)
            arguments, place = self._from_script(inner), nested
        elif start is not None:
            arguments, place = whole[start.arguments :], whole[start.at]
        elif "vllm" in name.lower() and not self._entrypoint:
            arguments, place = tuple(words), image
            if words and words[0].text == "serve":
                arguments = tuple(words[1:])
        else:
            self._source.fail_at(image, f"the image {image.text} starts no vLLM server that Specdeck knows.",
                                 "Write `vllm serve` and its options behind the image.")  # fmt: skip
        why = "The engine runs in an engine environment of Specdeck, not in an image."
        self._out.tell(ChangeKind.TRANSLATED, image.text, "vllm serve", why)
        return ServerCommand(
            arguments=arguments,
            place=place,
            env=self._env,
            folder=self._folder,
            in_container=self._own_network,
            mounts=tuple(self._mounts),
            published=tuple(self._published) if self._own_network else (),
        )

    def _from_script(self, inner: Source) -> tuple[Word, ...]:
        from backend.launch import import_script  # each needs the other: a script runs containers, they run scripts

        found = import_script.read(inner, self._out, folder="")
        self._env += found.env
        return found.arguments


def _script_in(words: Sequence[Word]) -> Word | None:
    """Return the script of `bash -c script`."""
    texts = [word.text.rpartition("/")[2] for word in words]
    for place, text in enumerate(texts[:-2]):
        if text in {"sh", "bash"} and re.fullmatch(r"-[a-z]*c", texts[place + 1]):
            return words[place + 2]
    return None
