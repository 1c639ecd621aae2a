"""A profile as docker run, compose file, or Kubernetes manifests; secrets stay references."""

import re
import shlex
from typing import TYPE_CHECKING, Any

import yaml

from backend.checkpoints import catalog

if TYPE_CHECKING:
    from backend.launch.exporters import Server

_KEY = "VLLM_API_KEY"
_IMAGE = "vllm/vllm-openai"
_NO_FOLDERS = frozenset({"--disable-access-log-for-endpoints", "--root-path", "--served-model-name"})
_FOLDER_VARIABLES = frozenset({"HF_HOME", "HF_HUB_CACHE", "VLLM_CACHE_ROOT"})
_HUB = "/root/.cache/huggingface"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where Linux keeps it
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - inside a container; what this machine opens is told by its ports


def fit_name(name: str) -> str:
    """Return a name that services and units may have: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "vllm"


def docker(server: "Server") -> str:
    """Return a shell text with one docker run."""
    lines = [
        "#!/bin/sh",
        f"# {server.title}: made by Specdeck for vLLM {server.version}.",
        "# HF_TOKEN, if a model needs one, is taken from your shell.",
    ]
    if server.needs_key:
        lines.append(f"# Clients must send a key: set {_KEY} in your shell before.")
    options = [
        ["docker", "run", "--rm", "--init"],
        ["--ipc", "host"],
        ["--gpus", _gpus(server)],
        ["-p", _published(server)],
        *(["-v", f"{host}:{inside}"] for host, inside in _mounts(server)),
        ["-e", "HF_TOKEN"],
        *([["-e", _KEY]] if server.needs_key else []),
        *(["-e", f"{name}={value}"] for name, value in sorted(server.env.items())),
        ["--entrypoint", "vllm"],  # that of the image was another one up to some release
        [f"{_IMAGE}:v{server.version}"],
        ["serve", server.model],
        *_groups(_inside(server)),
    ]
    return "\n".join([*lines, " \\\n  ".join(" ".join(map(_quoted, group)) for group in options)]) + "\n"


def compose(server: "Server") -> str:
    """Return a compose file."""
    environment: dict[str, str | None] = {"HF_TOKEN": None}
    if server.needs_key:
        environment[_KEY] = None
    environment |= {name: value.replace("$", "$$") for name, value in sorted(server.env.items())}
    device: dict[str, Any] = {"driver": "nvidia", "capabilities": ["gpu"]}
    if server.devices:
        device["device_ids"] = list(server.devices)
    else:
        device["count"] = server.n_gpus
    service = {
        "image": f"{_IMAGE}:v{server.version}",
        "init": True,
        "ipc": "host",
        "ports": [_published(server)],
        "volumes": [f"{host}:{inside}".replace("$", "$$") for host, inside in _mounts(server)],
        "environment": environment,
        "entrypoint": ["vllm", "serve"],
        "command": [word.replace("$", "$$") for word in (server.model, *_inside(server))],
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
    }
    head = f"# {server.title}: made by Specdeck for vLLM {server.version}.\n"
    head += "# Variables without a value are taken from your shell; secrets are in no file.\n"
    return head + _yaml({"services": {server.name: service}})


def kubernetes(server: "Server", *, nodes: int) -> str:
    """Return a Deployment and its Service; for several nodes a LeaderWorkerSet in place of the first."""
    head = (
        f"# {server.title}: made by Specdeck for vLLM {server.version}.\n"
        "# Make the secret before: kubectl create secret generic "
        f"{server.name} --from-literal=HF_TOKEN=...{f' --from-literal={_KEY}=...' if server.needs_key else ''}\n"
    )
    if catalog.is_path(server.model):
        head += f"# Every node needs the folder {server.model}.\n"
    if server.devices:
        head += "# A cluster chooses its GPUs by itself; those of the profile are not in here.\n"
    workload = _deployment(server) if nodes == 1 else _leader_worker_set(server, nodes)
    selector = {"app": server.name} if nodes == 1 else {"app": server.name, "role": "leader"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": server.name},
        "spec": {"selector": selector, "ports": [{"port": server.port, "targetPort": server.port}]},
    }
    return head + _yaml(workload) + "---\n" + _yaml(service)


def _deployment(server: "Server") -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": server.name},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": server.name}},
            "template": _pod(server, {"app": server.name}, [], serves=True, gpus=server.n_gpus),
        },
    }


def _leader_worker_set(server: "Server", nodes: int) -> dict[str, Any]:
    """One leader that serves and workers that join it, through vLLM's own executor over several nodes."""
    shared = ["--nnodes", str(nodes), "--master-addr", "$(LWS_LEADER_ADDRESS)"]
    gpus = -(-server.n_gpus // nodes)
    leader = [*shared, "--node-rank", "0"]
    worker = [*shared, "--node-rank", "$(LWS_WORKER_INDEX)", "--headless"]
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": server.name},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _pod(server, {"app": server.name, "role": "leader"}, leader, serves=True, gpus=gpus),
                "workerTemplate": _pod(server, {"app": server.name}, worker, serves=False, gpus=gpus),
            },
        },
    }


