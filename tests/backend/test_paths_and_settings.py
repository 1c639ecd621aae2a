"""Atomic writes, files set aside, and settings that survive damage."""

import logging
import os
from pathlib import Path

import pytest

from backend import paths, settings
from backend.settings import Settings


def test_a_crash_while_writing_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    paths.write_atomic(file, "old")

    def crash(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="disk full"):
        paths.write_atomic(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_are_private(tmp_path: Path) -> None:
    paths.write_atomic(tmp_path / "deep" / "file", "x")
    assert (tmp_path / "deep" / "file").stat().st_mode & 0o777 == 0o600


def test_shipped_files_are_found() -> None:
    assert (paths.shipped("profiles") / "demo.toml").is_file()


def test_settings_round_trip_and_keep_comments(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("# mine\nstall_s = 12.5 # patience\nunknown = 1\n")
    assert settings.load(file).stall_s == 12.5
    settings.save(Settings(stall_s=45.0), file)
    text = file.read_text()
    assert "# mine" in text
    assert "# patience" in text
    assert "unknown = 1" in text
    assert settings.load(file).stall_s == 45.0


@pytest.mark.parametrize("damage", ["stall_s = ", "stall_s = -1", "stall_s = 'x'", b"\xff\xfe"])
def test_damaged_settings_are_set_aside(tmp_path: Path, damage: str | bytes, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(damage.encode() if isinstance(damage, str) else damage)
    with caplog.at_level(logging.WARNING):
        assert settings.load(file) == Settings()
    assert "damaged" in caplog.text
    assert (tmp_path / "settings.toml.damaged-1").exists()
    assert not file.exists()


def test_no_settings_are_the_defaults(tmp_path: Path) -> None:
    assert settings.load(tmp_path / "none.toml") == Settings()
