"""Works out the bytes of each part of a model from the names of its tensors, where only its index is there."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from backend.checkpoints.json_files import Fields
from backend.checkpoints.layer_caches import Heads
from backend.checkpoints.weight_headers import Tensor
from backend.checkpoints.weight_parts import Part, Shape, WeightPart, Weights, part_of, sort_weights

_DTYPES = {"float32": "F32", "float": "F32", "float16": "F16", "half": "F16", "bfloat16": "BF16"}
_PACKED = ("qweight", "weight_packed", "_blocks")
_SCALES = ("weight_scale", "weight_scale_inv", "scales")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that the shapes of weights follow from, 0 where the config does not tell.

    `bits` is that of quantised weights, `dtype` the config's name for the type of all others.
    """

    hidden: int
    intermediate: int
    experts: int
    expert_intermediate: int
    shared_intermediate: int
    vocabulary: int
    heads: Heads
    dtype: str | None
    bits: int | None


def estimate_weights(
    names: Collection[str], total_bytes: int | None, config: Fields, sizes: Sizes, shape: Shape
) -> Weights:
    """Return the weights of a model whose files are not there.

    Shapes follow from names and config. If they add up to the total, they are taken as exact; else they are stretched
    to it. Where most names are unknown, all is OTHER.

    Args:
        names: of all tensors.
        total_bytes: of all tensors, None if the index does not tell.
        config: the language model's fields.
        sizes: what shapes follow from.
        shape: how to sort.

    Raises:
        ModelError: a count in the config is damaged.
    """
    dtype = _DTYPES.get(sizes.dtype or "", "BF16")
    plain_bits = 32 if dtype == "F32" else 16
    scaled = {name.rpartition(".")[0] for name in names if name.endswith(_SCALES)}
    tensors = {}
    for name in names:
        dimensions = _dimensions(name, part_of(name, shape)[0], config, sizes)
        if dimensions is None:
            continue
        quantised = name.endswith(_PACKED) or (name.endswith(".weight") and name.rpartition(".")[0] in scaled)
        bits = sizes.bits if quantised and sizes.bits else plain_bits
        tensors[name] = Tensor("?" if quantised else dtype, dimensions, math.prod(dimensions) * bits // 8)
    found = sort_weights(tensors, shape)
    if total_bytes is None:
        return replace(found, exact=False)
    if found.total_bytes == total_bytes and len(tensors) == len(names):
        return found
    if not found.total_bytes or len(tensors) * 3 < len(names):
        return Weights((WeightPart(Part.OTHER, "?", total_bytes),), 0, exact=False)
    parts = [replace(part, size_bytes=part.size_bytes * total_bytes // found.total_bytes) for part in found.parts]
    rest = total_bytes - sum(part.size_bytes for part in parts)
    return Weights((*parts, WeightPart(Part.OTHER, "?", rest)), found.embedding_row_bytes, exact=False)


def _dimensions(name: str, part: Part, config: Fields, sizes: Sizes) -> tuple[int, ...] | None:
    """Return a tensor's shape (of the weights that it packs, if they are quantised), None if it is not known."""
    *front, module, leaf = ["", "", *name.split(".")]
    if part is Part.EXPERTS and leaf not in {"weight", "bias", "qweight", "weight_packed"}:
        module, leaf = leaf.removesuffix("_blocks").removesuffix("_bias"), "bias" if leaf.endswith("bias") else "fused"
    if module.endswith("bias") or leaf == "e_score_correction_bias":
        return None
    rows_and_columns = _matrix(module, part, config, sizes)
    if rows_and_columns is None or 0 in rows_and_columns:
        return None
    if leaf == "fused":
        return (sizes.experts, *rows_and_columns) if sizes.experts and "experts" in front else None
    if leaf == "bias":
        return rows_and_columns[:1]
    return rows_and_columns if leaf in {"weight", "qweight", "weight_packed"} else None


def _matrix(module: str, part: Part, config: Fields, sizes: Sizes) -> tuple[int, ...] | None:
    """Return the rows and columns of a module's weight."""
    hidden = sizes.hidden
    if part in {Part.EMBEDDING, Part.OUTPUT_HEAD}:
        return sizes.vocabulary, hidden
    if part is Part.NORM:
        ranks = {"q_a_layernorm": config.count("q_lora_rank"), "kv_a_layernorm": config.count("kv_lora_rank")}
        return (ranks.get(module) or (sizes.heads.key_size if module in {"q_norm", "k_norm"} else hidden) or 0,)
    if part is Part.ROUTER:
        return (1 if module == "shared_expert_gate" else sizes.experts), hidden
    if part in {Part.ATTENTION, Part.KV_PROJECTION, Part.LATENT_PROJECTION}:
        return _attention(module, config, sizes)
    inner = {Part.MLP: sizes.intermediate, Part.EXPERTS: sizes.expert_intermediate}.get(part, sizes.shared_intermediate)
    if module in {"gate_proj", "up_proj", "w1", "w3", "fc1"}:
        return inner, hidden
    if module in {"down_proj", "w2", "fc2"}:
        return hidden, inner
    return (2 * inner, hidden) if module == "gate_up_proj" else None


def _attention(module: str, config: Fields, sizes: Sizes) -> tuple[int, int] | None:
    heads, hidden = sizes.heads, sizes.hidden
    q_heads, key, value = heads.attention or 0, heads.key_size or 0, heads.value_size or 0
    rank = config.count("kv_lora_rank")
    if rank:
        rope = config.count("qk_rope_head_dim") or 0
        nope, value = config.count("qk_nope_head_dim") or 0, config.count("v_head_dim") or 0
        key = nope + rope
        q_rank = config.count("q_lora_rank") or hidden
        latent = {
            "q_a_proj": (q_rank, hidden),
            "q_b_proj": (q_heads * key, q_rank),
            "kv_a_proj_with_mqa": (rank + rope, hidden),
            "kv_b_proj": (q_heads * (nope + value), rank),
        }
        if module in latent:
            return latent[module]
    gated = 2 if config.flag("attn_output_gate") else 1
    kv = heads.kv or 0
    return {
        "q_proj": (gated * q_heads * key, hidden),
        "k_proj": (kv * key, hidden),
        "v_proj": (kv * value, hidden),
        "o_proj": (hidden, q_heads * value),
        "out_proj": (hidden, q_heads * value),
        "qkv_proj": (q_heads * key + kv * (key + value), hidden),
    }.get(module)
