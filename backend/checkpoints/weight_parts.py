"""Sorts the tensors of a checkpoint into the parts of a model, by their names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from backend.checkpoints.layer_caches import Heads
from backend.checkpoints.layer_kinds import LayerKind
from backend.checkpoints.weight_headers import Tensor


class Part(StrEnum):
    """A part of a model; what tensor parallelism divides and what a step reads differs between them.

    KV_PROJECTION is repeated where there are more GPUs than KV heads. LATENT_PROJECTION (the down-projections of MLA),
    ROUTER and NORM are on every GPU. EXTRA_EMBEDDING are further tables that are only looked up (positions, one for
    each layer). STATE are the mixers of Mamba, linear attention and short convolutions. ENCODER are the parts for
    images and sound. DRAFT_PROJECTION is what only draft heads have.
    """

    EMBEDDING = "input embedding"
    EXTRA_EMBEDDING = "further embeddings"
    OUTPUT_HEAD = "output head"
    ATTENTION = "attention"
    KV_PROJECTION = "key and value projections"
    LATENT_PROJECTION = "latent projections"
    STATE = "linear attention"
    MLP = "MLP"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared experts"
    ROUTER = "router"
    NORM = "norms"
    ENCODER = "vision and audio"
    DRAFT_PROJECTION = "draft projections"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class WeightPart:
    """The bytes of one part in one type, as safetensors names types ("BF16").

    `in_draft_head` tells the layers that a model brings along for drafting (MTP) from the model itself.
    """

    part: Part
    dtype: str
    size_bytes: int
    in_draft_head: bool = False


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a checkpoint.

    Attributes:
        parts: bytes by part, type and place.
        embedding_row_bytes: what one token reads of all tables that are only looked up.
        exact: False where only the total is certain, or not even that, and the parts are estimates.
    """

    parts: tuple[WeightPart, ...]
    embedding_row_bytes: int
    exact: bool = True

    @property
    def total_bytes(self) -> int:
        """All bytes, draft heads included."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def by_dtype(self) -> Mapping[str, int]:
        """Bytes by type."""
        found: dict[str, int] = {}
        for part in self.parts:
            found[part.dtype] = found.get(part.dtype, 0) + part.size_bytes
        return found

    def bytes_of(self, *parts: Part, in_draft_head: bool = False) -> int:
        """Return the bytes of some parts, of the model itself or of its draft head."""
        return sum(part.size_bytes for part in self.parts if part.part in parts and part.in_draft_head is in_draft_head)

    @property
    def draft_head_bytes(self) -> int:
        """Bytes of the layers that the model brings along for drafting."""
        return sum(part.size_bytes for part in self.parts if part.in_draft_head)


@dataclass(frozen=True, slots=True)
class Shape:
    """What sorting needs to know of a model.

    Attributes:
        kinds: the kind of each layer.
        heads: of ordinary layers.
        has_experts: it is a mixture of experts.
        is_draft_head: the checkpoint is a draft head itself and nothing else.
    """

    kinds: Sequence[LayerKind]
    heads: Heads
    has_experts: bool = False
    is_draft_head: bool = False


_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)\.")
_ENCODER = re.compile(
    r"(vision|visual|vit|image|img|audio|speech|sound|multi_?modal|mm_|embed_vision|embed_audio|embed_tokens_extend"
    r"|vqmodel|code2wav|token2wav|talker|aligner|resampler|connector|patch_merger|mlp1$|vpm$|apm$)"
)
_DRAFT_HEAD = re.compile(r"(mtp|nextn|medusa)")
_DRAFT_PROJECTION = {
    "fc", "eh_proj", "d2t", "t2d", "input_proj", "medusa_heads", "resnet_heads", "markov_head", "confidence_head",
}  # fmt: skip
_HEADS = {"lm_head", "embed_out", "output_layer", "output", "head"}
_TABLES = {"embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "embeddings", "embedding", "embed"}
_EXTRA_TABLES = {
    "embed_tokens_per_layer", "embed_positions", "wpe", "position_embeddings", "token_type_embeddings",
}  # fmt: skip
_NORM = re.compile(r"(norm|^ln_|layernorm|^ln\d?$)")
_ROUTER = {"router", "shared_expert_gate", "e_score_correction_bias", "expert_bias", "moe_gate", "gate_weight"}
_SHARED = {"shared_expert", "shared_experts", "shared_mlp", "shared_moe"}
_STATE_OWNERS = re.compile(r"^(linear_attn|mamba\w*|mixer|ssm|temporal_block|kda|short_conv|conv|linear_attention)$")
_STATE_TENSORS = {
    "in_proj", "out_proj", "in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b",
    "conv1d", "conv", "x_proj", "dt_proj", "dt_bias", "A_log", "D",
}  # fmt: skip
_ATTENTION = {
    "self_attn", "attn", "attention", "self_attention", "cross_attn", "q_proj", "k_proj", "v_proj", "o_proj",
    "qkv_proj",
}  # fmt: skip
_LATENT = {"kv_a_proj_with_mqa", "kv_a_proj", "q_a_proj", "fused_qkv_a_proj", "wq_a", "wkv_a", "indexer"}
_KEYS_AND_VALUES = {
    "k_proj", "key", "wk", "k_lin", "key_proj", "v_proj", "value", "wv", "v_lin", "value_proj",
}  # fmt: skip
_FUSED = {"qkv_proj", "qkv", "query_key_value", "Wqkv", "wqkv", "c_attn", "qkv_fused"}
_MLP = {
    "mlp", "feed_forward", "ffn", "block_sparse_moe", "fc1", "fc2", "gate_proj", "up_proj", "down_proj", "gate_up_proj",
    "dense_h_to_4h", "dense_4h_to_h", "moe",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Name:
    """A tensor's name: its words, and the last two, since a matrix is `o_proj.weight` but a parameter `A_log`."""

    words: tuple[str, ...]
    last: tuple[str, ...]
    layer: int | None
    in_draft_head: bool


