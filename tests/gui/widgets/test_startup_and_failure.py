"""The start-up as it goes on, and what is said after a failure."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from backend.desk.types import RunView
from backend.events import Diagnosis, Phase, RunState
from gui.widgets import figures
from gui.widgets.failure_view import FailureView
from gui.widgets.startup_timeline import StartupTimeline

PHASES = (
    Phase("Loading Python", 0.0, 9.8, usual_s=10.0),
    Phase("Loading weights", 9.8, None, fraction=0.4, detail="12 of 30", usual_s=40.0),
)
STARTING = RunView(
    state=RunState.STARTING,
    title="Demo",
    run_id="r",
    started_at=1000.0,
    phases=PHASES,
    log_file=Path("state") / "engine.log",
)


W = TypeVar("W", bound=QWidget)


def shown(qtbot: QtBot, widget: W) -> W:
    qtbot.addWidget(widget)
    widget.resize(800, 600)
    widget.show()
    return widget


@pytest.fixture
def timeline(qtbot: QtBot) -> StartupTimeline:
    return shown(qtbot, StartupTimeline())


def test_steps_have_their_time_and_the_usual_time(timeline: StartupTimeline) -> None:
    timeline.show_run(STARTING, 1031.8)
    done, now = timeline.steps
    assert timeline.heading.text() == "Starting Demo"
    assert timeline.total.text() == "31 s so far; these steps usually take 50 s"
    assert [done.time.text(), done.usual.text()] == ["9.8 s", "usually 10 s"]
    assert [now.name.text(), now.time.text(), now.usual.text()] == ["Loading weights", "21 s", "usually 40 s"]
    assert now.detail.text() == "12 of 30"
    assert done.bar.isHidden()
    assert not now.bar.isHidden()
    assert now.bar.value() / now.bar.maximum() == pytest.approx(0.4)
    assert "done" in done.accessibleName()
    assert "now" in now.accessibleName()


def test_without_a_count_there_is_no_bar_but_a_word(timeline: StartupTimeline) -> None:
    busy = replace(STARTING, phases=(PHASES[0], replace(PHASES[1], fraction=None, detail="", usual_s=None)))
    timeline.show_run(busy, 1020.0)
    now = timeline.steps[1]
    assert now.bar.isHidden()
    assert now.detail.text() == "working"
    assert now.usual.text() == ""
    assert timeline.total.text() == "20 s so far", "the usual time of all is not known"
    timeline.show_run(replace(busy, silent_s=30.0), 1050.0)
    assert now.detail.text() == "working"
    timeline.show_run(replace(busy, silent_s=48.0), 1068.0)
    assert now.detail.text() == "no sign of life for 48 s: log and CPU are still"
    assert now.detail.property("role") == "warn-note"
    timeline.show_run(busy, 1070.0)
    assert now.detail.text() == "working"


def test_the_time_is_counted_as_in_the_top_bar(timeline: StartupTimeline) -> None:
    for elapsed_s in (0.2, 9.97, 12.9, 59.6):
        timeline.show_run(replace(STARTING, phases=PHASES[:1]), 1000.0 + elapsed_s)
        assert timeline.total.text().split(" so far")[0] == figures.uptime(elapsed_s)
    timeline.show_run(replace(STARTING, phases=PHASES[:1]), 1000.0 + 61.9)
    assert timeline.total.text().startswith("1 min 1 s so far")


def test_times_stand_at_the_right_end(timeline: StartupTimeline, qtbot: QtBot) -> None:
    timeline.show_run(replace(STARTING, phases=(replace(PHASES[0], usual_s=None),)), 1005.0)
    (step,) = timeline.steps
    qtbot.waitUntil(lambda: step.time.geometry().right() == step.rect().right())
    timeline.show_run(replace(STARTING, phases=(PHASES[0], replace(PHASES[1], usual_s=None))), 1031.0)
    qtbot.waitUntil(lambda: len({each.time.geometry().right() for each in timeline.steps}) == 1)
    qtbot.waitUntil(lambda: timeline.steps[0].time.geometry().right() < timeline.steps[0].rect().right())


def test_the_log_of_a_start_is_one_click_away(timeline: StartupTimeline, qtbot: QtBot) -> None:
    timeline.show_run(STARTING, 1031.0)
    with qtbot.waitSignal(timeline.log_requested):
        timeline.show_log.click()


def test_steps_come_and_a_new_start_begins_anew(timeline: StartupTimeline) -> None:
    timeline.show_run(replace(STARTING, phases=PHASES[:1]), 1001.0)
    assert len(timeline.steps) == 1
    timeline.show_run(STARTING, 1031.0)
    assert [step.name.text() for step in timeline.steps] == ["Loading Python", "Loading weights"]
    timeline.show_run(replace(STARTING, run_id="s", phases=PHASES[:1], started_at=1100.0), 1101.0)
    assert [step.name.text() for step in timeline.steps] == ["Loading Python"]


def test_preparing_shows_its_activity_and_only_a_known_fraction(timeline: StartupTimeline) -> None:
    preparing = RunView(state=RunState.PREFLIGHT, title="Demo", activity="Downloading torch", activity_fraction=0.37)
    timeline.show_run(preparing, 0.0)
    assert timeline.heading.text() == "Preparing Demo"
    assert timeline.activity.text() == "Downloading torch"
    assert timeline.bar.isVisible()
    assert timeline.bar.value() / timeline.bar.maximum() == pytest.approx(0.37)
    timeline.show_run(replace(preparing, activity_fraction=None), 0.0)
    assert not timeline.bar.isVisible()
    assert timeline.activity.text() == "Downloading torch …"
    assert not timeline.show_log.isVisible(), "there is no log yet"
    timeline.show_run(STARTING, 1001.0)
    assert not timeline.activity.isVisible()


FAILED = replace(
    STARTING,
    state=RunState.FAILED,
    ended_at=1041.0,
    diagnosis=Diagnosis("ValueError: no room", "exit code 1", 1214),
)


@pytest.fixture
def failure(qtbot: QtBot) -> FailureView:
    return shown(qtbot, FailureView())


def test_a_failure_says_why_how_and_where(failure: FailureView) -> None:
    failure.show_run(FAILED)
    assert failure.heading.text() == "“Demo” failed"
    assert failure.cause.text() == "ValueError: no room"
    assert failure.place.text().splitlines() == [
        "How it ended: exit code 1",
        "Last step after 41 s: Loading weights",
        "Where: engine.log, line 1,214",
    ]
    flags = failure.cause.textInteractionFlags()
    assert flags & Qt.TextInteractionFlag.TextSelectableByMouse
    assert flags & Qt.TextInteractionFlag.TextSelectableByKeyboard


def test_its_buttons(failure: FailureView, qtbot: QtBot) -> None:
    failure.show_run(FAILED)
    with qtbot.waitSignal(failure.retry_requested):
        failure.retry.click()
    with qtbot.waitSignal(failure.log_requested) as asked:
        failure.show_log.click()
    assert asked.args == [1214]
    failure.copy.click()
    assert QGuiApplication.clipboard().text() == "ValueError: no room"


def test_a_failure_after_ready_and_without_a_cause(failure: FailureView, qtbot: QtBot) -> None:
    failure.show_run(replace(FAILED, ready_at=1030.0, diagnosis=None))
    assert failure.cause.text() == "The engine ended without saying why."
    assert "Last step" not in failure.place.text()
    with qtbot.waitSignal(failure.log_requested) as asked:
        failure.show_log.click()
    assert asked.args == [None]


def test_a_failure_before_the_spawn_has_no_log(failure: FailureView) -> None:
    failure.show_run(RunView(state=RunState.FAILED, title="Demo", diagnosis=Diagnosis("No space left.")))
    assert failure.heading.text() == "“Demo” could not be started"
    assert not failure.show_log.isVisible()
    assert not failure.place.isVisible()


def test_a_cause_is_text_not_markup(failure: FailureView) -> None:
    failure.show_run(replace(FAILED, diagnosis=Diagnosis("<b>bold</b> cause")))
    assert failure.cause.textFormat() is Qt.TextFormat.PlainText
