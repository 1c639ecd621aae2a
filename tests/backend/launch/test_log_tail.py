"""Lines of a growing log: where they end, what they are numbered, what is taken out, and how serious they are."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.launch.diagnosis import find_cause
from backend.launch.engine_log import EngineLog
from backend.launch.log_levels import LevelFinder
from backend.launch.log_tail import Lines, LogTail, Tail, TailLine, shown

LOGS = Path(__file__).parents[2] / "data" / "engine_logs"
FAILURES = sorted(path.stem for path in LOGS.glob("*.json"))


def read_all(tail: LogTail) -> list[TailLine]:
    """What a window shows that does what each reading says."""
    lines: list[TailLine] = []
    while True:
        found = tail.read()
        lines = apply(lines, found)
        if not found.more:
            return lines


def apply(lines: list[TailLine], found: Tail) -> list[TailLine]:
    if found.reset:
        lines = []
    if found.replaces_last:
        lines = lines[:-1]
    return [*lines, *found.lines]


def feed(*parts: bytes, hurried: bool = False) -> list[TailLine]:
    """Lines of bytes that come in parts; `hurried` shows nothing unfinished before the last part."""
    lines: list[TailLine] = []
    reader = Lines()
    for index, part in enumerate(parts):
        found, replaces_last = reader.feed(part, is_all=not hurried or index == len(parts) - 1 or index % 3 == 0)
        lines = [*(lines[:-1] if replaces_last else lines), *found]
    return lines


def texts(lines: list[TailLine]) -> list[str]:
    return [line.text for line in lines]


# ---- real logs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAILURES)
def test_numbers_of_recorded_logs_are_those_of_the_diagnosis(name: str) -> None:
    file = LOGS / f"{name}.log"
    counted, is_whole = EngineLog(file, limit_bytes=10**9).lines()
    assert is_whole
    cause = find_cause(counted)
    assert cause is not None

    lines = read_all(LogTail(file))

    for line in lines:
        assert line.text == counted[line.number - 1].expandtabs(8).rstrip()
    (found,) = [line for line in lines if line.number == cause[1]]
    assert found.level == "ERROR"
    assert cause[0][:60] in found.text or "validation error" in found.text


def test_levels_of_a_recorded_failure() -> None:
    """What carries a level, the warnings of Python and C++, and two bare tracebacks that reach to the end."""
    raw = (LOGS / "weights_corrupt.log").read_text().splitlines()
    wanted = {level: sum(f" {level} 11-30 " in line for line in raw) for level in ("DEBUG", "INFO", "WARNING", "ERROR")}
    wanted["WARNING"] += sum(bool(re.search(r"(Deprecation|Future)Warning: |^\[W\d{4} ", line)) for line in raw)
    first_bare = raw.index("Traceback (most recent call last):")
    assert not any(" pid=" in line.split(")")[0] for line in raw[first_bare:])
    wanted["ERROR"] += len(raw) - first_bare

    lines = read_all(LogTail(LOGS / "weights_corrupt.log"))

    assert {level: sum(line.level == level for line in lines) for level in wanted} == wanted


# ---- where lines end ---------------------------------------------------------------------------------------------


def test_a_progress_bar_is_one_line_with_the_number_of_its_last_state() -> None:
    data = b"start\nbar 0%\rbar 50%\rbar 100%\nend\n"
    assert feed(data) == [
        TailLine(1, "start", ""),
        TailLine(4, "bar 100%", ""),
        TailLine(5, "end", ""),
    ]
    counted = data.decode().replace("\r", "\n").split("\n")
    assert counted.index("bar 100%") + 1 == 4


def test_a_bar_is_seen_while_it_moves_and_each_state_replaces_the_last() -> None:
    reader = Lines()
    seen = [reader.feed(part) for part in (b"a\n", b"\rbar 1%", b"\rbar 2%", b"\r", b"bar 3%\r\n", b"b\n")]
    assert [[line.text for line in found] for found, _ in seen] == [
        ["a"],
        ["bar 1%"],
        ["bar 2%"],
        ["bar 2%"],
        ["bar 3%"],
        ["b"],
    ]
    assert [replaces for _, replaces in seen] == [False, False, True, True, True, False]


def test_windows_line_ends_and_empty_pieces() -> None:
    assert texts(feed(b"one\r\n\r\ntwo\r\r\nthree\n")) == ["one", "", "two", "three"]
    # A bar that wipes itself out with blanks leaves its last state.
    assert texts(feed(b"bar 9%\r      \r\nnext\n")) == ["bar 9%", "next"]


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\x1b[31m", b"\x1b]0;t\x07", b"\xc3\xbc"]), max_size=30))
def test_numbers_are_places_where_that_text_stands(parts: list[bytes]) -> None:
    data = b"".join(parts)
    counted = data.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    lines = feed(data)
    numbers = [line.number for line in lines]
    assert numbers == sorted(set(numbers))
    for line in lines:
        assert re.sub(r"\x1b\[31m|\x1b\]0;t\x07", "", counted[line.number - 1]) == line.text


PIECES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [
            b"\n",
            b"\r",
            b"\r\n",
            b"\x1b[0;36m",
            b"\x1b]8;;http://x\x1b\\",
            b"\x1b",
            "ü€😀".encode(),
            b"(W pid=1) ERROR 11-30 10:00:00 [a.py:1] x\n",
            b"Traceback (most recent call last):\n  File\n",
            b"\t",
        ]
    ),
)


@given(st.lists(PIECES, max_size=25).map(b"".join), st.data())
def test_any_cut_of_the_bytes_gives_the_same_lines(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert feed(*parts) == feed(data)
    assert feed(*parts, b"", hurried=True) == feed(data)


# ---- what is shown -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("\x1b[0;36m(APIServer pid=1)\x1b[0;0m INFO", "(APIServer pid=1) INFO"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://x.y\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2\x1b\\picture", "picture"),
        ("\x1b(Bplain\x1b=", "plain"),
        ("cut off \x1b[3", "cut off"),
        ("\x9b1mbold", "bold"),
        ("a\x00b\x07c\x7fd", "a␀b␇c␡d"),
        ("name\u202egnp.exe", "name�gnp.exe"),
        ("a\tb", "a       b"),
        ("trailing  ", "trailing"),
        ("██ ▄▀ ü 漢字 😀", "██ ▄▀ ü 漢字 😀"),
    ],
)
def test_codes_go_and_controls_are_seen(raw: str, wanted: str) -> None:
    assert shown(raw) == wanted


def test_a_monstrous_line_is_cut_with_a_note_and_does_not_fill_the_memory() -> None:
    (line,) = feed(b"x" * 5000 + b"\n")
    assert line.text == "x" * 4000 + " … [cut here: the line has 5,000 characters]"
    reader = Lines()
    for _ in range(50):
        reader.feed(b"y" * 100_000)
    assert len(reader._raw) < 70_000
    (last,), replaces = reader.feed(b"\n")
    assert replaces
    assert last.text == "y" * 4000 + " … [cut here: the line has 5,000,000 characters]"


# ---- levels ------------------------------------------------------------------------------------------------------


def levels(*lines: str) -> list[str]:
    finder = LevelFinder()
    return [finder.next(line) for line in lines]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("(APIServer pid=1) DEBUG 11-30 12:00:00 [a.py:1] x", "DEBUG"),
        ("INFO 11-30 12:00:00 [a.py:1] x", "INFO"),
        ("(APIServer pid=1) INFO:     Started server process [1]", "INFO"),
        ("(Worker_TP0 pid=1) WARNING 11-30 12:00:00 [a.py:1] x", "WARNING"),
        ("(EngineCore_DP0 pid=1) CRITICAL 11-30 12:00:00 [a.py:1] x", "ERROR"),
        ("(RayWorkerProc pid=3, ip=10.0.0.2) (Worker pid=1) ERROR 11-30 12:00:00 [a.py:1] x", "ERROR"),
        ("[W1130 13:51:07.028 utils.cpp:68] Warning: NUMA binding", "WARNING"),
        ("/x/y.py:24: DeprecationWarning: old", "WARNING"),
        ("Segmentation fault (core dumped)", "ERROR"),
        ("api_server.py: error: unrecognized arguments: --x", "ERROR"),
        ("INFORMATION about something", ""),
        ("Loading safetensors checkpoint shards:   0% Completed | 0/1", ""),
        ("", ""),
    ],
)
def test_level_of_one_line(line: str, level: str) -> None:
    assert levels(line) == [level]


def test_the_lines_of_a_traceback_are_errors_to_its_end() -> None:
    lines = [
        ("before", ""),
        ("Traceback (most recent call last):", "ERROR"),
        ('  File "a.py", line 1, in f', "ERROR"),
        ("(Worker pid=2) INFO 11-30 12:00:00 [a.py:1] in between", "INFO"),
        ("    f()", "ERROR"),
        ("KeyError: 'a'", "ERROR"),
        ("", "ERROR"),
        ("During handling of the above exception, another exception occurred:", "ERROR"),
        ("Traceback (most recent call last):", "ERROR"),
        ("odd.module.Trouble", "ERROR"),
        ("  with a second line", "ERROR"),
        ("after", ""),
        ("  indented", ""),
    ]
    assert levels(*(line for line, _ in lines)) == [level for _, level in lines]


def test_tracebacks_of_two_processes_do_not_mix() -> None:
    assert levels(
        "(A pid=1) Traceback (most recent call last):",
        "(B pid=2) Loading",
        "(A pid=1)   File",
        "(B pid=2)   indented",
        "(A pid=1) strange.end",
        "(A pid=1) next",
    ) == ["ERROR", "", "ERROR", "", "ERROR", ""]


# ---- the file ----------------------------------------------------------------------------------------------------


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as stream:
        stream.write(data)


def test_new_lines_come_once(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    tail = LogTail(file)
    assert tail.read() == Tail(())
    append(file, b"one\ntw")
    first = tail.read()
    assert (first.reset, texts(list(first.lines))) == (True, ["one", "tw"])
    assert tail.read() == Tail(())
    append(file, b"o\nthree\n")
    second = tail.read()
    assert (second.reset, second.replaces_last) == (False, True)
    assert second.lines == (TailLine(2, "two", ""), TailLine(3, "three", ""))


def test_a_cut_file_begins_anew_with_the_numbers_it_has_now(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    tail = LogTail(file)
    append(file, b"".join(b"line %06d\n" % number for number in range(100_000)))
    lines = read_all(tail)
    assert lines[-1].text == "line 099999"

    log = EngineLog(file, limit_bytes=1_000_000)
    while log.read_new():
        pass
    append(file, b"after the cut\n")
    found = tail.read()

    assert found.reset
    lines = list(found.lines)
    while found.more:
        found = tail.read()
        lines = apply(lines, found)
    counted, _ = log.lines()
    assert any("[specdeck] The log grew" in line.text for line in lines)
    assert lines[-1].text == "after the cut"
    assert all(counted[line.number - 1].rstrip() == line.text for line in lines)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_only_the_last_lines_of_a_long_log_are_read_and_numbered_right(tmp_path: Path, end: bytes) -> None:
    """More than one piece of the counting; bars before it move the numbers."""
    file = tmp_path / "engine.log"
    file.write_bytes(b"bar 1\rbar 2\r" + b"".join(b"%0100d" % number + end for number in range(90_000)) + b"rest")
    counted, is_whole = EngineLog(file, limit_bytes=10**9).lines()
    lines = read_all(LogTail(file, keep_lines=1000))
    assert len(lines) == 1001
    assert int(lines[0].text) == 89_000
    assert lines[0].number == 89_000 + 3
    assert lines[-1].text == "rest"
    assert not is_whole  # so no diagnosis has a number in it
    assert counted[-1] == "rest"


def test_a_log_that_grew_without_limit_while_nobody_read_is_taken_up_at_its_end(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    file.write_bytes(b"first\n")
    tail = LogTail(file, keep_lines=100)
    tail.read()
    append(file, (b"z" * 999 + b"\n") * 21_000)
    found = tail.read()
    assert found.reset
    assert (len(found.lines), found.lines[0].number) == (100, 20_902)


@pytest.mark.parametrize("left", [b"", b"kept\n", b"x" * 5_000_000])
def test_a_log_that_is_cut_while_its_lines_are_counted_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes
) -> None:
    file = tmp_path / "engine.log"
    file.write_bytes(b"".join(b"%0100d\n" % number for number in range(90_000)))
    real, n_calls = os.pread, 0

    def pread(handle: int, size: int, offset: int) -> bytes:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 5:  # three pieces and the end have been counted
            file.write_bytes(left)
        return real(handle, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    tail = LogTail(file, keep_lines=1000)
    found = tail.read()
    assert n_calls == 5
    assert (found.lines, found.more) == ((), True)
    found = tail.read()
    assert found.reset
    if left == b"kept\n":
        assert found.lines == (TailLine(1, "kept", ""),)


def test_a_log_that_cannot_be_read_says_so_and_can_be_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    tail = LogTail(file)
    file.mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            tail.read()
    file.rmdir()
    file.write_bytes(b"one\n")
    assert tail.read().lines == (TailLine(1, "one", ""),)


def test_the_recordings_have_what_these_tests_need() -> None:
    assert len(FAILURES) >= 20
    assert all("root_cause_line" in json.loads((LOGS / f"{name}.json").read_text()) for name in FAILURES)
