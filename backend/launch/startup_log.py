"""An engine's start-up as a timeline of phases, read from its log."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backend.events import Phase
from backend.launch.diagnosis import plain

LOADING_SERVER = "Loading Python (API server)"
READING_CONFIG = "Reading the model's configuration"
LOADING_CORE = "Loading Python (engine core)"
LOADING_WORKERS = "Loading Python (workers)"
DOWNLOADING = "Downloading weights"
LOADING_WEIGHTS = "Loading weights"
LOADING_DRAFT = "Loading the draft's weights"
COMPILING = "Compiling and warming up"
SIZING_CACHE = "Making the KV cache"
CAPTURING_GRAPHS = "Capturing CUDA graphs"
STARTING_SERVER = "Starting the server"

# In the order of a start; a line never leads back to an earlier phase.
_ORDER = (
    LOADING_SERVER,
    READING_CONFIG,
    LOADING_CORE,
    LOADING_WORKERS,
    DOWNLOADING,
    LOADING_WEIGHTS,
    LOADING_DRAFT,
    COMPILING,
    SIZING_CACHE,
    CAPTURING_GRAPHS,
    STARTING_SERVER,
)
# The first sign of each phase in the logs of vLLM 0.12 to 0.32, on CPU and GPU.
_SIGNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"non-default args: |vLLM API server version|\bversion \d+\.\d+\.\d+"), READING_CONFIG),
    (re.compile(r"Enabled custom fusions|Chunked prefill is enabled|Asynchronous scheduling is"), LOADING_CORE),
    (re.compile(r"Initializing a V1 LLM engine"), LOADING_WORKERS),
    (re.compile(r"DP group leader: node_rank"), LOADING_WORKERS),
    (re.compile(r"Time spent downloading weights|Downloading .*safetensors|Fetching \d+ files"), DOWNLOADING),
    (re.compile(r"Starting to load model|Loading (?:safetensors|pt) checkpoint shards"), LOADING_WEIGHTS),
    (re.compile(r"Loading drafter model"), LOADING_DRAFT),
    (re.compile(r"Warming up model|Dynamo bytecode transform|[Cc]ompiling a graph|torch\.compile takes"), COMPILING),
    (re.compile(r"KV cache size: |for KV cache on node|Available KV cache memory"), SIZING_CACHE),
    (re.compile(r"Capturing CUDA graphs?"), CAPTURING_GRAPHS),
    (re.compile(r"Starting vLLM (?:API )?server|init engine \(profile"), STARTING_SERVER),
)
_UP = "Application startup complete"
_PROGRESS = re.compile(r"(\d{1,3})%(?: Completed)?\s*\|[^|]*?\|?\s*(\d+)/(\d+)")
_KV_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
_CHECKPOINT = re.compile(r"Checkpoint size: ([\d.]+ GiB)")


@dataclass(frozen=True, slots=True)
class StartupLine:
    """Marks and figures of one log line."""

    phase: str | None = None
    fraction: float | None = None
    detail: str = ""


def read_line(line: str) -> StartupLine:
    """Read one line (without its end): the phase it begins, and the count it carries if it is a progress bar."""
    text = plain(line)
    phase = next((name for pattern, name in _SIGNS if pattern.search(text)), None)
    if bar := _PROGRESS.search(text):
        done, total = int(bar[2]), int(bar[3])
        return StartupLine(phase, done / total if total else None, f"{done} of {total}")
    if cache := _KV_CACHE.search(text):
        return StartupLine(phase, None, f"{cache[1]} tokens")
    if size := _CHECKPOINT.search(text):
        return StartupLine(phase, None, size[1])
    return StartupLine(phase)


class StartupTracker:
    """Turns log text, as it arrives, into phases; times are seconds since the engine was spawned.

    Attributes:
        is_up: the server has said that it is up; it listens now, unless its port was taken meanwhile.
    """

    def __init__(self, usual: Mapping[str, float]) -> None:
        """Begin with the first phase.

        Args:
            usual: seconds that each phase took in earlier runs.
        """
        self._usual = usual
        self.is_up = False
        self._phases = [Phase(LOADING_SERVER, 0.0, usual_s=usual.get(LOADING_SERVER))]
        self._rest = ""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases so far, the running one last."""
        return tuple(self._phases)

    def feed(self, text: str, *, at_s: float) -> None:
        """Take new log text; progress bars end their lines with a carriage return."""
        *lines, self._rest = (self._rest + text).replace("\r", "\n").split("\n")
        for line in lines:
            self.is_up = self.is_up or _UP in line
            self._take(read_line(line), at_s)
        if "%" in self._rest:  # a bar rewrites its line and ends it much later
            self._take(read_line(self._rest), at_s)

    def finish(self, *, at_s: float) -> None:
        """Close the last phase: the engine is ready, or gone."""
        self._phases[-1] = replace(self._phases[-1], ended_s=at_s)

    def _take(self, line: StartupLine, at_s: float) -> None:
        current = self._phases[-1]
        if line.phase is not None and _ORDER.index(line.phase) > _ORDER.index(current.name):
            self._phases[-1] = replace(current, ended_s=at_s)
            current = Phase(line.phase, at_s, usual_s=self._usual.get(line.phase))
            self._phases.append(current)
        elif line.phase is not None and line.phase != current.name:
            return  # a late line of an earlier phase, for example the draft's configuration
        if line.detail and (line.phase == current.name or line.fraction is not None):
            self._phases[-1] = replace(current, fraction=line.fraction, detail=line.detail)
