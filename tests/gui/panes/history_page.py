"""The History page on a bridge that answers at once from runs that a test has made up."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PySide6.QtCore import QSettings
from pytestqt.qtbot import QtBot

from backend.curves import Readings, RecordedRun
from backend.desk.types import SettingsView
from backend.errors import UserError
from backend.events import Mark, PastRun
from gui.panes.history import HistoryPane
from gui.widgets.chart_card import ChartCard
from tests.gui.panes.direct_bridge import DirectBridge

T = 1_800_000_000.0


def past_run(run_id: str, **changes: Any) -> PastRun:
    """A run that was started at T, ready after 20 s, and stopped after 120 s."""
    run = PastRun(run_id, "mine", f"Run {run_id}", "vllm 0.32.0", T, T + 20, T + 120, "stopped", False, 20.0, 0.5)
    return replace(run, **changes)


def recorded(run: PastRun, series: Mapping[str, Sequence[float]], **changes: Any) -> RecordedRun:
    """A reading each second from the second after READY on; NaN is a gap."""
    values = np.array(list(series.values()), dtype=float)
    begin = run.started_at if run.ready_at is None else run.ready_at
    times = begin + 1 + np.arange(values.shape[1], dtype=float)
    marks = [Mark(run.started_at, "start", "Started")]
    marks += [Mark(run.ready_at, "ready", "Ready")] if run.ready_at is not None else []
    marks += [Mark(run.ended_at, "stop", "Stopped")] if run.ended_at is not None else []
    return replace(RecordedRun(run, Readings(tuple(series), begin, times, values), tuple(marks)), **changes)


class FakeHistory:
    """Recorded runs by id; `calls` is what was asked, `refusal` fails whatever it is."""

    def __init__(self) -> None:
        self.runs: dict[str, RecordedRun] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.refusal: UserError | None = None
        self.problem = ""

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.refusal is not None:
            raise self.refusal

    async def list(self) -> tuple[PastRun, ...]:
        self._note("list")
        return tuple(sorted((each.run for each in self.runs.values()), key=lambda run: -run.started_at))

    async def open(self, run_id: str) -> RecordedRun:
        self._note("open", run_id)
        return self.runs[run_id]

    async def delete(self, run_ids: Sequence[str]) -> None:
        self._note("delete", *run_ids)
        for run_id in run_ids:
            del self.runs[run_id]

    async def export(self, run_id: str, path: Path, kind: str, begin: float, end: float) -> None:
        self._note("export", run_id, path, kind, begin, end)


class FakeBridge(DirectBridge):
    """Answers at once from runs that were made up."""

    def __init__(self) -> None:
        super().__init__()
        self.history = FakeHistory()
        self.records = True
        self.desk = SimpleNamespace(history=self.history, settings_view=self._settings_view)

    async def _settings_view(self) -> SettingsView:
        return SettingsView({"record": self.records}, {})

    def add(self, *runs: RecordedRun) -> None:
        """Have these runs recorded."""
        self.history.runs.update({each.run.run_id: each for each in runs})


class Page:
    """The page, and how a person works with it."""

    def __init__(
        self, qtbot: QtBot, bridge: FakeBridge, store: QSettings, *, size: tuple[int, int] = (1330, 776)
    ) -> None:
        self.qtbot, self.bridge = qtbot, bridge
        self.pane = HistoryPane(bridge.as_bridge, store)
        qtbot.addWidget(self.pane)
        self.pane.resize(*size)
        self.pane.show()
        self.settle()

    def settle(self) -> None:
        """Wait until what was chosen is opened and drawn."""
        self.qtbot.waitUntil(
            lambda: not (self.pane._settle.isActive() or self.pane.grid.is_drawing or self.pane._exporter.is_drawing),
            timeout=20_000,
        )

    def choose(self, *run_ids: str) -> None:
        """Choose rows as a click and a click with Ctrl do."""
        selection = self.pane.list.view.selectionModel()
        flag = selection.SelectionFlag
        for number, run_id in enumerate(run_ids):
            index = self.pane.model.index_of(run_id)
            selection.setCurrentIndex(index, flag.Select if number else flag.ClearAndSelect)
        self.settle()

    def card(self, key: str) -> ChartCard:
        card = self.pane.grid.cards[key]
        assert isinstance(card, ChartCard)
        return card

    @property
    def opened(self) -> list[str]:
        """Ids of the runs that were read, in order."""
        return [call[1] for call in self.bridge.history.calls if call[0] == "open"]
