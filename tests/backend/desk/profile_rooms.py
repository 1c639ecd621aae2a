"""A room of profiles for tests: real files, the recorded vLLM as the engine, and a run that the test decides."""

from collections.abc import Callable
from dataclasses import dataclass, field

from backend.control import Control
from backend.desk.engines import Engines
from backend.desk.profiles import Profiles
from backend.desk.runs import Runs
from backend.desk.types import Event, RunView
from backend.errors import UserError
from backend.launch.environments import EngineEnvironment
from tests.backend.launch import profile_cases


class RecordedEngines(Engines):
    """Serves what the test puts in `answer`; raises it when it is an error."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        super().__init__(emit)
        self.answer: EngineEnvironment | UserError | None = profile_cases.environment()
        self.n_asked = 0

    async def serving(
        self,
        environment_id: str | None,
        *,
        on_wait: Callable[[str], None] = lambda _words: None,
        add_found: bool = True,
    ) -> EngineEnvironment | None:
        self.n_asked += 1
        if isinstance(self.answer, UserError):
            raise self.answer
        return self.answer


class ShownRun(Runs):
    """Says what the test says of the current run."""

    shown = RunView()

    def view(self) -> RunView:
        return self.shown

    async def profile_changed(self, name: str) -> None:
        self.changed.append(name)

    @property
    def changed(self) -> list[str]:
        """Names that were told to have changed."""
        changes: list[str] = self.__dict__.setdefault("_changes", [])
        return changes


@dataclass
class Rooms:
    """The room and what it works with."""

    control: Control = field(default_factory=Control)
    engines: RecordedEngines = field(default_factory=lambda: RecordedEngines(lambda _event: None))

    def __post_init__(self) -> None:
        self.runs = ShownRun(self.control, self.engines, lambda _event: None)
        self.profiles = Profiles(self.control, self.engines, self.runs)
