"""What a checkpoint says about drafting: that it is a draft head for another model, or brings one along."""

from collections.abc import Collection
from dataclasses import dataclass

from backend.checkpoints.json_files import Fields

_MTP_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers")
# In this order, since "Eagle3" holds "Eagle" and "DFlash2" holds "DFlash".
_KINDS = ("peagle", "eagle3", "eagle", "medusa", "dflash2", "dflash", "dspark", "mlp_speculator")


@dataclass(frozen=True, slots=True)
class DraftHead:
    """A draft head.

    Attributes:
        kind: "eagle", "eagle3", "medusa", "mtp", "dflash" ... as vLLM names methods.
        is_whole_checkpoint: the checkpoint is a head for another model; False for layers that a model brings along.
        layers: its layers, or its heads for Medusa; None if not told.
        in_checkpoint: False for layers that the config promises and the weights lack; None if that is not known.
        draft_vocab_size: of its output, if smaller than the target's.
        target_hidden_size: hidden size that it expects of the target, None for its own.
        target_layers: layers of the target whose states it reads.
        maps_vocabulary: the weights hold a table from its ids to the target's (d2t); None if not known.
        has_embedding, has_output_head: False where it uses the target's; None if not known.
        speculative_tokens: how many tokens it was made to draft, from `speculators_config`.
        verifier: name of the model that it was made for, "" if not told.
    """

    kind: str
    is_whole_checkpoint: bool
    layers: int | None = None
    in_checkpoint: bool | None = None
    draft_vocab_size: int | None = None
    target_hidden_size: int | None = None
    target_layers: tuple[int, ...] = ()
    maps_vocabulary: bool | None = None
    has_embedding: bool | None = None
    has_output_head: bool | None = None
    speculative_tokens: int | None = None
    verifier: str = ""


def read_draft_head(config: Fields, tensors: Collection[str] | None) -> DraftHead | None:
    """Return the draft head that a checkpoint is or holds, None if neither.

    Args:
        config: all fields, the language model's before the others.
        tensors: names of its tensors, None if they are not known.

    Raises:
        ModelError: a number of it is damaged.
    """
    promised = config.count(*_MTP_COUNTS, most=10_000)
    kind = _kind(config, tensors)
    if kind:
        return _whole(kind, config, tensors)
    own = any("mtp" in name.lower() or "nextn" in name.lower() for name in config.texts("architectures"))
    if not promised and not own:
        return None
    present = None if tensors is None else own or _has_own_layers(config, tensors)
    return DraftHead("mtp", own, promised or None, present)


def _whole(kind: str, config: Fields, tensors: Collection[str] | None) -> DraftHead:
    def has(*words: str) -> bool | None:
        return None if tensors is None else any(word in name.split(".") for name in tensors for word in words)

    speculators = config.fields("speculators_config")
    methods = speculators.value("proposal_methods") if speculators else None
    method = Fields(methods[0], "speculators_config") if isinstance(methods, list) and _is_object(methods) else None
    verifier = speculators.fields("verifier") if speculators else None
    layers = config.count("medusa_num_heads", "num_heads") if kind == "medusa" else None
    nested = config.fields("dflash_config", "eagle_config")
    fields = config.over(nested) if nested else config
    return DraftHead(
        kind, True, layers or config.count("num_hidden_layers", "n_predict", most=10_000), True,
        config.count("draft_vocab_size"), config.count("target_hidden_size"), _target_layers(fields),
        has("d2t"), has("embed_tokens", "wte", "tok_embeddings"), has("lm_head", "lm_heads"),
        method.count("speculative_tokens") if method else None,
        (verifier.text("name_or_path") if verifier else None) or "",
    )  # fmt: skip


def _target_layers(fields: Fields) -> tuple[int, ...]:
    for name in ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids"):
        if fields.value(name):
            return fields.counts(name)
    return ()


def _is_object(methods: list[object]) -> bool:
    return bool(methods) and isinstance(methods[0], dict)


def _kind(config: Fields, tensors: Collection[str] | None) -> str | None:
    """Return the kind of a checkpoint that is nothing but a head."""
    if told := config.text("speculators_model_type"):
        return told
    names = [*config.texts("architectures"), *config.texts("model_type")]
    if any(name.endswith("ForConditionalGeneration") for name in names):  # NVIDIA calls models that see "Eagle"
        return None
    joined = " ".join(names).lower().replace("_", "")
    for kind in _KINDS:
        if kind.replace("_", "") in joined:
            return kind
    if "draft_vocab_size" in config and "dflash_config" not in config:
        return "eagle3"
    # The first EAGLE heads look like a small Llama; only the projection of both inputs gives them away.
    if tensors is not None and "fc.weight" in tensors and not any("lm_head" in name for name in tensors):
        return "eagle"
    return None


def _has_own_layers(config: Fields, tensors: Collection[str]) -> bool:
    layers = config.count("num_hidden_layers")
    past = f".layers.{layers}." if layers else ".mtp."
    return any(past in name or "mtp" in name or "nextn" in name for name in tensors)
