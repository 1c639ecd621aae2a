"""The engine's log file: what counts as news, and what a cut keeps."""

from pathlib import Path

from backend.launch.diagnosis import find_cause
from backend.launch.engine_log import EngineLog

LIMIT = 4_000_000


def _append(file: Path, text: str) -> None:
    with file.open("a") as stream:
        stream.write(text)


def test_new_text_comes_once_and_characters_are_never_torn(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    log = EngineLog(file, limit_bytes=LIMIT)
    assert log.read_new() == ""
    with file.open("ab") as stream:
        stream.write("Grüße".encode()[:3])
    first = log.read_new()
    with file.open("ab") as stream:
        stream.write("Grüße".encode()[3:])
    assert first + log.read_new() == "Grüße"
    assert log.read_new() == ""


def test_our_own_questions_are_no_sign_of_life(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    log = EngineLog(file, limit_bytes=LIMIT)
    _append(file, 'INFO: 127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\nINFO: "GET /metrics HTTP/1.1" 200 OK\n')
    _append(file, "Engine 000: Avg prompt throughput: 0.0 tokens/s, Running: 1 reqs\n")
    log.read_new()
    assert log.news == 0
    _append(file, 'INFO: "POST /v1/chat/completions HTTP/1.1" 200 OK\nhalf a li')
    log.read_new()
    assert log.news == 1
    _append(file, "ne\rbar 50%\r")
    log.read_new()
    assert log.news == 3


def test_a_cut_keeps_the_start_and_the_error_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    log = EngineLog(file, limit_bytes=LIMIT)
    _append(file, "the very first line\n" + "x" * 99 + "\n")
    _append(file, ("y" * 99 + "\n") * 60_000 + "RuntimeError: the real reason\n")
    while log.read_new():
        pass
    assert file.stat().st_size < LIMIT
    lines, is_whole = log.lines()
    assert is_whole
    assert lines[0] == "the very first line"
    assert any("[specdeck] The log grew" in line for line in lines)
    cause = find_cause(lines)
    assert cause is not None
    assert cause[0] == "RuntimeError: the real reason"
    _append(file, "goes on\n")
    assert log.read_new() == "goes on\n"


def test_of_a_huge_log_both_ends_are_read(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    log = EngineLog(file, limit_bytes=10**9)
    _append(file, "first\n" + ("z" * 999 + "\n") * 12_000 + "OSError: last\n")
    lines, is_whole = log.lines()
    assert not is_whole
    assert sum(map(len, lines)) < 9_000_000
    assert lines[0] == "first"
    assert "OSError: last" in lines


def test_a_line_without_an_end_does_not_grow_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "engine.log"
    log = EngineLog(file, limit_bytes=10**9)
    for _ in range(5):
        _append(file, "a" * 900_000)
        log.read_new()
    assert len(log._line) <= 10_000
