"""Bytes that a GPU must read for one step of an engine, and the speed that its memory allows."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from backend.checkpoints.card import COMPUTE_BYTES, ModelCard
from backend.checkpoints.layer_kinds import LayerKind
from backend.checkpoints.weight_parts import Part, WeightPart

_FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_LOOKED_UP = (Part.EMBEDDING, Part.EXTRA_EMBEDDING)
_ON_EVERY_GPU = {Part.LATENT_PROJECTION, Part.ROUTER, Part.NORM, Part.DRAFT_PROJECTION}
# Not in a layer: looked up by row, read only for images and sound, or counted with the head.
_NOT_IN_LAYERS = {*_LOOKED_UP, Part.ENCODER, Part.OUTPUT_HEAD}


@dataclass(frozen=True, slots=True)
class Parallel:
    """How an engine is spread over GPUs.

    Attributes:
        tensor: GPUs that share each layer.
        pipeline: groups of GPUs that each hold some of the layers.
        data: engines beside each other, each with its own requests; routed experts are spread over all of them.
        expert: each GPU holds whole experts instead of a slice of each.
        decode_context: GPUs of `tensor` that share the KV cache by position.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    decode_context: int = 1


@dataclass(frozen=True, slots=True)
class StepBytes:
    """Bytes that one GPU reads for a step; None where the card does not tell."""

    weights_bytes: float | None
    kv_bytes: float | None

    @property
    def total_bytes(self) -> float | None:
        """Weights and KV cache together."""
        return _sum(self.weights_bytes, self.kv_bytes)


def bytes_per_step(
    card: ModelCard,
    parallel: Parallel,
    batch: float,
    context_tokens: float,
    *,
    query_tokens: float = 1,
    kv_dtype_bytes: float | None = None,
    dtype_bytes: float | None = None,
) -> StepBytes:
    """Return the bytes that one GPU, in a pipeline the busiest, must read for one forward step.

    Weights are read once in a step, whatever the batch: those of this GPU, without the input embedding (of which each
    token reads a row) but with the output head, also where both are one table. Linear layers, heads and vocabulary
    are divided by `tensor` as in vLLM; norms, routers and the down-projections of MLA are not, and key and value
    projections only down to one head. Of routed experts, those count that any token of the step uses: of E experts
    and k for each token, E(1 - (1 - k/E)^tokens) on average, if all are used alike. Activations are left out.

    Args:
        card: of the model. Layers that it brings along for drafting are left out.
        parallel: how it is spread.
        batch: sequences in the step, of one engine.
        context_tokens: tokens of each in the KV cache, as a mean. A layer with a window reads no more than that.
        query_tokens: tokens of each sequence that the step computes: 1, or 1 + drafts where it verifies.
        kv_dtype_bytes: size of a number in the KV cache, by default what the card says.
        dtype_bytes: size of the numbers that the engine computes with (`--dtype`), by default 2: weights stored as
            float32 are rounded when they are loaded. Quantised weights count as they are stored.
    """
    kv = _kv_of_sequence(card, parallel, context_tokens, kv_dtype_bytes or card.kv_dtype_bytes)
    shares = _stage_shares(card.layers, parallel.pipeline)
    if card.weights is None:
        return StepBytes(None, None if kv is None else batch * kv * max(shares))
    size = dtype_bytes or COMPUTE_BYTES
    tokens = batch * query_tokens
    parts = [part for part in card.weights.parts if not part.in_draft_head]
    in_layers = _read(card, (part for part in parts if part.part not in _NOT_IN_LAYERS), parallel, tokens, size)
    stages = [in_layers * share for share in shares]
    stages[0] += tokens * _row_bytes(card, size) / parallel.tensor
    stages[-1] += _head_bytes(card, parallel, size)
    weights, share = max(zip(stages, shares, strict=True))
    return StepBytes(weights, None if kv is None else batch * kv * share)


def bytes_per_decode(
    target: ModelCard,
    draft: ModelCard | None,
    parallel: Parallel,
    batch: float,
    context_tokens: float,
    draft_passes: float,
    *,
    draft_tokens: float | None = None,
    draft_parallel: Parallel | None = None,
    own_draft_head: bool = False,
    kv_dtype_bytes: float | None = None,
    dtype_bytes: float | None = None,
) -> StepBytes:
    """Return the bytes that one GPU must read for one decode step with drafts: all draft passes, and the check of them.

    Args:
        target: the model that checks.
        draft: the model or head that drafts; None for n-grams, or for a head of the target's own.
        parallel: how the target is spread.
        batch: sequences in the step.
        context_tokens: tokens of each in the KV cache.
        draft_passes: forward steps of the draft, a mean is fine; each reads its weights once.
        draft_tokens: tokens that the target checks for each sequence, by default one for each pass.
        draft_parallel: how the draft is spread, by default like the target.
        own_draft_head: the target drafts with the layers that it brings along (MTP).
        kv_dtype_bytes: size of a number in the KV cache of both.
        dtype_bytes: size of the numbers that the engine computes with.
    """
    drafted = draft_passes if draft_tokens is None else draft_tokens
    check = bytes_per_step(
        target, parallel, batch, context_tokens, query_tokens=1 + drafted, kv_dtype_bytes=kv_dtype_bytes,
        dtype_bytes=dtype_bytes,
    )  # fmt: skip
    spread = draft_parallel or parallel
    size = dtype_bytes or COMPUTE_BYTES
    if draft is not None:
        one = bytes_per_step(
            draft, spread, batch, context_tokens, kv_dtype_bytes=kv_dtype_bytes, dtype_bytes=dtype_bytes
        )
        if draft.draft_head and draft.draft_head.has_output_head is False and not draft.tied:
            one = replace(one, weights_bytes=_sum(one.weights_bytes, _head_bytes(target, spread, size)))
    elif own_draft_head:
        one = _own_head_step(target, spread, batch, context_tokens, kv_dtype_bytes or target.kv_dtype_bytes, size)
    else:
        return check
    return StepBytes(
        _sum(check.weights_bytes, _times(one.weights_bytes, draft_passes)),
        _sum(check.kv_bytes, _times(one.kv_bytes, draft_passes)),
    )


