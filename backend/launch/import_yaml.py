"""Compose files and Kubernetes manifests: the one container that runs a vLLM server, read like a `docker run`."""

import re
from collections.abc import Mapping

from yaml.nodes import MappingNode, Node, ScalarNode

from backend.launch import server_command, shell_words, yaml_nodes
from backend.launch.change_list import ChangeKind, Gathered
from backend.launch.import_docker import Container
from backend.launch.import_text import Source, Word
from backend.launch.profile_types import is_secret_variable
from backend.launch.server_command import Publish, ServerCommand
from backend.launch.shell_scope import Scope, interpolate

_PODS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Job", "Pod", "ReplicaSet", "LeaderWorkerSet"})
_NO_CONTAINER = "It concerns the container, and Specdeck runs the engine without one."
_NO_CLUSTER = "It concerns the cluster; Specdeck runs the engine on this machine."
_SERVICE_TAKEN = frozenset({"image", "command", "entrypoint", "environment", "ports", "volumes", "env_file", "deploy",
                            "network_mode", "gpus"})  # fmt: skip


def is_yaml_of_containers(source: Source) -> bool:
    """Whether a text looks like a compose file or a manifest of Kubernetes rather than a script."""
    return re.search(r"^(services|apiVersion)\s*:", source.text, re.MULTILINE) is not None


def read(source: Source, out: Gathered, *, folder: str = "") -> ServerCommand:
    """Find the server in a compose file or a manifest.

    Args:
        source: the whole text.
        out: gets a change for everything that is left out or means something else here.
        folder: what relative paths mean, "" if unknown.

    Raises:
        ImportTextError: it is no YAML, or runs no server, or several.
    """
    nodes = yaml_nodes.documents(source)
    services = [node for node in nodes if isinstance(yaml_nodes.inner(node, "services"), MappingNode)]
    if services:
        return _Compose(source, out, folder).read(services[0])
    return _manifest(nodes, source, out)


# ---- compose -------------------------------------------------------------------------------------------------------


