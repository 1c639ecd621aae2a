"""The six cards of the run page: which figures they show, and what they say where there is none."""

from collections.abc import Callable, Sequence

import numpy as np

from backend.curves import EACH_S, RECENT_S
from backend.events import RunState, Speculation
from gui.widgets import figures, pooled_acceptance
from gui.widgets.card import Card, Moment
from gui.widgets.card_parts import Headline, Source
from gui.widgets.chart_card import CardView, ChartCard, PositionCard, Series
from gui.widgets.pooled_acceptance import Drafts

NO_ENGINE = "No engine is running. Press Start."
NOT_RECORDED = "Not recorded in this part of the run"
_COUNTERS = Source("engine counters", "From the engine's own counters")
_HISTOGRAM = Source("histogram", "From the engine's histograms, so estimated within the buckets of those")
_PSUTIL = Source("psutil", "Measured on this machine with psutil")
# With fewer requests in a reading, the slowest of 20 is not among them: p95 says little then.
_FEW_REQUESTS = 20
# Series that are needed reading by reading, besides the drafts.
PER_REQUEST = ("ttft_count",)


def engine_words(moment: Moment) -> str:
    """Say why there is no figure of the engine; "" when the newest reading has rates."""
    if moment.past is not None:
        return NOT_RECORDED
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
    """Say why nothing is known of the drafts; "" while they are counted, also when there are none."""
    if moment.past is not None:
        return NOT_RECORDED if moment.drafts(moment.span_s).count is None else ""
    sample = moment.sample
    if sample is not None and sample.speculation is Speculation.OFF:
        return "Speculation is off in this profile"
    if words := engine_words(moment):
        return words
    assert sample is not None
    return "This engine does not tell about its drafts" if sample.speculation is None else ""


def all_cards(positions: Callable[[], Sequence[str]]) -> tuple[Card, ...]:
    """Make the six cards in their usual order; `positions` names the series of acceptance by position."""
    return (
        ChartCard("tokens", "Tokens per second", [_generated(), _prompt()]),
        ChartCard("acceptance", "Draft acceptance", [_acceptance()]),
        PositionCard("positions", "Acceptance by position", positions, _position_words, _COUNTERS),
        ChartCard("latency", "Latency", [_latency("ttft", "TTFT"), _latency("itl", "ITL")]),
        cache_card(),
        host_card(),
    )


def cache_card() -> Card:
    """Make the card of the KV cache and the requests."""
    return ChartCard("cache", "KV cache and requests", [_cache(), _requests()])


def host_card() -> Card:
    """Make the card of the machine's processor and memory."""
    return ChartCard("host", "Host", [_host()], needs_engine=False)


def _times(factor: float) -> Callable[[Moment], float]:
    return lambda _: factor


def _percent(value: float | None) -> str:
    return figures.percent(None if value is None else value / 100, 1)


def _generated() -> CardView:
    def words(moment: Moment) -> tuple[str, str]:
        if moment.past is not None:
            return "tokens/s while generating", "tokens/s generating"
        prompt = figures.rate(moment.newest("prompt_tokens_per_s"))
        return f"tokens/s generated, {prompt} of prompts read", "tokens/s generated"

    return _tokens("generation_tokens_per_s", "Generated", 0, "tokens that were generated per second", words)


def _prompt() -> CardView:
    """Prompts come all at once: beside such peaks the line of what is generated would lie flat."""
    said = "prompt tokens/s read"
    return _tokens(
        "prompt_tokens_per_s", "Prompt", 1, "tokens of prompts that were read per second", lambda _moment: (said, said)
    )


def _tokens(name: str, label: str, colour: int, tip: str, words: Callable[[Moment], tuple[str, str]]) -> CardView:
    def figure(moment: Moment) -> Headline:
        value = moment.value(name)
        if value is None:
            return Headline(figures.UNKNOWN, engine_words(moment) or "The engine does not count these tokens")
        return Headline(figures.rate(value), *words(moment))

    return CardView(
        label=label,
        tip=tip,
        source=_COUNTERS,
        series=(Series(name, label.lower(), colour, _times(1), figures.rate, fill=True),),
        figure=figure,
        least_limit=10.0,
    )


def _acceptance() -> CardView:
    def figure(moment: Moment) -> Headline:
        recent = moment.drafts(RECENT_S)
        if words := speculation_words(moment):
            return Headline(figures.UNKNOWN, words)
        if recent.acceptance is None:
            return Headline(figures.UNKNOWN, _no_drafts(moment, recent))
        said = pooled_acceptance.words if moment.past is None else pooled_acceptance.count_words
        behind, length = said(recent), figures.number(recent.length, 2)
        return Headline(
            figures.percent(recent.acceptance, 1),
            f", {length} tokens per step, {behind}",
            f", {length} per step, {behind}",
        )

    return CardView(
        label="Acceptance",
        tip="accepted draft tokens over all draft tokens",
        source=_COUNTERS,
        series=(Series("recent_acceptance_rate", f"last {RECENT_S:.0f} s", 2, _times(100), _percent, fill=True),),
        figure=figure,
        limit=100.0,
        unit="%",
    )


