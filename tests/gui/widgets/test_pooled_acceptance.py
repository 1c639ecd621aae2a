"""Acceptance over several readings: each draft counts once, of one run, over the seconds that are named."""

from dataclasses import replace

import pytest

from backend.desk.types import RunView
from gui.widgets import pooled_acceptance
from gui.widgets.pooled_acceptance import NAMES, Drafts
from tests.gui.panes.readings import READY, STARTED, FakeBridge, counting, drafting, idle, reading


def recent(bridge: FakeBridge, second: int) -> Drafts:
    now = STARTED + second
    return pooled_acceptance.pooled(bridge.run_readings(NAMES, 10.0, now), now)


@pytest.fixture
def bridge() -> FakeBridge:
    made = FakeBridge()
    made.run = READY
    return made


def test_each_draft_of_the_last_ten_seconds_counts_once(bridge: FakeBridge) -> None:
    for second in range(15):  # the last ten: 5 x 10 drafts of two tokens at 0.2, and 5 x 30 at 0.6
        even = second % 2 == 0
        bridge.record(
            reading(second, drafting(second, n_drafts=10 if even else 30, rates=(0.2, 0.2) if even else (0.6, 0.6)))
        )
    known = recent(bridge, 14)
    assert (known.over_s, known.count) == (10.0, 200.0)
    assert known.acceptance == pytest.approx((50 * 0.2 + 150 * 0.6) / 200)
    assert known.length == pytest.approx(1 + 2 * (50 * 0.2 + 150 * 0.6) / 200)
    assert pooled_acceptance.words(known) == "200 drafts in 10 s"


def test_drafts_of_an_earlier_run_are_not_counted(bridge: FakeBridge) -> None:
    for second in range(5):
        bridge.record(reading(second, drafting(second, n_drafts=10, rates=(0.1,))))
    bridge.run = replace(READY, run_id="run-2", ready_at=STARTED + 5.5)
    bridge.record(reading(6, drafting(6, n_drafts=10, rates=(0.9,))))
    known = recent(bridge, 6)
    assert known.count == 10
    assert known.acceptance == pytest.approx(0.9)


def test_after_the_clock_was_set_back_only_what_came_then_counts(bridge: FakeBridge) -> None:
    for second in range(1000, 1010):
        bridge.record(reading(second, drafting(second, n_drafts=10, rates=(0.9,))))
    for second in range(20):
        bridge.record(reading(second, drafting(second, n_drafts=10, rates=(0.3,))))
    known = recent(bridge, 19)
    assert known.count == 100
    assert known.acceptance == pytest.approx(0.3)


def test_without_drafts_nothing_is_known(bridge: FakeBridge) -> None:
    assert recent(bridge, 0) == Drafts(10.0)
    bridge.record(reading(1, idle(1)))
    assert recent(bridge, 1) == Drafts(10.0, count=0.0)
    bridge.run = RunView()
    bridge.record(reading(2, counting(2)))
    assert recent(bridge, 2) == Drafts(10.0), "no run that is ready"
