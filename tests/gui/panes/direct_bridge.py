"""A bridge that answers at once: what all stand-ins for the bridge have in common."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from PySide6.QtCore import QObject, Signal

from backend.desk.types import RunView
from backend.errors import UserError
from gui.bridge import Bridge


class DirectBridge(QObject):
    """Runs each call to its end before it returns, or fails it with `refusal`."""

    run_changed = Signal(object)
    sampled = Signal(object)
    job_progressed = Signal(object)
    store_problem_changed = Signal(object)
    call_failed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.run = RunView()
        self.refusal: UserError | None = None

    def call(
        self,
        _owner: QObject,
        work: Coroutine[Any, Any, Any],
        *,
        done: Callable[[Any], None] | None = None,
        failed: Callable[[UserError], None] | None = None,
    ) -> None:
        """As the bridge does, at once."""
        try:
            result = asyncio.run(work)
            if self.refusal is not None:
                raise self.refusal
        except UserError as error:
            problem = error  # the name in the clause is gone when the answer is given
            self.answer(lambda: (failed or self.call_failed.emit)(problem))
        else:
            if done is not None:
                give = done
                self.answer(lambda: give(result))

    def answer(self, give: Callable[[], None]) -> None:
        """Give an answer; what waits with them does it here."""
        give()

    @property
    def as_bridge(self) -> Bridge:
        """Itself, for whoever wants a Bridge."""
        return cast("Bridge", self)
