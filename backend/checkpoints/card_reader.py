"""Reads the card of a model from its config, its tokenizer and the headers of its weights, without loading it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from backend.checkpoints.card import COMPUTE_BYTES, ContextLimits, Experts, Mla, ModelCard, Rope
from backend.checkpoints.draft_fields import read_draft_head
from backend.checkpoints.json_files import Fields, read_json, shown
from backend.checkpoints.layer_caches import read_caches, read_heads
from backend.checkpoints.layer_kinds import MOST_LAYERS, read_kinds
from backend.checkpoints.quantisation import read_quantisation
from backend.checkpoints.tokenizer_fingerprint import TokenizerFingerprint, read_tokenizer
from backend.checkpoints.weight_estimate import Sizes, estimate_weights
from backend.checkpoints.weight_headers import Tensor, read_index, read_tensors
from backend.checkpoints.weight_parts import Part, Shape, WeightPart, Weights, sort_weights
from backend.errors import ModelError

CONFIG_FILES = (
    "config.json", "tokenizer_config.json", "hf_quant_config.json", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
"""The small files that a card is made from, besides the tokenizer's."""

_MOST_CONFIG_BYTES = 32 * 2**20  # lists of modules that are not quantised make some configs large
_NO_LIMIT = 2**40  # transformers writes 1e30 for "no limit"

