"""A desk on an environment whose vLLM is the fake server, and what it told."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from backend.desk.desk import Desk
from backend.desk.types import Event, Reading, RunView
from backend.events import RunState
from backend.launch import environments
from tests.backend.launch import runs as helpers
from tests.e2e.fake_environment import kill_all_with, make_environment, make_model

LIMIT_S = 60.0


class Told:
    """Everything a desk told, and a way to wait for it."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def states(self) -> list[RunState]:
        """States of the run, each once in a row."""
        found: list[RunState] = []
        for event in self.events:
            if isinstance(event, RunView) and (not found or found[-1] is not event.state):
                found.append(event.state)
        return found

    @property
    def readings(self) -> list[Reading]:
        return [event for event in self.events if isinstance(event, Reading)]

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - whatever it is, it tells nobody
                await asyncio.sleep(0.02)

    async def wait_for(self, state: RunState) -> None:
        await self.wait(lambda: bool(self.states) and self.states[-1] is state)


@contextlib.asynccontextmanager
async def open_desk() -> AsyncIterator[tuple[Desk, Told]]:
    """Give a desk that has begun; closed with its engine at the end."""
    told = Told()
    desk = Desk(told)
    await desk.begin()
    try:
        yield desk, told
    finally:
        await desk.close(leave_running=False)
        kill_all_with(f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}")


def write_profile(model: Path, port: int, name: str = "mine") -> None:
    """Write a profile of the person's own for the fake engine."""
    profiles = Path(os.environ["XDG_CONFIG_HOME"]) / "specdeck" / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    (profiles / f"{name}.toml").write_text(
        f'# kept\nschema = 1\ntitle = "Mine"\n[target]\nmodel = "{model}"\nserved_model_name = "fake"\n'
        f'[server]\nport = {port}\n[speculation]\nmethod = "ngram"\nnum_speculative_tokens = 4\n'
    )


def prepare_home(folder: Path) -> int:
    """Add the fake environment and a profile for it to this test's XDG folders; returns the profile's port."""
    environments.add(make_environment(folder / "environment"))
    port = helpers.free_port()
    write_profile(make_model(folder / "model"), port)
    return port
