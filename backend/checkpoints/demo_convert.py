"""Turns the demo's GGUF file into safetensors folders; runs in the engine's interpreter, imports nothing of ours.

Needs torch, safetensors and tokenizers, which every vLLM has. The GGUF reader is our own because the `gguf`
package, which transformers asks for, is not among vLLM's requirements; it reads the three tensor types this file
has. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

Progress goes to stdout as JSON lines {"name", "done", "of"}; exit code 0 means that every folder is whole.
"""

import argparse
import json
import mmap
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK = 32  # values in one quantised block
_CONTROL_TOKEN = 3

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Gguf:
    """Metadata and tensors of one GGUF file.

    Attributes:
        meta: the file's key-value pairs.
        tensors: for each name: shape (rows first), type number and offset in the file.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0
        if data[:4] != b"GGUF":
            raise ValueError("not a GGUF file")
        self._at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version} is not known")
        n_tensors, n_pairs = self._scalar("Q"), self._scalar("Q")
        self.meta: dict[str, Any] = {}
        for _ in range(n_pairs):
            key = self._string()
            self.meta[key] = self._value(self._scalar("I"))
        self.tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(n_tensors):
            name = self._string()
            shape = tuple(reversed([self._scalar("Q") for _ in range(self._scalar("I"))]))
            kind, offset = self._scalar("I"), self._scalar("Q")
            self.tensors[name] = (shape, kind, offset)
        step = self.meta.get("general.alignment", 32)
        self._start = (self._at + step - 1) // step * step

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        size = self._scalar("Q")
        text = self._data[self._at : self._at + size].decode("utf-8")
        self._at += size
        return text

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            item, count = self._scalar("I"), self._scalar("Q")
            return [self._value(item) for _ in range(count)]
        return self._scalar(_SCALARS[kind])

    def tensor(self, name: str) -> torch.Tensor:
        """Return one tensor de-quantised to float32."""
        shape, kind, offset = self.tensors[name]
        count = 1
        for size in shape:
            count *= size
        block_bytes = {_F32: 4 * _BLOCK, _Q4_1: 20, _Q8_0: 34}.get(kind)
        if block_bytes is None:
            raise ValueError(f"tensor {name} has type {kind}, which this reader does not know")
        begin = self._start + offset
        size_bytes = count // _BLOCK * block_bytes
        raw = torch.frombuffer(bytearray(self._data[begin : begin + size_bytes]), dtype=torch.uint8)
        if kind == _F32:
            return raw.view(torch.float32).reshape(shape)
        blocks = raw.reshape(-1, block_bytes)
        scale = blocks[:, :2].contiguous().view(torch.float16).float()
        if kind == _Q8_0:
            return (blocks[:, 2:].contiguous().view(torch.int8).float() * scale).reshape(shape)
        least = blocks[:, 2:4].contiguous().view(torch.float16).float()
        nibbles = torch.cat((blocks[:, 4:] & 15, blocks[:, 4:] >> 4), dim=1).float()
        return (nibbles * scale + least).reshape(shape)


def _unrotate(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the row order that GGUF gives the query and key weights (pairs side by side) for rotary positions."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def load_weights(gguf: Gguf, on_tensor: Callable[[int, int], None]) -> dict[str, torch.Tensor]:
    """Return all weights as bfloat16 under the names of a Llama checkpoint, without the tied `lm_head`."""
    heads = {"attn_q": gguf.meta["llama.attention.head_count"]}
    heads["attn_k"] = gguf.meta["llama.attention.head_count_kv"]
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    weights: dict[str, torch.Tensor] = {}
    for done, name in enumerate(gguf.tensors, start=1):
        tensor = gguf.tensor(name)
        if name in fixed:
            new = fixed[name]
        else:
            _, layer, part, _ = name.split(".")
            if part in heads:
                tensor = _unrotate(tensor, heads[part])
            new = f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"
        weights[new] = tensor.to(torch.bfloat16).contiguous()
        on_tensor(done, len(gguf.tensors))
    return weights


def leave_out(weights: Mapping[str, torch.Tensor], layers: Sequence[int]) -> dict[str, torch.Tensor]:
    """Return the weights without these layers; the layers that stay are numbered anew from 0."""
    present = sorted({int(name.split(".")[2]) for name in weights if name.startswith("model.layers.")})
    number = {old: new for new, old in enumerate(old for old in present if old not in layers)}
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        parts = name.split(".")
        if parts[1] == "layers":
            if int(parts[2]) not in number:
                continue
            parts[2] = str(number[int(parts[2])])
        kept[".".join(parts)] = tensor
    return kept


def _config(meta: Mapping[str, Any], n_layers: int) -> dict[str, Any]:
    # `rope_theta` at the top is the older spelling, which every transformers version reads.
    heads = meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        "head_dim": meta["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "hidden_size": meta["llama.embedding_length"],
        "initializer_range": 0.02,
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": n_layers,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "rms_norm_eps": round(meta["llama.attention.layer_norm_rms_epsilon"], 10),
        "rope_scaling": None,
        "rope_theta": meta["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": meta["llama.vocab_size"],
    }


def build_tokenizer(meta: Mapping[str, Any]) -> Tokenizer:
    """Return the byte-level tokenizer that the GGUF metadata describes (kind "gpt2", rules "smollm")."""
    if (meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        raise ValueError("the GGUF file has an unknown kind of tokenizer")
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # "smollm" rules: every digit by itself, then GPT-2's split into words.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    kinds = meta["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_folder(folder: Path, meta: Mapping[str, Any], weights: dict[str, torch.Tensor]) -> None:
    """Write one complete model folder: weights, config, tokenizer with chat template, generation config."""
    folder.mkdir(parents=True)
    n_layers = len({name.split(".")[2] for name in weights if name.startswith("model.layers.")})
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(meta, n_layers))
    ids = {kind: meta[f"tokenizer.ggml.{kind}_token_id"] for kind in ("bos", "eos", "unknown", "padding")}
    tokens = meta["tokenizer.ggml.tokens"]
    _write_json(
        folder / "generation_config.json",
        {"bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["padding"]},
    )
    build_tokenizer(meta).save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": meta["llama.context_length"],
            "bos_token": tokens[ids["bos"]],
            "eos_token": tokens[ids["eos"]],
            "unk_token": tokens[ids["unknown"]],
            "pad_token": tokens[ids["padding"]],
            "clean_up_tokenization_spaces": False,
            "chat_template": meta["tokenizer.chat_template"],
        },
    )


def _say(name: str, done: int, of: int) -> None:
    print(json.dumps({"name": name, "done": done, "of": of}), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Read the GGUF file once and write the folders that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--target", type=Path, help="folder to make for the whole model")
    parser.add_argument("--draft", type=Path, help="folder to make for the model without some layers")
    parser.add_argument("--leave-out", default="", help="layers the draft does without, like 3,4,9")
    options = parser.parse_args(arguments)
    with options.gguf.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        gguf = Gguf(data)
        weights = load_weights(gguf, lambda done, of: _say("read", done, of))
    if options.target:
        _say("write the target", 0, 1)
        write_folder(options.target, gguf.meta, weights)
    if options.draft:
        _say("write the draft", 0, 1)
        layers = [int(number) for number in options.leave_out.split(",") if number]
        write_folder(options.draft, gguf.meta, leave_out(weights, layers))
    _say("done", 1, 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