_DTYPE_OF = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_MODALITIES = {
    "vision": ("vision_config", "vision_tower", "vision_cfg", "mm_vision_tower", "visual", "vit_config"),
    "audio": ("audio_config", "audio_tower", "speech_config", "audio_processor", "sound_config"),
}
_NESTED = ("text_config", "llm_config", "language_config", "transformer_layer_config", "thinker_config", "model")
# What transformers leaves out of a nested config because it is the default of its class.
_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000, "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000,
    },
    "gemma3_text": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
}  # fmt: skip
_POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
# Kinds of rope whose limit of positions is stretched already; vLLM multiplies that of the others.
_STRETCHED = {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


def read_card(folder: Path) -> ModelCard:
    """Read the card of the model in a folder: its own, or a snapshot in the Hugging Face cache.

    Needs `config.json`; the weights may be there whole, as an index alone, or not at all.

    Raises:
        ModelError: there is no config, a file is damaged, or only a part of the weights is there.
    """
    index = read_index(folder)
    files = _weight_files(folder, set(index.files.values()) if index else None)
    source = str(folder).encode("utf-8", "replace").decode("utf-8")
    return make_card(folder, read_tensors(folder, files) if files else None, source=source)


def make_card(folder: Path, tensors: Mapping[str, Tensor] | None, *, source: str) -> ModelCard:
    """Make a card from the small files in a folder and the tensors of the weights, wherever those are.

    Args:
        folder: holds `config.json`, and whatever there is of tokenizer, chat template and index.
        tensors: by name; None if there are no headers.
        source: what the card says it is of.

    Raises:
        ModelError: there is no config, or a file is damaged.
    """
    top = _fields(folder, "config.json")
    if top is None:
        where = shown(folder / "config.json")
        raise ModelError(f"{where} is missing, so nothing says what the model is.", "Finish its download.")
    config = _language_model(top)
    told = _fields(folder, "tokenizer_config.json")
    layers = config.count("num_hidden_layers", "n_layer", "n_layers", "num_layers", most=MOST_LAYERS)
    heads, kinds, experts = read_heads(config), read_kinds(config, layers or 0), _experts(config)
    quantisation = read_quantisation(config, _fields(folder, "hf_quant_config.json"))
    index = read_index(folder) if tensors is None else None
    names = tensors.keys() if tensors is not None else index.files.keys() if index else None
    draft = read_draft_head(top.over(config), names)
    head_only = draft is not None and draft.is_whole_checkpoint
    shape = Shape(kinds, heads, experts is not None, head_only)
    if tensors is not None:
        weights: Weights | None = sort_weights(tensors, shape)
    elif index:
        bits = quantisation.bits if quantisation else None
        sizes = _sizes(config, experts, bits)
        weights = estimate_weights(index.files.keys(), index.total_bytes, config, sizes, shape)
    else:
        weights = _other_format(folder)
    tokenizer, tokenizer_problem = _tokenizer(folder)
    caches = read_caches(config, kinds, heads, COMPUTE_BYTES) if layers else None
    if head_only and draft is not None and draft.kind in {"medusa", "mlp_speculator"}:  # they have no attention
        caches = ()
    return ModelCard(
        source=source,
        architectures=top.texts("architectures"),
        model_type=top.text("model_type") or config.text("model_type") or "",
        dtype=_dtype(config, weights),
        weights=weights,
        weights_problem="" if weights else "Neither weights nor an index of them are in the folder.",
        layers=layers,
        attention_heads=heads.attention,
        kv_heads=heads.kv,
        key_size=heads.key_size,
        value_size=heads.value_size,
        hidden_size=_hidden(config),
        intermediate_size=_intermediate(config),
        experts=experts,
        mla=_mla(config),
        layer_kinds=kinds,
        caches=caches,
        vocab_size=_vocabulary(config),
        tied=_tied(config, weights, head_only=head_only),
        tokenizer=tokenizer,
        tokenizer_problem=tokenizer_problem,
        context=_context(config, top, told),
        quantisation=quantisation,
        has_chat_template=_has_chat_template(folder, told),
        remote_code=_remote_code(top, told),
        modalities=tuple(kind for kind, keys in _MODALITIES.items() if any(key in top for key in keys)),
        draft_head=draft,
    )


def _fields(folder: Path, name: str) -> Fields | None:
    content = read_json(folder / name, most_bytes=_MOST_CONFIG_BYTES)
    return None if content is None else Fields(content, shown(folder / name))


def _language_model(top: Fields) -> Fields:
    """Return the fields of the language model, then those around it, then the defaults of its class."""
    chain = [top]
    while len(chain) < 4 and (nested := chain[-1].fields(*_NESTED)):
        chain.append(nested)
    if len(chain) == 1:
        return top
    config = chain.pop()
    for outer in reversed(chain):
        config = config.over(outer)
    return config.over(Fields(_DEFAULTS.get(config.text("model_type") or "", {}), "defaults"))


def _weight_files(folder: Path, indexed: set[str] | None) -> set[str]:
    """Return the names of the safetensors files that make up the model; none where only an index is there."""
    if indexed:
        return indexed if any(os.path.isfile(folder / name) for name in indexed) else set()
    names = [name for name in _names(folder) if name.endswith(".safetensors") and not name.startswith("adapter_")]
    # Mistral's repositories hold everything twice: for transformers, and as consolidated*.
    plain = [name for name in names if not name.startswith("consolidated")] or names
    wanted = set(plain)
    for name in plain:
        if match := _SHARD.fullmatch(name):
            count = int(match[3])
            wanted.update(f"{match[1]}-{number:05}-of-{match[3]}.safetensors" for number in range(1, count + 1))
    return wanted


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        where = folder.name.encode("utf-8", "replace").decode("utf-8")
        raise ModelError(f"The folder {where} cannot be read: {reason}.", "Check the model's path.") from error


def _other_format(folder: Path) -> Weights | None:
    """Return the size of weights that PyTorch pickled: they are never opened, so only their total is known."""
    paths = [folder / name for name in _names(folder) if re.fullmatch(r"(pytorch_model|model).*\.(bin|pt)", name)]
    total = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    return Weights((WeightPart(Part.OTHER, "?", total),), 0, exact=False) if total else None


def _dtype(config: Fields, weights: Weights | None) -> str | None:
    told = config.text("dtype", "torch_dtype")
    if told:
        return told.removeprefix("torch.")
    floats = {name: size for name, size in weights.by_dtype.items() if name in _DTYPE_OF} if weights else {}
    return _DTYPE_OF[max(floats, key=lambda name: floats[name])] if floats else None


def _hidden(config: Fields) -> int | None:
    return config.count("hidden_size", "n_embd", "d_model")


def _intermediate(config: Fields) -> int | None:
    return config.count("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner")


def _vocabulary(config: Fields) -> int | None:
    return config.count("vocab_size", "padded_vocab_size")


def _experts(config: Fields) -> Experts | None:
    nested = config.fields("ffn_config")  # DBRX
    config = config.over(nested) if nested else config
    routed = config.count("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    if not routed or routed == 1:
        return None
    per_token = config.count(
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k"
    )
    shared = config.count("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    if shared is None:
        shared = 1 if config.count("shared_expert_intermediate_size") else 0
    inner = config.count("moe_intermediate_size", "expert_ffn_hidden_size") or _intermediate(config)
    return Experts(routed, min(per_token, routed) if per_token else None, shared, inner)


def _mla(config: Fields) -> Mla | None:
    rank = config.count("kv_lora_rank")
    if not rank:
        return None
    return Mla(rank, *(config.count(name) for name in ("q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim")))


def _sizes(config: Fields, experts: Experts | None, bits: int | None) -> Sizes:
    inner = experts.intermediate_size or 0 if experts else 0
    shared = config.count("shared_expert_intermediate_size") or inner * (experts.shared if experts else 0)
    return Sizes(
        _hidden(config) or 0, _intermediate(config) or 0, experts.routed if experts else 0, inner, shared,
        _vocabulary(config) or 0, read_heads(config), _dtype(config, None), bits,
    )  # fmt: skip


def _tied(config: Fields, weights: Weights | None, *, head_only: bool) -> bool | None:
    told = config.flag("tie_word_embeddings")
    if weights is None or weights.bytes_of(Part.EMBEDDING) == 0:
        return False if head_only else told
    # A model without an output head of its own uses its input embedding; a draft head uses that of its target.
    return bool(told) or (not head_only and weights.bytes_of(Part.OUTPUT_HEAD) == 0)


def _tokenizer(folder: Path) -> tuple[TokenizerFingerprint | None, str]:
    try:
        found = read_tokenizer(folder)
    except ModelError as error:
        return None, str(error)
    return found, "" if found else "There is no tokenizer in the folder."


def _context(config: Fields, top: Fields, told: Fields | None) -> ContextLimits:
    # Command-R's own field counts more than the others.
    positions = config.count("model_max_length") or min(
        (count for name in _POSITIONS if (count := config.count(name))), default=None
    )
    limit = told.number("model_max_length") if told else None
    tokenizer = int(limit) if limit and limit < _NO_LIMIT else None
    rope = _rope(config)
    engine = min((one for one in (positions, tokenizer) if one), default=None)
    multiplied = rope is not None and rope.kind not in _STRETCHED and "gemma3" not in (top.text("model_type") or "")
    if engine and rope and multiplied:
        engine = int(engine * (rope.factor or 1))
    return ContextLimits(positions, tokenizer, engine, rope)


def _rope(config: Fields) -> Rope | None:
    fields = config.fields("rope_scaling", "rope_parameters")
    if fields:
        fields = fields.fields("full_attention") or fields  # newer configs have one for each kind of layer
    kind = fields.text("rope_type", "type") if fields else None
    if not fields or not kind or kind == "default":
        return None
    name = "original_max_position_embeddings"
    return Rope(kind, fields.number("factor"), fields.count(name) or config.count(name))


def _has_chat_template(folder: Path, told: Fields | None) -> bool:
    if told and told.value("chat_template"):
        return True
    return any(os.path.isfile(folder / name) for name in ("chat_template.jinja", "chat_template.json"))


def _remote_code(*parts: Fields | None) -> tuple[str, ...]:
    found: set[str] = set()
    for fields in parts:
        mapped = fields.fields("auto_map") if fields else None
        for name in mapped.names() if mapped else ():
            found.update(mapped.texts(name) if mapped else ())
    return tuple(sorted(found))
