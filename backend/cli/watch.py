"""`specdeck watch`: one line per interval about a running engine."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated
from urllib.parse import urlsplit

import typer

from backend.cli import signals, words
from backend.engine_api import EngineApi
from backend.errors import UsageError
from backend.events import Sample
from backend.telemetry.sampler import Sampler

_SHORTEST_INTERVAL_S = 0.25
_LONGEST_INTERVAL_S = 86_400.0

# The keys of a JSON line, in order.
_KEYS = (
    "t",
    "interval_s",
    "state",
    "generation_tokens_per_s",
    "prompt_tokens_per_s",
    "acceptance_rate",
    "mean_acceptance_length",
    "acceptance_per_position",
    "ttft_p50_s",
    "ttft_p95_s",
    "itl_p50_s",
    "itl_p95_s",
    "kv_cache_usage_ratio",
    "requests_running",
    "requests_waiting",
    "steps_per_s",
)

_HEADINGS = (
    *("time", "state", "tokens/s", "prompt/s", "accepted", "length", "TTFT p50", "p95 ms", "ITL p50", "p95 ms"),
    *("KV", "running", "waiting", "steps/s"),
)
# A figure that is too wide for its column pushes the line, it is never cut.
_WIDTHS = (8, 12, 8, 8, 8, 6, 9, 9, 9, 9, 4, 7, 7, 8)


def command(*, default_url: Callable[[], str] | None = None) -> Callable[..., None]:
    """Return the command.

    Args:
        default_url: finds an engine when no `--url` was given; without it `--url` is needed.
    """

    def watch(
        *,
        url: Annotated[
            str | None, typer.Option("--url", help="Where the engine answers, such as http://127.0.0.1:8000.")
        ] = None,
        interval: Annotated[
            float, typer.Option("--interval", help="Seconds from one line to the next, 0.25 or more.")
        ] = 1.0,
        count: Annotated[int | None, typer.Option("--count", min=1, help="End after this many lines.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    ) -> None:
        """Show an engine's speed, acceptance and load, one line per interval, until Ctrl-C or --count."""
        if not _SHORTEST_INTERVAL_S <= interval <= _LONGEST_INTERVAL_S:  # NaN fails this too
            raise UsageError(
                f"--interval {interval} is not possible.",
                f"Give seconds from {_SHORTEST_INTERVAL_S} to {_LONGEST_INTERVAL_S:.0f}.",
            )
        if url is None:
            if default_url is None:
                raise UsageError("watch needs to know which engine.", "Add --url http://127.0.0.1:8000.")
            url = default_url()
        _check_url(url)
        with quiet_end():
            asyncio.run(_watch(url, interval_s=interval, count=count, as_json=as_json))

    return watch


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, an IPv6 address without its bracket
        good = False
    if not good or any(character.isspace() for character in url) or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is not the address of an engine.", "Write it like http://127.0.0.1:8000.")


async def _watch(url: str, *, interval_s: float, count: int | None, as_json: bool) -> None:
    api, task = EngineApi(url), asyncio.current_task()
    assert task is not None
    try:
        with signals.handled(task.cancel):
            async with contextlib.aclosing(Sampler(api, interval_s=interval_s).samples()) as samples:
                if not as_json:
                    typer.echo(_aligned(_HEADINGS))
                printed = 0
                async for sample in samples:
                    typer.echo(_json_line(sample) if as_json else _text_line(sample))
                    printed += 1
                    if printed == count:
                        return
    finally:
        await api.aclose()


@contextlib.contextmanager
def quiet_end() -> Iterator[None]:
    """End without a word after a signal, or when nobody reads the lines any more."""
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        return
    except BrokenPipeError:
        # The interpreter flushes once more when it ends; give it a place where that succeeds.
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _json_line(sample: Sample) -> str:
    return json.dumps({key: getattr(sample, key) for key in _KEYS}, allow_nan=False)


def _text_line(sample: Sample) -> str:
    return _aligned(
        [
            time.strftime("%H:%M:%S", time.localtime(sample.t)),
            sample.state,
            words.figure(sample.generation_tokens_per_s, ",.1f"),
            words.figure(sample.prompt_tokens_per_s, ",.1f"),
            words.figure(sample.acceptance_rate, ".1%"),
            words.figure(sample.mean_acceptance_length, ".2f"),
            words.milliseconds(sample.ttft_p50_s),
            words.milliseconds(sample.ttft_p95_s),
            words.milliseconds(sample.itl_p50_s),
            words.milliseconds(sample.itl_p95_s),
            words.figure(sample.kv_cache_usage_ratio, ".0%"),
            words.figure(sample.requests_running, ".0f"),
            words.figure(sample.requests_waiting, ".0f"),
            words.figure(sample.steps_per_s, ",.1f"),
        ]
    )


def _aligned(cells: Iterable[str]) -> str:
    """Words to the left, figures to the right."""
    padded = (
        f"{cell:<{width}}" if number < 2 else f"{cell:>{width}}"
        for number, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    )
    return "  ".join(padded).rstrip()
