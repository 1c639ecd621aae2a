"""An engine's `/metrics` page -> one typed reading, whatever version of vLLM wrote it."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

# Pages are 50 kB for one engine and grow by 35 kB for each further one; a line is 150 characters.
_PAGE_LIMIT_CHARS = 32_000_000
_LINE_LIMIT_CHARS = 10_000
# No engine counts that far; beyond it sums over engines would overflow.
_VALUE_LIMIT = 1e300

Labels = tuple[tuple[str, str], ...]


class Metric(StrEnum):
    """What is read from a page, by the meaning that all versions share."""

    GENERATION_TOKENS = "generation_tokens"
    PROMPT_TOKENS = "prompt_tokens"
    STEPS = "steps"
    DRAFTS = "drafts"
    DRAFT_TOKENS = "draft_tokens"
    ACCEPTED_TOKENS = "accepted_tokens"
    ACCEPTED_AT_POSITION = "accepted_at_position"
    TTFT_BUCKETS = "ttft_buckets"
    ITL_BUCKETS = "itl_buckets"
    PREFIX_CACHE_QUERIES = "prefix_cache_queries"
    PREFIX_CACHE_HITS = "prefix_cache_hits"
    PREEMPTIONS = "preemptions"
    ESTIMATED_FLOPS = "estimated_flops"
    ESTIMATED_READ_BYTES = "estimated_read_bytes"
    ESTIMATED_WRITE_BYTES = "estimated_write_bytes"
    KV_CACHE_USAGE = "kv_cache_usage"
    REQUESTS_RUNNING = "requests_running"
    REQUESTS_WAITING = "requests_waiting"
    WAITING_BY_REASON = "waiting_by_reason"
    CACHE_CONFIG = "cache_config"
    PROCESS_START = "process_start"


def _counter(*names: str) -> tuple[str, ...]:
    """Wire names of a counter: vLLM's end in `_total`, servers that imitate it may leave that out."""
    return tuple(f"vllm:{name}{ending}" for name in names for ending in ("_total", ""))


# Names on the wire, newest first. Versions that carry two names at once say the same thing twice, so exactly
# one is used. `_created` samples are times, not counts, and match no name here.
ALIASES: Mapping[Metric, tuple[str, ...]] = {
    Metric.GENERATION_TOKENS: _counter("generation_tokens"),
    Metric.PROMPT_TOKENS: _counter("prompt_tokens"),
    # A histogram of tokens per engine step, whose own name ends in "_total": its count is the steps.
    Metric.STEPS: ("vllm:iteration_tokens_total_count",),
    Metric.DRAFTS: _counter("spec_decode_num_drafts"),
    Metric.DRAFT_TOKENS: _counter("spec_decode_num_draft_tokens"),
    Metric.ACCEPTED_TOKENS: _counter("spec_decode_num_accepted_tokens"),
    Metric.ACCEPTED_AT_POSITION: _counter("spec_decode_num_accepted_tokens_per_pos"),
    Metric.TTFT_BUCKETS: ("vllm:time_to_first_token_seconds_bucket",),
    # The new name came with 0.10.2, the old one went with 0.15.0.
    Metric.ITL_BUCKETS: (
        "vllm:inter_token_latency_seconds_bucket",
        "vllm:time_per_output_token_seconds_bucket",
    ),
    # The "gpu_" names were replaced in 0.9.2 and went with 0.12.0.
    Metric.PREFIX_CACHE_QUERIES: _counter("prefix_cache_queries", "gpu_prefix_cache_queries"),
    Metric.PREFIX_CACHE_HITS: _counter("prefix_cache_hits", "gpu_prefix_cache_hits"),
    Metric.PREEMPTIONS: _counter("num_preemptions"),
    Metric.ESTIMATED_FLOPS: _counter("estimated_flops_per_gpu"),
    Metric.ESTIMATED_READ_BYTES: _counter("estimated_read_bytes_per_gpu"),
    Metric.ESTIMATED_WRITE_BYTES: _counter("estimated_write_bytes_per_gpu"),
    Metric.KV_CACHE_USAGE: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    Metric.REQUESTS_RUNNING: ("vllm:num_requests_running",),
    Metric.REQUESTS_WAITING: ("vllm:num_requests_waiting",),
    Metric.WAITING_BY_REASON: ("vllm:num_requests_waiting_by_reason",),
    # Always 1; what it tells stands in its labels.
    Metric.CACHE_CONFIG: ("vllm:cache_config_info",),
    Metric.PROCESS_START: ("process_start_time_seconds",),
}