class _Compose:
    def __init__(self, source: Source, out: Gathered, folder: str) -> None:
        self._source = source
        self._out = out
        self._container = Container(out, source, folder)

    def read(self, document: Node) -> ServerCommand:
        services = list(yaml_nodes.entries(yaml_nodes.inner(document, "services")))
        servers = [entry for entry in services if self._runs_vllm(entry[2])]
        if not servers:
            server_command.nothing_found(self._source, what="this compose file")
        if len(servers) > 1:
            self._source.fail_at(
                yaml_nodes.word(servers[1][1]),
                "this is a second vLLM server.",
                "Import one at a time: take the other out.",
            )
        for name, _, node in services:
            if node is not servers[0][2]:
                self._out.tell(ChangeKind.DROPPED, f"the service {name}", why="Only the vLLM server is imported.")
        for name, key, _ in yaml_nodes.entries(document):
            if name not in {"services", "version"} and not name.startswith("x-"):
                self._out.tell(ChangeKind.DROPPED, yaml_nodes.text(key), why=_NO_CONTAINER)
        return self._service(servers[0][2])

    def _runs_vllm(self, node: Node) -> bool:
        parts = [yaml_nodes.text(yaml_nodes.inner(node, "image"))]
        for key in ("command", "entrypoint"):
            parts += [yaml_nodes.text(one) for one in yaml_nodes.items(yaml_nodes.inner(node, key))]
        return "vllm" in " ".join(parts).lower()

    def _service(self, node: Node) -> ServerCommand:
        service = yaml_nodes.table(node)
        container = self._container
        for key, value in service.items():
            if key not in _SERVICE_TAKEN:
                self._out.tell(ChangeKind.DROPPED, key, why=_NO_CONTAINER)
            elif key == "env_file":
                why = "Its variables are not in this text; add them to the profile."
                self._out.tell(ChangeKind.REFUSED, "env_file", why=why)
            elif key == "network_mode":
                container.option("network", self._word(value), (Word(f"network_mode: {yaml_nodes.text(value)}"),))
            elif key == "gpus":
                container.option("gpus", self._word(value), (Word(f"gpus: {yaml_nodes.text(value)}"),))
        self._environment(service.get("environment"))
        for port in yaml_nodes.items(service.get("ports")):
            self._port(port)
        for volume in yaml_nodes.items(service.get("volumes")):
            self._volume(volume)
        self._deploy(service.get("deploy"))
        entrypoint = service.get("entrypoint")
        if entrypoint is not None and not yaml_nodes.is_null(entrypoint):
            container.entrypoint(self._words(entrypoint))
        image = service.get("image")
        image_word = self._word(image) if image is not None else Word("vllm")
        return container.command(image_word, self._words(service.get("command")))

    def _word(self, node: Node) -> Word:
        word = yaml_nodes.word(node)
        text, unknown = interpolate(yaml_nodes.inside(self._source, node), lambda name: None)
        return Word(text, word.line, word.column, word.length, word.quoted, unknown)

    def _words(self, node: Node | None) -> tuple[Word, ...]:
        """A list of words, or one text that is split as a shell would."""
        if not isinstance(node, ScalarNode):
            return tuple(self._word(one) for one in yaml_nodes.items(node))
        whole = self._word(node)
        found = list(shell_words.commands(self._source.inner(whole.text, whole), Scope()))
        if len(found) > 1 or (found and found[0].assignments):
            self._source.fail_at(whole, "this is more than one command.", "Write the one that starts vLLM.")
        return found[0].words if found else ()

    def _environment(self, node: Node | None) -> None:
        if isinstance(node, MappingNode):
            for name, key, value in yaml_nodes.entries(node):
                if yaml_nodes.is_null(value):
                    self._container.variable(yaml_nodes.word(key), name)
                    continue
                word = self._word(value)
                mark = yaml_nodes.word(key)
                pair = Word(f"{name}={word.text}", mark.line, mark.column, mark.length, from_env=word.from_env)
                self._container.variable(pair, name)
                self._hide(name, word.text)
            return
        for one in yaml_nodes.items(node):
            word = self._word(one)
            self._hide(*word.text.partition("=")[::2])
            self._container.variable(word, word.text)

    def _hide(self, name: str, value: str) -> None:
        if is_secret_variable(name):
            self._source.hide(value)

    def _port(self, node: Node) -> None:
        if isinstance(node, MappingNode):
            values = {key: yaml_nodes.text(value) for key, value in yaml_nodes.table(node).items()}
            address = values.get("host_ip", "")
            text = f"{f'{address}:' if address else ''}{values.get('published', '')}:{values.get('target', '')}"
            mark = yaml_nodes.word(node)
            self._container.publish(Word(text, mark.line, mark.column, mark.length), f"ports: {text}")
        else:
            word = self._word(node)
            self._container.publish(word, f"ports: {word.text}")

    def _volume(self, node: Node) -> None:
        if not isinstance(node, MappingNode):
            word = self._word(node)
            self._container.volume(word, f"volumes: {word.text}")
            return
        values = {key: value for key, value in yaml_nodes.table(node).items() if isinstance(value, ScalarNode)}
        texts = {key: self._word(value).text for key, value in values.items()}
        given = f"volumes: {texts.get('source', '')}:{texts.get('target', '')}"
        if texts.get("type") == "bind" and texts.get("source") and texts.get("target"):
            self._container.mount(texts["source"], texts["target"], yaml_nodes.word(node), given)
        else:
            self._out.tell(ChangeKind.DROPPED, given, why=_NO_CONTAINER)

    def _deploy(self, node: Node | None) -> None:
        for device in yaml_nodes.items(yaml_nodes.inner(node, "resources", "reservations", "devices")):
            names = [yaml_nodes.text(one) for one in yaml_nodes.items(yaml_nodes.inner(device, "device_ids"))]
            count = yaml_nodes.text(yaml_nodes.inner(device, "count"))
            if names:
                self._container.devices(tuple(names), f"device_ids: {', '.join(names)}")
            elif count:
                why = "An engine takes as many GPUs as it is spread over."
                self._out.tell(ChangeKind.DROPPED, f"count: {count}", why=why)
        for key in yaml_nodes.table(node):
            if key != "resources":
                self._out.tell(ChangeKind.DROPPED, f"deploy: {key}", why=_NO_CONTAINER)


