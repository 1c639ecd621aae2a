"""The tensors of a model, from the headers of its safetensors files: no weight is read."""

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from huggingface_hub import constants
from pydantic import Field, TypeAdapter, ValidationError

from backend.checkpoints.json_files import GET_AGAIN, open_file, read_json, shown
from backend.errors import ModelError

INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")

_MOST_HEADER_BYTES = constants.SAFETENSORS_MAX_HEADER_LENGTH  # 25 MB, what the hub's own readers accept
_MOST_INDEX_BYTES = 64 * 2**20
_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I8": 8, "U8": 8,
    "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip

_NO_LIST = "its header is no list of tensors"

_Number = Annotated[int, Field(ge=0, lt=2**60)]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a checkpoint: its type as safetensors writes it ("BF16"), and the bytes it has in the file."""

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Index:
    """A safetensors index: which file holds which tensor, and the bytes of all, None if it does not tell."""

    files: Mapping[str, str]
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: tuple[_Number, ...]
    data_offsets: tuple[_Number, _Number]


# What is no tensor falls through to the second kind; only the free text of `__metadata__` may.
_HEADER = TypeAdapter(dict[str, Annotated[_Entry | dict[str, Any], Field(union_mode="left_to_right")]])


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name.

    Raises:
        FileNotFoundError: there is no such file.
        ModelError: it is damaged, cut short or cannot be read.
    """
    with open_file(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        start = file.read(8)
        if len(start) < 8:
            raise _cut_short(path)
        (header_bytes,) = struct.unpack("<Q", start)
        if header_bytes > _MOST_HEADER_BYTES:
            raise _damaged(path, f"its header claims {header_bytes:,} bytes")
        header = file.read(header_bytes)
    if len(header) < header_bytes:
        raise _cut_short(path)
    return parse_header(header, path, data_bytes=size - 8 - header_bytes)


def parse_header(header: bytes, path: Path, *, data_bytes: int | None) -> dict[str, Tensor]:
    """Return the tensors that a header describes.

    Args:
        header: the JSON text.
        path: the file, for messages.
        data_bytes: bytes that follow the header, None if that is not known.

    Raises:
        ModelError: it describes something else than these bytes.
    """
    try:
        return _checked(_HEADER.validate_json(header), path, data_bytes)
    except (ValidationError, RecursionError) as error:
        raise _damaged(path, _NO_LIST) from error


def check_tensors(entries: object, path: Path, *, data_bytes: int | None) -> dict[str, Tensor]:
    """Return the tensors of a header that somebody else has read: their `dtype`, `shape` and `data_offsets` by name.

    Raises:
        ModelError: they are no list of tensors.
    """
    try:
        return _checked(_HEADER.validate_python(entries), path, data_bytes)
    except (ValidationError, RecursionError) as error:
        raise _damaged(path, _NO_LIST) from error


def _checked(entries: dict[str, _Entry | dict[str, Any]], path: Path, data_bytes: int | None) -> dict[str, Tensor]:
    entries.pop("__metadata__", None)
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, entry in entries.items():
        if not isinstance(entry, _Entry):
            raise _damaged(path, _NO_LIST)
        size = entry.data_offsets[1] - entry.data_offsets[0]
        bits = _BITS.get(entry.dtype)
        if size < 0 or (bits and -(-math.prod(entry.shape) * bits // 8) != size):
            raise _damaged(path, "the size of a tensor does not fit its shape")
        tensors[name] = Tensor(entry.dtype, entry.shape, size)
        end = max(end, entry.data_offsets[1])
    # The format allows neither holes nor overlaps.
    if sum(tensor.size_bytes for tensor in tensors.values()) != end:
        raise _damaged(path, "its tensors overlap")
    if data_bytes is not None and data_bytes < end:
        raise _cut_short(path)
    return tensors


def read_index(folder: Path) -> Index | None:
    """Return the safetensors index of a folder, None if it has none.

    Raises:
        ModelError: it is damaged.
    """
    for name in INDEXES:
        content = read_json(folder / name, most_bytes=_MOST_INDEX_BYTES)
        if content is None:
            continue
        files = content.get("weight_map")
        if not isinstance(files, dict) or not files or not all(_plain(file) for file in files.values()):
            raise _damaged(folder / name, "it does not say which file holds which tensor")
        metadata = content.get("metadata")
        total = metadata.get("total_size") if isinstance(metadata, dict) else None
        valid = isinstance(total, int | float) and not isinstance(total, bool) and 0 < total < 2**60
        return Index(files, int(total) if valid and total is not None else None)
    return None


def read_tensors(folder: Path, names: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors of several safetensors files of a folder.

    Raises:
        ModelError: one is missing, damaged or cut short.
    """
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        try:
            tensors.update(read_header(folder / name))
        except FileNotFoundError as error:
            raise ModelError(
                f"{shown(folder / name)} is missing, so the model is not complete.", "Finish its download."
            ) from error
    return tensors


def _plain(name: object) -> bool:
    return isinstance(name, str) and name not in {"", ".."} and Path(name).name == name and "\0" not in name


def _damaged(path: Path, why: str) -> ModelError:
    return ModelError(f"{shown(path)} is damaged: {why}.", GET_AGAIN)


def _cut_short(path: Path) -> ModelError:
    return ModelError(f"{shown(path)} is cut short.", "Finish the download of the model, or start it again.")
