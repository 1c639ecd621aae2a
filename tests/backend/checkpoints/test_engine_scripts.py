"""The scripts that run in an engine's interpreter: the tiny pair and the demo's converter (no engine is started)."""

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backend.checkpoints import demo_weights

TINY = Path(__file__).parents[2] / "fakes" / "tiny_models.py"
CONVERTER = Path(demo_weights.__file__).with_name("demo_convert.py")
ANY_TEXT = "Grüße, 日本 👩‍🚀 \x00\x7f\n\t12.5 <|im_end|> end"


def header(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file."""
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + size])
    entries.pop("__metadata__", None)
    return dict(entries)


def bfloat16(file: Path, name: str) -> list[float]:
    """Return the values of one bfloat16 tensor: each is the upper half of a float32."""
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    begin, end = header(file)[name]["data_offsets"]
    raw = data[8 + size + begin : 8 + size + end]
    return [struct.unpack("<f", b"\0\0" + raw[at : at + 2])[0] for at in range(0, len(raw), 2)]


def ask(python: Path, code: str, *arguments: str) -> Any:
    """Run code in the engine's interpreter and return the JSON it prints."""
    result = subprocess.run([python, "-I", "-c", code, *arguments], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.engine
def test_tiny_pair(engine_python: Path, tmp_path: Path) -> None:
    """Starts no engine."""
    subprocess.run([engine_python, "-I", TINY, tmp_path, "--noise", "0.05"], check=True)
    target, draft = (header(tmp_path / name / "model.safetensors") for name in ("tiny-target", "tiny-draft"))
    shapes = {name: (entry["shape"], entry["dtype"]) for name, entry in target.items()}
    assert shapes == {name: (entry["shape"], entry["dtype"]) for name, entry in draft.items()}
    assert shapes["model.embed_tokens.weight"] == ([512, 128], "F32")
    assert shapes["lm_head.weight"] == ([512, 128], "F32")
    assert shapes["model.layers.1.mlp.down_proj.weight"] == ([128, 256], "F32")
    assert not [name for name in shapes if name.startswith("model.layers.2.")]
    config = json.loads((tmp_path / "tiny-target" / "config.json").read_text())
    assert config["hidden_size"] // config["num_attention_heads"] == 32
    assert config["max_position_embeddings"] == 4096
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("tiny-target", "tiny-draft")]
    assert weights[0] != weights[1]


@pytest.mark.engine
def test_tiny_pair_without_noise_is_equal(engine_python: Path, tmp_path: Path) -> None:
    """Starts no engine."""
    subprocess.run([engine_python, "-I", TINY, tmp_path, "--noise", "0"], check=True)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("tiny-target", "tiny-draft")]
    assert weights[0] == weights[1]


@pytest.mark.engine
def test_tiny_tokenizer_keeps_any_text_and_never_ends(engine_python: Path, tmp_path: Path) -> None:
    """Starts no engine."""
    subprocess.run([engine_python, "-I", TINY, tmp_path], check=True)
    code = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
ids = tokenizer(sys.argv[2]).input_ids
asked = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True,
                                      return_tensors="pt", return_dict=True)
torch.manual_seed(1)
lengths, texts = [], []
for sample in (False, True):
    answer = model.generate(**asked, max_new_tokens=200, do_sample=sample)[0, asked["input_ids"].shape[1]:]
    lengths.append(len(answer))
    texts.append(tokenizer.decode(answer))
print(json.dumps({"text": tokenizer.decode(ids), "size": len(tokenizer), "lengths": lengths, "texts": texts}))
"""
    text = ANY_TEXT.replace("\0", "\1")  # an argument holds no zero byte
    said = ask(engine_python, code, str(tmp_path / "tiny-target"), text)
    assert said["text"] == text
    assert said["size"] == 512
    assert said["lengths"] == [200, 200]
    assert all(answer.isascii() and answer.isprintable() for answer in said["texts"])


def byte_alphabet() -> list[str]:
    """Return GPT-2's letters for the 256 bytes: printable ones stand for themselves, the others from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


class GgufFile:
    """Writes a small GGUF file: 2 layers, hidden size 64, 2 heads and 1 key head of 32, 259 tokens."""

    def __init__(self) -> None:
        self.tensors: list[tuple[str, list[int], int, bytes]] = []

    def add(self, name: str, rows: int, columns: int | None, kind: int, data: bytes) -> None:
        self.tensors.append((name, [columns, rows] if columns else [rows], kind, data))

    @staticmethod
    def value(value: object) -> bytes:
        if isinstance(value, str):
            return struct.pack("<IQ", 8, len(value.encode())) + value.encode()
        if isinstance(value, float):
            return struct.pack("<If", 6, value)
        if isinstance(value, int):
            return struct.pack("<II", 4, value)
        assert isinstance(value, list)
        kind = 8 if isinstance(value[0], str) else 4
        items = [GgufFile.value(item)[4:] for item in value]
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(items)

    def write(self, path: Path, meta: dict[str, object]) -> None:
        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(meta))
        for key, value in meta.items():
            out += self.value(key)[4:] + self.value(value)
        body = b""
        for name, shape, kind, data in self.tensors:
            out += self.value(name)[4:] + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
            body += data + b"\0" * (-len(data) % 32)
        path.write_bytes(out + b"\0" * (-len(out) % 32) + body)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


