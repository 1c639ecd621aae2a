"""From a profile and an engine environment to the exact command and variables that start the engine."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backend import paths
from backend.checkpoints import catalog
from backend.errors import EngineEnvironmentError, ProfileError
from backend.events import Finding, Severity
from backend.launch import engine_options, engine_variables, gpu_names
from backend.launch.environments import EngineEnvironment
from backend.launch.gpu_names import GpuList
from backend.launch.probe import Probe
from backend.launch.processes import RUN_ID_VARIABLE
from backend.launch.profile import Profile

_CLI_MODULE = "vllm.entrypoints.cli.main"
# What a person does not need in order to run the command by hand.
_NOT_SHOWN = frozenset({RUN_ID_VARIABLE, "TMPDIR", "SPT_NOENV"})


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to start one engine; `env` is the whole environment of the child.

    Attributes:
        argv: program and arguments; no secret is ever in it.
        env: complete environment variables.
        host: address to bind, `port` its port.
        served_model_name: name that requests use.
        api_key: key that requests must carry, None if the server asks for none.
        profile_name: profile it came from; `environment_id` the environment it runs in.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    host: str
    port: int
    served_model_name: str
    profile_name: str
    environment_id: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Base address for clients on this machine, without a trailing slash."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "", "::"} else self.host  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def build(
    profile: Profile,
    *,
    environment: EngineEnvironment,
    run_id: str,
    temp_dir: Path,
    models: Path,
    api_key: str | None,
    offline: bool,
    base_env: Mapping[str, str],
    cores: Sequence[int] | None = None,
    gpus: GpuList | None = None,
) -> Launch:
    """Return what starts the engine of a profile.

    Args:
        profile: what to run.
        environment: the vLLM that runs it; its probe decides which options are passed.
        run_id: marks every process of the run.
        temp_dir: private folder for the engine's temporary files.
        models: folder of the demo models that Specdeck built.
        api_key: key that the server asks for; it travels in the environment only.
        offline: True keeps vLLM from asking the hub.
        base_env: the user's variables.
        cores: CPU numbers that the engine may use, by default those that we may use.
        gpus: the machine's GPUs at this moment; needed when `needs_gpu_list` says so.

    Raises:
        ProfileError: the profile does not fit this vLLM (names field and version), would listen to
            other machines without an API key, or names GPUs that cannot be had.
        EngineEnvironmentError: the environment cannot serve.
    """
    probe = _probe(environment)
    if api_key is None and not engine_options.is_loopback(profile.server.host):
        raise ProfileError(
            f"server.host: {profile.server.host} can be reached by other machines, and there is no API key.",
            "Use 127.0.0.1, or set server.api_key = true.",
        )
    if api_key is None and profile.server.api_key:
        raise ProfileError("server.api_key: the profile asks for an API key and there is none.")
    options, problems = engine_options.build_options(
        profile, probe=probe, resolve=lambda model: resolve_model(model, models=models)
    )
    engine_options.raise_problems(problems, profile=profile)
    model = resolve_model(profile.target.model, models=models)
    start = ["serve", model] if probe.serve_module == _CLI_MODULE else ["--model", model]
    return Launch(
        argv=(str(environment.python), "-m", probe.serve_module, *start, *options),
        env=engine_variables.build_variables(
            profile,
            probe=probe,
            run_id=run_id,
            temp_dir=temp_dir,
            api_key=api_key,
            offline=offline,
            base_env=base_env,
            cores=cores,
            gpus=gpus,
        ),
        host=profile.server.host,
        port=profile.server.port,
        served_model_name=engine_options.served_name(profile),
        profile_name=profile.name,
        environment_id=environment.id,
        api_key=api_key,
    )


def needs_gpu_list(profile: Profile, environment: EngineEnvironment, base_env: Mapping[str, str]) -> bool:
    """Whether `build` must be told the machine's GPUs, since this vLLM knows them by number only."""
    return environment.probe is not None and gpu_names.needs_list(
        profile, environment.probe, {**base_env, **profile.env}
    )


