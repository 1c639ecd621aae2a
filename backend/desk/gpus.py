"""The GPUs as the desk sees them: what is read of them while it is shown, and which memory is the engine's."""

import asyncio
import time

from backend.desk.runs import Runs
from backend.hardware import GpuSnapshot, Why
from backend.launch import processes
from backend.launch.processes import Identity
from backend.launch.supervisor import ENDED
from backend.settings import Settings
from backend.telemetry import gpu_owners
from backend.telemetry.gpu_messages import SamplerOptions
from backend.telemetry.gpus import Gpus

_HIDDEN_INTERVAL_S = 5.0
_MATCH_S = 2.0  # the sampler looks no oftener for who holds memory


class GpuRoom:
    """Keeps the sampler at what the window needs, and tells its figures. Belongs to the backend's event loop."""

    def __init__(self, runs: Runs, settings: Settings, *, gpus: Gpus | None = None) -> None:
        """Start nothing yet; `gpus` is the sampler, by default the real one."""
        self._runs = runs
        self._settings = settings
        self._visible = True
        self._activity_shown = False
        self._gpus = gpus or Gpus()
        self._matching: asyncio.Task[None] | None = None
        self._matched_s = -_MATCH_S
        self._matched: tuple[Identity, frozenset[int] | Why] | None = None

    async def start(self) -> None:
        """Start the sampler, unless that was done; returns at once."""
        self._ask()
        await self._gpus.start()

    async def close(self) -> None:
        """End the sampler, within about a second whatever state it is in."""
        if self._matching is not None:
            self._matching.cancel()
        await self._gpus.close()

    def newest(self) -> GpuSnapshot | None:
        """Return what is known of the GPUs, with the engine's share of their memory; None before anything is."""
        snapshot = self._gpus.snapshot
        if snapshot is None:
            return None
        known = self._engine_pids(snapshot)
        if isinstance(known, Why):
            return gpu_owners.attribute(snapshot, None, why=known)
        return gpu_owners.attribute(snapshot, known)

    def set_visible(self, visible: bool) -> None:
        """Read the GPUs as often as the settings say while the window is seen, and seldom while it is not."""
        self._visible = visible
        self._ask()

    def show_activity(self, shown: bool) -> None:
        """Read the GPU's performance counters only while their charts are seen: they cost, and others want them too."""
        self._activity_shown = shown
        self._ask()

    def change_settings(self, settings: Settings) -> None:
        """Follow other settings from now on."""
        self._settings = settings
        self._ask()

    def _ask(self) -> None:
        interval_s = self._settings.gpu_interval_s
        self._gpus.ask(
            SamplerOptions(
                interval_s=interval_s if self._visible else max(interval_s, _HIDDEN_INTERVAL_S),
                activity=self._visible and self._activity_shown and self._settings.gpu_profiling,
                pcie_snapshot=self._settings.gpu_pcie_snapshot,
                peaks=self._settings.gpu_peak_bytes_per_s,
            )
        )

    def _engine_pids(self, snapshot: GpuSnapshot) -> frozenset[int] | Why:
        """The engine's processes, or why they are not known (yet); they are looked up beside everything else."""
        run = self._runs.current
        if run is None or run.state in ENDED:
            self._matched = None
            return frozenset()
        identity = run.record.identity
        is_new = self._matched is None or self._matched[0] != identity
        is_idle = self._matching is None or self._matching.done()
        if is_idle and (is_new or time.monotonic() - self._matched_s >= _MATCH_S):
            named = {process.pid for reading in snapshot.readings for process in reading.processes or ()}
            self._matching = asyncio.create_task(self._match(identity, named))
        return Why.NOT_YET if is_new or self._matched is None else self._matched[1]

    async def _match(self, identity: Identity, named: set[int]) -> None:
        self._matched_s = time.monotonic()
        self._matched = identity, await asyncio.to_thread(_owned, identity, named)


def _owned(identity: Identity, named: set[int]) -> frozenset[int] | Why:
    """The engine's processes among those that the driver names, and its leader: no engine is without processes."""
    own = processes.belonging(identity, named)
    if not own and not processes.are_of_this_namespace(named):
        return Why.HIDDEN
    return own if identity.session is None else own | {identity.session}
