"""What the steps of the engine that runs read from memory, what holds them back, and the energy of a token."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

from backend import paths
from backend.calibration import Calibration
from backend.checkpoints.card import ModelCard
from backend.checkpoints.card_cache import find_card
from backend.desk.runs import Runs
from backend.errors import ModelError
from backend.events import Sample, Speculation, Verdict
from backend.hardware import GpuReading, GpuSnapshot
from backend.launch.profile import Profile
from backend.planning.bound import Load, judge
from backend.planning.roofline import Parallel, StepBytes, bytes_per_decode, bytes_per_step
from backend.telemetry import calibration, gpu_owners
from backend.telemetry.engine_metrics import EngineReading
from backend.telemetry.sampler import Sampler

log = logging.getLogger(__name__)

_WITHOUT_MODEL = ("ngram", "suffix", "custom_class")  # as a method's name begins
_ONE_PASS = ("medusa", "dflash", "peagle", "dspark")  # heads that guess all positions at once
_CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Models:
    """What is known of the models that an engine runs, and of the machine; `draft` is None without one of its own."""

    profile: Profile
    target: ModelCard
    draft: ModelCard | None
    calibration: Calibration | None
    on_cpu: bool

    def step_bytes(self, sample: Sample, reading: EngineReading) -> StepBytes:
        """Return what one step of the last reading had to read on one GPU, as a mean over its steps.

        Sequences in a step come from the counters: generated tokens over steps, and over tokens for each sequence.
        What is in the KV cache is known for the moment only; without it, the weights alone count.
        """
        length = sample.mean_acceptance_length or 1.0
        batch = (sample.generation_tokens_per_s or 0.0) / (sample.steps_per_s or 1.0) / length
        held = (reading.kv_cache_usage_ratio or 0.0) * (reading.kv_cache_tokens or 0.0)
        running = (reading.requests_running or 0.0) / _engines(reading)
        context = held / running if running else 0.0
        size = 4.0 if self.profile.target.dtype in ("float32", "float") else None
        kv_size = _kv_bytes(self.profile.memory.kv_cache_dtype) or size
        spread = self._parallel(self.profile.parallel.tensor_parallel_size)
        batch = max(batch, 1.0)  # a step works on something, if only on a prompt
        drafted = (sample.draft_tokens or 0.0) / sample.drafts if sample.drafts else 0.0
        method = self._method
        if sample.speculation is not Speculation.COUNTING or method.startswith(_WITHOUT_MODEL):
            return bytes_per_step(
                self.target, spread, batch, context, query_tokens=1 + drafted, kv_dtype_bytes=kv_size, dtype_bytes=size
            )
        return bytes_per_decode(
            self.target,
            self.draft,
            spread,
            batch,
            context,
            1.0 if method.startswith(_ONE_PASS) else drafted,
            draft_tokens=drafted,
            draft_parallel=self._parallel(self.profile.speculation.draft_tensor_parallel_size or spread.tensor),
            own_draft_head=self.draft is None,
            kv_dtype_bytes=kv_size,
            dtype_bytes=size,
        )

    @property
    def _method(self) -> str:
        said = self.profile.speculation.method
        head = self.draft.draft_head if self.draft else None
        return said or (head.kind if head else "draft_model")

    def _parallel(self, tensor: int | None) -> Parallel:
        wanted = self.profile.parallel
        return Parallel(
            tensor=tensor or 1,
            pipeline=wanted.pipeline_parallel_size or 1,
            data=wanted.data_parallel_size or 1,
            expert=bool(wanted.enable_expert_parallel),
        )

    @property
    def workers(self) -> int:
        """Processes that share the memory of a machine without a GPU."""
        wanted = self.profile.parallel
        return (
            (wanted.tensor_parallel_size or 1) * (wanted.pipeline_parallel_size or 1) * (wanted.data_parallel_size or 1)
        )


def load_models(profile: Profile, *, on_cpu: bool) -> Models | None:
    """Read the cards of a profile's models; None when the target has none. Blocking."""
    built = paths.folders().models
    try:
        target = find_card(profile.target.model, revision=profile.target.revision, built=built)
        wanted = profile.speculation.model
        draft = None
        if wanted is not None and not (profile.speculation.method or "").startswith(_WITHOUT_MODEL):
            draft = find_card(wanted, revision=profile.speculation.revision, built=built)
    except ModelError as error:
        log.info("What a step reads is not known: %s", error)
        return None
    return Models(profile, target, draft, calibration.load(), on_cpu)


