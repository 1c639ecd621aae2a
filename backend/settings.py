"""The user's settings: a small TOML file that is validated, and set aside when damaged."""

import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backend import paths
from backend.errors import UsageError

log = logging.getLogger(__name__)


class Settings(BaseModel):
    """What a person can change for the whole program; times in seconds, sizes in bytes."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: int = 1
    stall_s: float = Field(
        30.0, gt=0, description="an engine is called unresponsive after this long without any sign of life"
    )
    probe_timeout_s: float = Field(10.0, gt=0, description="limit of the one-token request that checks a silent engine")
    stop_grace_s: float = Field(10.0, gt=0, description="how long a stopped engine may take before it is killed")
    sample_interval_s: float = Field(1.0, ge=0.25, description="how often the engine's counters are read")
    gpu_interval_s: float = Field(0.5, ge=0.25, description="how often GPUs are read; oftener would slow them down")
    gpu_profiling: bool = Field(
        True, description="measure memory bandwidth with the GPU's counters while its charts are shown"
    )
    gpu_pcie_snapshot: bool = Field(
        False, description="where nothing else tells PCIe traffic, take samples of 20 ms each; slows the reading down"
    )
    gpu_peak_bytes_per_s: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="highest memory bandwidth by GPU, where it is not known otherwise"
    )
    record: bool = Field(True, description="keep the readings of every run, so that it can be looked at later")
    keep_history_days: float = Field(90.0, gt=0, description="how long readings of a run are kept")
    keep_history_bytes: int = Field(2_000_000_000, ge=10_000_000, description="how much disk all readings may take")
    keep_runs: int = Field(20, ge=1, description="how many finished runs are kept")
    keep_runs_bytes: int = Field(5_000_000_000, gt=0, description="how much disk finished runs may take")
    engine_log_limit_bytes: int = Field(
        200_000_000, ge=1_000_000, description="an engine log is cut when it grows past this"
    )
    theme: Literal["system", "dark", "light"] = Field("system", description="colours of the window")
    on_close: Literal["ask", "stop", "leave"] = Field(
        "ask", description="what becomes of a running engine when the window is closed"
    )
    torch_cpu_index: str = Field(
        "https://download.pytorch.org/whl/cpu",
        description="index of PyTorch's CPU wheels, asked only when the configured indexes lack them",
    )
    torch_cpu_index_timeout_s: float = Field(60.0, gt=0, description="how long to wait for that index")


def load(file: Path | None = None) -> Settings:
    """Read the settings; a damaged file is set aside with a message and the defaults are used.

    Args:
        file: the settings file, by default the user's.
    """
    file = file or paths.folders().settings_file
    try:
        return Settings.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Settings()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        aside = paths.set_aside(file)
        log.warning("Settings were damaged (%s); the file is now %s and the defaults are used.", error, aside)
        return Settings()


def changed(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return settings with other values.

    Raises:
        UsageError: a value is out of its range.
    """
    try:
        return Settings.model_validate({**settings.model_dump(), **values})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in detail["loc"])
        raise UsageError(f"{name}: {detail['msg']}.", "Give another value.") from error


def save(settings: Settings, file: Path | None = None) -> None:
    """Write the settings, keeping comments and keys that this version does not know."""
    file = file or paths.folders().settings_file
    try:
        document = tomlkit.parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        document = tomlkit.document()
    for key, value in settings.model_dump().items():
        document[key] = value
    paths.write_atomic(file, tomlkit.dumps(document))
