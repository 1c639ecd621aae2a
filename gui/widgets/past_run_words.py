"""What is said about a recorded run wherever it is named."""

import time

from backend.events import PastRun
from gui.widgets import figures


def title(run: PastRun) -> str:
    """Return what people call its profile."""
    return run.title or run.profile


def when(run: PastRun) -> str:
    """Return when it was started: "today 14:03"."""
    return figures.date(run.started_at, time.time())


def lasted_s(run: PastRun) -> float | None:
    """Return how long the engine served in seconds, None for a run that goes on or never got so far."""
    return None if run.ready_at is None or run.ended_at is None else max(run.ended_at - run.ready_at, 0.0)


def speed(run: PastRun) -> str:
    """Say how fast it was, in few words: "25.6 tokens/s, 77 % accepted"."""
    made = "no tokens" if run.tokens_per_s is None else f"{figures.rate(run.tokens_per_s)} tokens/s"
    accepted = "" if run.acceptance_rate is None else f", {figures.percent(run.acceptance_rate)} accepted"
    return f"{made}{accepted}"


def figures_and_length(run: PastRun, duration_s: float) -> list[str]:
    """Say how fast it was and how long it took in one line, the longest first, for where there is less room."""
    length = figures.uptime(duration_s)
    made = speed(run)
    longest = f"{made}, {length}"
    version = run.engine.rpartition(" ")[2]
    engines = [f"{longest}  \N{MIDDLE DOT}  {words}" for words in (run.engine, version) if words]
    return [*engines, longest, f"{made.removesuffix(' accepted')}, {length}"]


def said(run: PastRun) -> list[str]:
    """Return all there is to say, line by line."""
    return [title(run), f"{run.outcome}, {when(run)}", *([run.engine] if run.engine else []), speed(run)]


def unread(run: PastRun) -> str:
    """Say why there are no readings of its engine."""
    cause = run.outcome.removeprefix("failed: ") if run.failed else ""
    if not cause or cause == run.outcome:
        return "It did not get ready; its log may tell why."
    return f"It did not get ready: {cause}{'' if cause.endswith('.') else '.'}"
