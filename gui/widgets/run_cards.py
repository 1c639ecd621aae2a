"""The six cards of the run page: which figures they show, and what they say where there is none."""

from collections.abc import Callable, Sequence

from backend.events import RunState, Speculation
from gui.widgets import figures
from gui.widgets.card import Card, Moment
from gui.widgets.chart_card import CardView, ChartCard, PositionCard, Series

NO_ENGINE = "No engine is running. Press Start."
_COUNTERS = "counters"
_HISTOGRAM = "histogram"
_PSUTIL = "psutil"


def engine_words(moment: Moment) -> str:
    """Say why there is no figure of the engine; "" when the newest reading has rates."""
    match moment.state:
        case RunState.STOPPED | RunState.FAILED:
            return NO_ENGINE
        case RunState.STOPPING:
            return "The engine is stopping."
        case RunState.PREFLIGHT | RunState.STARTING:
            return "The engine is starting."
    sample = moment.sample
    if sample is None:
        return "Waiting for the first reading"
    if moment.state is RunState.UNRESPONSIVE or sample.state is not RunState.READY:
        return "The engine did not answer in time."
    return "Waiting for the second reading" if sample.interval_s is None else ""


def speculation_words(moment: Moment) -> str:
    """Say why nothing is known of the drafts; "" while they are counted."""
    sample = moment.sample
    if sample is not None and sample.speculation is Speculation.OFF:
        return "Speculation is off in this profile"
    if words := engine_words(moment):
        return words
    assert sample is not None
    if sample.speculation is Speculation.IDLE:
        interval = "second" if 0.75 <= moment.interval_s < 1.5 else f"{round(moment.interval_s, 1):g} s"
        return f"No drafts in the last {interval}"
    return "" if sample.speculation is Speculation.COUNTING else "This engine does not tell about its drafts"


def all_cards(positions: Callable[[], Sequence[str]]) -> tuple[Card, ...]:
    """Make the six cards in their usual order; `positions` names the series of acceptance by position."""
    return (
        ChartCard("tokens", "Tokens per second", [_tokens()]),
        ChartCard("acceptance", "Draft acceptance", [_acceptance()]),
        PositionCard("positions", "Acceptance by position", positions, _position_words),
        ChartCard("latency", "Latency", [_latency("ttft", "TTFT"), _latency("itl", "ITL")]),
        ChartCard("cache", "KV cache and requests", [_cache(), _requests()]),
        ChartCard("host", "Host", [_host()]),
    )


def _times(factor: float) -> Callable[[Moment], float]:
    return lambda _: factor


def _percent(value: float | None) -> str:
    return figures.percent(None if value is None else value / 100, 1)


def _bare(ratio: float | None, decimals: int = 0) -> str:
    """Return a percentage without its sign, which stands with the words beside the big figure."""
    return figures.percent(ratio, decimals).removesuffix(" %")


def _tokens() -> CardView:
    def figure(moment: Moment) -> tuple[str, str]:
        value = moment.newest("generation_tokens_per_s")
        unknown = engine_words(moment) or "The engine does not count tokens"
        return figures.rate(value), unknown if value is None else "tokens/s generated"

    return CardView(
        label="Tokens",
        tip="tokens per second",
        source=_COUNTERS,
        series=(
            Series("generation_tokens_per_s", "generated", 0, _times(1), figures.rate, fill=True),
            Series("prompt_tokens_per_s", "prompt", 1, _times(1), figures.rate),
        ),
        figure=figure,
        least_limit=10.0,
    )


def _acceptance() -> CardView:
    def figure(moment: Moment) -> tuple[str, str]:
        ratio, length = moment.newest("acceptance_rate"), moment.newest("mean_acceptance_length")
        if ratio is None:
            return figures.UNKNOWN, speculation_words(moment)
        return _bare(ratio, 1), "%" if length is None else f"%, {figures.number(length, 2)} tokens per step"

    return CardView(
        label="Acceptance",
        tip="accepted draft tokens over all draft tokens",
        source=_COUNTERS,
        series=(Series("acceptance_rate", "accepted / drafted", 2, _times(100), _percent, fill=True),),
        figure=figure,
        limit=100.0,
    )


