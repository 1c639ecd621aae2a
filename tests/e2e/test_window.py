"""The window on the real engine: the whole job with the mouse, and with the keyboard after the window was killed."""

import csv
import itertools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from backend.desk.types import ChatSettings, Reading
from backend.events import RunState, Sample
from gui import theme
from tests.backend.launch import runs as helpers
from tests.conftest import USER_ENVIRONMENT
from tests.e2e.conftest import LIMIT_S, RealLine
from tests.gui.panel import Panel

LIMIT_MS = round(LIMIT_S * 1000)
LOST_S = 2.0  # at most so much of a recorded run is lost with the process that records it
TOKENS = "generation_tokens_per_s"
COUNTERS = {
    "generated": "vllm:generation_tokens_total",
    "prompt": "vllm:prompt_tokens_total",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
    "steps": "vllm:iteration_tokens_total_count",
    "read": "vllm:estimated_read_bytes_per_gpu_total",
    "written": "vllm:estimated_write_bytes_per_gpu_total",
}
# Of the tiny pair, both models alike; its weights are float32.
LAYERS, HIDDEN, INNER, VOCABULARY, DRAFTED = 2, 128, 256, 512, 4
PARAMETERS = LAYERS * (4 * HIDDEN**2 + 3 * INNER * HIDDEN + 2 * HIDDEN) + HIDDEN + VOCABULARY * HIDDEN


@pytest.fixture
def home(tmp_path: Path, tiny_models: Path, qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealLine]:
    """The user's engines and models, own profiles and runs; also for the window in this process."""
    line = RealLine(tmp_path / "real", tiny_models)
    # No token of the supervisor's own between our readings of the counters.
    (line.home / "config/specdeck/settings.toml").write_text("stall_s = 3600.0\n")
    profile = line.home / "config/specdeck/profiles/tiny.toml"
    profile.write_text('extra_args = ["--enable-mfu-metrics"]\n' + profile.read_text())
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, line.env[name])
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        if name in USER_ENVIRONMENT:
            monkeypatch.setenv(name, USER_ENVIRONMENT[name])
        else:
            monkeypatch.delenv(name)
    theme.prepare(qapp, "dark")
    yield line
    line.close()


@pytest.fixture
def panel(qtbot: QtBot, home: RealLine, no_leaks: None) -> Iterator[Panel]:
    made = Panel(qtbot, home.home, port=home.port)
    try:
        yield made
    finally:
        made.close()
        made.bridge.close()


def counters(home: RealLine) -> dict[str, float]:
    return {name: home.counter(metric) for name, metric in COUNTERS.items()}


def short_answers(panel: Panel) -> None:
    """Let no answer of the random model run to the end of its context."""
    done: list[None] = []
    panel.bridge.call(
        panel.window, panel.bridge.desk.chat.change_settings(ChatSettings(max_tokens=60)), done=done.append
    )
    panel.wait(lambda: bool(done))


def alone(panel: Panel, home: RealLine) -> tuple[Reading, dict[str, float]]:
    """Have tokens made between two readings of the window; returns the reading that spans them, and our own growth."""
    readings: list[Reading] = []
    panel.bridge.sampled.connect(readings.append)
    for _ in range(20):
        n_before = len(readings)
        wait_for_readings(panel, readings, n_before + 1)
        before = counters(home)
        home.ask(prompt="abc", max_tokens=40)
        after = counters(home)
        wait_for_readings(panel, readings, n_before + 3)
        growth = {name: after[name] - before[name] for name in before}
        spanning = [reading for reading in readings[n_before:] if made_tokens(reading.engine)]
        if len(spanning) == 1:
            panel.bridge.sampled.disconnect(readings.append)
            return spanning[0], growth
    raise AssertionError("no answer fell between two readings")


def wait_for_readings(panel: Panel, readings: list[Reading], n: int) -> None:
    panel.wait(lambda: len(readings) >= n)


def made_tokens(sample: Sample | None) -> bool:
    return sample is not None and bool(sample.generation_tokens_per_s)


