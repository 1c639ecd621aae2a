"""The cause that is lifted out of real logs, and exit statuses in words."""

import json
import re
from pathlib import Path

import pytest

from backend.launch.diagnosis import diagnose, exit_words, find_cause

LOGS = Path(__file__).parents[2] / "data" / "engine_logs"
FAILURES = sorted(path.stem for path in LOGS.glob("*.json"))


def _lines(name: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", (LOGS / f"{name}.log").read_text(encoding="utf-8", errors="replace"))


def test_the_recorded_failures_are_all_here() -> None:
    assert len(FAILURES) >= 20


@pytest.mark.parametrize("name", FAILURES)
def test_the_cause_of_a_real_failure_is_found(name: str) -> None:
    """The recorded root cause was picked by a person; ours must be that line, or the reason inside it."""
    wanted = json.loads((LOGS / f"{name}.json").read_text())["root_cause_line"]
    lines = _lines(name)

    found = find_cause(lines)

    assert found is not None
    cause, number = found
    reason = cause.removesuffix(".")
    joined = re.sub(r"\s+", " ", wanted.replace("|", " "))
    # Long causes are cut in the recording, so the shorter of the two must begin the other's text.
    assert reason in joined or joined.split("Value error, ")[-1][:60] in cause, (cause, wanted)
    there = re.sub(r"\s+", " ", " ".join(lines[number - 1 : number + 4]))
    assert cause[:40] in there


def test_the_first_worker_error_beats_its_echoes() -> None:
    lines = [
        "(EngineCore pid=2) ERROR 11-30 13:50:30 [core.py:1] RuntimeError: Engine core initialization failed. See x",
        "(Worker_TP1 pid=4) ERROR 11-30 13:50:31 [multiproc_executor.py:1] ValueError: the real one",
        "(Worker_TP0 pid=3) ERROR 11-30 13:50:32 [multiproc_executor.py:1] RuntimeError: fallout",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ]
    assert find_cause(lines) == ("ValueError: the real one", 2)


def test_colours_and_ray_prefixes_are_removed() -> None:
    lines = ["\x1b[36m(RayWorkerProc pid=9)\x1b[0m (Worker_TP0 pid=9) ERROR 11-30 10:00:00 [a.py:1] OSError: broken"]
    assert find_cause(lines) == ("OSError: broken", 1)


def test_a_chain_of_exceptions_ends_with_its_last() -> None:
    lines = [
        "ValueError: inner",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        "OSError: outer",
        "KeyError: later trouble",
    ]
    assert find_cause(lines) == ("OSError: outer", 6)


def test_a_killed_engine_core_is_named_though_no_error_was_logged() -> None:
    """Lines of a real 0.32.0 whose EngineCore was killed by SIGKILL."""
    lines = [
        "(APIServer pid=7) WARNING 11-30 16:21:49 [core_client.py:817] [shutdown] MPClient: engine core exited "
        "unexpectedly; starting cleanup",
        "(APIServer pid=7) ERROR 11-30 16:21:49 [async_llm.py:906] AsyncLLM output_handler failed.",
        "(APIServer pid=7) ERROR 11-30 16:21:49 [async_llm.py:906] Traceback (most recent call last):",
        "(APIServer pid=7) ERROR 11-30 16:21:49 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: "
        "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    ]
    assert find_cause(lines) == ("[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", 1)


def test_a_log_without_an_error_has_no_cause() -> None:
    assert find_cause(["INFO all is well", "Application startup complete."]) is None
    assert diagnose(["INFO all is well"], status=-9).log_line is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "crashed"),
        (1, "exit status 1"),
        (2, "did not accept its arguments"),
        (132, "illegal instruction"),
        (-4, "illegal instruction"),
        (-9, "memory ran out"),
        (137, "memory ran out"),
        (-15, "SIGTERM"),
        (None, "unknown"),
    ],
)
def test_exit_statuses_are_put_into_words(status: int | None, words: str) -> None:
    assert words in exit_words(status)


def test_a_wanted_end_with_status_0_is_no_crash() -> None:
    assert "crash" not in exit_words(0, asked=True)