def _position_words(moment: Moment, known: Drafts) -> str:
    return speculation_words(moment) or _no_drafts(moment, known)


def _no_drafts(moment: Moment, known: Drafts) -> str:
    last = "" if moment.past is not None else "the last "
    return f"No drafts in {last}{pooled_acceptance.span_words(known.over_s)}"


def _latency(which: str, label: str) -> CardView:
    first = which == "ttft"
    words = "ms to first token, p50" if first else "ms between tokens, p50"
    tip = "time to first token" if first else "time between tokens; with speculation, between bursts of tokens"
    nothing = "No first token" if first else "No tokens"

    def figure(moment: Moment) -> Headline:
        if moment.past is not None:
            mean = moment.value(f"{which}_p50_s")
            return (
                Headline(figures.UNKNOWN, NOT_RECORDED) if mean is None else Headline(figures.rate(mean * 1000), words)
            )
        if known := moment.last_known(f"{which}_p50_s"):
            t, value = known
            is_new = moment.newest(f"{which}_p50_s") is not None
            said = words if is_new else f"{words}, {figures.ago(moment.now - t)}"
            return Headline(figures.rate(value * 1000), said, note=_few_requests(moment, None) if first else "")
        unknown = engine_words(moment) or f"{nothing} in the last {figures.span(moment.span_s)}"
        return Headline(figures.UNKNOWN, unknown)

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
        caution=_few_requests if first else lambda _moment, _at: "",
    )


def _few_requests(moment: Moment, at: float | None) -> str:
    """Say so when few requests stand behind the times to first token, or nobody knows how many; "" when enough do.

    Args:
        moment: what is shown.
        at: the reading that is meant, in seconds before now (negative); None for the newest one with a first token.
    """
    if at is None and moment.past is not None:
        return ""  # a mean over many requests
    if at is None:
        last = moment.last_known("ttft_p50_s")
        when = last[0] if last else moment.now
    else:
        when = moment.now + at
    until = moment.now if moment.past is None else min(moment.now, when + EACH_S / 2)
    found = moment.read_each(PER_REQUEST, EACH_S, until)
    if when <= found.begin:
        return "How many requests are behind it is no longer known: p50 and p95 may rest on one"
    counted = np.flatnonzero(found.values[0] > 0)
    if not counted.size:
        return ""
    count = float(found.values[0, counted[np.argmin(np.abs(found.times[counted] - when))]])
    if count >= _FEW_REQUESTS:
        return ""
    requests = "1 request" if count == 1 else f"{figures.number(count)} requests"
    return f"Only {requests} in that reading: p50 and p95 stand somewhere in a bucket of the histogram"


def _requests_words(moment: Moment) -> str:
    running, waiting = moment.value("requests_running"), moment.value("requests_waiting")
    return f"{figures.number(running)} running, {figures.number(waiting)} waiting"


def _cache() -> CardView:
    def figure(moment: Moment) -> Headline:
        ratio = moment.value("kv_cache_usage_ratio")
        if ratio is None:
            return Headline(figures.UNKNOWN, engine_words(moment) or "This engine does not tell its cache use")
        return Headline(figures.percent(ratio, 1), f", {_requests_words(moment)}")

    return CardView(
        label="Cache",
        tip="share of the KV cache in use",
        source=_COUNTERS,
        series=(Series("kv_cache_usage_ratio", "in use", 3, _times(100), _percent, fill=True),),
        figure=figure,
        least_limit=2.0,
        most_limit=100.0,
        unit="%",
    )


def _requests() -> CardView:
    def figure(moment: Moment) -> Headline:
        running, waiting = moment.value("requests_running"), moment.value("requests_waiting")
        if running is None:
            return Headline(figures.UNKNOWN, engine_words(moment) or "This engine does not tell its requests")
        return Headline(figures.number(running), f"running, {figures.number(waiting)} waiting")

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
    def figure(moment: Moment) -> Headline:
        total = moment.value("memory_total_bytes")
        if total is None:
            waiting = "Waiting for the first reading" if moment.past is None else NOT_RECORDED
            return Headline(figures.UNKNOWN, waiting)
        used = figures.gib(moment.value("memory_used_bytes")).removesuffix(" GiB")
        return Headline(figures.percent(moment.value("cpu_ratio")), f"CPU, memory {used} of {figures.gib(total)}")

    def memory_scale(moment: Moment) -> float:
        return 100 / (moment.value("memory_total_bytes") or float("nan"))

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
        unit="%",
    )
