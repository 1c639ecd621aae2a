"""Runs as CSV and JSON: every figure, unknown as nothing, marks, spans, and files that cannot be written."""

import csv
import datetime
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.curves import Readings, RecordedRun
from backend.errors import UserError
from backend.events import Mark, PastRun
from backend.hardware import GpuInfo, PeakSource
from backend.telemetry import export
from tests.backend.telemetry.recording import T

RUN = PastRun("run-1", "mine", "Mine", "vllm 1.0", T, T + 1, None, "runs now", tokens_per_s=1.5)


def recorded(times: list[float], series: dict[str, list[float]], *marks: Mark) -> RecordedRun:
    """A run with these readings."""
    values = np.array(list(series.values()), dtype=np.float64).reshape(len(series), len(times))
    gpu = GpuInfo("GPU-1", "H200", 0, compute_capability=(9, 0), peak_source=PeakSource.TABLE)
    return RecordedRun(RUN, Readings(tuple(series), T - 1, np.array(times), values), marks, (gpu,))


def parse(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_a_line_for_each_reading_and_mark_in_the_order_of_time() -> None:
    run = recorded(
        [T, T + 1, T + 2, T + 3.25],
        {"memory_used_bytes": [8e10, 8e10 + 1, math.nan, 0], "GPU-1/power_w": [math.nan, 0.1, math.nan, 1e-7]},
        Mark(T - 1, "start", "Started"),
        Mark(T + 1, "chat", 'said "a, b"'),
        Mark(T + 9, "stop", "Stopped"),
    )
    rows = parse("".join(export.csv_text(run)))
    assert [(row["unix_s"], row["mark"]) for row in rows] == [
        (f"{T - 1:.0f}", "start"),
        (f"{T:.0f}", ""),
        (f"{T + 1:.0f}", ""),
        (f"{T + 1:.0f}", "chat"),
        ("1700000003.25", ""),
        (f"{T + 9:.0f}", "stop"),
    ], "the reading at T + 2 knows nothing, so it is no line"
    assert rows[1]["time_utc"] == "2023-11-14T22:13:20.000Z"
    assert [row["memory_used_bytes"] for row in rows] == ["", "80000000000", "80000000001", "", "0", ""]
    assert [row["GPU-1/power_w"] for row in rows] == ["", "", "0.1", "", "1e-07", ""]
    assert rows[3]["mark_text"] == 'said "a, b"'


def test_json_has_everything() -> None:
    run = recorded([T, T + 1], {"a": [1.5, math.nan], "b": [math.inf, -0.0]}, Mark(T, "start", "Started"))
    found = json.loads("".join(export.json_text(run)))
    assert found["run"]["run_id"] == "run-1"
    assert found["run"]["ended_at"] is None
    assert found["times_unix_s"] == [T, T + 1]
    assert found["series"] == {"a": [1.5, None], "b": [None, 0.0]}
    assert found["marks"] == [{"t": T, "kind": "start", "text": "Started"}]
    assert (found["gpus"][0]["uuid"], found["gpus"][0]["peak_source"]) == ("GPU-1", "table")


def test_a_run_without_readings() -> None:
    run = recorded([], {})
    assert parse("".join(export.csv_text(run))) == []
    found = json.loads("".join(export.json_text(run)))
    assert (found["times_unix_s"], found["series"]) == ([], {})


_FLOATS = st.floats(allow_nan=True, allow_infinity=False)


@settings(max_examples=30, deadline=None)
@given(values=st.lists(_FLOATS, max_size=12), part=st.integers(1, 5))
def test_every_figure_can_be_read_back_exactly(values: list[float], part: int) -> None:
    times = [T + number for number in range(len(values))]
    run = recorded(times, {"a": values, "one": [1.0] * len(values)})
    whole = export._ROWS_AT_ONCE
    export._ROWS_AT_ONCE = part  # the parts that a file is made of must not show
    try:
        rows = parse("".join(export.csv_text(run)))
        found = json.loads("".join(export.json_text(run)))
    finally:
        export._ROWS_AT_ONCE = whole
    from_csv = [float(row["a"]) if row["a"] else math.nan for row in rows]
    from_json = [math.nan if value is None else value for value in found["series"]["a"]]
    np.testing.assert_array_equal(from_csv, np.array(values))
    np.testing.assert_array_equal(from_json, np.array(values))
    assert [datetime.datetime.fromisoformat(row["time_utc"]).timestamp() for row in rows] == times


def test_a_span_includes_both_its_ends(tmp_path: Path) -> None:
    run = recorded([T, T + 1, T + 2, T + 3], {"a": [0, 1, 2, 3]}, *(Mark(T + i, "chat", str(i)) for i in range(4)))
    export.write(run, tmp_path / "x.json", "json", begin=T + 1, end=T + 2)
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["series"]["a"] == [1, 2]
    assert found["times_unix_s"] == [T + 1, T + 2]
    assert [mark["text"] for mark in found["marks"]] == ["1", "2"]
    export.write(run, tmp_path / "x.csv", "csv")
    assert [row["a"] for row in parse((tmp_path / "x.csv").read_text()) if not row["mark"]] == ["0", "1", "2", "3"]


def test_a_file_that_cannot_be_written_is_said_and_the_old_one_stays(tmp_path: Path) -> None:
    run = recorded([T], {"a": [0]})
    with pytest.raises(UserError, match="no folder"):
        export.write(run, tmp_path / "missing" / "x.csv", "csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        export.write(run, tmp_path / "folder.csv", "csv")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"], "nothing half written is left"
