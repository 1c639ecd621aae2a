"""The parts of the shell: top bar, rail, notices, questions and the list of leftovers."""

import time
from dataclasses import replace

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QPushButton
from pytestqt.qtbot import QtBot

from backend.desk.types import LeftoverView, ProfileEntry, Reading, RunView
from backend.events import HostSample, RunState, Sample
from backend.hardware import GpuSnapshot
from gui.widgets import figures
from gui.widgets.choice_dialog import Answer, ChoiceDialog, DialogSlot
from gui.widgets.leftovers_dialog import LeftoversDialog
from gui.widgets.notice_bar import NoticeBar
from gui.widgets.pooled_acceptance import Drafts
from gui.widgets.rail import Rail
from gui.widgets.state_pill import StatePill
from gui.widgets.status_bar import StatusBar
from gui.widgets.top_bar import TopBar
from tests.gui import gpu_scenes

LEFT = Qt.MouseButton.LeftButton


def wait_until_gone(qtbot: QtBot, dialog: QDialog) -> None:
    qtbot.waitUntil(lambda: not shiboken6.isValid(dialog))


def bar(qtbot: QtBot) -> TopBar:
    made = TopBar()
    qtbot.addWidget(made)
    made.show_profiles(
        [
            ProfileEntry("mine", "Mine", "n-gram", read_only=False),
            ProfileEntry("broken", "Broken", "", read_only=False, problem="damaged"),
            ProfileEntry("demo", "Demo", "draft model", read_only=True),
        ]
    )
    return made


def test_start_starts_the_chosen_profile(qtbot: QtBot) -> None:
    made = bar(qtbot)
    made.choose("demo")
    with qtbot.waitSignal(made.start_wanted) as told:
        qtbot.mouseClick(made.button, LEFT)
    assert told.args == ["demo"]
    assert made.profiles.findData("broken") == -1, "a damaged profile cannot be started"


def test_the_button_stops_what_runs_and_kills_what_stops(qtbot: QtBot) -> None:
    made = bar(qtbot)
    made.show_run(RunView(state=RunState.READY, profile="mine", run_id="r", url="http://127.0.0.1:1/v1"))
    assert made.button.text() == "Stop"
    assert made.profile == "mine"
    wishes: list[None] = []
    made.stop_wanted.connect(lambda: wishes.append(None))
    qtbot.mouseClick(made.button, LEFT)
    assert wishes == [], "the second click of a double click was meant for Start"
    qtbot.waitUntil(lambda: not made.is_settling)
    qtbot.mouseClick(made.button, LEFT)
    assert wishes == [None]
    made.show_run(RunView(state=RunState.STOPPING, profile="mine", run_id="r"))
    assert made.button.text() == "Kill"
    made.show_run(RunView(state=RunState.STOPPED, profile="mine", run_id="r"))
    assert made.button.text() == "Start"


def test_the_address_is_copied(qtbot: QtBot) -> None:
    made = bar(qtbot)
    made.show_run(RunView(state=RunState.READY, profile="mine", run_id="r", url="http://127.0.0.1:4567/v1"))
    made.show()
    qtbot.mouseClick(made.copy, LEFT)
    assert QGuiApplication.clipboard().text() == "http://127.0.0.1:4567/v1"
    made.show_run(RunView())
    assert made.endpoint.text == ""
    assert made.copy.isHidden()


def test_the_time_runs_from_ready(qtbot: QtBot) -> None:
    made = bar(qtbot)
    made.show_run(
        RunView(state=RunState.READY, run_id="r", started_at=0.0, ready_at=time.time() - 4330, engine="vllm 0.32.0")
    )
    assert made.words.text == "up 1 h 12 min \N{MIDDLE DOT} vllm 0.32.0"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h 0 min"), (90_061, "25 h 1 min")],
)
def test_durations(seconds: float, words: str) -> None:
    assert figures.uptime(seconds) == words


def test_every_state_has_a_word_and_a_mark_of_its_own(qtbot: QtBot) -> None:
    pill = StatePill()
    qtbot.addWidget(pill)
    seen = set()
    for state in RunState:
        pill.show_state(state)
        seen.add(pill.text())
    assert len(seen) == len(RunState)


