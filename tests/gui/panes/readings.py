"""A bridge without a backend, and readings whose figures fit together."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from backend.curves import Readings
from backend.desk.types import Reading, RunView, SettingsView
from backend.events import HostSample, Mark, RunState, Sample, Speculation
from backend.hardware import GpuSnapshot
from backend.telemetry.history import History
from gui.bridge import Bridge
from tests.gui.panes.direct_bridge import DirectBridge

STARTED = 1_800_000_000.0
GIB = 1024**3
READY = RunView(
    state=RunState.READY, profile="demo", title="Demo", run_id="run-1", started_at=STARTED - 30, ready_at=STARTED - 1
)


class FakeBridge(DirectBridge):
    """The part of a bridge that a page of charts listens to, and a desk that keeps settings."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        self.reading: Reading | None = None
        self.gpus: GpuSnapshot | None = None
        self.marks: deque[Mark] = deque()
        self.saved: dict[str, Any] = {"gpu_peak_bytes_per_s": {}}
        self.desk = SimpleNamespace(
            settings=SimpleNamespace(gpu_profiling=True),
            settings_view=self._settings_view,
            change_settings=self._change_settings,
        )
        self.measured_for: set[str] = set()  # pages that show what GPUs are measured for

    async def _settings_view(self) -> SettingsView:
        return SettingsView(dict(self.saved), {})

    async def _change_settings(self, **values: Any) -> SettingsView:
        if self.refusal is None:
            self.saved |= values
        return await self._settings_view()

    def want_activity(self, page: str, wanted: bool) -> None:
        """As the bridge does, at once."""
        (self.measured_for.add if wanted else self.measured_for.discard)(page)

    def show(self, view: RunView) -> None:
        """Tell of another state, as the bridge does."""
        self.run = view
        self.run_changed.emit(view)

    def record(self, reading: Reading) -> None:
        """Put a reading into the history only: what came before the page looked."""
        self.reading = reading
        self.history.append_host(reading.host)
        if reading.engine is not None:
            self.history.append(reading.engine)
        if reading.gpus is not None:
            self.history.append_gpus(reading.gpus)
            self.gpus = reading.gpus
        self.marks.extend(reading.marks)

    def feed(self, reading: Reading) -> None:
        """Hand a reading on, as the bridge does."""
        self.record(reading)
        self.sampled.emit(reading)

    def run_readings(self, names: Sequence[str], seconds: float, until: float) -> Readings:
        """As the bridge does."""
        return Bridge.run_readings(self.as_bridge, names, seconds, until)


def counting(second: int) -> Sample:
    """An engine at work: length = 1 + the sum over the positions, tokens/s = steps/s x length."""
    positions = (0.9, 0.8, 0.7 - 0.001 * (second % 100))
    length = 1 + sum(positions)
    steps = drafts = 50.0 + second % 10
    return Sample(
        t=STARTED + second,
        interval_s=1.0,
        state=RunState.READY,
        generation_tokens_per_s=steps * length,
        prompt_tokens_per_s=float(second),
        acceptance_rate=sum(positions) / 3,
        mean_acceptance_length=length,
        acceptance_per_position=positions,
        drafts=drafts,
        draft_tokens=3 * drafts,
        ttft_count=5.0,
        ttft_p50_s=0.2,
        ttft_p95_s=0.3,
        itl_p50_s=0.017,
        itl_p95_s=0.019,
        kv_cache_usage_ratio=0.03,
        requests_running=2.0,
        requests_waiting=1.0,
        steps_per_s=steps,
        speculation=Speculation.COUNTING,
    )


def drafting(second: int, *, n_drafts: int, rates: tuple[float, ...]) -> Sample:
    """A reading of so many drafts, each of as many tokens as there are rates."""
    return replace(
        counting(second),
        drafts=float(n_drafts),
        draft_tokens=float(n_drafts * len(rates)),
        acceptance_rate=sum(rates) / len(rates),
        mean_acceptance_length=1 + sum(rates),
        acceptance_per_position=rates,
    )


def idle(second: int) -> Sample:
    """An engine with nothing to do."""
    return replace(
        counting(second),
        generation_tokens_per_s=0.0,
        prompt_tokens_per_s=0.0,
        acceptance_rate=None,
        mean_acceptance_length=None,
        acceptance_per_position=None,
        drafts=0.0,
        draft_tokens=0.0,
        ttft_count=0.0,
        ttft_p50_s=None,
        ttft_p95_s=None,
        itl_p50_s=None,
        itl_p95_s=None,
        requests_running=0.0,
        requests_waiting=0.0,
        steps_per_s=0.0,
        speculation=Speculation.IDLE,
    )


def missing(second: int) -> Sample:
    """An engine that did not answer."""
    return Sample(t=STARTED + second, interval_s=None, state=RunState.UNRESPONSIVE)


def reading(second: int, engine: Sample | None) -> Reading:
    """A reading of a machine with half of its memory in use."""
    return Reading(HostSample(STARTED + second, 0.25, 8 * GIB, 16 * GIB), engine)
