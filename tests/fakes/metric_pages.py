"""Pages of metrics for tests, and the tests' own reading of them, which shares nothing with the product."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "metrics"
RECORDED = sorted(path.name for path in DATA.glob("*.txt"))

LINE = re.compile(r"^([\w:]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')

RATES = (
    "generation_tokens_per_s",
    "prompt_tokens_per_s",
    "acceptance_rate",
    "mean_acceptance_length",
    "acceptance_per_position",
    "ttft_p50_s",
    "ttft_p95_s",
    "itl_p50_s",
    "itl_p95_s",
    "steps_per_s",
)
GAUGES = ("kv_cache_usage_ratio", "requests_running", "requests_waiting")
KEYS = [
    *("t", "interval_s", "state", "generation_tokens_per_s", "prompt_tokens_per_s", "acceptance_rate"),
    *("mean_acceptance_length", "acceptance_per_position", "ttft_p50_s", "ttft_p95_s", "itl_p50_s"),
    *("itl_p95_s", "kv_cache_usage_ratio", "requests_running", "requests_waiting", "steps_per_s"),
]

COUNTERS = {
    "generation": "vllm:generation_tokens_total",
    "prompt": "vllm:prompt_tokens_total",
    "steps": "vllm:iteration_tokens_total_count",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}
POSITIONS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
TTFT = "vllm:time_to_first_token_seconds_bucket"
ITL = "vllm:inter_token_latency_seconds_bucket"
OLD_ITL = "vllm:time_per_output_token_seconds_bucket"

# How pages of older versions differ from those of 0.32 in what is read (new -> old).
OLDER = {
    "0.8.5": {
        "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
        "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
        "vllm:prefix_cache_": "vllm:gpu_prefix_cache_",
    },
    "0.10.1": {"vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds"},
    "0.12.0": {},
}
# Names that these versions do not have.
TOO_NEW = re.compile(
    r"^.*vllm:(estimated_\w+|num_requests_waiting_by_reason|prompt_tokens_(by_source|cached)\w*"
    r"|admission_rejections\w*|request_num_preemptions\w*).*\n",
    re.MULTILINE,
)


def recorded(name: str) -> str:
    """A page that a real engine gave."""
    return (DATA / name).read_text(encoding="utf-8")


def older(page: str, version: str) -> str:
    """A page of 0.32 as an older version would have written it."""
    page = TOO_NEW.sub("", page)
    for new, old in OLDER[version].items():
        page = page.replace(new, old)
    return page


def both_names(page: str) -> str:
    """A page as 0.10.2 to 0.11.2 write it: the old names beside the new ones, with other values."""
    extra = [
        line.replace("vllm:inter_token", "vllm:time_per_output_token").replace("vllm:kv_", "vllm:gpu_")
        for line in page.splitlines()
        if line.startswith(("vllm:inter_token_latency_seconds", "vllm:kv_cache_usage_perc"))
    ]
    return page + "\n".join(re.sub(r" \S+$", " 77777.0", line) for line in extra) + "\n"


def grown(page: str, factor: int = 1) -> str:
    """The page with every counter that matters grown, each series by another amount."""
    seen: defaultdict[str, int] = defaultdict(int)

    def grow(match: re.Match[str]) -> str:
        name, labels, value = match.groups()
        if name in (TTFT, ITL, OLD_ITL):
            group = re.sub(r'le="[^"]*",?', "", labels)
            seen[name + group] += 1  # cumulative: each bound counts one more than the one before it
            amount = seen[name + group]
        elif name in COUNTERS.values() or name == POSITIONS:
            seen["counters"] += 1
            amount = 7 + 3 * seen["counters"]
        else:
            return match.group(0)
        return f"{name}{{{labels}}} {float(value) + amount * factor}"

    return LINE.sub(grow, page)


def with_gauges(page: str, **values: float) -> str:
    """The page with gauges set: keyword `kv_cache_usage_perc_1` sets that gauge of engine 1."""
    for key, value in values.items():
        name, _, engine = key.rpartition("_")
        page, n = re.subn(rf'^(vllm:{name}\{{.*engine="{engine}".*\}}) \S+$', rf"\1 {value}", page, flags=re.M)
        assert n == 1, key
    return page


def series(page: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Every series of one sample name."""
    return {
        tuple(sorted(LABEL.findall(labels or ""))): float(value)
        for each, labels, value in LINE.findall(page)
        if each == name
    }