class Traffic:
    """Completes the readings of the engine that runs. Belongs to the backend's event loop.

    The implied bandwidth of a GPU is what a step must read on it x steps/s of its engine. A joule per token is the
    energy of the engine's GPUs over the time of a reading, over the tokens of that time.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._run_id = ""
        self._models: Models | None = None
        self._loading: asyncio.Task[None] | None = None
        self._energy: tuple[float, float] | None = None  # time in seconds and joules of the newest snapshot

    async def close(self) -> None:
        """Give up what is being loaded."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait({self._loading})

    def complete(
        self, run_id: str, sampler: Sampler, sample: Sample, snapshot: GpuSnapshot | None
    ) -> tuple[Sample, Verdict | None]:
        """Return the sample with what follows from the models and the GPUs, and what holds the engine back.

        Args:
            run_id: the run that was read.
            sampler: that which made the sample.
            sample: the newest one.
            snapshot: newest one of the GPUs, with the engine's share of them; None if there is none.
        """
        self._follow(run_id)
        gpus = _own_readings(snapshot) if self._models is None or not self._models.on_cpu else ()
        power_w = self._power_w(gpus)
        if sample.interval_s is None or sampler.reading is None or sampler.rates is None:
            return sample, None
        step: StepBytes | None = None
        if self._models is not None and sample.steps_per_s:
            step = self._models.step_bytes(sample, sampler.reading)
            if step.total_bytes is None and step.weights_bytes is not None:
                step = StepBytes(step.weights_bytes, 0.0)
        each = sampler.rates.steps_per_s_by_engine.values()
        implied = None
        if step is not None and step.total_bytes is not None and each:
            implied = step.total_bytes * fmean(each)
        elif self._models is not None and sample.steps_per_s == 0:
            implied = 0.0
        tokens_per_s = sample.generation_tokens_per_s
        sample = replace(
            sample,
            implied_bytes_per_s=implied,
            joules_per_token=power_w / tokens_per_s if power_w is not None and tokens_per_s else None,
        )
        return sample, judge(self._load(sample, gpus, snapshot, n_engines=_engines(sampler.reading)))

    def _follow(self, run_id: str) -> None:
        """Load the models of another run, beside everything else."""
        if run_id == self._run_id:
            return
        self._run_id, self._models, self._energy = run_id, None, None
        if self._loading is not None:
            self._loading.cancel()
        if (profile := self._runs.started_profile) is not None:
            self._loading = asyncio.create_task(self._load_models(run_id, profile))

    async def _load_models(self, run_id: str, profile: Profile) -> None:
        try:
            found = await asyncio.to_thread(load_models, profile, on_cpu=self._runs.on_cpu)
        except Exception:  # the charts say that it is unknown, all else goes on
            log.exception("Reading the models of %s failed.", profile.name)
            return
        if run_id == self._run_id:
            self._models = found

    def _power_w(self, gpus: tuple[GpuReading, ...]) -> float | None:
        """Watts of the engine's GPUs since the last snapshot, by their energy counters, else as they say it."""
        before, self._energy = self._energy, None
        energies = [gpu.energy_j for gpu in gpus]
        if gpus and None not in energies:
            self._energy = gpus[0].t, sum(energy for energy in energies if energy is not None)
            if before is not None and self._energy[0] > before[0] and self._energy[1] >= before[1]:
                return (self._energy[1] - before[1]) / (self._energy[0] - before[0])
        return _sum(gpu.power_w for gpu in gpus)

    def _load(
        self, sample: Sample, gpus: tuple[GpuReading, ...], snapshot: GpuSnapshot | None, *, n_engines: int
    ) -> Load:
        models = self._models
        on_cpu = models is not None and models.on_cpu
        measured = _mean(gpu.dram_bytes_per_s for gpu in gpus)
        source, traffic = next(
            (
                (name, value)
                for name, value in (
                    ("measured", measured),
                    ("engine estimate", sample.estimated_bytes_per_s),
                    ("implied", sample.implied_bytes_per_s),
                )
                if value is not None
            ),
            ("", None),
        )
        known = models.calibration if models else None
        tensor = _mean(gpu.tensor_ratio for gpu in gpus)
        is_measured_peak = False
        if on_cpu and models is not None:
            rates = known.device(_CPU) if known else None
            traffic = None if traffic is None else traffic * models.workers
            peak, is_measured_peak = rates.attainable_bytes_per_s if rates else None, True
        else:
            infos = [gpu for gpu in snapshot.gpus if gpu.uuid in {one.uuid for one in gpus}] if snapshot else []
            peak = _mean(gpu.peak_bytes_per_s for gpu in infos)
            measured_peaks = [known.device(gpu.uuid) for gpu in infos] if known else []
            if peak is None and measured_peaks and None not in measured_peaks:
                peak = fmean(one.attainable_bytes_per_s for one in measured_peaks if one)
                is_measured_peak = True
        drafted = (sample.draft_tokens or 0.0) / sample.drafts if sample.drafts else 0.0
        running = sample.requests_running
        return Load(
            steps_per_s=sample.steps_per_s,
            bytes_per_s=traffic,
            source=source,
            peak_bytes_per_s=peak,
            busy_ratio=_mean(gpu.busy_ratio for gpu in gpus),
            compute_ratio=tensor,
            tokens_per_step=None if running is None else running / n_engines * (1 + drafted),
            is_gpu=not on_cpu,
            is_measured_peak=is_measured_peak,
        )


def _own_readings(snapshot: GpuSnapshot | None) -> tuple[GpuReading, ...]:
    """Return the readings of the GPUs on which the engine holds memory; of all, if there is but one."""
    if snapshot is None or snapshot.stale:
        return ()
    own = gpu_owners.engine_gpus(snapshot)
    if own is None:
        return snapshot.readings if len(snapshot.readings) == 1 else ()
    return tuple(reading for reading in snapshot.readings if reading.uuid in own)


def _engines(reading: EngineReading) -> int:
    return max(1, len(reading.engines))


def _kv_bytes(dtype: str | None) -> float | None:
    if dtype is None or dtype == "auto":
        return None
    return 1.0 if dtype.startswith(("fp8", "int8")) else 4.0 if dtype == "float32" else 2.0


def _mean(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if not known or None in known else fmean(value for value in known if value is not None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if not known or None in known else sum(value for value in known if value is not None)
