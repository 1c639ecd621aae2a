"""One window for each user: the second start hands its wish over."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from gui import app
from gui.single_instance import Answer, SingleInstance

SECOND = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from gui.single_instance import SingleInstance
app = QCoreApplication([])
second = SingleInstance(Path(sys.argv[1]))
assert not second.acquire()
print(second.hand_over(sys.argv[2]), second.holder(), flush=True)
"""
HOLDER = """
import sys, time
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from gui.single_instance import SingleInstance
app = QCoreApplication([])
first = SingleInstance(Path(sys.argv[1]))
assert first.acquire()
print("held", flush=True)
app.exec()
"""


def test_a_second_start_raises_the_first_window(qtbot: QtBot, tmp_path: Path) -> None:
    first = SingleInstance(tmp_path)
    assert first.acquire()
    with qtbot.waitSignal(first.start_wished, timeout=30_000) as told:
        second = subprocess.Popen(
            [sys.executable, "-P", "-c", SECOND, str(tmp_path), "mine"], stdout=subprocess.PIPE, text=True
        )
    qtbot.waitUntil(lambda: second.poll() is not None, timeout=30_000)
    assert second.communicate()[0].split() == ["ok", str(os.getpid())]
    assert told.args == ["mine"]
    first.release()


def test_rubbish_only_raises_the_window(qtbot: QtBot, tmp_path: Path) -> None:
    first = SingleInstance(tmp_path)
    assert first.acquire()
    with qtbot.waitSignal(first.start_wished, timeout=30_000) as told:
        socket = QLocalSocket()
        socket.connectToServer(first._name)
        assert socket.waitForConnected(5000)
        socket.write(b"\xff\xfe no wish\n")
        socket.flush()
    assert told.args == [""]
    socket.close()
    first.release()


def test_a_window_that_was_killed_holds_nothing(qtbot: QtBot, tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-P", "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    late = SingleInstance(tmp_path)
    assert not late.acquire()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert late.acquire()
    late.release()


def test_users_folders_do_not_disturb_each_other(qtbot: QtBot, tmp_path: Path) -> None:
    first, other = SingleInstance(tmp_path / "one"), SingleInstance(tmp_path / "two")
    assert first.acquire()
    assert other.acquire()
    first.release()
    other.release()


def test_a_window_that_closes_takes_no_wish(qtbot: QtBot, tmp_path: Path) -> None:
    first = SingleInstance(tmp_path)
    assert first.acquire()
    first.refuse()
    wishes: list[str] = []
    first.start_wished.connect(wishes.append)
    second = subprocess.Popen(
        [sys.executable, "-P", "-c", SECOND, str(tmp_path), "mine"], stdout=subprocess.PIPE, text=True
    )
    qtbot.waitUntil(lambda: second.poll() is not None, timeout=30_000)
    assert second.communicate()[0].split()[0] == "closing"
    assert wishes == []
    first.release()


def test_a_window_that_hangs_up_is_gone_soon(qtbot: QtBot, tmp_path: Path) -> None:
    """Its process clears away for a while longer, and answers nobody."""
    first = SingleInstance(tmp_path)
    assert first.acquire()
    first.hang_up()
    late = SingleInstance(tmp_path)
    assert late.hand_over("mine") is Answer.CLOSING
    assert not late.acquire(), "the place is kept"
    first.release()
    assert late.acquire()
    late.release()


class Place:
    """An instance whose first window answers in turn, and then has gone."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def acquire(self) -> bool:
        return not self.answers

    def hand_over(self, profile: str) -> Answer:
        assert profile == "mine"
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ((), None),
        ((Answer.TAKEN,), Answer.TAKEN),
        ((Answer.CLOSING, Answer.CLOSING), None),
        ((Answer.CLOSING, Answer.TAKEN), Answer.TAKEN),
        ((Answer.SILENT,), None),  # it ended over the question
        ((Answer.SILENT, Answer.CLOSING, Answer.SILENT), None),
        ((Answer.SILENT, Answer.SILENT, Answer.TAKEN), Answer.SILENT),
    ],
)
def test_what_a_second_start_makes_of_the_answers(answers: tuple[Answer, ...], wanted: Answer | None) -> None:
    assert app._take_place(cast("SingleInstance", Place(*answers)), "mine") is wanted
