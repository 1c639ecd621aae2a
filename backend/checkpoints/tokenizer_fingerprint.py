"""A fingerprint of a tokenizer: two models with the same one give every token id the same text."""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.checkpoints.json_files import read_bytes, read_json, shown
from backend.errors import ModelError

_SENTENCEPIECE = ("tokenizer.model", "spiece.model")

TOKENIZER_FILES = ("tokenizer.json", "tekken.json", "vocab.json", *_SENTENCEPIECE)
"""Any of these is a tokenizer; the first that is there counts."""

_MOST_BYTES = 64 * 2**20  # the largest of public models have 35 MB


@dataclass(frozen=True, slots=True)
class TokenizerFingerprint:
    """What a tokenizer makes of ids.

    Attributes:
        kind: what it was made from: "tokens", or the kind of file whose bytes were taken ("sentencepiece").
            Fingerprints of different kinds say nothing about each other.
        sha256: over the text of each id and the special ids; "kind" is part of it.
        texts_sha256: over the text of each id only: equal ones draft for each other.
        size: number of ids with a text, None if that is not known.
        special_ids: ids that stand for no text of their own, in order.
    """

    kind: str
    sha256: str
    texts_sha256: str
    size: int | None = None
    special_ids: tuple[int, ...] = ()


def read_tokenizer(folder: Path) -> TokenizerFingerprint | None:
    """Return the fingerprint of a folder's tokenizer, None if it has none.

    Raises:
        ModelError: a file of it is damaged, too large or cannot be read.
    """
    content = read_json(folder / "tokenizer.json", most_bytes=_MOST_BYTES)
    if content is not None:
        return _from_json(content, folder / "tokenizer.json")
    content = read_json(folder / "tekken.json", most_bytes=_MOST_BYTES)
    if content is not None:
        return _from_tekken(content, folder / "tekken.json")
    vocabulary = read_json(folder / "vocab.json", most_bytes=_MOST_BYTES)
    if vocabulary is not None:
        return _of_tokens(_by_id(vocabulary.items(), folder / "vocab.json"), ())
    for name in _SENTENCEPIECE:
        data = read_bytes(folder / name, most_bytes=_MOST_BYTES)
        if data is not None:
            digest = hashlib.sha256(b"sentencepiece\0" + data).hexdigest()
            return TokenizerFingerprint("sentencepiece", digest, digest)
    return None


def _from_json(content: Mapping[str, object], path: Path) -> TokenizerFingerprint:
    """Read what the `tokenizers` library writes: a vocabulary, and tokens added to it later."""
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        texts = _by_id(vocabulary.items(), path)
    elif isinstance(vocabulary, list):  # Unigram: text and score, in the order of ids
        texts = _by_id(((_first(item), number) for number, item in enumerate(vocabulary)), path)
    else:
        raise _damaged(path)
    special = []
    added = content.get("added_tokens") or []
    for token in added if isinstance(added, list) else [None]:
        if not isinstance(token, dict):
            raise _damaged(path)
        texts.update(_by_id([(token.get("content"), token.get("id"))], path))
        if token.get("special"):
            special.append(token["id"])
    return _of_tokens(texts, sorted(set(special)))


def _from_tekken(content: Mapping[str, object], path: Path) -> TokenizerFingerprint:
    """Read Mistral's own format: bytes by rank, which come after the special tokens."""
    config = content.get("config")
    ranks = content.get("vocab")
    if not isinstance(config, dict) or not isinstance(ranks, list):
        raise _damaged(path)
    total, special = (config.get(name) for name in ("default_vocab_size", "default_num_special_tokens"))
    if not isinstance(total, int) or not isinstance(special, int) or not 0 <= special <= total <= 2**24:
        raise _damaged(path)
    texts: dict[int, str] = {}
    for rank, item in enumerate(ranks[: total - special]):
        encoded = item.get("token_bytes") if isinstance(item, dict) else None
        try:
            texts[special + rank] = base64.b64decode(encoded or "", validate=True).decode("latin-1")
        except (TypeError, ValueError, binascii.Error) as error:
            raise _damaged(path) from error
    named = content.get("special_tokens")
    for item in named if isinstance(named, list) else ():
        if isinstance(item, dict):
            texts.update(_by_id([(item.get("token_str"), item.get("rank"))], path))
    return _of_tokens(texts, range(special), kind="tekken")


def _by_id(pairs: Iterable[tuple[object, object]], path: Path) -> dict[int, str]:
    texts: dict[int, str] = {}
    for text, number in pairs:
        if not isinstance(text, str) or not isinstance(number, int) or not 0 <= number < 2**31:
            raise _damaged(path)
        texts[number] = text
    return texts


def _first(item: object) -> object:
    return item[0] if isinstance(item, list) and item else None


def _of_tokens(texts: Mapping[int, str], special: Iterable[int], *, kind: str = "tokens") -> TokenizerFingerprint:
    digest = hashlib.sha256(f"{kind}\0".encode())
    # JSON, so that no text can be mistaken for the border between two.
    digest.update(json.dumps(sorted(texts.items())).encode())
    ids = tuple(special)
    both = digest.copy()
    both.update(json.dumps(ids).encode())
    return TokenizerFingerprint(kind, both.hexdigest(), digest.hexdigest(), len(texts), ids)


def _damaged(path: Path) -> ModelError:
    return ModelError(f"{shown(path)} is damaged: it does not give each id its text.", "Download the model again.")
