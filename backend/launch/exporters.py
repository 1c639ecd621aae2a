"""A profile as a text that starts the same server without Specdeck: shell, docker, compose, systemd, Kubernetes."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from backend.errors import ProfileError, UsageError
from backend.launch import command, engine_options, export_containers, gpu_names
from backend.launch.probe import Probe
from backend.launch.profile import Profile

KEY_VARIABLE = "VLLM_API_KEY"


class ExportKind(StrEnum):
    """What a profile can be written as."""

    SHELL = "shell"
    DOCKER = "docker"
    COMPOSE = "compose"
    SYSTEMD = "systemd"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class Server:
    """What every kind of text says.

    Attributes:
        name: of the profile, fit for names of services.
        title: for a comment.
        version: of the vLLM that the options are for.
        model: hub name, or a folder of this machine.
        options: what stands behind the model.
        env: variables, no secret among them.
        needs_key: clients must send a key, which is in no text.
        host: where it listens; `port` likewise.
        devices: GPUs by name, empty when it takes the first ones; `n_gpus` how many it needs.
    """

    name: str
    title: str
    version: str
    model: str
    options: tuple[str, ...]
    env: Mapping[str, str]
    needs_key: bool
    host: str
    port: int
    devices: tuple[str, ...]
    n_gpus: int


def export(profile: Profile, kind: ExportKind, *, probe: Probe, models: Path, nodes: int = 1) -> str:
    """Return a text that starts the engine of a profile with vLLM alone.

    Secrets are never in it: it says which variables must be set, and where.

    Args:
        profile: what it starts.
        kind: shell, docker, compose, systemd or kubernetes.
        probe: what the vLLM accepts that will run it; the text is for its CUDA build.
        models: folder of the demo models that Specdeck built.
        nodes: machines that share one engine; only Kubernetes can have several (a LeaderWorkerSet).

    Raises:
        ProfileError: the profile does not fit this vLLM.
        UsageError: several nodes where one is possible, or a vLLM that cannot spread over nodes.
    """
    probe = replace(probe, platform="cuda")
    server = _server(profile, probe=probe, models=models)
    if nodes < 1 or (nodes > 1 and kind is not ExportKind.KUBERNETES):
        raise UsageError("Only Kubernetes runs one engine on several machines.", "Use --as kubernetes, or one node.")
    if nodes > 1 and not probe.accepts("--nnodes"):
        raise UsageError(
            f"vLLM {probe.version} cannot spread one engine over machines by itself.", "Use 0.11.1 or newer."
        )
    if kind is ExportKind.SHELL:
        return _shell(server)
    if kind is ExportKind.SYSTEMD:
        return _systemd(server)
    if kind is ExportKind.DOCKER:
        return export_containers.docker(server)
    if kind is ExportKind.COMPOSE:
        return export_containers.compose(server)
    return export_containers.kubernetes(server, nodes=nodes)


def _server(profile: Profile, *, probe: Probe, models: Path) -> Server:
    def resolve(model: str) -> str:
        return command.resolve_model(model, models=models)

    options, problems = engine_options.build_options(profile, probe=probe, resolve=resolve)
    engine_options.raise_problems(problems, profile=profile)
    if not engine_options.is_loopback(profile.server.host) and not profile.server.api_key:
        raise ProfileError(
            f"server.host: {profile.server.host} can be reached by other machines, and there is no API key.",
            "Use 127.0.0.1, or set server.api_key = true.",
        )
    parallel = profile.parallel
    devices = gpu_names.wanted(profile, profile.env)
    if words := gpu_names.problem(devices, probe):
        raise ProfileError(f"parallel.device_ids: {words}.", "Choose other GPUs.")
    env = {name: value for name, value in profile.env.items() if name != gpu_names.VARIABLE}
    sizes = (parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.data_parallel_size)
    n_gpus = 1
    for size in sizes:
        n_gpus *= size or 1
    return Server(
        name=export_containers.fit_name(profile.name),
        title=" ".join((profile.title or profile.name).split()),
        version=probe.version.partition("+")[0],
        model=resolve(profile.target.model),
        options=tuple(options),
        env=env,
        needs_key=profile.server.api_key,
        host=profile.server.host,
        port=profile.server.port,
        devices=devices,
        n_gpus=n_gpus,
    )


def _lines_of(words: Sequence[str]) -> list[list[str]]:
    """Group words: each option with its values on a line of its own."""
    groups: list[list[str]] = []
    for word in words:
        if not groups or word.startswith("-"):
            groups.append([])
        groups[-1].append(word)
    return groups


def _shell(server: Server) -> str:
    lines = ["#!/bin/sh", f"# {server.title}: made by Specdeck for vLLM {server.version}."]
    if server.needs_key:
        lines += [
            "# Clients must send a key, which is in no file.",
            f'export {KEY_VARIABLE}="${{{KEY_VARIABLE}:?set it before}}"',
        ]
    lines.append("export CUDA_DEVICE_ORDER=PCI_BUS_ID")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(server.env.items())]
    if server.devices:
        lines.append(f"export {gpu_names.VARIABLE}={shlex.quote(','.join(server.devices))}")
    words = [" ".join(map(shlex.quote, group)) for group in _lines_of(server.options)]
    start = f"exec vllm serve {shlex.quote(server.model)}"
    return "\n".join([*lines, " \\\n  ".join([start, *words])]) + "\n"


def _systemd(server: Server) -> str:
    words = [" ".join(map(_unit_word, group)) for group in _lines_of(server.options)]
    start = " \\\n  ".join([f"%h/.local/bin/vllm serve {_unit_word(server.model)}", *words])
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **dict(sorted(server.env.items()))}
    if server.devices:
        env[gpu_names.VARIABLE] = ",".join(server.devices)
    lines = [
        f"# {server.title}: made by Specdeck for vLLM {server.version}.",
        f"# Save it as ~/.config/systemd/user/{server.name}.service, mend the path of vllm in ExecStart, then:",
        f"#   systemctl --user daemon-reload && systemctl --user enable --now {server.name}",
        "[Unit]",
        f"Description=vLLM: {server.title.replace('%', '%%')}",
        "",
        "[Service]",
        "Type=exec",
        *(f"Environment={_unit_word(f'{name}={value}', in_exec=False)}" for name, value in env.items()),
    ]
    if server.needs_key:
        lines += [
            f"# Clients must send a key: systemctl --user set-environment {KEY_VARIABLE}=...",
            f"PassEnvironment={KEY_VARIABLE}",
        ]
    lines += [
        f"ExecStart={start}",
        "KillMode=mixed",
        "TimeoutStopSec=30",
        "Restart=no",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def _unit_word(text: str, *, in_exec: bool = True) -> str:
    """Quote one word as systemd reads it."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("%", "%%")
    if in_exec:
        quoted = quoted.replace("$", "$$")
    plain = quoted == text and text and not any(c.isspace() or c in "'\";#" for c in text)
    return text if plain else f'"{quoted}"'
