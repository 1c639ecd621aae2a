"""The whole window on the fake engine: every state, every question both ways, and closing in all of them."""

import csv
import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QLineEdit,
    QMainWindow,
    QWidget,
)
from pytestqt.qtbot import QtBot

from backend.desk.desk import Desk
from backend.desk.types import StoreProblem
from backend.events import RunState
from gui import main_window
from gui.main_window import MainWindow
from gui.panes.history import HistoryPane
from gui.panes.profiles import ProfilesPane
from gui.widgets.chart_card import ChartCard
from gui.widgets.message_view import MessageView
from tests.backend.desk.home import Told, prepare_home, write_profile
from tests.backend.launch import runs as helpers
from tests.e2e.fake_environment import Traces
from tests.gui.panel import Panel, make_panel

PAGES = [key for key, _ in main_window.PAGES]


def test_start_watch_chat_and_stop_with_the_mouse(panel: Panel) -> None:
    window = panel.window
    panel.start()
    panel.wait(lambda: window.run_pane.stack.currentWidget() is window.run_pane.startup)
    panel.wait_for(RunState.READY)
    traces = Traces.of_listener(panel.port)
    assert window.top_bar.endpoint.text == f"http://127.0.0.1:{panel.port}/v1"
    answer = panel.ask("Hello there")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 48, "as many as the fake answers with"
    panel.wait(lambda: window.status.tokens.text() not in ("\N{EN DASH}", "0"))
    panel.click(window.top_bar.button)
    panel.wait_for(RunState.STOPPED)
    traces.assert_nothing_left()
    assert window.top_bar.button.text() == "Start"


def test_every_page_opens(panel: Panel) -> None:
    for key in PAGES:
        panel.click(panel.window.rail._buttons[key])
        assert panel.window.stack.currentWidget() is panel.window.page(key)


def test_a_run_is_recorded_and_can_be_looked_at_later(panel: Panel, tmp_path: Path) -> None:
    window = panel.window
    panel.start_and_wait()
    panel.ask("Hello there")
    live = window.run_pane.grid.cards["tokens"]
    assert isinstance(live, ChartCard)
    panel.wait(lambda: {"ready", "chat"} <= {mark.kind for mark in panel.bridge.marks})
    panel.wait(lambda: any("Ready" in group.words for group in live.chart.mark_groups))
    panel.wait(lambda: window.status.tokens.text() not in ("\N{EN DASH}", "0"))
    panel.click(window.top_bar.button)
    panel.wait_for(RunState.STOPPED)
    window.show_page("history")
    page = window.page("history")
    assert isinstance(page, HistoryPane)
    panel.wait(lambda: [run.outcome for run in page.model.runs] == ["stopped"])
    run = page.model.runs[0]
    assert run.ready_at is not None
    assert run.tokens is not None
    assert run.tokens > 0
    card = page.grid.cards["tokens"]
    assert isinstance(card, ChartCard)
    panel.wait(lambda: bool(card.chart.drawn) and not page.grid.is_drawing)
    _, rates = card.chart.drawn["generation_tokens_per_s"]
    assert (rates > 0).any()
    words = ", ".join(group.words for group in card.chart.mark_groups)
    assert all(word in words for word in ("Started", "Ready", "Stopped"))
    file = tmp_path / "run.csv"
    page.bar.export.chosen.emit("csv", file)
    panel.wait(lambda: page.notice.text == f"Exported to {file}.")
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    exported = [float(row["generation_tokens_per_s"]) for row in rows if row["generation_tokens_per_s"]]
    assert [row["mark"] for row in rows if row["mark"]] == ["start", "ready", "chat", "stop"]
    assert sorted(rate for rate in exported if rate > 0) == pytest.approx(sorted(rates[rates > 0]), rel=1e-6)
    panel.click(page.list.delete)
    dialog = page.question.dialog
    assert dialog is not None
    panel.click(dialog.buttons["delete"])
    panel.wait(lambda: page.model.runs == ())
    assert page.message.title.text() == "No run was recorded yet"


