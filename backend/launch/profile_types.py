"""What the tables of a launch profile are made of: documented fields and checked kinds of text."""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from pydantic.config import JsonDict

from backend.checkpoints.catalog import BUILT_PREFIX

GIB = 1024**3

# Set by Specdeck for each run, or dangerous to inherit; a profile that set them would be overruled or break a run.
MANAGED_VARIABLES = frozenset(
    {"SPT_NOENV", "TMPDIR", "PYTHONSAFEPATH", "PROMETHEUS_MULTIPROC_DIR", "VLLM_PORT", "VLLM_TARGET_DEVICE"}
)
_SECRET_WORDS = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS"})
_BUILT_MODEL = re.compile(re.escape(BUILT_PREFIX) + r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def setting(
    title: str,
    description: str,
    *,
    default: Any = None,
    unit: str = "",
    flag: str = "",
    gpu_only: bool = False,
    strict: bool | None = None,
    **limits: Any,
) -> Any:
    """Declare one field with what a form and the command line need to know about it.

    Args:
        title: label of the field.
        description: one or two plain sentences.
        default: value when the profile says nothing; None leaves the choice to vLLM.
        unit: of the value, for example "tokens" or "bytes".
        flag: option of `vllm serve` that carries the value as it is.
        gpu_only: True when a CPU engine does not use it.
        strict: False where TOML cannot write the exact Python type (a tuple is an array there).
        limits: constraints of pydantic, for example ``ge=1``.
    """
    extra: JsonDict = {"unit": unit, "flag": flag, "gpu_only": gpu_only}
    return Field(default, title=title, description=description, strict=strict, json_schema_extra=extra, **limits)


def _one_line(value: str) -> str:
    if not value.strip() or value != value.strip():
        raise ValueError("should not be empty, nor start or end with a space")
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise ValueError("should be one line without control characters")
    if value.startswith("-"):
        raise ValueError("should not start with a dash: vLLM would read it as an option")
    return value


def _no_control(value: str) -> str:
    if any((ord(c) < 32 and c not in "\n\t") or ord(c) == 127 for c in value):
        raise ValueError("should not hold control characters")
    return value


def _model(value: str) -> str:
    _one_line(value)
    if "://" in value and not _BUILT_MODEL.fullmatch(value):
        raise ValueError(f"should be a hub id, a full path, or {BUILT_PREFIX}NAME for a demo model")
    if value.startswith(("./", "../")) or value in {".", ".."}:
        raise ValueError("should be a full path: a relative one means another folder each time")
    return value


def _finite(value: Any) -> Any:
    """Refuse what strict JSON cannot carry: NaN and infinities anywhere inside, and null."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("should hold plain finite values")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(item)
    return value


def argument(value: str) -> str:
    """Check one extra argument: no control characters, and nothing that ends the list of options."""
    if value == "--":
        raise ValueError("should not be a lone --")
    return _no_control(value)


Text = Annotated[str, AfterValidator(_one_line)]
Prose = Annotated[str, AfterValidator(_no_control)]
ModelName = Annotated[str, AfterValidator(_model)]
JsonTable = Annotated[dict[str, JsonValue], AfterValidator(_finite)]


class Table(BaseModel):
    """Base of every table: unknown fields are refused, values are never converted, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def is_secret_variable(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    words = set(name.upper().split("_"))
    return bool(words & _SECRET_WORDS) or name.upper().endswith(("API_KEY", "ACCESS_KEY"))


def variable_problem(name: str) -> str:
    """Say why a profile may not set the environment variable `name`; "" when it may."""
    if not _VARIABLE.fullmatch(name):
        return "is no name of an environment variable"
    if name in MANAGED_VARIABLES or name.startswith("SPECDECK_"):
        return "is set by Specdeck itself and should not stand in a profile"
    if is_secret_variable(name):
        return "looks like a secret: profiles are plain files that people share, so set it in your shell"
    return ""