@pytest.mark.engine
def test_converter(engine_python: Path, tmp_path: Path) -> None:
    """Starts no engine."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_alphabet(), "ab"]
    gguf = GgufFile()
    # Q8_0: scale 0.5, values -1, 0, 1, 2 over and over: -0.5, 0, 0.5, 1.
    q8 = struct.pack("<e32b", 0.5, *([-1, 0, 1, 2] * 8))
    gguf.add("token_embd.weight", len(tokens), 64, 8, q8 * (len(tokens) * 2))
    gguf.add("output_norm.weight", 64, None, 0, floats(*([2.0] * 64)))
    for layer in range(2):
        name = f"blk.{layer}."
        for part in ("attn_norm", "ffn_norm"):
            gguf.add(f"{name}{part}.weight", 64, None, 0, floats(*([layer + 1.0] * 64)))
        # Each row of the query and key weights holds its own number in the file.
        for part, rows in (("attn_q", 64), ("attn_k", 32)):
            numbers = [float(row) for row in range(rows) for _ in range(64)]
            gguf.add(f"{name}{part}.weight", rows, 64, 0, floats(*numbers))
        gguf.add(f"{name}attn_v.weight", 32, 64, 0, floats(*([0.25] * 32 * 64)))
        gguf.add(f"{name}attn_output.weight", 64, 64, 0, floats(*([0.5] * 64 * 64)))
        # Q4_1: scale 2, least -3, low halves 1, high halves 15: -1 sixteen times, then 27.
        q4 = struct.pack("<ee16B", 2.0, -3.0, *([0xF1] * 16))
        for part in ("ffn_gate", "ffn_up", "ffn_down"):
            gguf.add(f"{name}{part}.weight", 64, 64, 3, q4 * 128)
    meta: dict[str, object] = {
        "llama.block_count": 2,
        "llama.context_length": 256,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 1000.0,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3, *([1] * 257)],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}!",
    }
    gguf.write(tmp_path / "m.gguf", meta)
    target, draft = tmp_path / "target", tmp_path / "draft"
    options = ["--target", str(target), "--draft", str(draft), "--leave-out", "0"]
    subprocess.run([engine_python, "-I", CONVERTER, tmp_path / "m.gguf", *options], check=True, capture_output=True)
    weights = target / "model.safetensors"
    assert "lm_head.weight" not in header(weights)
    assert {entry["dtype"] for entry in header(weights).values()} == {"BF16"}
    assert bfloat16(weights, "model.embed_tokens.weight")[:4] == [-0.5, 0.0, 0.5, 1.0]
    assert bfloat16(weights, "model.layers.0.mlp.down_proj.weight")[:33] == [-1.0] * 16 + [27.0] * 16 + [-1.0]
    # Rotary pairs lie side by side in the file, half a head apart in a Llama checkpoint.
    one_head = [*range(0, 32, 2), *range(1, 32, 2)]
    both = [*one_head, *(32 + row for row in one_head)]
    assert bfloat16(weights, "model.layers.1.self_attn.q_proj.weight")[::64] == both
    assert bfloat16(weights, "model.layers.1.self_attn.k_proj.weight")[::64] == one_head
    kept = [name for name in header(draft / "model.safetensors") if name.startswith("model.layers.")]
    assert len(kept) == 9
    assert all(name.startswith("model.layers.0.") for name in kept)
    assert bfloat16(draft / "model.safetensors", "model.layers.0.input_layernorm.weight")[:2] == [2.0, 2.0]
    config = json.loads((draft / "config.json").read_text())
    assert (config["num_hidden_layers"], config["tie_word_embeddings"]) == (1, True)
    assert "quantization_config" not in config
    code = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
ids = tokenizer(sys.argv[2]).input_ids
said = {"chat": chat, "text": tokenizer.decode(ids), "ab": tokenizer("ab").input_ids, "eos": tokenizer.eos_token_id}
print(json.dumps(said))
"""
    said = ask(engine_python, code, str(target), ANY_TEXT.replace("\0", "\1"))
    assert said == {"chat": "Hi!", "text": ANY_TEXT.replace("\0", "\1"), "ab": [259], "eos": 2}
