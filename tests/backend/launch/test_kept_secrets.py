"""Secrets of imported commands: in a file of their own, for one profile, and gone with it."""

import logging
import stat
from pathlib import Path

import pytest

from backend.launch import kept_secrets, profile_toml
from backend.launch.profile_store import ProfileStore


def test_they_are_kept_for_one_profile_in_a_private_file(xdg: Path) -> None:
    assert kept_secrets.load("a") == {}
    kept_secrets.keep("a", {"HF_TOKEN": "hf_x"})
    kept_secrets.keep("b", {"VLLM_API_KEY": "k"})
    assert kept_secrets.load("a") == {"HF_TOKEN": "hf_x"}
    assert kept_secrets.load("b") == {"VLLM_API_KEY": "k"}
    assert kept_secrets.file() == xdg / "config" / "specdeck" / "secrets.json"
    assert stat.S_IMODE(kept_secrets.file().stat().st_mode) == 0o600
    kept_secrets.keep("a", {})
    assert kept_secrets.load("a") == {}


def test_nothing_is_written_for_nothing() -> None:
    kept_secrets.keep("a", {})
    assert not kept_secrets.file().exists()


def test_a_damaged_file_is_set_aside_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    kept_secrets.keep("a", {"HF_TOKEN": "hf_geheim"})
    kept_secrets.file().write_text('{"profiles": {"a": "hf_geheim"')
    with caplog.at_level(logging.WARNING):
        assert kept_secrets.load("a") == {}
    assert "set aside" in caplog.text
    assert "geheim" not in caplog.text
    assert not kept_secrets.file().exists()
    assert list(kept_secrets.file().parent.glob("secrets.json.damaged-*"))


def test_they_follow_their_profile() -> None:
    store = ProfileStore()
    store.save(profile_toml.loads('target.model = "a/b"', name="mine"))
    kept_secrets.keep("mine", {"HF_TOKEN": "hf_x"})
    store.rename("mine", "other")
    assert (kept_secrets.load("mine"), kept_secrets.load("other")) == ({}, {"HF_TOKEN": "hf_x"})
    token = store.put_away("other")
    assert kept_secrets.load("other") == {}, "another profile of that name must not inherit them"
    store.bring_back(token)
    assert kept_secrets.load("other") == {"HF_TOKEN": "hf_x"}
    store.delete("other")
    assert kept_secrets.load("other") == {}
