"""How each layer of a model looks back, from the many ways in which configs say it."""

from enum import StrEnum

from backend.checkpoints.json_files import Fields

MOST_LAYERS = 10_000


class LayerKind(StrEnum):
    """How a layer looks back: at all tokens, at a window, at a chunk, through a state, both ways, or not at all."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    STATE = "state"
    FULL_AND_STATE = "full and state"
    NONE = "none"


def read_kinds(config: Fields, layers: int) -> tuple[LayerKind, ...]:
    """Return the kind of each layer.

    Raises:
        ModelError: what the config says of them is damaged.
    """
    for rule in (_by_block, _by_name, _by_list, _by_interval, _by_window):
        kinds = rule(config, layers)
        if kinds is not None:
            return tuple(kinds)
    return (LayerKind.FULL,) * layers


def read_window(config: Fields, kind: LayerKind) -> int | None:
    """Return how far layers of a kind look back, in tokens; None for all tokens.

    Raises:
        ModelError: the window is no count.
    """
    names = ("attention_chunk_size",) if kind is LayerKind.CHUNKED else ("sliding_window", "sliding_window_size")
    for name in names:
        value = config.value(name)
        if value is False or value == -1:  # both mean "none" in published configs
            continue
        if window := config.count(name):
            return window
    return None


def block_of(config: Fields, number: int) -> Fields | None:
    """Return what a config says of one layer of a model whose layers were searched for (Nemotron-NAS)."""
    blocks = config.value("block_configs")
    if not isinstance(blocks, list) or number >= len(blocks) or not isinstance(blocks[number], dict):
        return None
    return Fields(blocks[number], "block_configs in config.json")


# Rules, each None where the config does not have what it looks for.

_NAMED = {
    "full": LayerKind.FULL, "global": LayerKind.FULL, "attention": LayerKind.FULL, "full_attention": LayerKind.FULL,
    "hybrid": LayerKind.FULL_AND_STATE, "linear_attention": LayerKind.STATE, "mamba": LayerKind.STATE,
    "mamba2": LayerKind.STATE, "conv": LayerKind.STATE, "recurrent": LayerKind.STATE, "mlp": LayerKind.NONE,
    "moe": LayerKind.NONE,
}  # fmt: skip
_LETTERS = {"M": LayerKind.STATE, "*": LayerKind.FULL, "-": LayerKind.NONE, "E": LayerKind.NONE}


def _by_block(config: Fields, layers: int) -> list[LayerKind] | None:
    if not isinstance(config.value("block_configs"), list):
        return None
    kinds = []
    for number in range(layers):
        block = block_of(config, number)
        attention = block.fields("attention") if block else None
        skipped = attention is not None and (attention.flag("no_op") or attention.flag("replace_with_linear"))
        kinds.append(LayerKind.NONE if skipped else LayerKind.FULL)
    return kinds


def _by_name(config: Fields, layers: int) -> list[LayerKind] | None:
    names = config.texts("layer_types", "layers_block_type", "block_types", "_block_types")
    if not names:
        pattern = config.text("hybrid_override_pattern")
        letters = [_LETTERS.get(letter, LayerKind.FULL) for letter in pattern or ""]
        return letters[:layers] if len(letters) >= layers > 0 else None
    return [_named(names[number % len(names)]) for number in range(layers)]


def _named(name: str) -> LayerKind:
    if "sliding" in name or "local" in name:
        return LayerKind.SLIDING
    return LayerKind.CHUNKED if "chunk" in name else _NAMED.get(name, LayerKind.FULL)


def _by_list(config: Fields, layers: int) -> list[LayerKind] | None:
    kimi = config.fields("linear_attn_config")
    if kimi:
        full = set(kimi.counts("full_attn_layers"))  # counts from 1
        return [LayerKind.FULL if number + 1 in full else LayerKind.STATE for number in range(layers)]
    for name, other in (("attn_type_list", LayerKind.STATE), ("hybrid_layer_pattern", LayerKind.FULL)):
        flags = config.counts(name)
        if len(flags) >= layers > 0:  # 1 is full attention for MiniMax, a window for MiMo
            one = LayerKind.FULL if other is LayerKind.STATE else LayerKind.SLIDING
            return [one if flag == 1 else other for flag in flags[:layers]]
    if indices := config.counts("attn_layer_indices"):
        return [LayerKind.FULL if number in indices else LayerKind.STATE for number in range(layers)]
    return None


def _by_interval(config: Fields, layers: int) -> list[LayerKind] | None:
    kind = config.text("model_type") or ""
    if kind in {"mamba", "mamba2", "falcon_mamba"}:
        return [LayerKind.STATE] * layers
    if kind == "falcon_h1":
        return [LayerKind.FULL_AND_STATE] * layers
    if interval := config.count("full_attention_interval"):
        return [LayerKind.STATE if (number + 1) % interval else LayerKind.FULL for number in range(layers)]
    if period := config.count("attn_layer_period"):
        offset = config.count("attn_layer_offset") or 0
        return [LayerKind.FULL if number % period == offset else LayerKind.STATE for number in range(layers)]
    if "attention_chunk_size" in config and kind.startswith("llama4"):
        # Llama 4 marks the layers that look at chunks with 1; by default that is all but each fourth.
        marked = config.counts("no_rope_layers")
        every = config.count("no_rope_layer_interval") or 4
        chunked = [bool(flag) for flag in marked] if len(marked) == layers else None
        return [
            LayerKind.CHUNKED if (chunked[number] if chunked else (number + 1) % every) else LayerKind.FULL
            for number in range(layers)
        ]
    return None


_WINDOW_PATTERNS = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}


def _by_window(config: Fields, layers: int) -> list[LayerKind] | None:
    if read_window(config, LayerKind.SLIDING) is None:
        return None
    kind = config.text("model_type") or ""
    on = config.flag("use_sliding_window")
    if on is False or (on is None and kind.startswith("qwen")):
        return None
    every = config.count("sliding_window_pattern", "_sliding_window_pattern") or _WINDOW_PATTERNS.get(kind)
    if every:
        return [LayerKind.SLIDING if (number + 1) % every else LayerKind.FULL for number in range(layers)]
    first = config.count("max_window_layers") if on else None
    return [LayerKind.SLIDING if number >= (first or 0) else LayerKind.FULL for number in range(layers)]