def test_trouble_with_the_store_is_said_once_and_goes_with_it(panel: Panel) -> None:
    notice, tell = panel.window.notice, panel.bridge.store_problem_changed.emit
    tell(StoreProblem("The disk is full. Free some space."))
    assert notice.text == "The disk is full. Free some space."
    assert notice.property("notice") == "warn"
    notice.clear()
    tell(StoreProblem("The disk is full. Free some space."))
    assert notice.text == "", "it was closed"
    tell(StoreProblem("The store is locked. Close what uses it."))
    assert notice.text == "The store is locked. Close what uses it."
    tell(StoreProblem(""))
    assert notice.text == ""
    notice.show_notice("Something else")
    tell(StoreProblem("The disk is full. Free some space."))
    notice.show_notice("Something else")
    tell(StoreProblem(""))
    assert notice.text == "Something else"
    tell(StoreProblem("A damaged store was set aside.", lasts=False))
    assert notice.text == "A damaged store was set aside."


class Windows(QObject):
    """Takes note of every window that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            self.shown.append(repr(watched))
        return False


def test_no_part_of_a_page_flashes_as_a_window(qtbot: QtBot, tmp_path: Path, no_leaks: None) -> None:
    """It would also take the focus away from the real one."""
    port = prepare_home(tmp_path)
    app = QApplication.instance()
    assert app is not None
    windows = Windows()
    app.installEventFilter(windows)
    try:
        with make_panel(qtbot, tmp_path, port=port) as panel:
            for key in PAGES:
                panel.window.show_page(key)
                panel.wait(panel.window.page(key).isVisible)
            panel.start_and_wait()
            panel.ask("Hello")
    finally:
        app.removeEventFilter(windows)
    assert len(windows.shown) == 1, windows.shown


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_code_is_asked_for(qtbot: QtBot, tmp_path: Path, no_leaks: None, answer: str) -> None:
    port = prepare_home(tmp_path)
    file = Path(os.environ["XDG_CONFIG_HOME"]) / "specdeck/profiles/mine.toml"
    file.write_text(file.read_text().replace("[target]", "[target]\ntrust_remote_code = true"))
    with make_panel(qtbot, tmp_path, port=port) as panel:
        panel.start()
        panel.wait(lambda: panel.window.launcher.dialog is not None)
        dialog = panel.window.launcher.dialog
        assert dialog is not None
        panel.click(dialog.buttons[answer])
        panel.wait_for(RunState.READY if answer == "yes" else RunState.STOPPED)


def test_what_blocks_a_start_is_said(panel: Panel) -> None:
    server = urllib.request.socket.socket()  # type: ignore[attr-defined]
    server.bind(("127.0.0.1", panel.port))
    server.listen()
    try:
        panel.start()
        panel.wait(lambda: panel.window.launcher.dialog is not None)
        dialog = panel.window.launcher.dialog
        assert dialog is not None
        assert f"Port {panel.port} is taken" in dialog.text
        panel.click(dialog.buttons["ok"])
        panel.wait(lambda: panel.window.launcher.dialog is None)
    finally:
        server.close()


def test_a_failure_shows_its_cause_and_can_be_tried_again(panel: Panel) -> None:
    panel.start_and_wait()
    os.kill(Traces.of_listener(panel.port).session, signal.SIGKILL)
    panel.wait_for(RunState.FAILED)
    pane = panel.window.run_pane
    assert pane.stack.currentWidget() is pane.failure
    diagnosis = panel.bridge.run.diagnosis
    assert diagnosis is not None
    texts = [label.text() for label in pane.failure.findChildren(QWidget) if hasattr(label, "text")]
    assert any(diagnosis.cause in text for text in texts if isinstance(text, str))
    panel.click(pane.failure.retry)
    panel.wait_for(RunState.READY)


def test_a_failure_can_be_put_away_and_its_log_looked_at(panel: Panel) -> None:
    panel.start_and_wait()
    os.kill(Traces.of_listener(panel.port).session, signal.SIGKILL)
    panel.wait_for(RunState.FAILED)
    pane = panel.window.run_pane
    panel.click(pane.failure.show_log)
    assert panel.window.stack.currentWidget() is panel.window.page("logs")
    panel.window.show_page("run")
    panel.click(pane.failure.dismiss)
    panel.wait_for(RunState.STOPPED)
    assert pane.stack.currentWidget() is pane.grid


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("stopped", ""),
        ("failed", ""),
        ("starting", "stop"),
        ("starting", "leave"),
        ("ready", "stop"),
        ("ready", "leave"),
        ("ready", "cancel"),
    ],
)
def test_closing_asks_and_does_as_told(panel: Panel, state: str, answer: str) -> None:
    window = panel.window
    if state == "starting":
        os.environ["FAKE_VLLM_OPTIONS"] = "--start-delay 600"
    try:
        if state != "stopped":
            panel.start()
            panel.wait_for(RunState.STARTING if state == "starting" else RunState.READY)
        traces = None
        if state == "failed":
            os.kill(Traces.of_listener(panel.port).session, signal.SIGKILL)
            panel.wait_for(RunState.FAILED)
        elif state == "ready":
            traces = Traces.of_listener(panel.port)
        window.close()
        if state in ("stopped", "failed"):
            panel.wait(lambda: panel.closed)
            return
        dialog = window.closing.dialog
        assert dialog is not None
        panel.click(dialog.buttons[answer])
        if answer == "cancel":
            panel.wait(lambda: window.closing.dialog is None)
            assert panel.state.value.lower() == state
            assert window.isVisible()
            return
        panel.wait(lambda: panel.closed)
        if traces is not None:
            if answer == "stop":
                traces.assert_nothing_left()
            else:
                assert Traces.of_listener(panel.port).session == traces.session
    finally:
        os.environ.pop("FAKE_VLLM_OPTIONS", None)


def test_an_engine_left_running_is_there_again(qtbot: QtBot, tmp_path: Path, no_leaks: None) -> None:
    port = prepare_home(tmp_path)
    with make_panel(qtbot, tmp_path, port=port) as panel:
        panel.start_and_wait()
        panel.window.close()
        assert panel.window.closing.dialog is not None
        panel.click(panel.window.closing.dialog.buttons["leave"])
        panel.wait(lambda: panel.closed)
        traces = Traces.of_listener(port)
        again = Panel(qtbot, tmp_path, port=port)
        try:
            again.open()
            again.wait_for(RunState.READY)
            assert again.window.leftovers.dialog is None, "the one engine that was left is simply there"
            assert again.window.top_bar.profile == "mine"
            again.wait(lambda: again.window.status.queue.text() == "0")
            again.click(again.window.top_bar.button)
            again.wait_for(RunState.STOPPED)
        finally:
            again.close()
            again.bridge.close()
        traces.assert_nothing_left()


def test_the_conversation_is_there_again(qtbot: QtBot, tmp_path: Path, no_leaks: None) -> None:
    port = prepare_home(tmp_path)
    with make_panel(qtbot, tmp_path, port=port) as panel:
        panel.start_and_wait()
        panel.ask("What is kept?")
    again = Panel(qtbot, tmp_path, port=port)
    try:
        again.open()
        again.wait(lambda: "What is kept?" in shown_texts(again.window.chat))
        assert len([message for message in again.bridge.chat.messages if message.role == "user"]) == 1
    finally:
        again.close()
        again.bridge.close()


def shown_texts(widget: QWidget) -> list[str]:
    """What the messages on screen say."""
    return [view.text for view in widget.findChildren(MessageView) if view.isVisible()]


@pytest.mark.parametrize("answer", ["end", "leave"])
def test_leftovers_are_asked_about(qtbot: QtBot, tmp_path: Path, no_leaks: None, answer: str) -> None:
    port = prepare_home(tmp_path)
    leave_orphan(qtbot, port)
    with make_panel(qtbot, tmp_path, port=port) as panel:
        panel.wait(lambda: panel.window.leftovers.dialog is not None)
        dialog = panel.window.leftovers.dialog
        assert dialog is not None
        panel.click(dialog.end_all if answer == "end" else dialog.leave)
        panel.wait(lambda: panel.window.leftovers.dialog is None)
        found: list[int] = []
        panel.bridge.call(panel.window, panel.bridge.desk.runs.leftovers(), done=lambda left: found.append(len(left)))
        panel.wait(lambda: bool(found))
        assert found == [0 if answer == "end" else 1]


def leave_orphan(qtbot: QtBot, port: int) -> None:
    """Start an engine in another loop, leave it, and kill its API server."""
    import asyncio

    async def leave() -> None:
        told = Told()
        desk = Desk(told)
        await desk.begin()
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        session = Traces.of_listener(port).session
        await desk.close(leave_running=True)
        os.kill(session, signal.SIGKILL)

    asyncio.run(leave())


def test_the_whole_job_with_the_keyboard_alone(panel: Panel) -> None:
    window, qtbot = panel.window, panel.qtbot
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    control = Qt.KeyboardModifier.ControlModifier
    qtbot.keyClick(window, Qt.Key.Key_P, control)
    popup = window.top_bar.profiles.view()
    panel.wait(popup.isVisible)
    index = window.top_bar.profiles.findData("mine")
    qtbot.keyClick(popup, Qt.Key.Key_Home)
    for _ in range(index):
        qtbot.keyClick(popup, Qt.Key.Key_Down)
    qtbot.keyClick(popup, Qt.Key.Key_Return)
    panel.wait(lambda: not popup.isVisible())
    window.activateWindow()  # as a window manager does when a popup goes
    panel.wait(window.isActiveWindow)
    assert window.top_bar.profile == "mine"
    qtbot.keyClick(window, Qt.Key.Key_R, control)
    panel.wait_for(RunState.READY)
    qtbot.keyClick(window, Qt.Key.Key_L, control)
    panel.wait(lambda: window.focusWidget() is window.chat.input)
    qtbot.keyClicks(window.chat.input, "Hello")
    qtbot.keyClick(window.chat.input, Qt.Key.Key_Return)
    panel.wait(lambda: len(panel.answers) == 1)
    qtbot.keyClick(window, Qt.Key.Key_5, control)
    assert window.stack.currentWidget() is window.page("logs")
    qtbot.keyClick(window, Qt.Key.Key_R, control)
    panel.wait_for(RunState.STOPPED)
    qtbot.keyClick(window, Qt.Key.Key_Q, control)
    panel.wait(lambda: panel.closed)


def controls(widget: QWidget) -> list[QWidget]:
    """Everything that a person can operate."""
    kinds = (QAbstractButton, QLineEdit, QComboBox, QAbstractItemView)
    found = [child for kind in kinds for child in widget.findChildren(kind)]
    found += [child for child in widget.findChildren(QWidget) if child.metaObject().className() in EDITORS]
    return [child for child in found if not isinstance(child.parent(), QComboBox) and not is_internal(child)]


EDITORS = ("QPlainTextEdit", "QTextEdit", "PromptEdit", "QSpinBox", "QDoubleSpinBox")


def is_internal(child: QWidget) -> bool:
    """Parts that Qt itself makes inside a control, which carry that control's name."""
    names = {"qt_scrollarea_viewport", "qt_spinbox_lineedit", "qt_tableview_cornerbutton"}
    parents = []
    parent = child.parent()
    while parent is not None:
        parents.append(parent.metaObject().className())
        parent = parent.parent()
    is_header = child.metaObject().className() == "QHeaderView" and not child.isVisible()
    is_clear_button = isinstance(child.parent(), QLineEdit)
    return child.objectName() in names or is_header or is_clear_button or "QComboBoxPrivateContainer" in parents


