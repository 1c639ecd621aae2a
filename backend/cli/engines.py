"""`specdeck engines`: list, install, add, probe and remove the environments that hold a vLLM."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backend.cli import signals
from backend.cli.install_view import InstallView, ask
from backend.errors import EngineEnvironmentError, InstallRefusedError, UsageError
from backend.hardware import NvidiaDriver
from backend.launch import engine_choice, environments, install, install_plan, machine
from backend.launch.engine_choice import plan_text
from backend.launch.environments import EngineEnvironment, EnvironmentState
from backend.launch.install_plan import CPU, CUDA, EngineWant, InstallPlan
from backend.telemetry import nvml

app = typer.Typer(help="The environments that hold a vLLM.", no_args_is_help=True)

_STATE_STYLES = {
    EnvironmentState.OK: "green",
    EnvironmentState.UNCHECKED: "yellow",
    EnvironmentState.HALF_INSTALLED: "yellow",
}
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list")
def list_(*, as_json: _Json = False) -> None:
    """Show the environments that were installed or added, and vLLMs found elsewhere."""
    known, found = environments.list_environments(), environments.find_installed()
    if as_json:
        entries = [{**_as_dict(e), "known": True} for e in known] + [{**_as_dict(e), "known": False} for e in found]
        typer.echo(json.dumps(entries, indent=1))
        return
    if not known and not found:
        typer.echo("No vLLM yet. Install one with `specdeck engines install`, or add yours: `engines add PATH`.")
        return
    table = Table()
    for title in ("id", "state", "vLLM", "platform", "folder", "remarks"):
        table.add_column(title, no_wrap=title == "id", overflow="fold")
    for environment in known + found:
        remark = "installed by Specdeck" if environment.managed else "added"
        if environment in found:
            remark = f"not added: specdeck engines add {environment.folder}"
        # Text, since brackets in foreign words (folders, messages of the loader) are no markup.
        table.add_row(
            Text(environment.id),
            Text(environment.state, style=_STATE_STYLES.get(environment.state, "red")),
            Text(f"{environment.distribution} {environment.version}".strip()),
            Text(environment.probe.platform if environment.probe else ""),
            Text(str(environment.folder)),
            Text(environment.problem if environment.problem and environment not in found else remark),
        )
    Console().print(table)


@app.command("install")
def install_(
    *,
    cpu: Annotated[bool, typer.Option("--cpu", help="The CPU build.")] = False,
    cuda: Annotated[bool, typer.Option("--cuda", help="The CUDA build, for NVIDIA GPUs.")] = False,
    version: Annotated[str | None, typer.Option("--version", help="Another vLLM version.")] = None,
    yes: _Yes = False,
) -> None:
    """Make an environment with vLLM; by default the build and version that fit this machine."""
    if cpu and cuda:
        raise UsageError("--cpu and --cuda exclude each other.", "Give one of them.")
    want = EngineWant(build=CPU if cpu else CUDA if cuda else None, version=version)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with signals.raised():
        environment = _install(want, yes=yes, yes_cpu=yes, console=console)
    typer.echo(f"{environment.id} is ready in {environment.folder}")


@app.command("add")
def add(path: Annotated[Path, typer.Argument(help="Folder of an environment, or its interpreter.")]) -> None:
    """Use an environment that you made yourself; probes it (about 20 s)."""
    with Console(stderr=True).status("Asking its vLLM what it accepts (about 20 s)"), signals.raised():
        environment = environments.add(path)
    if environment.state is not EnvironmentState.OK:
        raise EngineEnvironmentError(
            f"Added as {environment.id}, but it cannot be used yet: {environment.problem}",
            f"Mend it, then run `specdeck engines probe {environment.id}`.",
        )
    typer.echo(f"Added as {environment.id}: {_words(environment)}")


@app.command("probe")
def probe(
    environment_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One of `engines list`.")] = None,
    *,
    as_json: _Json = False,
) -> None:
    """Ask the vLLM of one environment, or of all, again what it accepts."""
    known = environments.list_environments() if environment_id is None else (environments.get(environment_id),)
    probed = []
    with Console(stderr=True).status("Probing") as status, signals.raised():
        for environment in known:
            status.update(Text(f"Probing {environment.id} (about 20 s)"))
            probed.append(environments.probe(environment, refresh=True))
    if as_json:
        entries = [_as_dict(environment, whole=True) for environment in probed]
        typer.echo(json.dumps(entries[0] if environment_id else entries, indent=1))
    for environment in probed:
        if not as_json:
            typer.echo(f"{environment.id}: {_words(environment)}")
    if bad := [environment.id for environment in probed if environment.state is not EnvironmentState.OK]:
        raise EngineEnvironmentError(f"Cannot be used: {', '.join(bad)}.", "`specdeck engines list` says why.")


@app.command("remove")
def remove(
    environment_id: Annotated[str, typer.Argument(metavar="ID", help="One of `engines list`.")],
    *,
    yes: _Yes = False,
) -> None:
    """Delete an environment that Specdeck installed; one that was added is only forgotten."""
    environment = environments.get(environment_id)
    if environment.managed and not yes and not ask(f"Delete {environment.folder}?"):
        raise InstallRefusedError("Nothing was deleted.", "Agree, or add --yes.")
    environments.remove(environment_id)
    typer.echo(f"Deleted {environment.folder}." if environment.managed else f"Forgot {environment.id}.")


def ensure_engine(
    environment_id: str | None = None, *, yes: bool = False, yes_cpu: bool = False, console: Console
) -> EngineEnvironment:
    """Return an environment fit to serve: the named one, else one that is there, else install one.

    Args:
        environment_id: the one a profile names; it is never installed, only used.
        yes: agrees to any install.
        yes_cpu: agrees to the install of the CPU build, but not in place of a finished one that does not work.
        console: where questions and progress go.

    Raises:
        UsageError: there is no environment of that name.
        EngineEnvironmentError: there is none and none can be made.
        InstallRefusedError: nobody agreed.
    """

    def on_wait(words: str) -> None:
        console.print(words, markup=False)

    ready = engine_choice.usable(environment_id, on_wait=on_wait)
    if ready is not None:
        return ready
    return _install(EngineWant(), yes=yes, yes_cpu=yes_cpu, console=console)


def _install(want: EngineWant, *, yes: bool, yes_cpu: bool, console: Console) -> EngineEnvironment:
    if want.build is not None:  # what is there already must not wait for anything
        version = want.version or install_plan.pinned_version(want.build)
        if (ready := install.existing(install_plan.engine_folder_for(want.build, version))) is not None:
            return ready
    driver = nvml.ask_child()
    found = driver if isinstance(driver, NvidiaDriver) else None
    facts = machine.machine_facts(found, driver if isinstance(driver, str) else "")
    plan = install_plan.plan(facts, want)

    def consent(plan: InstallPlan) -> bool:
        view.pause()
        console.print(plan_text(plan), markup=False)
        # A yes to the CPU build is given by a Makefile: nobody saw that something would be deleted.
        if yes or (yes_cpu and plan.build == CPU and not plan.replaces):
            return True
        if not sys.stdin.isatty():
            raise InstallRefusedError(
                "This needs a yes, and there is no terminal to ask in.",
                f"Agree with `specdeck engines install --{plan.build} --yes`.",
            )
        return ask("Delete it and install it anew?" if plan.replaces else "Download and install it?")

    view = InstallView(console)
    try:
        with view:
            return install.install(plan, consent=consent, progress=view.show)
    except KeyboardInterrupt:
        raise EngineEnvironmentError(
            "The install was cut off.", "The next `specdeck engines install` does it again from the start."
        ) from None


def _words(environment: EngineEnvironment) -> str:
    if environment.probe is None:
        return f"{environment.state}: {environment.problem}"
    probed = environment.probe
    return (
        f"{probed.distribution} {probed.version} on {probed.platform}, Python {probed.python_version}, "
        f"{len(probed.options)} options, {len(probed.spec_methods)} speculative methods"
    )


def _as_dict(environment: EngineEnvironment, *, whole: bool = False) -> dict[str, Any]:
    """An environment for --json; `whole` adds everything that the probe found."""
    probed = environment.probe
    entry: dict[str, Any] = {
        "id": environment.id,
        "state": environment.state.value,
        "problem": environment.problem,
        "distribution": environment.distribution,
        "version": environment.version,
        "platform": probed.platform if probed else None,
        "managed": environment.managed,
        "folder": str(environment.folder),
        "python": str(environment.python),
    }
    if whole:
        entry["probe"] = dataclasses.asdict(probed) if probed else None
    return entry
