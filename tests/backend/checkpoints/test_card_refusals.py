"""Broken, partial and huge files of a model give a reason."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from backend.checkpoints.card_reader import read_card
from backend.errors import ModelError
from tests.fakes.model_folders import write_model
from tests.fakes.public_models import TINY, llama


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config.json is missing"):
        read_card(tmp_path)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere cannot be read"):
        read_card(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_hidden_layers": -3}, "num_hidden_layers is -3"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"hidden_size": float("nan")}, "hidden_size is nan"),
        ({"hidden_size": 10**5000}, "no valid JSON"),
        ({"hidden_size": 10**30}, "hidden_size is a number of absurd size"),
        ({"vocab_size": "many"}, "vocab_size is not a number"),
        ({"num_attention_heads": True}, "num_attention_heads is not a number"),
        ({"head_dim": 1.5}, "head_dim is 1.5"),
    ],
)
def test_absurd_numbers(fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    text = json.dumps({**TINY, **dict.fromkeys(fields, "@")})
    (value,) = fields.values()
    written = f"1{'0' * 5000}" if value == 10**5000 else json.dumps(value)
    (folder / "config.json").write_text(text.replace('"@"', written))
    with pytest.raises(ModelError, match=words):
        read_card(folder)


@pytest.mark.parametrize("content", ["", "[]", "3", "{", '{"a": \x00}', "[" * 100_000, '{"a":' * 100_000])
def test_config_that_is_no_object(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config.json is damaged"):
        read_card(tmp_path)


def test_config_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"model_type": "\xff\xfe\x80"}')
    with pytest.raises(ModelError, match=r"config.json is damaged"):
        read_card(tmp_path)


def test_config_of_hundreds_of_megabytes(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(300 * 2**20)
    with pytest.raises(ModelError, match=r"larger than 32 MiB"):
        read_card(tmp_path)


def test_header_that_claims_terabytes(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", TINY)
    (folder / "model.safetensors").write_bytes((2**45).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelError, match=r"its header claims 35,184,372,088,832 bytes"):
        read_card(folder)


@pytest.mark.parametrize("kept", [0, 5, 8, 100])
def test_cut_in_the_header(kept: int, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", TINY, llama(TINY))
    os.truncate(folder / "model.safetensors", kept)
    with pytest.raises(ModelError, match="cut short"):
        read_card(folder)


def test_cut_in_the_data(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", TINY, llama(TINY))
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 1)
    with pytest.raises(ModelError, match="cut short"):
        read_card(folder)


@pytest.mark.parametrize(
    "entries",
    [
        {"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 9]}},
        {"w": {"dtype": "BF16", "shape": [-4], "data_offsets": [0, 8]}},
        {"w": {"dtype": "BF16", "shape": ["4", 10**12], "data_offsets": [0, 8]}},
        {"w": {"dtype": "NEW", "shape": [4], "data_offsets": [8, 0]}},
        {"w": {"dtype": "BF16", "shape": [4]}},
        {"w": [1, 2]},
        {"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
         "b": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}},
        ["w"],
    ],
)  # fmt: skip
def test_header_that_is_no_list_of_tensors(entries: object, tmp_path: Path) -> None:
    header = json.dumps(entries).encode()
    folder = write_model(tmp_path / "m", TINY)
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 16)
    with pytest.raises(ModelError, match="is damaged"):
        read_card(folder)


def test_link_that_leads_to_itself(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", TINY)
    (folder / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"model.safetensors cannot be read"):
        read_card(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_pipe_and_folder_in_place_of_a_file(name: str, tmp_path: Path) -> None:
    for make in (os.mkfifo, os.mkdir):
        folder = write_model(tmp_path / make.__name__, TINY)
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        with pytest.raises(ModelError, match="it is not a file"):
            read_card(folder)


@pytest.mark.parametrize("file", ["../secret.safetensors", "/etc/passwd", "", "..", 3, "a\0b"])
def test_index_that_points_outside(file: object, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", TINY)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": file}}))
    with pytest.raises(ModelError, match="does not say which file"):
        read_card(folder)