def test_no_control_is_nameless(panel: Panel) -> None:
    panel.start_and_wait()
    for key in PAGES:
        panel.window.show_page(key)
        panel.qtbot.waitUntil(panel.window.page(key).isVisible)
    found = controls(panel.window)
    assert len(found) > 60
    nameless = [
        (type(child).__name__, child.objectName(), child.property("text"), type(child.parent()).__name__)
        for child in found
        if not (child.accessibleName() or (isinstance(child, QAbstractButton) and child.text()))
    ]
    assert nameless == [], nameless
    without_tip = [
        (type(child).__name__, child.accessibleName())
        for child in found
        if isinstance(child, QAbstractButton) and not child.toolTip() and not child.text()
    ]
    assert without_tip == []


def test_a_second_wish_raises_and_starts(panel: Panel) -> None:
    panel.window.raise_and_start("mine")
    panel.wait_for(RunState.READY)
    panel.window.raise_and_start("demo")
    assert panel.bridge.run.profile == "mine", "what runs is left alone"


def test_a_mistake_of_the_window_is_told(panel: Panel, tmp_path: Path) -> None:
    panel.window.show_crash(str(tmp_path / "window-crash-1.txt"))
    dialog = panel.window.crash_dialog
    assert dialog is not None
    assert "window-crash-1.txt" in dialog.text
    panel.click(dialog.buttons["close"])
    panel.wait(lambda: not shiboken6.isValid(dialog))


