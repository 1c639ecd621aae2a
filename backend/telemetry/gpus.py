"""The program's side of the GPU sampler: starts it again when it dies or hangs, and knows what it told last."""

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.hardware import GPU_FIGURES, GpuInfo, GpuReading, GpuSnapshot, Why
from backend.telemetry.gpu_messages import Decoder, SamplerOptions
from backend.telemetry.line_child import Ended, LineChild

log = logging.getLogger(__name__)

ARGV = (sys.executable, "-P", "-m", "backend.telemetry.gpu_sampler")
_STALE_TICKS = 3
_MOST_BAD_LINES = 50
_LEAST_GAP_S = 0.02  # from one line to the next: a flood fills the pipe and stops there
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the sampler may be silent, and how long it rests after a failure; all in seconds.

    Attributes:
        start_s: from its start to its first word: NVML takes more than a second for each GPU that sleeps.
        stale_s: figures older than this are old, and no earlier than after three ticks.
        silence_s: one that is silent for this long, and for some ticks more than make figures old, hangs.
        back_off_s: waits after the first, second ... failure in a row; after more than these comes `rarely_s`.
        rarely_s: also after one that hangs inside the kernel and cannot be ended: the next one would hang too.
        retry_s: wait after one that ended since it had nothing to read.
        healthy_s: one that worked for this long makes the failures before it count no more.
        grace_s: how long it may take to end when it is asked to, and again when it is killed.
        look_s: how often a silent one is looked at.
    """

    start_s: float = 30.0
    stale_s: float = 3.0
    silence_s: float = 10.0
    back_off_s: tuple[float, ...] = (1.0, 2.0, 5.0, 15.0, 30.0)
    rarely_s: float = 300.0
    retry_s: float = 30.0
    healthy_s: float = 60.0
    grace_s: float = 0.4
    look_s: float = 0.5


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a sampler is gone: `words` are "" when it said itself why there is nothing to read."""

    words: str
    was_healthy: bool = False
    left_behind: bool = False


