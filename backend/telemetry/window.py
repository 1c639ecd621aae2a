"""Two readings of an engine -> what happened between them: rates, acceptance and quantiles."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.events import Speculation
from backend.telemetry.engine_metrics import EngineReading, Labels, Metric


@dataclass(frozen=True, slots=True)
class Rates:
    """What an engine did between two readings; None is "unknown" or "nothing to measure", never zero.

    Attributes:
        interval_s: time between the two readings in seconds.
        generation_tokens_per_s: over all engines; `prompt_tokens_per_s` and `steps_per_s` likewise.
        acceptance_rate: accepted / drafted tokens, 0..1.
        mean_acceptance_length: 1 + accepted tokens / drafts.
        acceptance_per_position: accepted tokens at each position / drafts.
        drafts: how many there were, and `draft_tokens` how many tokens they had.
        ttft_count: requests that got their first token in the window.
        ttft_p50_s: median time to first token of the requests that got one in the window, and so on.
        steps_per_s_by_engine: steps per second for each value of the label `engine`.
        estimated_bytes_per_s: memory traffic of one GPU by the engine's own estimate, read and written, for each
            value of the label `engine`; empty where the engine does not estimate. `estimated_flops_per_s` likewise.
        prefix_cache_hit_ratio: cached / queried prompt tokens, 0..1.
        speculation: OFF without counters of it, IDLE when they stood still, COUNTING when they moved.
    """

    interval_s: float
    generation_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    acceptance_rate: float | None = None
    mean_acceptance_length: float | None = None
    acceptance_per_position: tuple[float, ...] | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    ttft_count: float | None = None
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    itl_p50_s: float | None = None
    itl_p95_s: float | None = None
    steps_per_s: float | None = None
    steps_per_s_by_engine: Mapping[str, float] = field(default_factory=dict)
    estimated_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    estimated_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    prefix_cache_hit_ratio: float | None = None
    speculation: Speculation | None = None


def rates(previous: EngineReading, current: EngineReading, *, seconds: float) -> Rates | None:
    """Compare two readings of one engine.

    Args:
        previous: the older reading.
        current: the newer reading.
        seconds: time between the two, > 0.

    Returns:
        The rates, or None when the engine restarted in between: any counter of any engine fell, the server's
        start time changed, or the set of engines did. The next interval counts from `current`.
    """
    if seconds <= 0 or restarted(previous, current):
        return None
    growth = {metric: _growth(previous, current, metric) for metric in current.counters}
    total = {metric: _total(each) for metric, each in growth.items()}
    drafts = total.get(Metric.DRAFTS)
    steps = growth.get(Metric.STEPS)
    ttft = _buckets(growth.get(Metric.TTFT_BUCKETS))
    itl = _buckets(growth.get(Metric.ITL_BUCKETS))
    accepted_per_draft = _ratio(total.get(Metric.ACCEPTED_TOKENS), drafts)
    return Rates(
        interval_s=seconds,
        generation_tokens_per_s=_ratio(total.get(Metric.GENERATION_TOKENS), seconds),
        prompt_tokens_per_s=_ratio(total.get(Metric.PROMPT_TOKENS), seconds),
        acceptance_rate=_ratio(total.get(Metric.ACCEPTED_TOKENS), total.get(Metric.DRAFT_TOKENS)),
        mean_acceptance_length=None if accepted_per_draft is None else 1 + accepted_per_draft,
        acceptance_per_position=_per_position(growth.get(Metric.ACCEPTED_AT_POSITION), drafts),
        drafts=drafts,
        draft_tokens=total.get(Metric.DRAFT_TOKENS),
        ttft_count=ttft.get(math.inf),
        ttft_p50_s=quantile(0.5, ttft),
        ttft_p95_s=quantile(0.95, ttft),
        itl_p50_s=quantile(0.5, itl),
        itl_p95_s=quantile(0.95, itl),
        steps_per_s=_ratio(total.get(Metric.STEPS), seconds),
        steps_per_s_by_engine={
            engine: value / seconds for engine, value in _sums_by_label(steps or {}, "engine").items()
        },
        estimated_bytes_per_s=_estimated(
            current, growth, (Metric.ESTIMATED_READ_BYTES, Metric.ESTIMATED_WRITE_BYTES), seconds
        ),
        estimated_flops_per_s=_estimated(current, growth, (Metric.ESTIMATED_FLOPS,), seconds),
        prefix_cache_hit_ratio=_ratio(total.get(Metric.PREFIX_CACHE_HITS), total.get(Metric.PREFIX_CACHE_QUERIES)),
        speculation=_speculation(current, total),
    )


def restarted(previous: EngineReading, current: EngineReading) -> bool:
    """Tell whether counters of `current` cannot be compared with those of `previous`."""
    if previous.engines != current.engines:
        return True
    starts = (previous.process_start_s, current.process_start_s)
    if None not in starts and starts[0] != starts[1]:
        return True
    return any(
        value < before.values.get(labels, 0.0)
        for metric, series in current.counters.items()
        if (before := previous.counters.get(metric)) is not None and before.name == series.name
        for labels, value in series.values.items()
    )


def quantile(q: float, buckets: Mapping[float, float]) -> float | None:
    """Estimate a quantile of a histogram as Prometheus' `histogram_quantile` does.

    Observations are taken as spread evenly inside a bucket; the lowest bucket starts at 0. A quantile in the
    last bucket is the highest finite bound. Counts that fall along the bounds, which a page read in the middle
    of an update can show, are lifted to the largest before them.

    Args:
        q: 0..1.
        buckets: cumulative count for each upper bound, with +Inf.

    Returns:
        The quantile in the unit of the bounds; None without observations, without +Inf or without another bound.
        https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
    """
    bounds = sorted(buckets)
    if len(bounds) < 2 or bounds[-1] != math.inf:
        return None
    counts: list[float] = []
    for bound in bounds:
        counts.append(max(buckets[bound], counts[-1] if counts else 0.0))
    if counts[-1] <= 0:
        return None
    rank = q * counts[-1]
    index = next(index for index, count in enumerate(counts) if count >= rank)
    if index == len(bounds) - 1:
        return bounds[-2]
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    start, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    inside = counts[index] - below
    # Only an empty first bucket with q = 0 has nothing inside.
    return start + (bounds[index] - start) * ((rank - below) / inside) if inside else start


def _growth(previous: EngineReading, current: EngineReading, metric: Metric) -> dict[Labels, float] | None:
    """Growth of each series, None when the two readings do not show the same series."""
    before, now = previous.counters.get(metric), current.counters[metric]
    if before is None or before.name != now.name or before.values.keys() != now.values.keys():
        return None
    return {labels: value - before.values[labels] for labels, value in now.values.items()}


def _total(growth: dict[Labels, float] | None) -> float | None:
    return None if growth is None else math.fsum(growth.values())


def _ratio(part: float | None, whole: float | None) -> float | None:
    if part is None or not whole:
        return None
    ratio = part / whole
    return ratio if math.isfinite(ratio) else None


def _sums_by_label(growth: Mapping[Labels, float], label: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for labels, value in growth.items():
        key = dict(labels).get(label, "")
        sums[key] = sums.get(key, 0.0) + value
    return sums


def _estimated(
    current: EngineReading,
    growth: Mapping[Metric, dict[Labels, float] | None],
    metrics: Sequence[Metric],
    seconds: float,
) -> dict[str, float]:
    """Rates by engine of counters that every vLLM shows and only fills with `--enable-mfu-metrics`: 0 says nothing."""
    rates: dict[str, float] = {}
    for metric in metrics:
        found = growth.get(metric)
        if found is None:
            return {}
        counted = _sums_by_label(current.counters[metric].values, "engine")
        for engine, value in _sums_by_label(found, "engine").items():
            if counted[engine] > 0:
                rates[engine] = rates.get(engine, 0.0) + value / seconds
    return rates


def _buckets(growth: dict[Labels, float] | None) -> dict[float, float]:
    """Cumulative growth for each bound, summed over engines; empty when a bound is no number."""
    buckets: dict[float, float] = {}
    try:
        for bound, value in _sums_by_label(growth or {}, "le").items():
            buckets[float(bound)] = buckets.get(float(bound), 0.0) + value
    except ValueError:
        return {}
    return {} if any(math.isnan(bound) for bound in buckets) else buckets


def _per_position(growth: dict[Labels, float] | None, drafts: float | None) -> tuple[float, ...] | None:
    """Acceptance at positions 0, 1, 2, ...; None unless all of them up to the last are there."""
    if not growth or not drafts:
        return None
    sums = _sums_by_label(growth, "position")
    positions = [str(number) for number in range(len(sums))]
    if sums.keys() != set(positions):
        return None
    return tuple(sums[position] / drafts for position in positions)


def _speculation(current: EngineReading, total: Mapping[Metric, float | None]) -> Speculation | None:
    if not current.speculates:
        return Speculation.OFF
    moved = [total.get(metric) for metric in (Metric.DRAFTS, Metric.DRAFT_TOKENS)]
    if any(moved):
        return Speculation.COUNTING
    return None if all(each is None for each in moved) else Speculation.IDLE
