"""What happened, marked on the charts of the Run page, and the export of what they show."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from backend.errors import UserError
from backend.events import Mark
from gui.panes.run import RunPane
from tests.gui.panes.readings import READY, STARTED, FakeBridge, counting, reading
from tests.gui.panes.run.run_page import chart_card, run_engine, settle

# ---- marks and export -------------------------------------------------------------------------------------------


def test_what_happens_is_marked_on_every_chart_and_told_by_the_read_out(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane
) -> None:
    bridge.show(READY)
    for second in range(200):
        bridge.record(reading(second, counting(second)))
    bridge.marks.extend([Mark(STARTED - 500, "start", "Started"), Mark(STARTED + 100, "chat", "Chat")])
    bridge.feed(replace(reading(200, counting(200)), marks=(Mark(STARTED + 199.5, "stall", "No sign of life"),)))
    settle(qtbot, page)
    for key in ("tokens", "acceptance", "latency", "cache"):
        chart = chart_card(page, key).chart
        wide = chart.plot_width
        assert [group.kind for group in chart.mark_groups] == ["chat", "stall"], (
            "what is older than the span is left out"
        )
        places = [group.x_px for group in chart.mark_groups]
        assert places == pytest.approx([wide * (300 - 100) / 300, wide * (300 - 0.5) / 300], abs=1)
    page.grid.point_at(-100.0)
    assert chart_card(page, "tokens").source.text == "Chat  \N{MIDDLE DOT}  1 min 40 s ago".replace("  ", " ")
    page.grid.point_at(-50.0)
    assert chart_card(page, "tokens").source.text == "50 s ago"


def test_readings_of_the_span_that_is_drawn_are_exported(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, tmp_path: Path
) -> None:
    asked: list[tuple[object, ...]] = []

    async def export_live(path: Path, kind: str, begin: float, end: float) -> None:
        asked.append((path, kind, begin, end))

    bridge.desk.history = SimpleNamespace(export_live=export_live)
    assert page.bar.export is not None
    page.bar.export.asked.emit()
    assert not page.bar.export.actions_by_kind["csv"].isEnabled(), "there is no run"
    run_engine(qtbot, bridge, page, [counting(n) for n in range(100)])
    page.bar.export.asked.emit()
    assert page.bar.export.actions_by_kind["csv"].isEnabled()
    assert page.bar.export.file_stem.startswith("Demo, 20")
    page.bar._spans.button(60).click()
    page.bar.export.chosen.emit("csv", tmp_path / "run.csv")
    end = STARTED + 99
    assert asked == [(tmp_path / "run.csv", "csv", end - 60, end)]
    assert page.notices["export"].text == f"Exported to {tmp_path / 'run.csv'}."
    page.bar._pause.setChecked(True)
    bridge.feed(reading(130, counting(130)))
    page.bar.export.chosen.emit("json", tmp_path / "run.json")
    assert asked[-1] == (tmp_path / "run.json", "json", end - 60, end), "what is held is what is exported"
    page.bar._pause.setChecked(False)
    bridge.refusal = UserError("Nothing of this run is recorded.", "Turn the recording on.")
    page.bar.export.chosen.emit("csv", tmp_path / "run.csv")
    assert page.notices["export"].text == "Nothing of this run is recorded. Turn the recording on."
    settle(qtbot, page)


def test_a_picture_of_the_cards_is_exported(qtbot: QtBot, bridge: FakeBridge, page: RunPane, tmp_path: Path) -> None:
    run_engine(qtbot, bridge, page, [counting(n) for n in range(100)])
    assert page.bar.export is not None
    file = tmp_path / "run.png"
    areas = [card.geometry() for card in page.grid.visible_cards]
    right, bottom = max(area.right() for area in areas), max(area.bottom() for area in areas)
    page.bar.export.chosen.emit("png", file)
    qtbot.waitUntil(lambda: page.notices["export"].text != "", timeout=20_000)
    assert page.notices["export"].text == f"Exported to {file}."
    picture = QImage(str(file))
    assert picture.width() >= 2 * right
    assert picture.height() >= 2 * bottom
    settle(qtbot, page)
