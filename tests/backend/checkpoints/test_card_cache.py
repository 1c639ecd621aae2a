"""A card is read once, and again when a file it rests on changes."""

import json
import os
from pathlib import Path

import pytest

from backend import paths
from backend.checkpoints import card_cache
from backend.checkpoints.card import ModelCard
from backend.checkpoints.card_cache import cached_card, find_card
from backend.checkpoints.card_reader import read_card
from backend.errors import ModelError
from tests.fakes.model_folders import write_model
from tests.fakes.public_models import DEEPSEEK_V3, QWEN3_NEXT, TINY, deepseek, llama

TOKENIZER = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": "<s>", "special": True}]}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "m", TINY, llama(TINY), files={"tokenizer.json": TOKENIZER})


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were read, not taken from the cache."""
    read: list[Path] = []

    def counting(folder: Path) -> ModelCard:
        read.append(folder)
        return read_card(folder)

    monkeypatch.setattr(card_cache, "read_card", counting)
    return read


def kept() -> list[Path]:
    return sorted((paths.folders().cache / "cards").glob("*"))


@pytest.mark.parametrize("which", ["tiny", "deepseek", "hybrid"])
def test_a_kept_card_is_the_same(which: str, tmp_path: Path, readings: list[Path]) -> None:
    small = {**DEEPSEEK_V3, "num_hidden_layers": 4}
    config, shapes = {
        "tiny": (TINY, llama(TINY)), "deepseek": (small, deepseek(small)), "hybrid": (QWEN3_NEXT, None),
    }[which]  # fmt: skip
    folder = write_model(tmp_path / "m", config, shapes, files={"tokenizer.json": TOKENIZER})
    first = cached_card(folder)
    assert first == read_card(folder)
    assert cached_card(folder) == first
    assert len(readings) == 1
    assert hash(cached_card(folder)) == hash(first)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_changed_file_is_read_again(name: str, model: Path, readings: list[Path]) -> None:
    cached_card(model)
    state = (model / name).stat()
    os.utime(model / name, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    cached_card(model)
    cached_card(model)
    assert len(readings) == 2


def test_what_a_change_says_is_on_the_new_card(model: Path) -> None:
    assert cached_card(model).vocab_size == 320
    (model / "config.json").write_text(json.dumps({**TINY, "vocab_size": 640}))
    assert cached_card(model).vocab_size == 640
    (model / "chat_template.jinja").write_text("x")
    assert cached_card(model).has_chat_template


def test_through_a_link_the_file_itself_counts(tmp_path: Path, model: Path, readings: list[Path]) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in model.iterdir():
        (snapshot / file.name).symlink_to(file)
    cached_card(snapshot)
    (model / "config.json").write_text(json.dumps({**TINY, "vocab_size": 999}))
    assert cached_card(snapshot).vocab_size == 999
    assert len(readings) == 2


def test_other_files_do_not_matter(model: Path, readings: list[Path]) -> None:
    cached_card(model)
    (model / "README.md").write_text("x")
    cached_card(model)
    assert len(readings) == 1


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"schema": 1}', b"[" * 100_000])
def test_a_damaged_cache_is_ignored_and_mended(damage: bytes, model: Path, readings: list[Path]) -> None:
    first = cached_card(model)
    (file,) = kept()
    good = file.read_bytes()
    file.write_bytes(damage)
    assert cached_card(model) == first
    assert len(readings) == 2
    assert file.read_bytes() == good


def test_another_schema_is_ignored(model: Path, readings: list[Path]) -> None:
    cached_card(model)
    (file,) = kept()
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": 0}))
    cached_card(model)
    assert len(readings) == 2


def test_a_cache_that_cannot_be_written_is_no_failure(model: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder would be")
    assert cached_card(model, cards=blocked) == read_card(model)


def test_refusals_are_not_kept(model: Path) -> None:
    (model / "config.json").write_text("[]")
    with pytest.raises(ModelError):
        cached_card(model)
    assert kept() == []


def test_the_oldest_cards_go(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_cache, "_MOST_CARDS", 2)
    for number in range(4):
        folder = write_model(model.parent / str(number), TINY)
        cached_card(folder)
        for file in kept():  # an order that no clock decides
            os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns - 10**12))
    assert {json.loads(file.read_text())["key"] for file in kept()} == {str(model.parent / name) for name in "23"}


class TestFind:
    def test_by_path_and_by_built_name(self, model: Path, tmp_path: Path) -> None:
        by_path = find_card(str(model), built=tmp_path / "none")
        assert find_card("specdeck://m", built=tmp_path) == by_path
        assert by_path.layers == 2

    def test_in_the_hub_cache(self, tmp_path: Path) -> None:
        repository = tmp_path / "hub" / "models--o--m"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("a" * 40)
        write_model(repository / "snapshots" / ("a" * 40), TINY, llama(TINY))
        assert find_card("o/m", built=tmp_path, hub_cache=tmp_path / "hub").layers == 2

    @pytest.mark.parametrize("name", ["/nowhere/m", "specdeck://none", "specdeck://../m", "o/none", "a b", "~nobody/m"])
    def test_not_here(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ModelError):
            find_card(name, built=tmp_path / "built", hub_cache=tmp_path / "hub")
