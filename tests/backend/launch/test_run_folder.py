"""The record of a run on disk, its owner and the wish to stop it."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.events import RunState
from backend.launch import run_folder
from backend.launch.run_folder import RunFolder, RunRecord

HOLD = (
    "import sys, time; from pathlib import Path; from backend.launch.run_folder import RunFolder;"
    "lock = RunFolder(Path(sys.argv[1])).take_ownership(); print('held' if lock else 'refused', flush=True);"
    "sys.stdin.read()"
)


def record(folder: RunFolder, **changes: object) -> RunRecord:
    values: dict[str, object] = {
        "run_id": folder.run_id, "profile": "p", "environment": "e", "host": "127.0.0.1", "port": 1,
        "url": "http://127.0.0.1:1", "served_model_name": "m", "argv": ["x"], "temp_dir": "/nowhere",
        "created_at": 1.0, "boot_id": "b",
    }  # fmt: skip
    return RunRecord.model_validate(values | changes)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "p")
    written = record(folder, pid=5, start_ticks=6, phases=[("Loading", 1.5)], state=RunState.READY)
    folder.write(written)
    assert RunFolder(folder.path).record() == written


def test_a_damaged_record_is_set_aside_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = RunFolder.create(tmp_path, "p")
    (folder.path / "run.json").write_text('{"run_id": 1')
    with caplog.at_level(logging.WARNING):
        assert folder.record() is None
    assert "damaged" in caplog.text
    assert (folder.path / "run.json.damaged-1").read_text() == '{"run_id": 1'
    assert folder.record() is None


def test_only_one_process_owns_a_run_and_its_death_frees_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "p")
    assert folder.owner_pid() is None
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        assert folder.owner_pid() == owner.pid
        assert folder.take_ownership() is None
        owner.kill()
        owner.wait()
    assert folder.owner_pid() is None
    lock = folder.take_ownership()
    assert lock is not None
    assert folder.owner_pid() == os.getpid()
    lock.release()
    assert folder.owner_pid() is None


def test_a_key_is_private(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "p")
    assert folder.key() is None
    folder.write_key("secret")
    assert folder.key() == "secret"
    assert (folder.path / "api_key").stat().st_mode & 0o777 == 0o600


def test_usual_times_are_the_median_of_the_newest_ready_runs(tmp_path: Path) -> None:
    def run(number: int, seconds: float, **changes: object) -> None:
        folder = RunFolder(tmp_path / f"2026010{number}-000000-p-aaaaaa")
        folder.path.mkdir()
        folder.write(record(folder, phases=[("Loading", seconds)], **changes))

    run(1, 1000.0, ready_at=1.0)  # older than the newest five
    for number, seconds in enumerate([9.0, 1.0, 5.0, 3.0, 7.0], start=2):
        run(number, seconds, ready_at=1.0)
    run(7, 500.0)  # never ready
    run(8, 600.0, ready_at=1.0, profile="other")
    folders = run_folder.all_runs(tmp_path)
    assert run_folder.usual_phases(folders, profile="p") == {"Loading": 5.0}
    assert run_folder.usual_phases(folders, profile="never") == {}


def test_pruning_keeps_the_newest_and_whatever_may_live(tmp_path: Path) -> None:
    def run(day: int, *, ended: bool) -> RunFolder:
        folder = RunFolder(tmp_path / f"202601{day:02}-000000-p-aaaaaa")
        folder.path.mkdir()
        folder.write(record(folder, ended_at=1.0 if ended else None))
        (folder.path / "engine.log").write_bytes(b"x" * 1000)
        return folder

    living = run(1, ended=False)
    lock = living.take_ownership()
    assert lock is not None
    finished = [run(day, ended=True) for day in range(2, 8)]
    run_folder.prune(tmp_path, keep=4, keep_bytes=10_000_000)
    assert [folder.path.exists() for folder in finished] == [False, False, True, True, True, True]
    run_folder.prune(tmp_path, keep=4, keep_bytes=3_500)
    assert [folder.path.exists() for folder in finished[2:]] == [False, False, True, True]
    assert living.path.exists()
    lock.release()


def test_a_wish_to_stop_is_seen_by_others(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "p")
    assert not RunFolder(folder.path).stop_requested()
    folder.request_stop()
    assert RunFolder(folder.path).stop_requested()


def test_looking_who_owns_a_run_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "p")
    look = (
        "import sys; from pathlib import Path; from backend.launch.run_folder import RunFolder;"
        "folder = RunFolder(Path(sys.argv[1])); print(flush=True)\nwhile True: folder.owner_pid()"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", look, str(folder.path)], stdout=subprocess.PIPE) as looker:
        assert looker.stdout is not None
        looker.stdout.readline()
        for _ in range(300):
            lock = folder.take_ownership()
            assert lock is not None
            lock.release()
        looker.kill()


def test_a_record_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "p")
    folder.write(record(folder))
    text = (folder.path / "run.json").read_text().replace('"schema_version": 1', '"schema_version": 99')
    (folder.path / "run.json").write_text(text)
    assert folder.record() is None
    assert (folder.path / "run.json").read_text() == text


def test_a_run_without_a_readable_record_is_known_by_its_id(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "my-profile-2")
    guess = folder.record_or_guess()
    assert guess.run_id == folder.run_id
    assert guess.profile == "my-profile-2"
    assert guess.identity.session is None
