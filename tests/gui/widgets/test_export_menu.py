"""The export button: the menu, the suggested file, and the folder that is remembered."""

from pathlib import Path

import pytest
from PySide6.QtCore import QSettings
from pytestqt.qtbot import QtBot

from gui.widgets.export_menu import ExportButton


@pytest.fixture
def store(tmp_path: Path) -> QSettings:
    return QSettings(str(tmp_path / "window.ini"), QSettings.Format.IniFormat)


@pytest.fixture
def button(qtbot: QtBot, store: QSettings) -> ExportButton:
    made = ExportButton(store)
    qtbot.addWidget(made)
    made.show()
    return made


def test_a_file_is_asked_for_without_waiting_and_its_folder_is_remembered(
    qtbot: QtBot, button: ExportButton, store: QSettings, tmp_path: Path
) -> None:
    chosen: list[tuple[str, Path]] = []
    button.chosen.connect(lambda kind, path: chosen.append((kind, path)))
    button.file_stem = "Llama 8B/EAGLE: today"
    button.actions_by_kind["csv"].trigger()
    dialog = button.dialog
    assert dialog is not None
    assert dialog.isVisible()
    assert Path(dialog.selectedFiles()[0]).name == "Llama 8B-EAGLE- today.csv"
    there = tmp_path / "there"
    there.mkdir()
    dialog.setDirectory(str(there))
    dialog.selectFile("run")
    dialog.accept()
    assert chosen == [("csv", there / "run.csv")]
    qtbot.waitUntil(lambda: button.dialog is None)
    again = ExportButton(QSettings(store.fileName(), QSettings.Format.IniFormat))
    qtbot.addWidget(again)
    store.sync()
    again.ask("png")
    assert again.dialog is not None
    assert Path(again.dialog.directory().absolutePath()) == there
    assert again.dialog.defaultSuffix() == "png"
    again.dialog.reject()
    qtbot.waitUntil(lambda: again.dialog is None)


def test_without_readings_only_a_picture_can_be_had(button: ExportButton) -> None:
    button.allow_readings(False, "There is no run yet")
    enabled = {kind: action.isEnabled() for kind, action in button.actions_by_kind.items()}
    assert enabled == {"csv": False, "json": False, "png": True}
    assert button.actions_by_kind["csv"].toolTip() == "There is no run yet"
    button.allow_readings(True)
    assert button.actions_by_kind["json"].isEnabled()