def test_geometry_and_profile_are_remembered(qtbot: QtBot, tmp_path: Path, no_leaks: None) -> None:
    port = prepare_home(tmp_path)
    model = tmp_path / "model"
    write_profile(model, port, "second")
    with make_panel(qtbot, tmp_path, port=port) as panel:
        panel.window.resize(1201, 777)
        panel.choose("second")
        panel.window.top_bar.profile_chosen.emit("second")
    again = Panel(qtbot, tmp_path, port=port)
    try:
        # The platform may cut it to its screen, so a plain window says what is right.
        plain = QMainWindow()
        plain.setMinimumSize(again.window.minimumSize())
        assert plain.restoreGeometry(again.store.value("window/geometry"))
        fresh = MainWindow(again.bridge, again.store)
        assert fresh.size() == plain.size() != QSize(1440, 900)
        fresh.deleteLater()
        plain.deleteLater()
        again.open()
        again.wait(lambda: again.window.top_bar.profile == "second")
    finally:
        again.close()
        again.bridge.close()


def test_the_engine_is_read_seldom_while_the_window_is_minimised(panel: Panel) -> None:
    panel.start_and_wait()
    panel.window.showMinimized()
    panel.wait(lambda: not panel.bridge.desk._visible)
    panel.window.showNormal()
    panel.wait(lambda: panel.bridge.desk._visible)