@pytest.mark.engine
def test_the_whole_job_with_the_mouse(panel: Panel, home: RealLine) -> None:
    """1 start."""
    panel.open()
    panel.choose("tiny")
    panel.click(panel.window.top_bar.button)
    panel.wait_for(RunState.STARTING, RunState.FAILED)
    assert panel.window.run_pane.stack.currentWidget() is panel.window.run_pane.startup
    panel.wait(lambda: panel.state not in (RunState.STARTING, RunState.PREFLIGHT), limit_ms=LIMIT_MS)
    assert panel.state is RunState.READY, panel.bridge.run.diagnosis
    session, memory = home.session(), home.shared_memory()
    panel.wait(lambda: panel.window.status.tokens.text() == "0")

    at_first = counters(home)
    reading, growth = alone(panel, home)
    of_run = {name: value - at_first[name] for name, value in counters(home).items()}
    sample = reading.engine
    assert sample is not None
    assert sample.interval_s is not None
    assert sample.generation_tokens_per_s is not None
    assert sample.acceptance_rate is not None
    assert growth["generated"] == 40
    assert sample.generation_tokens_per_s == pytest.approx(growth["generated"] / sample.interval_s)
    assert sample.prompt_tokens_per_s == pytest.approx(growth["prompt"] / sample.interval_s)
    assert sample.acceptance_rate == pytest.approx(growth["accepted"] / growth["drafted"])
    assert sample.mean_acceptance_length == pytest.approx(1 + growth["accepted"] / growth["drafts"])
    assert sample.acceptance_per_position is not None
    assert 1 + sum(sample.acceptance_per_position) == pytest.approx(sample.mean_acceptance_length)
    assert growth["drafted"] / growth["drafts"] == DRAFTED
    # One sequence a step and nothing running any more: a check of the drafted tokens, and a pass for each of them.
    step_bytes = 4 * (PARAMETERS + (1 + DRAFTED) * HIDDEN + DRAFTED * (PARAMETERS + HIDDEN))
    assert sample.implied_bytes_per_s == pytest.approx(step_bytes * growth["steps"] / sample.interval_s)
    estimated = growth["read"] + growth["written"]
    assert estimated > 0
    assert sample.estimated_bytes_per_s == pytest.approx(estimated / sample.interval_s)
    drawn(panel, "tokens", "generation_tokens_per_s", sample.t, sample.generation_tokens_per_s)
    drawn(panel, "acceptance", "recent_acceptance_rate", sample.t, 100 * sample.acceptance_rate)
    length = f"{1 + of_run['accepted'] / of_run['drafts']:.2f}"
    positions = panel.window.run_pane.grid.cards["positions"]
    panel.wait(lambda: positions.legend.values() == {"tokens per step": length})
    panel.wait(lambda: f" {of_run['drafts']:.0f} drafts in the last " in positions.figure.words)

    short_answers(panel)
    before = home.counter(COUNTERS["generated"])
    answer = panel.ask("Hello")
    assert answer.usage is not None
    n_tokens = answer.usage.completion_tokens
    assert n_tokens is not None
    # A random model may end its answer by chance.
    assert n_tokens == 60 if answer.usage.finish_reason == "length" else 0 < n_tokens <= 60
    panel.wait(lambda: home.counter(COUNTERS["generated"]) - before == n_tokens)

    panel.click(panel.window.top_bar.button)
    panel.wait_for(RunState.STOPPED)
    home.nothing_left(session, memory)


def drawn(panel: Panel, card: str, series: str, t: float, value: float) -> None:
    """Fail unless the chart of a card draws `value` at the time of a reading."""
    chart = panel.window.run_pane.grid.cards[card].chart  # type: ignore[attr-defined]
    panel.wait(lambda: any(y == pytest.approx(value) for y in chart.drawn[series][1]))


