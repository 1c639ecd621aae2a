"""The Run page while an engine starts, fails, stands still, or guesses badly."""

from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from backend.desk.types import RunView
from backend.events import Diagnosis, Phase, RunState, Sample, Speculation
from gui.panes.run import RunPane
from tests.gui.panes.readings import READY, STARTED, FakeBridge, drafting, idle, reading
from tests.gui.panes.run.run_page import position_card, run_engine, settle

# ---- states of the run -------------------------------------------------------------------------------------------


def test_a_start_takes_the_place_of_the_cards(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    bridge.show(replace(READY, state=RunState.PREFLIGHT, run_id="", activity="Checking the models"))
    assert page.startup.isVisible()
    assert not page.bar.isVisible()
    assert page.startup.activity.text().startswith("Checking the models")
    bridge.show(replace(READY, state=RunState.STARTING, phases=(Phase("Loading weights", 0.0),)))
    assert [step.name.text() for step in page.startup.steps] == ["Loading weights"]
    bridge.feed(reading(0, None))
    assert not page.grid.is_drawing, "nobody sees the cards"
    bridge.show(READY)
    assert page.grid.isVisible()
    assert page.bar.isVisible()
    settle(qtbot, page)


def test_a_failure_takes_the_place_of_the_cards(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    failed = replace(
        READY,
        state=RunState.FAILED,
        log_file=Path("engine.log"),
        ended_at=STARTED + 9,
        diagnosis=Diagnosis("RuntimeError: no memory", "exit code 1", 214),
    )
    # The end is written down a moment before the state changes, and a view may be told in between.
    bridge.show(replace(READY, state=RunState.STARTING, ended_at=STARTED + 9))
    bridge.show(failed)
    assert page.failure.isVisible()
    assert page.failure.cause.text() == "RuntimeError: no memory"
    with qtbot.waitSignal(page.retry_requested):
        page.failure.retry.click()
    with qtbot.waitSignal(page.log_requested) as asked:
        page.failure.show_log.click()
    assert asked.args == [214]
    page.failure.cause.setSelection(0, 7)
    bridge.show(failed)
    assert page.failure.cause.selectedText() == "Runtime", "the same news does not take a selection away"
    bridge.show(RunView())
    assert page.grid.isVisible()


def test_a_stall_is_told_while_it_lasts_and_after(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    stall = page.notices["stall"]
    bridge.show(READY)
    assert not stall.isVisible()
    bridge.show(replace(READY, state=RunState.UNRESPONSIVE, silent_s=65.0, stalled_s=60.0))
    assert stall.isVisible()
    assert stall.text.startswith("The engine has not moved for 1 min 5 s")
    bridge.show(replace(READY, stalled_s=92.0))
    assert stall.text == "The engine moves again; it stood still for 1 min 32 s."
    stall.clear()
    bridge.show(replace(READY, stalled_s=92.0, restart_needed=True))
    assert not stall.isVisible(), "one that was closed stays closed"
    bridge.show(replace(READY, stalled_s=120.0))
    assert stall.isVisible(), "another stall is news"
    bridge.show(replace(READY, state=RunState.STOPPED, stalled_s=120.0))
    assert not stall.isVisible()


def few(second: int, length: float) -> Sample:
    return drafting(second, n_drafts=40, rates=(length - 1, 0.0, 0.0))


def test_few_accepted_guesses_are_told(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    notice = page.notices["few"]
    run_engine(qtbot, bridge, page, [few(n, 1.0 + 0.04 * (n % 5)) for n in range(30)])
    assert notice.text == (
        "Few guesses are accepted (1.08 tokens per step): speculation probably costs more than it gives. "
        "Try fewer draft tokens or another draft."
    )
    for second in range(30, 37):
        bridge.feed(reading(second, few(second, 1.5)))
    assert not notice.isVisible()
    settle(qtbot, page)


@pytest.mark.parametrize("samples", [
    [few(n, 1.2) for n in range(30)],
    [drafting(n, n_drafts=1, rates=(0.0, 0.0, 0.0)) for n in range(19)],  # too few drafts to say so
    [replace(idle(n), speculation=Speculation.OFF) for n in range(30)],
])  # fmt: skip
def test_nothing_is_claimed_that_the_figures_do_not_show(
    qtbot: QtBot, bridge: FakeBridge, page: RunPane, samples: list[Sample]
) -> None:
    run_engine(qtbot, bridge, page, samples)
    assert not page.notices["few"].isVisible()


def test_an_earlier_run_says_nothing_about_this_one(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    for second in range(30):
        bridge.record(reading(second, few(second, 1.0)))
    bridge.show(replace(READY, run_id="run-2", ready_at=STARTED + 30))
    bridge.feed(reading(31, idle(31)))
    assert not page.notices["few"].isVisible()
    settle(qtbot, page)
    assert position_card(page).message.text() == "No drafts in the last 5 min"


def test_what_was_measured_is_told_while_the_profile_runs(qtbot: QtBot, bridge: FakeBridge, page: RunPane) -> None:
    assert not page.measured.isVisible()
    bridge.show(replace(READY, measured_note="0.88x the speed without speculation."))
    assert page.measured.isVisible()
    assert page.measured.text() == "Measured before: 0.88x the speed without speculation."
    bridge.show(replace(READY, state=RunState.STOPPED, measured_note="0.88x the speed without speculation."))
    assert not page.measured.isVisible()
