"""Runs that nobody supervises: closed, forgotten, or kept out of the way of others."""

import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from backend.launch import ending, leftovers
from backend.launch.processes import boot_id
from backend.launch.run_folder import RunFolder
from tests.backend.launch.test_run_folder import record


def test_a_run_that_died_unseen_is_closed_and_its_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = RunFolder.create(tmp_path / "runs", "p")
    temp_dir = Path(tempfile.mkdtemp(prefix=ending.temp_prefix(folder.run_id)))
    memory = Path("/dev/shm") / f"psm_test_{os.getpid()}"
    memory.touch()
    folder.write(record(folder, temp_dir=str(temp_dir), shared_memory=[memory.name], boot_id=boot_id()))

    assert leftovers.live_runs(tmp_path / "runs") == []

    assert not temp_dir.exists()
    assert not memory.exists()
    after = folder.record()
    assert after is not None
    assert after.ended_at is not None


def test_a_start_that_was_cut_off_before_its_record_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, young = RunFolder.create(tmp_path / "runs", "p"), RunFolder.create(tmp_path / "runs", "q")
    temp_dirs = [Path(tempfile.mkdtemp(prefix=ending.temp_prefix(folder.run_id))) for folder in (old, young)]
    hour_ago = time.time() - 3600
    os.utime(old.path, (hour_ago, hour_ago))

    assert leftovers.survey(tmp_path / "runs") == []

    assert [folder.path.exists() for folder in (old, young)] == [False, True]
    assert [path.exists() for path in temp_dirs] == [False, True], "a start that is under way keeps its folder"


def test_a_living_process_of_a_run_with_a_damaged_record_is_found(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs", "my-profile")
    (folder.path / "run.json").write_text("{")
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        env={**os.environ, "SPECDECK_RUN_ID": folder.run_id},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as living:
        assert living.stdout is not None
        living.stdout.readline()
        (found,) = leftovers.survey(tmp_path / "runs")
        assert found.status.profile == "my-profile"
        assert [process.pid for process in found.status.processes] == [living.pid]
        assert not found.adoptable
        living.kill()


def test_one_unreadable_run_does_not_hide_the_others(tmp_path: Path) -> None:
    bad = RunFolder.create(tmp_path / "runs", "bad")
    (bad.path / "run.json").mkdir()
    good = RunFolder.create(tmp_path / "runs", "good")
    good.write(record(good, boot_id=boot_id()))
    lock = good.take_ownership()
    assert lock is not None
    assert [run.profile for run in leftovers.live_runs(tmp_path / "runs")] == ["p"]
    lock.release()


def test_a_wish_to_stop_needs_no_space(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "p")
    folder.request_stop()
    (wish,) = [path for path in folder.path.iterdir() if "stop" in path.name]
    assert wish.stat().st_size == 0
    assert stat.S_IMODE(wish.stat().st_mode) == 0o600


def test_a_damaged_key_is_no_key(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "p")
    (folder.path / "api_key").write_bytes(b"\xff\xfe\n")
    assert folder.key() is None