def _pod(server: "Server", labels: dict[str, str], more: list[str], *, serves: bool, gpus: int) -> dict[str, Any]:
    env: list[dict[str, Any]] = [{"name": "HF_TOKEN", "valueFrom": _secret(server, "HF_TOKEN", optional=True)}]
    if server.needs_key:
        env.append({"name": _KEY, "valueFrom": _secret(server, _KEY, optional=False)})
    env += [{"name": name, "value": _escaped(value)} for name, value in sorted(server.env.items())]
    container: dict[str, Any] = {
        "name": "vllm",
        "image": f"{_IMAGE}:v{server.version}",
        "command": ["vllm", "serve"],
        "args": [*(_escaped(word) for word in (server.model, *_inside(server))), *more],
        "env": env,
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
        "volumeMounts": [{"name": "memory", "mountPath": _SHARED_MEMORY}],
    }
    volumes: list[dict[str, Any]] = [{"name": "memory", "emptyDir": {"medium": "Memory"}}]
    if serves:
        container["ports"] = [{"containerPort": server.port}]
        # Loading can take long, so that only a start that never ends is one that failed.
        check = {"httpGet": {"path": "/health", "port": server.port}}
        container["startupProbe"] = {**check, "periodSeconds": 10, "failureThreshold": 360}
        container["readinessProbe"] = {**check, "periodSeconds": 10}
    if catalog.is_path(server.model):
        container["volumeMounts"].append({"name": "model", "mountPath": server.model, "readOnly": True})
        volumes.append({"name": "model", "hostPath": {"path": server.model, "type": "Directory"}})
    return {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}}


def _secret(server: "Server", key: str, *, optional: bool) -> dict[str, Any]:
    reference: dict[str, Any] = {"name": server.name, "key": key}
    if optional:
        reference["optional"] = True
    return {"secretKeyRef": reference}


def _escaped(text: str) -> str:
    """Kubernetes resolves $(NAME); two dollars keep it from that."""
    return text.replace("$(", "$$(")


def _inside(server: "Server") -> tuple[str, ...]:
    """The options as they are inside a container, where any address is the container's own."""
    words = list(server.options)
    at = words.index("--host")
    words[at + 1] = _ANY_ADDRESS
    return tuple(words)


def _groups(words: tuple[str, ...]) -> list[list[str]]:
    groups: list[list[str]] = []
    for word in words:
        if not groups or word.startswith("-"):
            groups.append([])
        groups[-1].append(word)
    return groups


def _gpus(server: "Server") -> str:
    return f'"device={",".join(server.devices)}"' if server.devices else "all"


def _published(server: "Server") -> str:
    host = server.host
    if host == "localhost":
        host = "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    elif not re.fullmatch(r"[\d.]+", host):
        host = _ANY_ADDRESS
    return f"{host}:{server.port}:{server.port}"


def _mounts(server: "Server") -> list[tuple[str, str]]:
    """Folders that the container needs under the same paths, and the hub's cache."""
    values = [server.model]
    for flag, value in zip(server.options, server.options[1:], strict=False):
        if flag.startswith("--") and flag not in _NO_FOLDERS:
            values += [value, *re.findall(r'"model":"(/[^"]*)"', value)]
    values += [value for name, value in server.env.items() if name in _FOLDER_VARIABLES]
    folders = sorted({value for value in values if re.fullmatch(r"/[^\s{}\":,]+", value)})
    return [("~/.cache/huggingface", _HUB), *((folder, folder) for folder in folders)]


def _quoted(word: str) -> str:
    if word.startswith("~/"):  # the shell's own way to the home folder
        return f"~/{shlex.quote(word[2:])}"
    return shlex.quote(word)


class _Dumper(yaml.SafeDumper):
    """Writes what stands in several places in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(content: dict[str, Any]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False)