@pytest.mark.engine
def test_a_killed_window_is_opened_again_and_used_with_the_keyboard_alone(panel: Panel, home: RealLine) -> None:
    """1 start."""
    first = subprocess.Popen(
        [sys.executable, "-P", "-m", "gui", "--start", "tiny"],
        cwd=home.home,
        env=home.env | {"QT_QPA_PLATFORM": "offscreen"},
    )
    try:
        panel.qtbot.waitUntil(lambda: first.poll() is not None or is_ready(home), timeout=LIMIT_MS)
        assert first.poll() is None, "the window ended by itself"
        helpers.wait_for(lambda: bool(recorded_tokens(home)), limit_s=LIMIT_S)
        begun = time.monotonic()
        while time.monotonic() < begun + 3 * LOST_S:
            home.ask(prompt="abc", max_tokens=40)
        killed_at = time.time()
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    session, memory = home.session(), home.shared_memory()
    assert helpers.session_members(session), "the engine outlives its window"
    before_kill = recorded_tokens(home)
    times = [t for t, _ in before_kill]
    between = max(later - earlier for earlier, later in itertools.pairwise(times[-10:]))
    # Readings come late on a busy machine, while the engine answers as well: their pace says how late.
    assert killed_at - times[-1] <= LOST_S + 3 * between
    assert any(tokens > 0 for _, tokens in before_kill)

    opened_at = time.time()
    panel.open()
    panel.wait_for(RunState.READY)
    window, qtbot = panel.window, panel.qtbot
    assert window.top_bar.profile == "tiny"
    assert home.session() == session, "it is the same engine"
    panel.wait(lambda: recorded_tokens(home)[-1][0] > opened_at, limit_ms=LIMIT_MS)
    assert [t for t, _ in recorded_tokens(home) if t < opened_at] == times, "what was recorded stays"
    short_answers(panel)
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    control = Qt.KeyboardModifier.ControlModifier
    qtbot.keyClick(window, Qt.Key.Key_L, control)
    panel.wait(lambda: window.focusWidget() is window.chat.input)
    before = home.counter(COUNTERS["generated"])
    qtbot.keyClicks(window.chat.input, "Hello")
    qtbot.keyClick(window.chat.input, Qt.Key.Key_Return)
    panel.wait(lambda: len(panel.answers) == 1, limit_ms=LIMIT_MS)
    usage = panel.answers[0].usage
    assert usage is not None
    panel.wait(lambda: home.counter(COUNTERS["generated"]) - before == usage.completion_tokens)
    for key, page in (
        (Qt.Key.Key_2, "profiles"),
        (Qt.Key.Key_4, "history"),
        (Qt.Key.Key_5, "logs"),
        (Qt.Key.Key_Comma, "settings"),
    ):
        qtbot.keyClick(window, key, control)
        assert window.stack.currentWidget() is window.page(page)
        if page == "history":
            panel.wait(lambda: shows_gap(panel, opened_at - times[-1]), limit_ms=LIMIT_MS)
    qtbot.keyClick(window, Qt.Key.Key_R, control)
    panel.wait_for(RunState.STOPPED)
    home.nothing_left(session, memory)
    qtbot.keyClick(window, Qt.Key.Key_Q, control)
    panel.wait(lambda: panel.closed)


def recorded_tokens(home: RealLine) -> list[tuple[float, float]]:
    """Unix time and tokens/s of each reading of the newest run that is on disk and knows them."""
    file = home.home / "recorded.csv"
    home.command("history", "export", "last", str(file))
    if not file.exists():
        return []
    with file.open() as lines:
        return [(float(row["unix_s"]), float(row[TOKENS])) for row in csv.DictReader(lines) if row.get(TOKENS)]


def shows_gap(panel: Panel, length_s: float) -> bool:
    """Whether the History page draws the rate of tokens with a gap of at least this length."""
    drawn = panel.window.page("history").grid.cards["tokens"].chart.drawn  # type: ignore[attr-defined]
    times, values = drawn.get(TOKENS, ((), ()))
    return any(math.isnan(values[n]) and times[n + 1] - times[n - 1] >= length_s for n in range(1, len(values) - 1))


def is_ready(home: RealLine) -> bool:
    runs = home.home / "state" / "specdeck" / "runs"
    return (
        runs.is_dir()
        and any(runs.iterdir())
        and (max(runs.iterdir()) / "run.json").exists()
        and (home.record()["state"] == "READY")
    )


assert os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