def preview(profile: Profile, environment: EngineEnvironment, *, gpus: GpuList | None = None) -> str:
    """Return the command as a person would type it in a shell: variables, program, what it serves, each option a line.

    The API key is shown as a placeholder, and what only marks our runs is left out. GPUs are shown by UUID while
    nobody knows their numbers, which a start finds out.

    Raises:
        ProfileError: as for `build`.
        EngineEnvironmentError: the environment cannot serve.
    """
    if gpus is None and environment.probe is not None and needs_gpu_list(profile, environment, {}):
        environment = replace(environment, probe=replace(environment.probe, gpu_uuids=True))
    launch = build(
        profile,
        environment=environment,
        run_id="",
        temp_dir=Path(),
        models=paths.folders().models,
        api_key="YOUR-KEY" if profile.server.api_key else None,
        offline=False,
        base_env={},
        gpus=gpus,
    )
    lines = [f"{name}={shlex.quote(value)}" for name, value in sorted(launch.env.items()) if name not in _NOT_SHOWN]
    current = ""
    n_program = 3  # python -m MODULE; its path is long, so that what follows has a line of its own
    for place, word in enumerate(launch.argv):
        if place == n_program or (place > n_program and word.startswith("-")):
            lines.append(current)
            current = ""
        current = f"{current} {shlex.quote(word)}".strip()
    return " \\\n  ".join([*lines, current])


def check(profile: Profile, environment: EngineEnvironment) -> tuple[Finding, ...]:
    """Return everything that is wrong or worth knowing about a profile in one environment; empty when all is well.

    Raises:
        EngineEnvironmentError: the environment cannot serve.
    """
    probe = _probe(environment)
    _, problems = engine_options.build_options(profile, probe=probe, resolve=lambda model: model)
    findings = [Finding(Severity.ERROR, problem) for problem in problems]
    if not engine_options.is_loopback(profile.server.host) and not profile.server.api_key:
        what = f"server.host: {profile.server.host} can be reached by other machines, and there is no API key."
        findings.append(Finding(Severity.ERROR, what, fix="Use 127.0.0.1, or set server.api_key = true."))
    for path in engine_options.unused_fields(profile, probe):
        findings.append(Finding(Severity.NOTE, f"{path}: a {probe.platform} engine does not use it."))
    names = profile.parallel.device_ids or ()
    if probe.platform != "cpu" and (words := gpu_names.problem(names, probe)):
        what = f"parallel.device_ids: {words}."
        fix = "Choose other GPUs, or another engine environment."
        findings.append(Finding(Severity.ERROR, what, fix=fix, field="parallel.device_ids"))
    if probe.platform == "cpu" and profile.speculation.rejection_sample_method == "synthetic":
        what = "speculation.rejection_sample_method: on a CPU, synthetic starts and then dies with the first request."
        findings.append(Finding(Severity.WARNING, what, fix="Use it on a GPU only."))
    draft, target = profile.speculation.draft_tensor_parallel_size, profile.parallel.tensor_parallel_size or 1
    if draft is not None and draft != target:
        what = f"speculation.draft_tensor_parallel_size: vLLM accepts {draft} here and fails while loading."
        findings.append(Finding(Severity.WARNING, what, fix=f"Leave it out: then it is the target's {target}."))
    return tuple(findings)


def resolve_model(model: str, *, models: Path) -> str:
    """Return what vLLM takes for a model of a profile: a folder, or a hub id as it is.

    Args:
        model: specdeck://NAME, a full path (~ is the home folder) or a hub id.
        models: folder of the demo models that Specdeck built.
    """
    if catalog.is_built(model):
        return str(models / model.removeprefix(catalog.BUILT_PREFIX))
    return str(catalog.folder_of(model)) if catalog.is_path(model) else model


def _probe(environment: EngineEnvironment) -> Probe:
    if environment.probe is None:
        raise EngineEnvironmentError(
            f"The engine environment {environment.id} is {environment.state}.",
            environment.problem or "Settings and `specdeck engines list` show what is wrong with it.",
        )
    return environment.probe