def sort_weights(tensors: Mapping[str, Tensor], shape: Shape) -> Weights:
    """Return the bytes of each part; every byte of every tensor is in exactly one."""
    found: dict[tuple[Part, str, bool], int] = {}
    row_bytes = 0
    for text, tensor in tensors.items():
        name = _read(text, shape)
        for part, size in _divide(name, tensor.size_bytes, shape):
            key = (part, tensor.dtype, name.in_draft_head)
            found[key] = found.get(key, 0) + size
            looked_up = part in {Part.EMBEDDING, Part.EXTRA_EMBEDDING} and not name.in_draft_head
            if looked_up and tensor.shape and tensor.shape[0]:
                row_bytes += size // tensor.shape[0]
    parts = (WeightPart(part, dtype, size, in_head) for (part, dtype, in_head), size in found.items())
    return Weights(tuple(sorted(parts, key=lambda part: (part.in_draft_head, part.part, part.dtype))), row_bytes)


def part_of(name: str, shape: Shape) -> tuple[Part, bool]:
    """Return the part that a tensor belongs to by its name, and whether it is in a draft head of the model."""
    read = _read(name, shape)
    return _part(read, shape), read.in_draft_head


def _read(text: str, shape: Shape) -> _Name:
    words = tuple(text.split("."))
    match = _LAYER.search(text)
    layer = int(match[1]) if match and len(match[1]) < 10 else None
    past_the_last = layer is not None and 0 < len(shape.kinds) <= layer
    in_head = any(_DRAFT_HEAD.match(word) for word in words) or (past_the_last and not _is_encoder(words))
    return _Name(words, words[-2:], layer, in_head and not shape.is_draft_head)


def _divide(name: _Name, size: int, shape: Shape) -> Iterator[tuple[Part, int]]:
    """Yield the part of a tensor; one that holds queries, keys and values together is divided by their heads."""
    part = _part(name, shape)
    if part is not Part.ATTENTION or _FUSED.isdisjoint(name.last):
        yield part, size
        return
    heads = shape.heads
    q = (heads.attention or 0) * (heads.key_size or 0)
    kv = (heads.kv or 0) * ((heads.key_size or 0) + (heads.value_size or 0))
    keys_and_values = size * kv // (q + kv) if q and kv else 0
    yield Part.ATTENTION, size - keys_and_values
    yield Part.KV_PROJECTION, keys_and_values


def _part(name: _Name, shape: Shape) -> Part:
    if _is_encoder(name.words):
        return Part.ENCODER
    for rule in (_outside_layers, _mixture, _mixer, _attention):
        part = rule(name, shape)
        if part:
            return part
    if not _MLP.isdisjoint(name.words):
        return Part.MLP
    return Part.DRAFT_PROJECTION if name.in_draft_head or shape.is_draft_head else Part.OTHER


def _is_encoder(words: Sequence[str]) -> bool:
    return any(_ENCODER.match(word) for word in words)


def _outside_layers(name: _Name, shape: Shape) -> Part | None:
    if not _EXTRA_TABLES.isdisjoint(name.last):
        return Part.EXTRA_EMBEDDING
    if any(_NORM.search(word) for word in name.last):
        return Part.NORM
    if name.layer is not None and not name.in_draft_head:
        return None
    if not _HEADS.isdisjoint(name.last) or "lm_heads" in name.words:  # Medusa numbers them
        return Part.OUTPUT_HEAD
    if not _TABLES.isdisjoint(name.last):
        return Part.EMBEDDING
    return Part.DRAFT_PROJECTION if not _DRAFT_PROJECTION.isdisjoint(name.words) else None


def _mixture(name: _Name, shape: Shape) -> Part | None:
    if not _ROUTER.isdisjoint(name.last) or (shape.has_experts and "gate" in name.last):
        return Part.ROUTER
    if not _SHARED.isdisjoint(name.words):
        return Part.SHARED_EXPERTS
    return Part.EXPERTS if any(word.startswith("experts") for word in name.words) else None


def _mixer(name: _Name, shape: Shape) -> Part | None:
    if any(_STATE_OWNERS.match(word) for word in name.words):
        own = "linear_attn" in name.words or not _STATE_TENSORS.isdisjoint(name.last)
        return Part.STATE if own else None
    # Kimi's linear attention goes by the names of ordinary attention.
    in_model = name.layer is not None and not name.in_draft_head and name.layer < len(shape.kinds)
    if in_model and shape.kinds[name.layer or 0] is LayerKind.STATE and not _ATTENTION.isdisjoint(name.words):
        return Part.STATE
    return None


def _attention(name: _Name, shape: Shape) -> Part | None:
    if _ATTENTION.isdisjoint(name.words):
        return None
    if not _LATENT.isdisjoint(name.words):
        return Part.LATENT_PROJECTION
    return Part.ATTENTION if _KEYS_AND_VALUES.isdisjoint(name.last) else Part.KV_PROJECTION
