"""The card of a model on the hub: the same as of its folder, for a few requests and no weights."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend.checkpoints.card_reader import read_card
from backend.checkpoints.catalog import HubLicenceError, HubOfflineError, HubUnknownError
from backend.checkpoints.hub_card import fetch_card
from backend.errors import ModelError
from tests.fakes.fake_hub import COMMIT, FakeHub, HubModel, serve_hub
from tests.fakes.model_folders import write_model, write_safetensors
from tests.fakes.public_models import TINY, llama

TOKENIZER = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": []}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_STORED_TOKENS_PATH", str(tmp_path / "no-tokens"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in two shards, with a tokenizer and files that no card needs."""
    path = write_model(tmp_path / "m", TINY, files={"tokenizer.json": TOKENIZER, "vocab.json": {"a": 0}})
    shapes = list(llama(TINY).items())
    for name, part in zip(SHARDS, (shapes[:9], shapes[9:]), strict=True):
        write_safetensors(path / name, dict(part))
    (path / "README.md").write_text("x" * 100)
    return path


@pytest.fixture
def hub(folder: Path) -> Iterator[FakeHub]:
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    sizes = {name: len(content) for name, content in contents.items()}
    model = HubModel(sizes, contents=contents, revisions=("main", COMMIT))
    cut = {**contents, SHARDS[1]: contents[SHARDS[1]][:20]}
    listed = json.dumps([1, 2]).encode()
    odd = {**contents, SHARDS[0]: len(listed).to_bytes(8, "little") + listed}
    plain = {name: size for name, size in sizes.items() if name not in SHARDS}
    models = {
        "o/m": model,
        "o/gated": replace(model, gated=True),
        "o/cut": replace(model, contents=cut),
        "o/odd": replace(model, contents=odd),
        "o/no-weights": replace(model, files=plain),
        "o/short": replace(model, files={**sizes, SHARDS[1]: 900}),
        "o/empty": HubModel({"README.md": 1}, revisions=("main", COMMIT)),
    }
    with serve_hub(models) as running:
        yield running


def fetch(hub: FakeHub, model: str = "o/m", revision: str | None = None) -> object:
    return fetch_card(model, revision, timeout_s=20, endpoint=hub.url)


def test_is_that_of_the_folder(hub: FakeHub, folder: Path) -> None:
    card = fetch_card("o/m", timeout_s=20, endpoint=hub.url)
    assert card.source == f"o/m@{COMMIT}"
    assert replace(card, source="") == replace(read_card(folder), source="")
    asked = [path.rpartition("/")[2] for path in hub.asked]
    assert "README.md" not in asked
    assert "vocab.json" not in asked, "a tokenizer is there already"


def test_one_commit_is_fetched_once(hub: FakeHub) -> None:
    first = fetch(hub)
    before = len(hub.asked)
    assert fetch(hub) == first
    assert len(hub.asked) == before + 1, "only the commit is asked for"


def test_without_weights(hub: FakeHub) -> None:
    card = fetch_card("o/no-weights", timeout_s=20, endpoint=hub.url)
    assert (card.weights, card.layers) == (None, 2)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("o/cut", "header cannot be read"),
        ("o/odd", "header cannot be read"),
        ("o/short", "cut short"),
        ("o/empty", r"empty/config.json is missing"),
    ],
)
def test_damaged(model: str, words: str, hub: FakeHub) -> None:
    with pytest.raises(ModelError, match=words):
        fetch(hub, model)


def test_refusals(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "mine")
    with pytest.raises(HubUnknownError):
        fetch(hub, "o/none")
    with pytest.raises(HubUnknownError):
        fetch(hub, revision="v9")
    with pytest.raises(HubLicenceError):
        fetch(hub, "o/gated")
    with pytest.raises(HubOfflineError, match="cannot be looked up"):
        fetch_card("o/m", timeout_s=5, endpoint="http://127.0.0.1:1")
    with pytest.raises(ModelError):
        fetch(hub, "not a name")