def step_floor_s(step_bytes: float, bytes_per_s: float) -> float:
    """Return the shortest time for a step in seconds: what it reads at the bandwidth of the memory."""
    return step_bytes / bytes_per_s


def decode_ceiling_tokens_per_s(weight_bytes: float, bytes_per_s: float) -> float:
    """Return the most tokens that one stream can get each second without drafts: each token reads all weights."""
    return bytes_per_s / weight_bytes


def _read(card: ModelCard, parts: Iterable[WeightPart], parallel: Parallel, tokens: float, size: float) -> float:
    return sum(_loaded(card, part, size) * _share(card, part.part, parallel, tokens) for part in parts)


def _share(card: ModelCard, part: Part, parallel: Parallel, tokens: float) -> float:
    """Return the share of a part that a GPU reads for a step of this many tokens."""
    if part in _ON_EVERY_GPU:
        return 1.0
    if part is Part.EXPERTS:
        return _expert_share(card, parallel, tokens)
    if part is Part.KV_PROJECTION and card.kv_heads:
        return max(1, -(-card.kv_heads // parallel.tensor)) / card.kv_heads
    return 1 / parallel.tensor


def _expert_share(card: ModelCard, parallel: Parallel, tokens: float) -> float:
    gpus = parallel.tensor * parallel.data
    experts = card.experts
    if experts is None or not experts.per_token:
        return 1 / gpus
    used: float = 1 - (1 - experts.per_token / experts.routed) ** (tokens * parallel.data)
    return used * (-(-experts.routed // gpus) / experts.routed if parallel.expert else 1 / gpus)


def _loaded(card: ModelCard, part: WeightPart, size: float) -> float:
    """Return a part's bytes once loaded: plain numbers get the engine's type, quantised ones do not."""
    stored = _FLOAT_BYTES.get(part.dtype)
    if stored is None or (card.quantisation and stored > COMPUTE_BYTES):
        return part.size_bytes
    return part.size_bytes * size / stored


def _head_bytes(card: ModelCard, parallel: Parallel, size: float) -> float:
    head = Part.EMBEDDING if card.tied else Part.OUTPUT_HEAD
    parts = card.weights.parts if card.weights else ()
    own = (part for part in parts if part.part is head and not part.in_draft_head)
    return sum(_loaded(card, part, size) for part in own) / parallel.tensor


def _row_bytes(card: ModelCard, size: float) -> float:
    """Return what one token reads of all tables that are only looked up."""
    if card.weights is None:
        return 0.0
    tables = [part for part in card.weights.parts if part.part in _LOOKED_UP and not part.in_draft_head]
    stored = sum(part.size_bytes for part in tables)
    return (
        card.weights.embedding_row_bytes * sum(_loaded(card, part, size) for part in tables) / stored if stored else 0
    )


def _stage_shares(layers: int | None, pipeline: int) -> list[float]:
    """Return each stage's share of the layers; as in vLLM, what is left over goes to stages before the last."""
    if not layers or layers < pipeline:
        return [1 / pipeline] * pipeline
    counts = [layers // pipeline] * pipeline
    for number in range(2, layers % pipeline + 2):
        counts[-number] += 1
    return [count / layers for count in counts]


def _kv_of_sequence(card: ModelCard, parallel: Parallel, context_tokens: float, dtype_bytes: float) -> float | None:
    """Return the bytes of the KV cache that a GPU reads for one sequence, in all layers."""
    if card.caches is None:
        return None
    total = 0.0
    for cache in card.caches:
        read = cache.bytes_read(context_tokens, dtype_bytes, tensor=parallel.tensor)
        if read is None:
            return None
        total += read if cache.kind is LayerKind.STATE else read / parallel.decode_context
    return total


def _own_head_step(
    card: ModelCard, parallel: Parallel, batch: float, context_tokens: float, kv_dtype_bytes: float, size: float
) -> StepBytes:
    """Return what one pass of a draft head reads that the model brings along: one of its layers, and an output head."""
    layers = (card.draft_head.layers if card.draft_head else None) or 1
    cache = next((one for one in card.caches or () if one.kind is LayerKind.FULL), None)
    one_layer = None
    if cache:
        one_layer = replace(cache, layers=1).bytes_read(context_tokens, kv_dtype_bytes, tensor=parallel.tensor)
    kv = None if one_layer is None else batch * one_layer / parallel.decode_context
    if card.weights is None or not card.weights.draft_head_bytes:
        return StepBytes(None, kv)
    parts = [part for part in card.weights.parts if part.in_draft_head and part.part not in _LOOKED_UP]
    weights = _read(card, parts, parallel, batch, size) / layers
    if not any(part.part is Part.OUTPUT_HEAD for part in parts):
        weights += _head_bytes(card, parallel, size)
    return StepBytes(weights, kv)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _times(value: float | None, count: float) -> float | None:
    return None if value is None else value * count
