"""`specdeck export`: a launch profile as a text that starts the same server without Specdeck."""

from pathlib import Path
from typing import Annotated

import typer

from backend import paths
from backend.cli import versions
from backend.launch import exporters
from backend.launch.exporters import ExportKind
from backend.launch.profile_store import ProfileStore

_EXECUTABLE = 0o755
_PLAIN = 0o644


def export(
    name: Annotated[str, typer.Argument(help="Name of a profile.")],
    *,
    kind: Annotated[ExportKind, typer.Option("--as", help="What to write.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; by default it is printed.")
    ] = None,
    for_vllm: Annotated[
        str | None, typer.Option("--for-vllm", help="Version of vLLM that will run it; by default the installed.")
    ] = None,
    nodes: Annotated[
        int, typer.Option("--nodes", min=1, help="Machines that share one engine; several only for kubernetes.")
    ] = 1,
) -> None:
    """Write a profile as a shell script, docker run, compose file, systemd unit or Kubernetes manifest.

    Secrets are never in it: it says which variables must be set.
    """
    profile = ProfileStore().get(name)
    probe = versions.accepted(for_vllm, environment_id=profile.engine.environment)
    text = exporters.export(profile, kind, probe=probe, models=paths.folders().models, nodes=nodes)
    if output is None:
        typer.echo(text, nl=False)
        return
    is_script = kind in {ExportKind.SHELL, ExportKind.DOCKER}
    paths.write_atomic(output.expanduser(), text, mode=_EXECUTABLE if is_script else _PLAIN)
    typer.echo(f"Written to {output}.", err=True)
