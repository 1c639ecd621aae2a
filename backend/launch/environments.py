"""Engine environments: where an installed vLLM is, what it accepts, and which one a launch uses."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from backend.launch.probe import Probe


class EnvironmentState(StrEnum):
    """OK can serve; HALF_INSTALLED was cut off; BROKEN does not import; FOREIGN has no vLLM."""

    OK = "ok"
    HALF_INSTALLED = "half-installed"
    BROKEN = "broken"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class EngineEnvironment:
    """A Python environment that holds a vLLM.

    Attributes:
        id: short name that profiles use.
        folder: the environment's top folder.
        python: its interpreter.
        managed: True when Specdeck installed it (and may repair or remove it).
        state: OK or what is wrong.
        problem: what is wrong and what to do, "" when OK.
        probe: what it accepts; None unless OK.
    """

    id: str
    folder: Path
    python: Path
    managed: bool
    state: EnvironmentState
    problem: str = ""
    probe: Probe | None = None
