"""A recorded run as a file for other programs: CSV for tables, JSON with all that is known of the run."""

import csv
import dataclasses
import datetime
import io
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from backend import paths
from backend.curves import Floats, RecordedRun
from backend.errors import UserError
from backend.telemetry.run_store import GPUS

Kind = Literal["csv", "json"]

_ROWS_AT_ONCE = 200


def write(run: RecordedRun, path: Path, kind: Kind, *, begin: float = -math.inf, end: float = math.inf) -> None:
    """Write the readings and marks of a run from `begin` to `end` (Unix seconds, both included) into a file.

    The file appears whole or not at all. Blocking, for seconds when the span is long.

    Raises:
        UserError: the file cannot be written.
    """
    span = _cut(run, begin, end)
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}.", "Choose a folder that exists.")
    try:
        paths.write_atomic(path, csv_text(span) if kind == "csv" else json_text(span), mode=0o644)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}.", "Choose another place, or free some space."
        ) from error


def csv_text(run: RecordedRun) -> Iterator[str]:
    """Give a run as CSV, in parts.

    A line stands for a reading or for a mark. A figure that is unknown is an empty cell, a time in which nobody was
    reading has no lines, and the units are in the names of the columns.
    """
    readings = run.readings
    yield _lines([("time_utc", "unix_s", "mark", "mark_text", *readings.names)])
    empty = [""] * len(readings.names)
    marks = [(mark.t, (_iso(mark.t), _number(mark.t), mark.kind, mark.text, *empty)) for mark in run.marks]
    done = 0
    for first in range(0, len(readings.times), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        rows: list[tuple[str, ...]] = []
        for t, values in zip(readings.times[part].tolist(), readings.values[:, part].T.tolist(), strict=True):
            while done < len(marks) and marks[done][0] < t:
                rows.append(marks[done][1])
                done += 1
            cells = [_number(value) for value in values]
            if any(cells):
                rows.append((_iso(t), _number(t), "", "", *cells))
        yield _lines(rows)
    yield _lines([row for _, row in marks[done:]])


def json_text(run: RecordedRun) -> Iterator[str]:
    """Give a run as JSON, in parts: facts, GPUs, marks, times, and the values of each series, null where unknown."""
    facts = {
        "format": "specdeck-run",
        "version": 1,
        "run": dataclasses.asdict(run.run),
        "gpus": GPUS.dump_python(run.gpus, mode="json"),
        "marks": [dataclasses.asdict(mark) for mark in run.marks],
    }
    yield json.dumps(facts, indent=1)[:-2]
    yield ',\n "times_unix_s": '
    yield from _array(run.readings.times)
    yield ',\n "series": {'
    for number, name in enumerate(run.readings.names):
        yield f"{',' if number else ''}\n  {json.dumps(name)}: "
        yield from _array(run.readings.values[number])
    yield "\n }\n}\n"


def _cut(run: RecordedRun, begin: float, end: float) -> RecordedRun:
    readings = run.readings
    inside = (readings.times >= begin) & (readings.times <= end)
    if not inside.all():
        readings = readings._replace(times=readings.times[inside], values=readings.values[:, inside])
    marks = tuple(mark for mark in run.marks if begin <= mark.t <= end)
    return dataclasses.replace(run, readings=readings, marks=marks)


def _array(values: Floats) -> Iterator[str]:
    """Give numbers as a JSON array, in parts."""
    yield "["
    for first in range(0, len(values), 10 * _ROWS_AT_ONCE):
        part = values[first : first + 10 * _ROWS_AT_ONCE]
        known = [value if math.isfinite(value) else None for value in part.tolist()]
        yield f"{', ' if first else ''}{json.dumps(known)[1:-1]}"
    yield "]"


def _lines(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _number(value: float) -> str:
    return repr(value).removesuffix(".0") if math.isfinite(value) else ""


def _iso(t: float) -> str:
    return datetime.datetime.fromtimestamp(t, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
