"""Whatever is done to a model's files, reading them ends with a card or with a reason."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.checkpoints.card import ModelCard
from backend.checkpoints.card_reader import read_card
from backend.errors import ModelError
from backend.planning.roofline import Parallel, bytes_per_decode, bytes_per_step
from tests.fakes.model_folders import header_of, write_index, write_model, write_safetensors
from tests.fakes.public_models import DEEPSEEK_V3, GPT_OSS_20B, QWEN3_NEXT, TINY, llama

TOKENIZER = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    "added_tokens": [{"id": 2, "content": "<s>", "special": True}],
}
FILES = {
    "tokenizer.json": TOKENIZER,
    "tokenizer_config.json": {"model_max_length": 512, "chat_template": "x"},
    "hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4", "group_size": 16}},
}
CONFIGS: list[dict[str, Any]] = [
    TINY,
    {**DEEPSEEK_V3, "num_hidden_layers": 2},
    {**GPT_OSS_20B, "num_hidden_layers": 2},
    {**QWEN3_NEXT, "num_hidden_layers": 4},
    {"speculators_model_type": "eagle3", "transformer_layer_config": TINY,
     "speculators_config": {"proposal_methods": [{"speculative_tokens": 3}], "verifier": {"name_or_path": "x"}}},
    {"model_type": "nemotron_h", "hybrid_override_pattern": "M*-E", "num_hidden_layers": 4, "mamba_num_heads": 8,
     "mamba_head_dim": 64, "ssm_state_size": 128, "num_attention_heads": 4, "hidden_size": 64},
    {"model_type": "kimi_linear", "num_hidden_layers": 4, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
     "linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3], "num_heads": 4, "head_dim": 16}},
]  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 8)
    | st.integers(10**12, 10**40)
    | st.floats()
    | st.text(max_size=8)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def outcome(folder: Path) -> ModelCard | None:
    """Return the card, None for a refusal that says something; anything else is a fault."""
    refusal = None
    try:
        card = read_card(folder)
    except ModelError as error:
        refusal = error
    if refusal:
        assert len(refusal.message) > 20
        assert refusal.what_to_do
        return None
    for parallel in (Parallel(), Parallel(tensor=2, pipeline=2, data=2, expert=True, decode_context=2)):
        bytes_per_step(card, parallel, 2, 100)
        bytes_per_decode(card, card, parallel, 1, 10, 3)
        bytes_per_decode(card, None, parallel, 1, 10, 3, own_draft_head=True)
    for kind in (None, *card.layer_kinds):
        card.kv_bytes_per_token(kind, tensor=4)
    return card


def paths_of(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the places of all values in a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        found += [place for key in value for place in paths_of(value[key], (*path, key))]
    elif isinstance(value, list):
        found += [place for key in range(len(value)) for place in paths_of(value[key], (*path, key))]
    return found


def replaced(value: Any, path: tuple[str | int, ...], new: object) -> Any:
    copy = json.loads(json.dumps(value))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return copy


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_whole(config: dict[str, Any], tmp_path: Path) -> None:
    """What the others damage is good as it is."""
    assert outcome(write_model(tmp_path / "m", config, llama({**TINY}), files=FILES)) is not None


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_value_in_any_field(data: st.DataObject) -> None:
    contents: dict[str, Any] = {"config.json": data.draw(st.sampled_from(CONFIGS)), **FILES}
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(["config.json", "config.json", *FILES]))
        places = paths_of(contents[name])
        if places:
            contents[name] = replaced(contents[name], data.draw(st.sampled_from(places)), data.draw(values))
    with tempfile.TemporaryDirectory() as folder:
        tensors = llama(TINY) if data.draw(st.booleans()) else None
        write_model(Path(folder), contents.pop("config.json"), tensors, files=contents)
        if tensors is None:
            write_index(Path(folder), llama(TINY))
        outcome(Path(folder))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_bytes_in_any_file(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = write_model(Path(name), TINY, llama(TINY), files=FILES)
        write_index(folder, llama(TINY))
        victim = data.draw(st.sampled_from(sorted(folder.iterdir())))
        content = victim.read_bytes()
        header = 8 + len(header_of(llama(TINY)))  # what follows are weights, which nobody reads
        at = data.draw(st.integers(0, min(len(content), header) - 1))
        length = data.draw(st.integers(0, 40))
        victim.write_bytes(content[:at] + data.draw(st.binary(max_size=40)) + content[at + length :])
        outcome(folder)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(entries=values, name=st.sampled_from(["w", "__metadata__", "model.layers.99999999999999999999.x"]))
def test_any_header(entries: object, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), TINY)
        header = json.dumps({name: entries, "b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        content = len(header).to_bytes(8, "little") + header + b"\0" * 8
        Path(folder, "model.safetensors").write_bytes(content)
        outcome(Path(folder))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.text(max_size=30), weight_map=values, metadata=values)
def test_any_name_and_any_index(name: str, weight_map: object, metadata: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), TINY)
        index = {"weight_map": {name: "model.safetensors", "b": weight_map}, "metadata": metadata}
        Path(folder, "model.safetensors.index.json").write_text(json.dumps(index))
        outcome(Path(folder))
        write_safetensors(Path(folder, "model.safetensors"), {name: ("BF16", (2, 2))})
        (Path(folder) / "model.safetensors.index.json").unlink()
        outcome(Path(folder))
