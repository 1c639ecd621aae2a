"""What the layers of a model keep of each sequence: keys and values, a latent of both, or a state of constant size."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backend.checkpoints.json_files import Fields
from backend.checkpoints.layer_kinds import MOST_LAYERS, LayerKind, block_of, read_window
from backend.checkpoints.layer_states import state_bytes

_INDEXER_SCALE_BYTES = 4  # DeepSeek's sparse attention keeps one fp8 key of its indexer and this beside it


@dataclass(frozen=True, slots=True)
class LayerCache:
    """What layers of one kind keep of a sequence; sizes are of one layer.

    Attributes:
        kind: FULL, SLIDING, CHUNKED or STATE.
        layers: how many of them read a cache.
        storing_layers: how many keep one of their own; the others read that of an earlier layer.
        kv_heads, key_size, value_size: 0 for a latent or a state.
        latent_size: elements of a token's latent (MLA), 0 for keys and values. It is on every GPU.
        indexer_bytes: what sparse attention keeps of each token beside it.
        window_tokens: how far these layers look back, None for all tokens.
        top_tokens: of all tokens, how many sparse attention reads; None for all.
        state_bytes: constant size of a state, None if it is not known. Only for STATE.
    """

    kind: LayerKind
    layers: int
    storing_layers: int
    kv_heads: int = 0
    key_size: int = 0
    value_size: int = 0
    latent_size: int = 0
    indexer_bytes: int = 0
    window_tokens: int | None = None
    top_tokens: int | None = None
    state_bytes: float | None = None

    def token_bytes(self, dtype_bytes: float, *, tensor: int = 1) -> float:
        """Return the bytes of one token in one layer on one GPU of `tensor`; 0 for a state."""
        if self.kind is LayerKind.STATE:
            return 0
        if self.latent_size:
            return self.latent_size * dtype_bytes + self.indexer_bytes
        # Each GPU has at least one head, so heads repeat where there are more GPUs than heads.
        return max(1, -(-self.kv_heads // tensor)) * (self.key_size + self.value_size) * dtype_bytes

    def bytes_read(self, context_tokens: float, dtype_bytes: float, *, tensor: int = 1) -> float | None:
        """Return what all of these layers read of one sequence for a step, in bytes on one GPU; None if not known."""
        if self.kind is LayerKind.STATE:
            return None if self.state_bytes is None else self.layers * self.state_bytes / tensor
        tokens = context_tokens if self.window_tokens is None else min(context_tokens, self.window_tokens)
        if self.top_tokens is None:
            return self.layers * tokens * self.token_bytes(dtype_bytes, tensor=tensor)
        # The indexer looks at all tokens, then attention at those it chose.
        chosen = min(tokens, self.top_tokens) * self.latent_size * dtype_bytes
        return self.layers * (chosen + tokens * self.indexer_bytes)


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention heads of a model as its config gives them: sizes in elements, None where it does not tell."""

    attention: int | None
    kv: int | None
    key_size: int | None
    value_size: int | None


def read_heads(config: Fields) -> Heads:
    """Return the heads of ordinary layers; layers of other kinds may differ.

    Raises:
        ModelError: a count is no count.
    """
    heads = config.count("num_attention_heads", "n_head", "n_heads", "num_heads")
    kv = config.count("num_key_value_heads", "n_head_kv", "num_kv_heads", "num_attention_groups")
    nested = config.fields("attn_config")  # DBRX
    if kv is None and nested:
        kv = nested.count("kv_n_heads")
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        kv = 1  # Falcon, StarCoder
    if config.flag("multi_query_attention"):
        kv = config.count("multi_query_group_num")  # ChatGLM
    if "kv_lora_rank" in config:
        nope, rope = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim")
        return Heads(heads, kv or heads, (nope or 0) + (rope or 0) or None, config.count("v_head_dim"))
    hidden = config.count("hidden_size", "n_embd", "d_model")
    size = config.count("head_dim", "attention_head_dim", "hidden_size_per_head", "kv_channels") or None
    if size is None and hidden and heads:
        size = hidden // heads
    value = config.count("v_head_dim") or size
    return Heads(heads, kv if kv is not None else heads, size, value)


