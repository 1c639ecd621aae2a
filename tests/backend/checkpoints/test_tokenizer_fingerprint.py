"""Two tokenizers have one fingerprint exactly if they give each id the same text."""

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.checkpoints.card_reader import read_card
from backend.checkpoints.tokenizer_fingerprint import TokenizerFingerprint, read_tokenizer
from backend.errors import ModelError
from tests.fakes.model_folders import write_model
from tests.fakes.public_models import TINY


def fingerprint(folder: Path, **files: Any) -> TokenizerFingerprint:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_json", ".json")).write_text(json.dumps(content))
    found = read_tokenizer(folder)
    assert found is not None
    return found


def bpe(vocabulary: dict[str, int], added: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"model": {"type": "BPE", "vocab": vocabulary}, "added_tokens": added or []}


def test_order_and_form_do_not_matter(tmp_path: Path) -> None:
    one = fingerprint(tmp_path / "a", tokenizer_json=bpe({"a": 0, "b": 1}))
    other = fingerprint(tmp_path / "b", tokenizer_json=bpe({"b": 1, "a": 0}))
    unigram = fingerprint(tmp_path / "c", tokenizer_json={"model": {"vocab": [["a", -1.0], ["b", -2.5]]}})
    added = fingerprint(tmp_path / "d", tokenizer_json=bpe({"a": 0}, [{"id": 1, "content": "b", "special": False}]))
    vocab = fingerprint(tmp_path / "e", vocab_json={"a": 0, "b": 1})
    assert one == other == unigram == added == vocab
    assert (one.kind, one.size, one.special_ids) == ("tokens", 2, ())


def test_permuted_ids_differ(tmp_path: Path) -> None:
    one = fingerprint(tmp_path / "a", tokenizer_json=bpe({"a": 0, "b": 1}))
    other = fingerprint(tmp_path / "b", tokenizer_json=bpe({"a": 1, "b": 0}))
    assert one.texts_sha256 != other.texts_sha256


def test_special_ids_are_told_apart_from_texts(tmp_path: Path) -> None:
    plain = fingerprint(tmp_path / "a", tokenizer_json=bpe({"a": 0, "<s>": 1}))
    special = fingerprint(tmp_path / "b", tokenizer_json=bpe({"a": 0}, [{"id": 1, "content": "<s>", "special": True}]))
    assert plain.texts_sha256 == special.texts_sha256
    assert plain.sha256 != special.sha256
    assert special.special_ids == (1,)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(0, 50), st.text(max_size=3), max_size=6),
    st.dictionaries(st.integers(0, 50), st.text(max_size=3), max_size=6),
)
def test_equal_texts_mean_equal_fingerprints_and_nothing_else_does(one: dict[int, str], other: dict[int, str]) -> None:
    found = []
    for texts in (one, other):
        with tempfile.TemporaryDirectory() as folder:
            added = [{"id": number, "content": text, "special": False} for number, text in texts.items()]
            found.append(fingerprint(Path(folder), tokenizer_json=bpe({}, added)).texts_sha256)
    assert (found[0] == found[1]) == (one == other)


def test_mistrals_own(tmp_path: Path) -> None:
    def tekken(texts: list[bytes], names: list[str]) -> dict[str, Any]:
        return {
            "config": {"default_vocab_size": 4, "default_num_special_tokens": 2},
            "vocab": [
                {"rank": rank, "token_bytes": base64.b64encode(text).decode()} for rank, text in enumerate(texts)
            ],
            "special_tokens": [{"rank": rank, "token_str": name} for rank, name in enumerate(names)],
        }

    one = fingerprint(tmp_path / "a", tekken_json=tekken([b"x", b"\xff", b"cut off"], ["<s>", "</s>"]))
    assert (one.kind, one.size, one.special_ids) == ("tekken", 4, (0, 1))
    same = fingerprint(tmp_path / "b", tekken_json=tekken([b"x", b"\xff"], ["<s>", "</s>"]))
    assert one == same
    assert fingerprint(tmp_path / "c", tekken_json=tekken([b"x", b"\xfe"], ["<s>", "</s>"])) != one
    assert fingerprint(tmp_path / "d", tekken_json=tekken([b"x", b"\xff"], ["<s>", "<e>"])) != one


def test_sentencepiece_is_compared_by_its_bytes(tmp_path: Path) -> None:
    found = []
    for number, content in enumerate((b"abc", b"abc", b"abd")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "tokenizer.model").write_bytes(content)
        found.append(read_tokenizer(folder))
    assert found[0] == found[1] != found[2]
    assert found[0] is not None
    assert (found[0].kind, found[0].size) == ("sentencepiece", None)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"model": {"vocab": {"a": "0"}}},
        {"model": {"vocab": {"a": -1}}},
        {"model": {"vocab": [[3, 0.1]]}},
        {"model": {"vocab": {}}, "added_tokens": {"a": 1}},
        {"model": {"vocab": {}}, "added_tokens": [{"content": "x"}]},
    ],
)
def test_a_damaged_tokenizer_is_a_reason_on_the_card(content: object, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", TINY, files={"tokenizer.json": content})
    with pytest.raises(ModelError, match=r"tokenizer.json is damaged"):
        read_tokenizer(folder)
    card = read_card(folder)
    assert card.tokenizer is None
    assert "tokenizer.json is damaged" in card.tokenizer_problem


def test_none(tmp_path: Path) -> None:
    card = read_card(write_model(tmp_path / "m", TINY))
    assert (card.tokenizer, card.tokenizer_problem) == (None, "There is no tokenizer in the folder.")


def test_lone_surrogates_are_text_too(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"\\ud800": 0}}}')
    assert read_tokenizer(tmp_path) is not None