_GAUGES = frozenset(
    {
        Metric.KV_CACHE_USAGE,
        Metric.REQUESTS_RUNNING,
        Metric.REQUESTS_WAITING,
        Metric.WAITING_BY_REASON,
        Metric.CACHE_CONFIG,
        Metric.PROCESS_START,
    }
)
_SPECULATION = (Metric.DRAFTS, Metric.DRAFT_TOKENS, Metric.ACCEPTED_TOKENS)

_WANTED_LINES = re.compile(
    r"^[ \t]*(?:" + "|".join(re.escape(name) for names in ALIASES.values() for name in names) + r")[ \t{].*",
    re.MULTILINE,
)
_WHOLE_SAMPLE = re.compile(
    r"[\w:]+[ \t]*(?:\{.*\}[ \t]*|[ \t])(?P<value>[+-]?\d*\.?\d+(?:e[+-]?\d+)?|[+-]?inf|nan)"
    r"(?:[ \t]+-?\d+)?",
    re.IGNORECASE,
)
# Name and labels, then a number and nothing else: how every engine writes nearly every line.
_PLAIN_SAMPLE = re.compile(r"(?P<series>[^#\s{][^\s{]*(?:\{.*\})?)[ \t]+(?P<value>[-+0-9.eE]{1,32})[ \t\r]*")
_WHOLE_NUMBER_AT_LINE_END = re.compile(r"[ \t]\d+\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Series:
    """All series of one metric.

    Attributes:
        name: the sample name that the page used.
        values: one finite value >= 0 for each set of labels (sorted pairs, `engine` and the like).
    """

    name: str
    values: Mapping[Labels, float]


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One `/metrics` page; a metric that the page lacks or spoils is absent or None.

    Attributes:
        counters: counters and cumulative histogram buckets (with their `le` label), one value per series, so
            that growth can be taken per series.
        engines: values of the label `engine`; "" for a page without that label.
        speculates: whether the page has counters of speculative decoding; they exist from the engine's start
            when it speculates and not at all otherwise.
        process_start_s: start of the API server, Unix time in seconds.
        kv_cache_usage_ratio: mean over engines, 0..1.
        kv_cache_tokens: tokens for which one engine has room, the mean over engines.
        requests_running: sum over engines; `requests_waiting` and `waiting_by_reason` likewise.
    """

    counters: Mapping[Metric, Series]
    engines: frozenset[str]
    speculates: bool
    process_start_s: float | None
    kv_cache_usage_ratio: float | None
    requests_running: float | None
    requests_waiting: float | None
    waiting_by_reason: Mapping[str, float]
    kv_cache_tokens: float | None = None


def parse(page: str) -> EngineReading | None:
    """Read a page of metrics.

    Args:
        page: Prometheus text format.

    Returns:
        The reading, or None for a page that cannot be trusted or says nothing about an engine: empty, not
        metrics at all, cut off in the middle of a line, a needed line that is no sample, absurdly long.
    """
    if len(page) > _PAGE_LIMIT_CHARS or _is_cut_off(page):
        return None
    # The library's parser takes 11 ms for a whole page of 650 lines and 2.6 ms for the 80 that matter, so it reads
    # the names and labels of each series once; after that only the values are new.
    lines = _WANTED_LINES.findall(page)
    if any(len(line) > _LINE_LIMIT_CHARS for line in lines):
        return None
    found: dict[str, dict[Labels, float]] = {}
    try:
        for line in lines:
            for sample, labels, value in _samples(line):
                found.setdefault(sample, {})[labels] = value
    except (ValueError, OverflowError, IndexError, KeyError):  # what the parser raises on broken lines
        return None
    present = {
        metric: name
        for metric, names in ALIASES.items()
        if (name := next((name for name in names if name in found), None)) is not None
    }
    if not present.keys() - {Metric.PROCESS_START}:
        return None
    # NaN, an infinity or a negative value of one engine would spoil a sum, so the metric is unknown then.
    series = {
        metric: Series(name, found[name])
        for metric, name in present.items()
        if all(0 <= value < _VALUE_LIMIT for value in found[name].values())
    }
    return EngineReading(
        counters={metric: each for metric, each in series.items() if metric not in _GAUGES},
        engines=frozenset(
            dict(labels).get("engine", "")
            for metric, name in present.items()
            if metric is not Metric.PROCESS_START
            for labels in found[name]
        ),
        speculates=any(metric in present for metric in _SPECULATION),
        process_start_s=_largest(series.get(Metric.PROCESS_START)),
        kv_cache_usage_ratio=_mean(_by_engine(series.get(Metric.KV_CACHE_USAGE)).values()),
        requests_running=_sum(_by_engine(series.get(Metric.REQUESTS_RUNNING)).values()),
        requests_waiting=_sum(_by_engine(series.get(Metric.REQUESTS_WAITING)).values()),
        waiting_by_reason=_waiting_by_reason(series.get(Metric.WAITING_BY_REASON)),
        kv_cache_tokens=_cache_tokens(series.get(Metric.CACHE_CONFIG)),
    )


def _samples(line: str) -> Iterator[tuple[str, Labels, float]]:
    """Parse one line; no sample for a comment."""
    plain = _PLAIN_SAMPLE.fullmatch(line)
    if plain is None:  # a timestamp behind the value, or no sample at all: the library knows
        yield from _parsed(line)
        return
    name, labels = _series(plain["series"])
    yield name, labels, float(plain["value"])


@lru_cache(maxsize=4096)
def _series(text: str) -> tuple[str, Labels]:
    """Name and labels of a series as a page writes it; raises what the library raises."""
    ((name, labels, _),) = _parsed(f"{text} 0")
    return name, labels


def _parsed(line: str) -> Iterator[tuple[str, Labels, float]]:
    for family in text_string_to_metric_families(line):
        for sample in family.samples:
            yield sample.name, tuple(sorted(sample.labels.items())), float(sample.value)


def _is_cut_off(page: str) -> bool:
    """Whether a page stops in the middle of a line.

    The format wants a line feed at the end. Some writers leave it out, so a last line that is a whole sample is
    good too, except for a whole number on a page that writes all its numbers as floats ("12" of "1234.0").
    """
    before, _, last = page.rpartition("\n")
    last = last.strip()
    if not last or last == "# EOF":
        return False
    sample = _WHOLE_SAMPLE.fullmatch(last)
    if sample is None:
        return True
    return sample["value"].isdecimal() and ".0\n" in page and _WHOLE_NUMBER_AT_LINE_END.search(before) is None


def _by_engine(series: Series | None) -> dict[Labels, float]:
    """Gauges without the label `pid`.

    Several API servers each write one, and all but one stay near zero: the largest is the truth.
    """
    largest: dict[Labels, float] = {}
    for labels, value in series.values.items() if series else ():
        key = tuple(pair for pair in labels if pair[0] != "pid")
        largest[key] = max(value, largest.get(key, 0.0))
    return largest


def _waiting_by_reason(series: Series | None) -> dict[str, float]:
    reasons: dict[str, float] = {}
    for labels, value in _by_engine(series).items():
        reason = dict(labels).get("reason", "")
        reasons[reason] = reasons.get(reason, 0.0) + value
    return reasons


def _cache_tokens(series: Series | None) -> float | None:
    """Room of one engine in tokens; older versions tell it in blocks only. None unless all engines tell."""
    rooms = []
    for labels in series.values if series else ():
        told = dict(labels)
        tokens = told.get("kv_cache_size_tokens", "")
        blocks, block = told.get("num_gpu_blocks", ""), told.get("block_size", "")
        if tokens.isdecimal():
            rooms.append(float(tokens))
        elif blocks.isdecimal() and block.isdecimal():
            rooms.append(float(blocks) * float(block))
        else:
            return None
    return _mean(rooms)


def _largest(series: Series | None) -> float | None:
    return max(series.values.values(), default=None) if series else None


def _sum(values: Iterable[float]) -> float | None:
    known = list(values)
    return math.fsum(known) if known else None


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return math.fsum(known) / len(known) if known else None