def fake(port: int, path: str, body: object) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/fake/{path}", data=json.dumps(body).encode(), method="POST"
    )
    urllib.request.urlopen(request, timeout=30).close()


def test_kill_ends_what_does_not_stop(panel: Panel) -> None:
    panel.start_and_wait()
    fake(panel.port, "faults", {"ignore_term": True})
    traces = Traces.of_listener(panel.port)
    panel.click(panel.window.top_bar.button)
    panel.wait_for(RunState.STOPPING)
    panel.click(panel.window.top_bar.button)
    panel.wait_for(RunState.STOPPED)
    traces.assert_nothing_left()


def test_closing_again_does_not_kill_an_engine_that_is_left(panel: Panel) -> None:
    panel.start_and_wait()
    traces = Traces.of_listener(panel.port)
    fake(panel.port, "faults", {"step_s": 1.0})
    panel.window.chat.input.setPlainText("Hello")
    panel.click(panel.window.chat.send)
    panel.wait(lambda: panel.chat.streaming)
    panel.window.close()
    assert panel.window.closing.dialog is not None
    panel.click(panel.window.closing.dialog.buttons["leave"])
    panel.window.close()
    panel.window.close_now()
    panel.wait(lambda: panel.closed)
    assert Traces.of_listener(panel.port).session == traces.session


@pytest.mark.parametrize("answer", ["lose", "cancel"])
def test_unsaved_changes_are_asked_about(panel: Panel, answer: str) -> None:
    window = panel.window
    window.show_page("profiles")
    pane = window.page("profiles")
    assert isinstance(pane, ProfilesPane)
    pane.select("mine")
    panel.wait(lambda: any(field.text() == "Mine" for field in pane.findChildren(QLineEdit)))
    title = next(field for field in pane.findChildren(QLineEdit) if field.text() == "Mine")
    title.setFocus()
    panel.qtbot.keyClicks(title, " changed")
    panel.wait(lambda: pane.has_unsaved == ("mine",))
    window.close()
    dialog = window.closing.dialog
    assert dialog is not None
    assert "mine" in dialog.text
    panel.click(dialog.buttons[answer])
    if answer == "lose":
        panel.wait(lambda: panel.closed)
    else:
        panel.wait(lambda: window.closing.dialog is None)
        assert window.isVisible()
        assert not window.closing.is_closing


def test_nothing_starts_while_the_window_closes(panel: Panel) -> None:
    panel.window.close()
    panel.window.raise_and_start("mine")
    panel.window.launcher.start("mine")
    panel.wait(lambda: panel.closed)
    assert not helpers.listening(panel.port)


@pytest.mark.parametrize("answer", ["stop", "no"])
def test_another_profile_asks_before_it_takes_the_place(panel: Panel, tmp_path: Path, answer: str) -> None:
    write_profile(tmp_path / "model", panel.port, "second")
    panel.start_and_wait()
    panel.window._on_start_from_profiles("second")
    dialog = panel.window.launcher.dialog
    assert dialog is not None
    panel.click(dialog.buttons[answer])
    if answer == "stop":
        panel.wait(lambda: panel.bridge.run.profile == "second" and panel.state is RunState.READY)
    else:
        panel.wait(lambda: panel.window.launcher.dialog is None)
        assert (panel.bridge.run.profile, panel.state) == ("mine", RunState.READY)


def test_the_running_profile_is_restarted_without_a_question(panel: Panel) -> None:
    panel.start_and_wait()
    first = Traces.of_listener(panel.port).session
    panel.window._on_start_from_profiles("mine")
    assert panel.window.launcher.dialog is None
    panel.wait_for(RunState.STOPPING, RunState.PREFLIGHT, RunState.STARTING)
    panel.wait_for(RunState.READY)
    assert Traces.of_listener(panel.port).session != first
