"""Builds a tiny random Llama pair; runs in an engine's interpreter: `python tiny_models.py FOLDER [--noise 0.05]`.

FOLDER/tiny-target: 2 layers, hidden size 128, 4 heads of 32 (so that tensor parallel 2 works), 4,096 positions,
512 tokens, float32, a byte-level tokenizer of its own. FOLDER/tiny-draft: the same weights plus noise, so the
noise sets how many of its tokens are accepted. The same arguments always give the same files.

One dimension of the hidden state is constant, and the output rows of control tokens, control characters and
bytes outside ASCII weigh it strongly downwards: no answer ends before `max_tokens`, and all text is readable.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYERS, HIDDEN, HEADS, INNER, VOCABULARY, POSITIONS = 2, 128, 4, 256, 512, 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
CONSTANT, SUPPRESSED = 4.0, -50.0
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer() -> Tokenizer:
    """Return a byte-level BPE of the control tokens, the 256 bytes and the pairs of frequent letters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(a, b) for a in LETTERS for b in LETTERS][: VOCABULARY - len(SPECIAL) - len(alphabet)]
    tokens = [*SPECIAL, *alphabet, *(a + b for a, b in pairs)]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return tokenizer


def make_weights(tokenizer: Tokenizer) -> dict[str, torch.Tensor]:
    """Return random weights that write readable text without an end."""
    random = torch.Generator().manual_seed(20)

    def matrix(rows: int, columns: int, scale: float) -> torch.Tensor:
        return torch.randn(rows, columns, generator=random) * scale

    weights = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN, 1.0)}
    weights["model.embed_tokens.weight"][:, 0] = CONSTANT
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weights[f"{name}self_attn.{part}.weight"] = matrix(HIDDEN, HIDDEN, HIDDEN**-0.5)
        for part in ("gate_proj", "up_proj"):
            weights[f"{name}mlp.{part}.weight"] = matrix(INNER, HIDDEN, HIDDEN**-0.5)
        weights[f"{name}mlp.down_proj.weight"] = matrix(HIDDEN, INNER, INNER**-0.5)
        for part in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{name}{part}.weight"] = torch.ones(HIDDEN)
    weights["model.norm.weight"] = torch.ones(HIDDEN)
    weights["lm_head.weight"] = matrix(VOCABULARY, HIDDEN, 3 * HIDDEN**-0.5)
    for token in range(VOCABULARY):
        text = tokenizer.decode([token], skip_special_tokens=False)
        if token < len(SPECIAL) or not (text.isascii() and text.isprintable()):
            weights["lm_head.weight"][token] = 0.0
            weights["lm_head.weight"][token, 0] = SUPPRESSED
    _keep_constant(weights)
    return weights


def add_noise(weights: dict[str, torch.Tensor], strength: float) -> dict[str, torch.Tensor]:
    """Return a copy whose layer matrices carry noise of `strength` times their own standard deviation."""
    random = torch.Generator().manual_seed(7)
    noisy = {
        name: tensor + torch.randn(tensor.shape, generator=random) * tensor.std() * strength
        if "_proj" in name
        else tensor.clone()
        for name, tensor in weights.items()
    }
    _keep_constant(noisy)
    return noisy


def _keep_constant(weights: dict[str, torch.Tensor]) -> None:
    # No layer may write into dimension 0.
    for name, tensor in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor[0] = 0.0


def write_model(folder: Path, weights: dict[str, torch.Tensor], tokenizer: Tokenizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "head_dim": HIDDEN // HEADS,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS,
        "mlp_bias": False,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "vocab_size": VOCABULARY,
        **ids,
    }
    names = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "pad_token": SPECIAL[0], "unk_token": SPECIAL[0]}
    tokens = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
        **names,
    }
    files = {"config.json": config, "generation_config.json": ids, "tokenizer_config.json": tokens}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--noise", type=float, default=0.05)
    options = parser.parse_args()
    tokenizer = make_tokenizer()
    weights = make_weights(tokenizer)
    write_model(options.folder / "tiny-target", weights, tokenizer)
    write_model(options.folder / "tiny-draft", add_noise(weights, options.noise), tokenizer)


if __name__ == "__main__":
    main()