# ---- Kubernetes ----------------------------------------------------------------------------------------------------


def _manifest(nodes: list[Node], source: Source, out: Gathered) -> ServerCommand:
    found: list[Mapping[str, Node]] = []
    for node in nodes:
        kind = yaml_nodes.text(yaml_nodes.inner(node, "kind"))
        name = yaml_nodes.text(yaml_nodes.inner(node, "metadata", "name"))
        servers = _servers(node) if kind in _PODS else []
        found += servers
        if not servers:
            out.tell(ChangeKind.DROPPED, f"{kind or 'a document'} {name}".strip(), why=_NO_CLUSTER)
    if not found:
        server_command.nothing_found(source, what="this manifest")
    if len(found) > 1:
        place = yaml_nodes.word(found[1]["image"])
        source.fail_at(place, "this is a second vLLM server.", "Import one at a time: take the other out.")
    return _pod_container(found[0], source, out)


def _servers(node: Node) -> list[Mapping[str, Node]]:
    """Containers of a pod that run vLLM; of a LeaderWorkerSet those of the leader."""
    spec = yaml_nodes.inner(node, "spec")
    for path in (
        ("containers",), ("template", "spec", "containers"),
        ("leaderWorkerTemplate", "leaderTemplate", "spec", "containers"),
    ):  # fmt: skip
        containers = [yaml_nodes.table(one) for one in yaml_nodes.items(yaml_nodes.inner(spec, *path))]
        found = [one for one in containers if "image" in one and _runs_vllm(one)]
        if found:
            return list(found)
    return []


def _runs_vllm(container: Mapping[str, Node]) -> bool:
    parts = [yaml_nodes.text(container["image"])]
    for key in ("command", "args"):
        parts += [yaml_nodes.text(one) for one in yaml_nodes.items(container.get(key))]
    return "vllm" in " ".join(parts).lower()


def _pod_container(node: Mapping[str, Node], source: Source, out: Gathered) -> ServerCommand:
    container = Container(out, source, "")
    variables: dict[str, str] = {}
    for one in yaml_nodes.items(node.get("env")):
        entry = yaml_nodes.table(one)
        name = yaml_nodes.text(entry.get("name"))
        place = yaml_nodes.word(one)
        if "valueFrom" in entry:
            pair = Word(name, place.line, place.column, place.length)
        else:
            value = _expanded(yaml_nodes.text(entry.get("value")), variables, place, source)
            variables[name] = value
            if is_secret_variable(name):
                source.hide(value)
            pair = Word(f"{name}={value}", place.line, place.column, place.length)
        container.variable(pair, name)
    for key in node:
        if key not in {"image", "command", "args", "env", "name", "ports"}:
            out.tell(ChangeKind.DROPPED, key, why=_NO_CLUSTER)
    words: list[Word] = []
    for key in ("command", "args"):
        for one in yaml_nodes.items(node.get(key)):
            word = yaml_nodes.word(one)
            text = _expanded(word.text, variables, word, source)
            words.append(Word(text, word.line, word.column, word.length, quoted=True))
    server = container.command(yaml_nodes.word(node["image"]), words)
    inside = [int(text) for text in (yaml_nodes.text(yaml_nodes.inner(one, "containerPort"))
                                     for one in yaml_nodes.items(node.get("ports"))) if text.isdecimal()]  # fmt: skip
    for port in inside:
        out.tell(ChangeKind.DROPPED, f"containerPort: {port}", why="The engine's own port is what counts here.")
    server.published = tuple(Publish("127.0.0.1", port, port) for port in inside if 0 < port < 65536)
    return server


def _expanded(text: str, variables: Mapping[str, str], place: Word, source: Source) -> str:
    """Resolve $(NAME) by the variables before it, and $$ as Kubernetes does."""

    def value(found: re.Match[str]) -> str:
        if found.group() == "$$":
            return "$"
        if found.group(1) not in variables:
            source.fail_at(place, f"$({found.group(1)}) is not set in this manifest.", "Write its value here.")
        return variables[found.group(1)]

    return re.sub(r"\$\$(?=\()|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value, text)