def _position_words(moment: Moment) -> str:
    return speculation_words(moment) or f"No drafts in the last {figures.span(moment.span_s)}"


def _latency(which: str, label: str) -> CardView:
    first = which == "ttft"
    words = "ms to first token, p50" if first else "ms between tokens, p50"
    tip = "time to first token" if first else "time between tokens; with speculation, between bursts of tokens"
    nothing = "No first token" if first else "No tokens"

    def figure(moment: Moment) -> tuple[str, str]:
        if known := moment.last_known(f"{which}_p50_s"):
            t, value = known
            is_new = moment.newest(f"{which}_p50_s") is not None
            return figures.rate(value * 1000), words if is_new else f"{words}, {figures.ago(moment.now - t)}"
        return figures.UNKNOWN, engine_words(moment) or f"{nothing} in the last {figures.span(moment.span_s)}"

    return CardView(
        label=label,
        tip=tip,
        source=_HISTOGRAM,
        series=(
            Series(f"{which}_p50_s", "p50", 0, _times(1000), figures.rate, holds=True),
            Series(f"{which}_p95_s", "p95", 4, _times(1000), figures.rate, holds=True),
        ),
        figure=figure,
        least_limit=10.0,
    )


def _requests_words(moment: Moment) -> str:
    running, waiting = moment.newest("requests_running"), moment.newest("requests_waiting")
    return f"{figures.number(running)} running, {figures.number(waiting)} waiting"


def _cache() -> CardView:
    def figure(moment: Moment) -> tuple[str, str]:
        ratio = moment.newest("kv_cache_usage_ratio")
        if ratio is None:
            return figures.UNKNOWN, engine_words(moment) or "This engine does not tell its cache use"
        return _bare(ratio, 1), f"%, {_requests_words(moment)}"

    return CardView(
        label="Cache",
        tip="share of the KV cache in use",
        source=_COUNTERS,
        series=(Series("kv_cache_usage_ratio", "in use", 3, _times(100), _percent, fill=True),),
        figure=figure,
        least_limit=10.0,
        most_limit=100.0,
    )


def _requests() -> CardView:
    def figure(moment: Moment) -> tuple[str, str]:
        running, waiting = moment.newest("requests_running"), moment.newest("requests_waiting")
        if running is None:
            return figures.UNKNOWN, engine_words(moment) or "This engine does not tell its requests"
        return figures.number(running), f"running, {figures.number(waiting)} waiting"

    return CardView(
        label="Requests",
        tip="requests that run and that wait",
        source=_COUNTERS,
        series=(
            Series("requests_running", "running", 0, _times(1), figures.number, fill=True),
            Series("requests_waiting", "waiting", 1, _times(1), figures.number),
        ),
        figure=figure,
        least_limit=4.0,
    )


def _host() -> CardView:
    def figure(moment: Moment) -> tuple[str, str]:
        host = moment.host
        if host is None:
            return figures.UNKNOWN, "Waiting for the first reading"
        total = figures.gib(host.memory_total_bytes)
        used = figures.gib(host.memory_used_bytes).removesuffix(" GiB")
        return _bare(host.cpu_ratio), f"% CPU, memory {used} of {total}"

    def memory_scale(moment: Moment) -> float:
        return 100 / moment.host.memory_total_bytes if moment.host and moment.host.memory_total_bytes else float("nan")

    return CardView(
        label="Host",
        tip="CPU and memory of this machine",
        source=_PSUTIL,
        series=(
            Series("cpu_ratio", "CPU", 0, _times(100), _percent, fill=True),
            Series("memory_used_bytes", "memory", 1, memory_scale, _percent),
        ),
        figure=figure,
        limit=100.0,
    )
