"""Writes model folders by hand: configs, and safetensors files with real headers and holes instead of weights."""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""Type and shape of each tensor by name."""

BITS = {"F32": 32, "BF16": 16, "F16": 16, "I64": 64, "I32": 32, "U8": 8, "F8_E4M3": 8}


def tensor_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * BITS[dtype] // 8


def header_of(tensors: Tensors) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + tensor_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    return json.dumps(header).encode()


def write_safetensors(path: Path, tensors: Tensors) -> int:
    """Write a file as long as one with these tensors would be; return its size."""
    header = header_of(tensors)
    size = 8 + len(header) + sum(tensor_bytes(*tensor) for tensor in tensors.values())
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(size)
    return size


def write_index(folder: Path, tensors: Tensors, *, total: bool = True, file: str = "model.safetensors") -> None:
    content: dict[str, object] = {"weight_map": dict.fromkeys(tensors, file)}
    if total:
        content["metadata"] = {"total_size": sum(tensor_bytes(*tensor) for tensor in tensors.values())}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def write_model(
    folder: Path, config: object, tensors: Tensors | None = None, *, files: Mapping[str, object] | None = None
) -> Path:
    """Write a model folder: `config.json`, `model.safetensors` unless there are no tensors, and further JSON files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in (files or {}).items():
        (folder / name).write_text(json.dumps(content))
    if tensors is not None:
        write_safetensors(folder / "model.safetensors", tensors)
    return folder
