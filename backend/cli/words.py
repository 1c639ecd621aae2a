"""Figures in the terminal: unknown is a dash, never zero."""

from backend.events import ChatUsage, Sample
from backend.launch.profile import Profile
from backend.telemetry.window import Rates

UNKNOWN = "\N{EN DASH}"


def figure(value: float | None, spec: str) -> str:
    """Format a figure, or the dash for an unknown one."""
    return UNKNOWN if value is None else format(value, spec)


def milliseconds(seconds: float | None) -> str:
    """Format seconds as milliseconds, without the unit."""
    return UNKNOWN if seconds is None else f"{seconds * 1000:,.1f}"


def live(sample: Sample) -> str:
    """One line of numbers about a running engine, over the last interval."""
    return (
        f"{sample.state:12} {figure(sample.generation_tokens_per_s, ',.1f')} tokens/s   "
        f"acceptance {figure(sample.acceptance_rate, '.0%')}   "
        f"length {figure(sample.mean_acceptance_length, '.2f')}   "
        f"KV cache {figure(sample.kv_cache_usage_ratio, '.0%')}   "
        f"running {figure(sample.requests_running, '.0f')}   "
        f"waiting {figure(sample.requests_waiting, '.0f')}"
    )


def chat(usage: ChatUsage, rates: Rates | None) -> str:
    """What one answer took, and what the engine's counters say of the same time."""
    words = (
        f"{figure(usage.completion_tokens, 'd')} tokens, {figure(usage.tokens_per_s, '.1f')} tokens/s, "
        f"first token after {figure(usage.ttft_s, '.2f')} s"
    )
    if rates is not None and rates.acceptance_rate is not None:
        positions = " ".join(f"{rate:.0%}" for rate in rates.acceptance_per_position or ())
        words += (
            f"\nDraft acceptance {rates.acceptance_rate:.0%}, mean length "
            f"{figure(rates.mean_acceptance_length, '.2f')} tokens per step, by position {positions}"
        )
    return words


def measured(profile: Profile) -> str:
    """Say what a shipped demo was measured to do, so that nobody expects more."""
    known = profile.measured
    assert known is not None
    return (
        f"{known.speed_ratio:.2g}x the speed without speculation, {known.acceptance_ratio:.0%} of the guesses accepted "
        f"(measured on a {known.on}). {known.note}"
    )