class Gpus:
    """Keeps one sampler child at work. Nobody waits for it: `snapshot` is what is known at any moment.

    Belongs to the event loop in which it was started, whose thread must live as long (see `backend.child`).
    """

    def __init__(
        self, options: SamplerOptions | None = None, *, argv: Sequence[str] | None = None, timing: Timing | None = None
    ) -> None:
        """Start nothing yet.

        Args:
            options: what to read at first.
            argv: the sampler, by default the real one.
            timing: its limits.
        """
        self._options = options or SamplerOptions()
        self._argv = argv or ARGV
        self._timing = timing or Timing()
        self._newest: GpuSnapshot | None = None
        self._told_problem = False
        self._n_heard = 0  # snapshots of the sampler of now, the first and the newest at these times
        self._first_s = self._heard_s = 0.0
        self._trouble = ""  # why the newest snapshot will not be followed by another soon
        self._has_ended = False
        self._known: dict[str, GpuInfo] = {}
        self._child: LineChild | None = None
        self._task: asyncio.Task[None] | None = None

    # ---- what others see -------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> GpuSnapshot | None:
        """What the sampler told last, as stale or with a problem if that does not hold now; None before all that."""
        newest = self._newest
        if newest is None:
            return GpuSnapshot(t=time.time(), problem=self._trouble, stale=True) if self._trouble else None
        if self._trouble:
            return replace(newest, t=time.time(), problem=self._trouble, stale=True)
        if self._has_ended:
            return replace(newest, t=time.time())
        silent_s = time.monotonic() - self._heard_s
        if silent_s > self._stale_after_s:
            words = f"The GPUs have not been read for {silent_s:.0f} s; their driver does not answer."
            return replace(newest, t=time.time(), problem=newest.problem or words, stale=True)
        return newest

    @property
    def options(self) -> SamplerOptions:
        """What the sampler reads, and how often."""
        return self._options

    def ask(self, options: SamplerOptions) -> None:
        """Change what is read; a sampler that starts later is told too."""
        if options != self._options:
            self._options = options
            self._send_options()

    async def start(self) -> None:
        """Start the sampler, unless that was done; returns at once."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """End the sampler; takes at most a second, also for one that hangs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # ---- one sampler after the other ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                failure = await self._live()
            except OSError as error:
                failure = _Failure(f"The GPU sampler cannot be started ({error.strerror or error}).")
            except Exception:
                log.exception("Following the GPU sampler failed.")
                failure = _Failure("Specdeck made a mistake while it read the GPUs.")
            self._has_ended = True
            if not failure.words:
                await asyncio.sleep(self._timing.retry_s)
                continue
            failures = 1 if failure.was_healthy else failures + 1
            wait_s = self._wait_s(failures, left_behind=failure.left_behind)
            self._trouble = f"{failure.words} {_what_next(wait_s, failures, self._timing)}"
            log.info("%s", self._trouble)
            await asyncio.sleep(wait_s)

    def _wait_s(self, failures: int, *, left_behind: bool) -> float:
        waits = self._timing.back_off_s
        return self._timing.rarely_s if left_behind or failures > len(waits) else waits[failures - 1]

    async def _live(self) -> _Failure:
        """Follow one sampler from its start to its end."""
        self._n_heard = 0
        async with LineChild(self._argv, grace_s=self._timing.grace_s) as child:
            self._child = child
            self._send_options()
            try:
                words = await self._follow(child)
            except asyncio.CancelledError:
                await child.end(at_once=not self._n_heard)  # one that still starts does not look at its input
                raise
            finally:
                self._child = None
            ended = await child.end(at_once=bool(words))
        was_healthy = self._n_heard > 0 and self._heard_s - self._first_s >= self._timing.healthy_s
        if ended.code is None:
            words += " It hangs in the driver and cannot be ended; restart the machine if that goes on."
        told = self._n_heard > 0 and self._told_problem
        return _Failure(words.strip() or _how_it_ended(ended, told=told), was_healthy, ended.code is None)

    async def _follow(self, child: LineChild) -> str:
        """Take what a sampler says until it says no more; returns why it must be ended, "" if it ends by itself."""
        decoder = Decoder()
        n_bad, silent_s = 0, 0.0
        while True:
            began_s = time.monotonic()
            try:
                # Not wait_for: on Python 3.11 it loses a cancellation that comes together with the line.
                async with asyncio.timeout(self._timing.look_s):
                    line = await child.line()
            except TimeoutError:
                # Not by the clock: when we were suspended ourselves, its lines are still to be read.
                silent_s += self._timing.look_s
            else:
                if line is None:
                    return ""
                if self._take(decoder, line):
                    n_bad, silent_s = 0, 0.0
                else:
                    n_bad += 1
                    silent_s += min(time.monotonic() - began_s, self._timing.look_s)
                await asyncio.sleep(_LEAST_GAP_S)
            if n_bad >= _MOST_BAD_LINES:
                return "The GPU sampler writes what is no reading."
            if silent_s >= (self._hangs_after_s if self._n_heard else self._timing.start_s):
                return f"The GPU driver has not answered for {silent_s:.0f} s."

    def _take(self, decoder: Decoder, line: bytes) -> bool:
        """Make a line the newest snapshot; False when it is none."""
        try:
            snapshot = decoder.snapshot(line)
        except (ValueError, ArithmeticError, RecursionError):
            return False
        self._newest = _with_known(snapshot, self._known)
        self._known = {gpu.uuid: gpu for gpu in self._newest.gpus}
        self._told_problem = bool(snapshot.problem)
        self._heard_s = time.monotonic()
        if not self._n_heard:
            self._first_s = self._heard_s
        self._n_heard += 1
        self._trouble, self._has_ended = "", False
        return True

    def _send_options(self) -> None:
        if self._child is not None:
            self._child.send(self._options.line().strip().encode())

    @property
    def _stale_after_s(self) -> float:
        """Of the interval that was asked for and the one it works at, since it may just be changing."""
        interval_s = max(self._options.interval_s, self._newest.interval_s if self._newest else 0.0)
        return max(_STALE_TICKS * interval_s, self._timing.stale_s)

    @property
    def _hangs_after_s(self) -> float:
        return max(self._timing.silence_s, 2 * self._stale_after_s)


def _how_it_ended(ended: Ended, *, told: bool) -> str:
    """Say why a sampler ended by itself; "" when its own last words say why there is nothing to read."""
    code = ended.code or 0
    if code < 0:
        what = "NVML crashed" if -code in _CRASHES else "The GPU sampler was killed"
        return f"{what} (signal {-code})."
    if not code:
        return "" if told else "The GPU sampler ended by itself."
    last = next((line.strip() for line in reversed(ended.stderr.splitlines()) if line.strip()), "")
    return f"The GPU sampler failed (exit code {code}){': ' if last else ''}{last.rstrip('.')}."


def _what_next(wait_s: float, failures: int, timing: Timing) -> str:
    if wait_s < timing.rarely_s:
        return f"It is started again after {wait_s:.0f} s."
    often = f"That was {failures} times in a row; it" if failures > 1 else "It"
    return f"{often} is tried again every {wait_s / 60:.0f} min. Restart the GPU driver, or the machine."


def _with_known(snapshot: GpuSnapshot, known: dict[str, GpuInfo]) -> GpuSnapshot:
    """Add GPUs that an earlier sampler saw and this one does not: lost, or unknown when it sees none at all."""
    told = {gpu.uuid for gpu in snapshot.gpus}
    missing = [gpu for gpu in known.values() if gpu.uuid not in told]
    if not missing:
        return snapshot
    lost = not snapshot.problem
    why = dict.fromkeys(GPU_FIGURES, Why.LOST if lost else Why.ERROR)
    blank = {gpu.uuid: GpuReading(uuid=gpu.uuid, t=snapshot.t, lost=lost, why=why) for gpu in missing}
    readings = {reading.uuid: reading for reading in snapshot.readings} | blank
    gpus = tuple(sorted((*snapshot.gpus, *missing), key=lambda gpu: gpu.index))
    return replace(snapshot, gpus=gpus, readings=tuple(readings[gpu.uuid] for gpu in gpus if gpu.uuid in readings))