def read_caches(
    config: Fields, kinds: Sequence[LayerKind], heads: Heads, dtype_bytes: float
) -> tuple[LayerCache, ...] | None:
    """Return what the layers keep, None if the config does not tell, or in a way that is not known here.

    Args:
        config: the language model's fields.
        kinds: kind of each layer.
        heads: of ordinary layers.
        dtype_bytes: size of the model's numbers, which states have unless the config says otherwise.

    Raises:
        ModelError: a count is no count.
    """
    if "compress_ratios" in config:  # DeepSeek-V4 compresses differently in each layer
        return None
    shared = config.count("num_kv_shared_layers", most=MOST_LAYERS) or 0
    each = config.counts("num_key_value_heads") or ()
    found: Counter[LayerCache] = Counter()
    stored: Counter[LayerCache] = Counter()
    for number, kind in enumerate(kinds):
        layer_heads = heads
        if len(each) == len(kinds) and len(each) > 1:
            layer_heads = Heads(heads.attention, each[number], heads.key_size, heads.value_size)
        blocks = _nas_heads(config, number, heads)
        for cache in _caches_of(kind, config, blocks or layer_heads, dtype_bytes):
            if cache is None:
                return None
            found[cache] += 1
            stored[cache] += number < len(kinds) - shared
    return tuple(
        LayerCache(
            cache.kind, layers, stored[cache], cache.kv_heads, cache.key_size, cache.value_size, cache.latent_size,
            cache.indexer_bytes, cache.window_tokens, cache.top_tokens, cache.state_bytes,
        )
        for cache, layers in found.items()
    )  # fmt: skip


def _caches_of(kind: LayerKind, config: Fields, heads: Heads, dtype_bytes: float) -> list[LayerCache | None]:
    if kind is LayerKind.NONE:
        return []
    if kind is LayerKind.STATE:
        return [LayerCache(LayerKind.STATE, 1, 1, state_bytes=state_bytes(config, dtype_bytes))]
    if kind is LayerKind.FULL_AND_STATE:
        both = (LayerKind.FULL, LayerKind.STATE)
        return [cache for one in both for cache in _caches_of(one, config, heads, dtype_bytes)]
    window = None if kind is LayerKind.FULL else read_window(config, kind)
    rank = config.count("kv_lora_rank")
    if rank and config.text("model_type") != "minicpm3":  # which vLLM runs as ordinary attention
        indexer = config.count("index_head_dim")
        return [
            LayerCache(
                kind, 1, 1, latent_size=rank + (config.count("qk_rope_head_dim") or 0), window_tokens=window,
                indexer_bytes=indexer + _INDEXER_SCALE_BYTES if indexer else 0,
                top_tokens=config.count("index_topk") or None if indexer else None,
            )
        ]  # fmt: skip
    kv, key, value = heads.kv, heads.key_size, heads.value_size
    if kind is LayerKind.FULL:
        kv = config.count("num_global_key_value_heads") or kv
        if wide := config.count("global_head_dim"):
            key = value = wide
    elif kind is LayerKind.SLIDING:
        kv = config.count("swa_num_key_value_heads") or kv
        key = config.count("swa_head_dim") or key
        value = config.count("swa_v_head_dim") or value
    if not kv or not key or not value:
        return [None]
    return [LayerCache(kind, 1, 1, kv, key, value, window_tokens=window)]


def _nas_heads(config: Fields, number: int, heads: Heads) -> Heads | None:
    """Return the heads of a layer of a model whose layers were searched for (Nemotron-NAS)."""
    block = block_of(config, number)
    attention = block.fields("attention") if block else None
    group = attention.count("n_heads_in_group") if attention else None
    if not group or not heads.attention:
        return None
    return Heads(heads.attention, heads.attention // group, heads.key_size, heads.value_size)
