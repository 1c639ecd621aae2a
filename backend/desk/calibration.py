"""Calibration for every front end: refuses while an engine runs, chooses engine and GPUs, measures, and keeps it."""

import asyncio
import threading
from collections.abc import Callable, Sequence

from backend.bounded import never
from backend.calibration import Calibration
from backend.control import Control
from backend.desk.engines import CHANGED
from backend.desk.types import Event, JobProgress
from backend.errors import Cancelled, EngineEnvironmentError, UsageError, UserError
from backend.hardware import NvidiaDriver
from backend.launch import calibrate, engine_choice
from backend.launch.calibrate import CalibrationStep
from backend.launch.environments import EngineEnvironment
from backend.telemetry import calibration as store
from backend.telemetry import nvml

JOB = "calibration"


class CalibrationRoom:
    """What this machine reaches, as the window sees it; at most one measurement at a time."""

    def __init__(self, control: Control, emit: Callable[[Event], None]) -> None:
        self._control = control
        self._emit = emit
        self._work: asyncio.Future[Calibration] | None = None
        self._cancel = threading.Event()
        self._closed = False

    async def last(self) -> Calibration | None:
        """Return what was measured last on this machine, None if nothing was."""
        return await asyncio.to_thread(store.load)

    async def run(self, *, quick: bool = False) -> Calibration:
        """Measure all GPUs, or the processor; progress goes out as events of job "calibration".

        To cancel the task that awaits it ends the processes first.

        Raises:
            UserError: it did not work, was given up by `cancel` or `close`, or another one is under way.
        """
        if self._work is not None or self._closed:
            raise UserError("A calibration is under way already.", "Wait for it, or cancel it.")
        loop = asyncio.get_running_loop()
        cancel = self._cancel = threading.Event()
        waited: list[str] = []

        def tell(text: str, fraction: float | None = None) -> None:
            loop.call_soon_threadsafe(self._emit, JobProgress(JOB, text, fraction))

        def on_wait(words: str) -> None:
            waited.append(words)
            tell(words)

        def work() -> Calibration:
            return measure(
                self._control,
                quick=quick,
                on_wait=on_wait,
                on_step=lambda step: tell(step.text, step.fraction),
                cancelled=cancel.is_set,
            )

        self._emit(JobProgress(JOB, "Looking at this machine"))
        self._work = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(self._work)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        except Cancelled:
            raise UserError("The calibration was cancelled.", "What was measured before stays.") from None
        finally:
            self._work = None
            if waited:  # an engine was probed or added
                self._emit(JobProgress(CHANGED, ""))

    async def cancel(self) -> None:
        """Give the measurement up; returns when its processes have ended."""
        self._cancel.set()
        if self._work is not None:
            await asyncio.wait({self._work})

    async def close(self) -> None:
        """Give up what is under way and begin nothing more."""
        self._closed = True
        await self.cancel()


def measure(
    control: Control,
    *,
    environment_id: str | None = None,
    gpus: Sequence[str] = (),
    quick: bool = False,
    on_wait: Callable[[str], None] = lambda _words: None,
    on_step: Callable[[CalibrationStep], None] = lambda _step: None,
    cancelled: Callable[[], bool] = never,
) -> Calibration:
    """Measure this machine with an engine's PyTorch and keep the result in place of the earlier one; blocks.

    Args:
        control: knows which engines run.
        environment_id: the engine environment, None for the one that a start would use.
        gpus: UUIDs of the GPUs to measure, () for all; a CPU build measures the processor.
        quick: fewer sizes and repeats.
        on_wait: told what takes its time before.
        on_step: told what is measured.
        cancelled: asked again and again; a yes ends what runs.

    Raises:
        UserError: an engine runs, there is no fit environment or GPU, or the measurement failed.
        Cancelled: given up; nothing was kept.
    """
    _require_quiet(control)
    environment = engine_choice.usable(environment_id, on_wait=on_wait, cancelled=cancelled)
    if environment is None:
        raise EngineEnvironmentError(
            "No vLLM is installed, and its PyTorch is what measures.",
            "Install one in Settings, or with `specdeck engines install`.",
        )
    chosen, driver = _gpus(environment, gpus)

    def step(now: CalibrationStep) -> None:
        _require_quiet(control)  # one that was started meanwhile makes the figures wrong
        on_step(now)

    found = calibrate.run(
        environment,
        machine=store.machine_id(),
        gpus=chosen,
        driver=driver,
        quick=quick,
        on_step=step,
        cancelled=cancelled,
    )
    _require_quiet(control)
    store.save(found)
    return found


def _require_quiet(control: Control) -> None:
    if running := control.live_runs():
        raise UserError(
            f"An engine runs ({running[0].run_id}).", "Stop the engine first: it would disturb the measurement."
        )


def _gpus(environment: EngineEnvironment, wanted: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """UUIDs of the GPUs to measure, and the driver's version; () and "" for a CPU build."""
    platform = environment.probe.platform if environment.probe else ""
    if platform == "cpu":
        if wanted:
            raise UsageError(
                f"{environment.id} is a CPU build, so it cannot measure GPUs.", "Name a CUDA build with --engine."
            )
        return (), ""
    if platform != "cuda":
        raise EngineEnvironmentError(
            f"{environment.id} is a build for {platform}; only NVIDIA GPUs and processors can be measured.",
            "Use a CUDA or CPU build.",
        )
    driver = nvml.ask_child()
    if not isinstance(driver, NvidiaDriver) or not driver.gpus:
        why = "it shows no GPU" if isinstance(driver, NvidiaDriver) else driver
        raise EngineEnvironmentError(
            f"There is no GPU to measure with {environment.id}: {why}.", "Check the driver with `specdeck doctor`."
        )
    known = tuple(gpu.uuid for gpu in driver.gpus)
    if unknown := [uuid for uuid in wanted if uuid not in known]:
        raise UsageError(f"There is no GPU {unknown[0]}.", f"GPUs here: {', '.join(known)}.")
    return tuple(dict.fromkeys(wanted)) or known, driver.version