def own_quantile(q: float, cumulative: dict[float, float]) -> float | None:
    """The quantile by walking along the buckets."""
    total = cumulative.get(math.inf, 0.0)
    if not total:
        return None
    wanted, low, below = q * total, 0.0, 0.0
    for bound in sorted(cumulative):
        if bound == math.inf:
            return low
        if cumulative[bound] >= wanted:
            return low + (bound - low) * (wanted - below) / (cumulative[bound] - below)
        low, below = bound, cumulative[bound]
    raise AssertionError("no +Inf")


def expected(before: str, after: str, seconds: float) -> dict[str, Any]:
    """What a line must say between two pages of one engine that did not restart."""
    total = {
        key: sum(series(after, name).values()) - sum(series(before, name).values()) for key, name in COUNTERS.items()
    }
    speculates = bool(series(after, COUNTERS["drafts"]))
    positions: defaultdict[int, float] = defaultdict(float)
    for sign, page in ((1, after), (-1, before)):
        for labels, value in series(page, POSITIONS).items():
            positions[int(dict(labels)["position"])] += sign * value
    quantiles = {}
    for short, names in (("ttft", (TTFT,)), ("itl", (ITL, OLD_ITL))):
        name = next(name for name in names if series(after, name))
        buckets: defaultdict[float, float] = defaultdict(float)
        for sign, page in ((1, after), (-1, before)):
            for labels, value in series(page, name).items():
                buckets[float(dict(labels)["le"])] += sign * value
        for percent in (50, 95):
            quantiles[f"{short}_p{percent}_s"] = own_quantile(percent / 100, buckets)
    counting = speculates and total["drafts"] > 0
    return {
        "generation_tokens_per_s": total["generation"] / seconds,
        "prompt_tokens_per_s": total["prompt"] / seconds,
        "steps_per_s": total["steps"] / seconds,
        "acceptance_rate": total["accepted"] / total["drafted"] if counting else None,
        "mean_acceptance_length": 1 + total["accepted"] / total["drafts"] if counting else None,
        "acceptance_per_position": [positions[at] / total["drafts"] for at in sorted(positions)] if counting else None,
        **quantiles,
        **gauges(after),
    }


def gauges(page: str) -> dict[str, float]:
    """What a line must say about a single page."""
    usage = list(series(page, "vllm:kv_cache_usage_perc").values()) or list(
        series(page, "vllm:gpu_cache_usage_perc").values()
    )
    return {
        "kv_cache_usage_ratio": sum(usage) / len(usage),
        "requests_running": sum(series(page, "vllm:num_requests_running").values()),
        "requests_waiting": sum(series(page, "vllm:num_requests_waiting").values()),
    }


def small_page(*, per_engine: Mapping[str, Mapping[str, float]], positions: int = 2, start: float = 1.0e9) -> str:
    """A page written from scratch: for each engine the values of COUNTERS, and "p0", "p1", and "running".

    Latencies: every engine has buckets 0.1, 1 and +Inf with the values "b0", "b1" and "b2", for both metrics.
    """
    lines = [f"process_start_time_seconds {start}"]
    for engine, values in per_engine.items():
        labels = f'engine="{engine}",model_name="m"'
        for key, name in COUNTERS.items():
            if key in values:
                lines.append(f"{name}{{{labels}}} {values[key]}")
        for at in range(positions):
            if f"p{at}" in values:
                lines.append(f'{POSITIONS}{{{labels},position="{at}"}} {values[f"p{at}"]}')
        for name in (TTFT, ITL):
            for number, bound in enumerate(("0.1", "1.0", "+Inf")):
                lines.append(f'{name}{{{labels},le="{bound}"}} {values.get(f"b{number}", 0.0)}')
        lines.append(f"vllm:num_requests_running{{{labels}}} {values.get('running', 0.0)}")
        lines.append(f"vllm:num_requests_waiting{{{labels}}} {values.get('waiting', 0.0)}")
        lines.append(f"vllm:kv_cache_usage_perc{{{labels}}} {values.get('usage', 0.0)}")
    return "\n".join(lines) + "\n"
