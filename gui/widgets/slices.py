"""Long work of the window cut into slices, so that no turn of the event loop takes long."""

import time
from collections import deque
from collections.abc import Iterator

import shiboken6
from PySide6.QtCore import QObject, QTimer

_BUDGET_S = 0.004


class Slices(QObject):
    """Runs the steps of generators in turns of a few milliseconds; work of widgets that are gone is dropped."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._work: deque[tuple[QObject, Iterator[None]]] = deque()
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._on_turn)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing left to do."""
        return not self._work

    def add(self, owner: QObject, steps: Iterator[None], *, first: bool = False) -> None:
        """Run `steps` for `owner` after all other work, or before it."""
        if first:
            self._work.appendleft((owner, steps))
        else:
            self._work.append((owner, steps))
        self._timer.start()

    def _on_turn(self) -> None:
        end_s = time.perf_counter() + _BUDGET_S
        while self._work and time.perf_counter() < end_s:
            item = self._work[0]
            owner, steps = item
            if shiboken6.isValid(owner):
                try:
                    next(steps)
                except StopIteration:
                    pass
                else:
                    continue  # the step may have put other work in front of it
            self._work.remove(item)
        if not self._work:
            self._timer.stop()
