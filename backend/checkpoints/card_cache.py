"""Keeps cards on disk by path, size and time of the files they rest on, so that a second reading takes no time."""

import hashlib
import os
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import huggingface_hub
from pydantic import TypeAdapter, ValidationError

from backend import paths
from backend.checkpoints import catalog
from backend.checkpoints.card import ModelCard
from backend.checkpoints.card_reader import read_card
from backend.checkpoints.json_files import read_bytes
from backend.errors import ModelError

_SCHEMA = 1  # one more whenever cards change, or what is read from the same files
_MOST_CARDS = 200
_MOST_BYTES = 16 * 2**20
_ENDINGS = (".json", ".safetensors", ".jinja", ".model", ".txt", ".bin", ".pt")

Stamp = tuple[tuple[str, int, int], ...]
"""Name, size in bytes and time of change in nanoseconds of each file that a card rests on."""


@dataclass(frozen=True, slots=True)
class _Stored:
    schema: int
    key: str
    stamp: Stamp
    card: ModelCard


def find_card(
    model: str, *, revision: str | None = None, built: Path, hub_cache: Path | None = None, cards: Path | None = None
) -> ModelCard:
    """Return the card of a model that is on this machine; asks no network.

    Args:
        model: `specdeck://NAME`, a path, or a hub name like `owner/name`.
        revision: branch, tag or commit; only for hub names.
        built: folder of the models that Specdeck builds.
        hub_cache: the hub's cache, by default where `HF_HUB_CACHE` and `HF_HOME` say.
        cards: folder of the kept cards, by default in the user's cache folder.

    Raises:
        ModelError: it is not here, only in part, or damaged.
    """
    if catalog.is_hub_name(model):
        folder = _snapshot(model, revision, hub_cache)
    elif catalog.is_built(model):
        name = model.removeprefix(catalog.BUILT_PREFIX)
        folder = built / name if Path(name).name == name else None
    else:
        folder = catalog.folder_of(model)
    if folder is None or not os.path.isdir(folder):
        raise ModelError(f"{model} is not on this machine.", "Download or build it first, or check its name.")
    return cached_card(folder, cards=cards)


def cached_card(folder: Path, *, cards: Path | None = None) -> ModelCard:
    """Return the card of the model in a folder: the kept one if no file changed, else a new one, which is kept.

    Raises:
        ModelError: as of `read_card`.
    """
    key, stamp = os.path.abspath(folder), _stamp(folder)
    kept = load_card(key, stamp, cards=cards)
    if kept:
        return kept
    card = read_card(folder)
    keep_card(key, stamp, card, cards=cards)
    return card


def load_card(key: str, stamp: Stamp, *, cards: Path | None = None) -> ModelCard | None:
    """Return the card kept under a key, None if there is none, it is of other files, or it is damaged."""
    try:
        content = read_bytes(_place(key, cards), most_bytes=_MOST_BYTES)
        stored = _adapter().validate_json(content or b"")
    except (ModelError, ValidationError):
        return None  # it is read again, and kept anew
    return stored.card if (stored.schema, stored.key, stored.stamp) == (_SCHEMA, key, stamp) else None


def keep_card(key: str, stamp: Stamp, card: ModelCard, *, cards: Path | None = None) -> None:
    """Keep a card; where that is not possible (disk full, no rights), nothing happens."""
    place = _place(key, cards)
    try:
        text = _adapter().dump_json(_Stored(_SCHEMA, key, stamp, card)).decode()
        paths.write_atomic(place, text)
        oldest_first = sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for path in oldest_first[:-_MOST_CARDS]:
            path.unlink(missing_ok=True)
    except (OSError, ValueError):  # ValueError: a path that is no text
        return


@once
def _adapter() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


def _place(key: str, cards: Path | None) -> Path:
    folder = cards or paths.folders().cache / "cards"
    return folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"


def _stamp(folder: Path) -> Stamp:
    """Return name, size and time of every file of a folder that a card may rest on, following links."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_ENDINGS):
                    found.append(_state(entry))
    except (OSError, ValueError):
        return ()  # reading it will say why
    return tuple(sorted(found))


def _state(entry: "os.DirEntry[str]") -> tuple[str, int, int]:
    try:
        state = entry.stat()
    except OSError:
        return entry.name, -1, 0  # a link that leads nowhere
    return entry.name, state.st_size, state.st_mtime_ns


def _snapshot(model: str, revision: str | None, hub_cache: Path | None) -> Path | None:
    try:
        found = huggingface_hub.try_to_load_from_cache(model, "config.json", cache_dir=hub_cache, revision=revision)
    except huggingface_hub.errors.HFValidationError as error:
        raise ModelError(
            f"{model} is neither a folder nor a model name of the Hugging Face hub.",
            "Write owner/name, or a path that begins with / or ./",
        ) from error
    return Path(found).parent if isinstance(found, str) else None