def test_the_rail_chooses_with_mouse_and_keys(qtbot: QtBot) -> None:
    rail = Rail((("run", "Run"), ("logs", "Logs"), ("settings", "Settings")))
    qtbot.addWidget(rail)
    rail.show()
    chosen: list[str] = []
    rail.chosen.connect(chosen.append)
    qtbot.waitExposed(rail)
    rail.activateWindow()
    qtbot.waitUntil(rail.isActiveWindow)
    qtbot.keyClick(rail, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(rail, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(rail, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    assert chosen == ["logs", "settings", "run"]


def test_a_notice_acts_once_and_goes(qtbot: QtBot) -> None:
    notice = NoticeBar()
    qtbot.addWidget(notice)
    acted: list[str] = []
    notice.show_notice("Deleted.", action="Undo", act=lambda: acted.append("undone"))
    assert notice.text == "Deleted."
    button = next(b for b in notice.findChildren(QPushButton) if b.text() == "Undo")
    qtbot.mouseClick(button, LEFT)
    assert acted == ["undone"]
    assert notice.text == ""


def question(qtbot: QtBot) -> tuple[ChoiceDialog, list[str]]:
    dialog, chosen = made_question()
    dialog.open()
    qtbot.waitExposed(dialog)
    return dialog, chosen


def made_question() -> tuple[ChoiceDialog, list[str]]:
    dialog = ChoiceDialog(
        None,
        title="Delete it?",
        text="It is gone then.",
        answers=[Answer("yes", "Delete", "danger"), Answer("no", "Cancel")],
    )
    chosen: list[str] = []
    dialog.chosen.connect(chosen.append)
    return dialog, chosen


@pytest.mark.parametrize("key", ["yes", "no"])
def test_a_question_gives_the_answer_that_was_clicked_once(qtbot: QtBot, key: str) -> None:
    dialog, chosen = question(qtbot)
    qtbot.mouseClick(dialog.buttons[key], LEFT)
    wait_until_gone(qtbot, dialog)
    assert chosen == [key]


def test_enter_never_does_what_cannot_be_undone(qtbot: QtBot) -> None:
    dialog, chosen = question(qtbot)
    qtbot.keyClick(dialog, Qt.Key.Key_Return)
    wait_until_gone(qtbot, dialog)
    assert chosen == ["no"]


def test_the_next_question_takes_the_place_of_the_first(qtbot: QtBot) -> None:
    slot = DialogSlot()
    first, first_chosen = made_question()
    slot.open(first)
    second, second_chosen = made_question()
    slot.open(second)
    wait_until_gone(qtbot, first)
    assert first_chosen == ["no"]
    assert slot.dialog is second
    slot.close()
    wait_until_gone(qtbot, second)
    assert second_chosen == ["no"]
    assert slot.dialog is None


def test_escape_and_closing_give_the_harmless_answer(qtbot: QtBot) -> None:
    dialog, chosen = question(qtbot)
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    wait_until_gone(qtbot, dialog)
    assert chosen == ["no"]
    dialog, chosen = question(qtbot)
    dialog.close()
    wait_until_gone(qtbot, dialog)
    assert chosen == ["no"]


def leftover(run_id: str, *, adoptable: bool) -> LeftoverView:
    return LeftoverView(run_id, "demo", RunState.READY, "http://x", 0.0, 3, 3 * 2**30, adoptable)


def dialog_of(qtbot: QtBot) -> tuple[LeftoversDialog, list[str]]:
    dialog = LeftoversDialog(None, [leftover("a", adoptable=True), leftover("b", adoptable=False)], can_adopt=True)
    ended: list[str] = []
    dialog.end_wanted.connect(ended.append)
    dialog.open()
    qtbot.waitExposed(dialog)
    return dialog, ended


def test_leftovers_are_ended_one_by_one_or_all(qtbot: QtBot) -> None:
    dialog, ended = dialog_of(qtbot)
    qtbot.mouseClick(dialog.end_all, LEFT)
    assert ended == ["a", "b"]
    dialog.show_ended("a", "")
    dialog.show_ended("b", "Process 7 cannot be killed.")
    assert dialog.isVisible(), "what could not be ended stays listed"
    dialog.show_ended("b", "")
    wait_until_gone(qtbot, dialog)


def test_leftovers_are_left_without_an_answer(qtbot: QtBot) -> None:
    dialog, ended = dialog_of(qtbot)
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    wait_until_gone(qtbot, dialog)
    assert ended == []


def test_only_a_living_server_can_be_taken_over(qtbot: QtBot) -> None:
    dialog, _ = dialog_of(qtbot)
    adopt = [button for button in dialog.findChildren(QPushButton) if button.text() == "Take over"]
    assert [button.property("run_id") for button in adopt] == ["a"]
    adopted: list[str] = []
    dialog.adopt_wanted.connect(adopted.append)
    qtbot.mouseClick(adopt[0], LEFT)
    wait_until_gone(qtbot, dialog)
    assert adopted == ["a"]


def test_unknown_figures_are_a_dash_and_never_zero(qtbot: QtBot) -> None:
    status = StatusBar()
    qtbot.addWidget(status)
    host = HostSample(t=0.0, cpu_ratio=None, memory_used_bytes=2**31, memory_total_bytes=2**33)
    recent = Drafts(10.0, count=9.0, acceptance=0.778, length=4.89)
    status.show_reading(Reading(host, Sample(t=0.0, interval_s=None, state=RunState.READY)), recent)
    labels = (status.tokens, status.acceptance, status.length, status.cache, status.queue)
    assert [label.text() for label in labels] == ["\N{EN DASH}"] * 5
    assert status.host.text() == "CPU \N{EN DASH}  \N{MIDDLE DOT}  memory 2.0 of 8.0 GiB"
    status.show_reading(
        Reading(
            host,
            Sample(
                t=0.0,
                interval_s=1.0,
                state=RunState.READY,
                generation_tokens_per_s=1234.56,
                kv_cache_usage_ratio=0.031,
                requests_running=2.0,
                requests_waiting=1.0,
            ),
        ),
        recent,
    )
    assert [label.text() for label in labels] == ["1,235", "77.8 %", "4.89", "3.1 %", "2 + 1 waiting"]
    assert status.acceptance.toolTip().endswith(": 9 drafts in 10 s")
    status.show_reading(Reading(host, None), recent)
    assert [label.text() for label in labels] == ["\N{EN DASH}"] * 5


def test_with_gpus_the_machine_is_their_power_heat_and_throttling(qtbot: QtBot) -> None:
    status = StatusBar()
    qtbot.addWidget(status)
    status.resize(1100, 34)
    host = HostSample(gpu_scenes.STARTED, cpu_ratio=0.25, memory_used_bytes=2**31, memory_total_bytes=2**33)
    readings = [gpu_scenes.reading(0, n, power_w=300.0, temperature_c=60.0 + n) for n in range(2)]

    def show(gpus: GpuSnapshot) -> None:
        status.show_reading(Reading(host, None, gpus), Drafts(10.0))

    show(gpu_scenes.snapshot(0, 2, readings=readings))
    assert status.host.text() == "600 W  \N{MIDDLE DOT}  61 °C  \N{MIDDLE DOT}  no throttling"
    assert "CPU 25 %  \N{MIDDLE DOT}  memory 2.0 of 8.0 GiB" in status.host.toolTip()
    assert status.host.property("role") == "note"
    assert [bar.used_ratio for bar in status.gpus.bars] == pytest.approx([70.65 / 79.65, 70.55 / 79.65])
    show(gpu_scenes.snapshot(0, 2, readings=[readings[0], replace(readings[1], throttle=("power cap",))]))
    assert status.host.text().endswith("GPU 1 throttled")
    assert status.host.property("role") == "warn-note"
    show(gpu_scenes.no_gpus())
    assert status.host.text() == "CPU 25 %  \N{MIDDLE DOT}  memory 2.0 of 8.0 GiB"
    assert status.host.property("role") == "note"
    assert status.gpus.isHidden()


def test_dialogs_block_only_their_window(qtbot: QtBot) -> None:
    dialog, _ = question(qtbot)
    assert isinstance(dialog, QDialog)
    assert dialog.windowModality() is Qt.WindowModality.WindowModal
    dialog.close()
    wait_until_gone(qtbot, dialog)
