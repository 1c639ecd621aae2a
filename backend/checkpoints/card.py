"""The card of a model: what its files say about it, as one frozen value."""

from dataclasses import dataclass

from backend.checkpoints.draft_fields import DraftHead
from backend.checkpoints.layer_caches import LayerCache
from backend.checkpoints.layer_kinds import LayerKind
from backend.checkpoints.quantisation import Quantisation
from backend.checkpoints.tokenizer_fingerprint import TokenizerFingerprint
from backend.checkpoints.weight_parts import Part, Weights

COMPUTE_BYTES = 2.0
"""Bytes of a number as vLLM computes by default; also for weights stored as float32, which it rounds."""


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a mixture: how many, how many of them a token uses, how many all tokens use, their inner size."""

    routed: int
    per_token: int | None
    shared: int
    intermediate_size: int | None


@dataclass(frozen=True, slots=True)
class Mla:
    """Ranks and sizes of multi-head latent attention, in elements; the cache holds `kv_rank` + `rope_size`."""

    kv_rank: int
    q_rank: int | None
    rope_size: int | None
    nope_size: int | None


@dataclass(frozen=True, slots=True)
class Rope:
    """How positions are stretched: `kind` as in the config ("yarn", "llama3", "linear", "dynamic", "longrope")."""

    kind: str
    factor: float | None = None
    original_tokens: int | None = None

    @property
    def stretched_tokens(self) -> int | None:
        """Length that the stretched positions reach, None if the config does not tell."""
        return int(self.original_tokens * self.factor) if self.original_tokens and self.factor else None


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """How long a sequence may be, in tokens; None where nobody says.

    Attributes:
        positions: `max_position_embeddings` or its like.
        tokenizer: `model_max_length` of the tokenizer.
        engine: what vLLM 0.32 takes as the limit: the smaller of both, times the factor of rope kinds other than
            YaRN, Llama 3 and LongRoPE, whose `positions` are stretched already (Gemma 3's too).
        rope: how positions are stretched, None if they are not.
    """

    positions: int | None = None
    tokenizer: int | None = None
    engine: int | None = None
    rope: Rope | None = None


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known of a model without loading it. None means that its files do not tell.

    Attributes:
        source: folder, or name and revision on the hub.
        architectures: classes that implement it; `model_type` is the family.
        dtype: type of its numbers as the config names it ("bfloat16"), else that of most weights.
        weights: bytes by part; None with the reason in `weights_problem`.
        layers, attention_heads, kv_heads, key_size, value_size, hidden_size, intermediate_size: of the language model;
            sizes of heads are those of ordinary layers.
        experts: None for a dense model. `mla`: None for ordinary attention.
        layer_kinds: the kind of each layer.
        caches: what layers keep of a sequence, one item for each kind; None if that is not known.
        vocab_size: ids that the output can give, padding included.
        tied: the input embedding is the output head as well.
        tokenizer: None with the reason in `tokenizer_problem`.
        context: limits of the length.
        quantisation: None for weights as they were trained.
        has_chat_template: it brings a chat template.
        remote_code: what `auto_map` names: classes in Python files beside the weights.
        modalities: what it takes besides text: "vision", "audio".
        draft_head: what it is or holds for drafting.
    """

    source: str
    architectures: tuple[str, ...]
    model_type: str
    dtype: str | None
    weights: Weights | None
    weights_problem: str
    layers: int | None
    attention_heads: int | None
    kv_heads: int | None
    key_size: int | None
    value_size: int | None
    hidden_size: int | None
    intermediate_size: int | None
    experts: Experts | None
    mla: Mla | None
    layer_kinds: tuple[LayerKind, ...]
    caches: tuple[LayerCache, ...] | None
    vocab_size: int | None
    tied: bool | None
    tokenizer: TokenizerFingerprint | None
    tokenizer_problem: str
    context: ContextLimits
    quantisation: Quantisation | None
    has_chat_template: bool
    remote_code: tuple[str, ...]
    modalities: tuple[str, ...]
    draft_head: DraftHead | None

    @property
    def kv_dtype_bytes(self) -> float:
        """Bytes of a number in the KV cache by default: what the checkpoint asks for, else as it computes."""
        asked = self.quantisation.kv_cache_bytes if self.quantisation else None
        return asked or COMPUTE_BYTES

    def kv_bytes_per_token(
        self, kind: LayerKind | None = None, *, dtype_bytes: float | None = None, tensor: int = 1
    ) -> float | None:
        """Return how many bytes one more token takes in the KV cache of one GPU; None if not known.

        Args:
            kind: only layers of this kind; all by default. Windows are not taken into account, states grow by 0.
            dtype_bytes: of a number in the cache, by default `kv_dtype_bytes`.
            tensor: number of GPUs that share each layer.
        """
        if self.caches is None:
            return None
        size = dtype_bytes or self.kv_dtype_bytes
        chosen = (cache for cache in self.caches if kind in (None, cache.kind))
        return sum(cache.storing_layers * cache.token_bytes(size, tensor=tensor) for cache in chosen)

    @property
    def output_head_bytes(self) -> int:
        """Bytes of the output head, which is the input embedding where both are one; 0 if it has none."""
        if self.weights is None:
            return 0
        return self.weights.bytes_of(Part.EMBEDDING if self.tied else Part.OUTPUT_HEAD)
