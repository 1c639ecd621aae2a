"""Runs the calibration script in an engine environment's interpreter, with progress, and puts failures into words."""

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from backend import bounded, child
from backend.bounded import never
from backend.calibration import AllReduce, AllReducePoint, Calibration, DeviceRates, Rate
from backend.clean_env import clean_environment
from backend.errors import Cancelled, UserError
from backend.launch.environments import EngineEnvironment

TIME_LIMIT_S = 600.0
_SCRIPT = Path(__file__).with_name("calibration_script.py")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Threads and their places are the libraries' own choice, and no debugging aid may slow them down.
_MISLEADING = ("OMP_*", "MKL_*", "KMP_*", "GOMP_*", "CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG*")
_STEADY_RATIO = 0.75
_UNSTEADY = "Bandwidth was unsteady: other programs were at work, or clocks changed. Measure again when it is quiet."
_OLD_STAYS = "What was measured before stays."
_GPU_FAILED = "Look with `nvidia-smi` whether every GPU answers; one that is lost comes back with a restart. "


class CalibrationCancelled(Cancelled):
    """Somebody gave the calibration up; its processes have ended and nothing was kept."""


@dataclass(frozen=True, slots=True)
class CalibrationStep:
    """What is measured now, in words; `fraction` of all work that is done, None while that is not known."""

    text: str
    fraction: float | None


def run(
    environment: EngineEnvironment,
    *,
    machine: str,
    gpus: Sequence[str] = (),
    driver: str = "",
    quick: bool = False,
    on_step: Callable[[CalibrationStep], None] = lambda _step: None,
    cancelled: Callable[[], bool] = never,
    limit_s: float = TIME_LIMIT_S,
) -> Calibration:
    """Measure GPUs, or with a CPU build the processor; takes 10 s to a few minutes and blocks.

    Takes at most 40 % of the memory that is free on each device.

    Args:
        environment: a probed environment; its own PyTorch is what measures.
        machine: id of this machine, written into the result.
        gpus: UUIDs of the GPUs to measure, in this order; () for the processor.
        driver: version of the NVIDIA driver, written into the result.
        quick: fewer sizes and repeats.
        on_step: told what is measured, in this thread; what it raises ends the measurement.
        cancelled: asked several times a second, in this thread; a yes ends the processes.
        limit_s: the processes are ended after this many seconds.

    Raises:
        UserError: it failed; says why and what to do.
        CalibrationCancelled: given up.
    """
    with tempfile.TemporaryDirectory(prefix="specdeck-calibration-", ignore_cleanup_errors=True) as folder:
        # A copy in a folder of its own: Python looks for modules beside the file that it runs.
        script = Path(shutil.copy(_SCRIPT, folder))
        argv = [str(environment.python), str(script), "--device", "cuda" if gpus else "cpu"]
        argv += ["--free-bytes", str(_free_memory_bytes())] + (["--quick"] if quick else [])
        lines = _Lines(Path(folder) / "lines", on_step)

        def asked() -> bool:
            lines.read()
            return cancelled()

        done = bounded.run(child.command(argv), cwd=folder, env=_variables(gpus), limit_s=limit_s, cancelled=asked)
        if cancelled():
            raise CalibrationCancelled
        lines.read()
    if lines.problem is not None:
        raise _problem(lines.problem, str(environment.folder), on_gpu=bool(gpus))
    if lines.result is None:
        raise _ended(done, limit_s)
    try:
        return _calibration(lines.result, environment, machine=machine, driver=driver, quick=quick)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"The calibration gave no usable figures ({error!r}).", f"Try again. {_OLD_STAYS}") from error


class _Lines:
    """The lines that the script has written so far."""

    def __init__(self, file: Path, on_step: Callable[[CalibrationStep], None]) -> None:
        self._file, self._on_step = file, on_step
        self._at = 0
        self.result: Mapping[str, Any] | None = None
        self.problem: Mapping[str, str] | None = None

    def read(self) -> None:
        """Take in what is new; a line without an end is left for the next time."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self._at += len(line)
            content = json.loads(line)
            if "step" in content:
                self._on_step(CalibrationStep(content["step"], content["fraction"]))
            elif "result" in content:
                self.result = content["result"]
            else:
                self.problem = content


def _variables(gpus: Sequence[str]) -> dict[str, str]:
    variables = clean_environment(also=_MISLEADING)
    variables |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpus), "PYTHONUNBUFFERED": "1"}
    variables.setdefault("NCCL_SOCKET_IFNAME", "lo")  # all of it is on this machine
    return variables


def _free_memory_bytes() -> int:
    """What a new program could get; in a container at most what it may have."""
    free = psutil.virtual_memory().available
    try:
        return min(free, int(_CGROUP_LIMIT.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # no such limit: "max"
        return free


def _calibration(
    result: Mapping[str, Any], environment: EngineEnvironment, *, machine: str, driver: str, quick: bool
) -> Calibration:
    devices = tuple(
        DeviceRates(
            id=entry["id"],
            name=entry["name"],
            copy_bytes_per_s=Rate(**entry["copy"]),
            read_bytes_per_s=Rate(**entry["read"]),
            flops_per_s={dtype: None if found is None else Rate(**found) for dtype, found in entry["flops"].items()},
        )
        for entry in result["devices"]
    )
    points = result["all_reduce"]
    rates = [rate for device in devices for rate in (device.copy_bytes_per_s, device.read_bytes_per_s)]
    unsteady = any(rate.median < _STEADY_RATIO * rate.best for rate in rates)
    return Calibration(
        machine=machine,
        at=time.time(),
        devices=devices,
        all_reduce=None
        if points is None
        else AllReduce(tuple(device.id for device in devices), tuple(AllReducePoint(*point) for point in points)),
        torch=result["torch"],
        engine=f"{environment.distribution} {environment.version}".strip(),
        driver=driver,
        quick=quick,
        remarks=(*result["remarks"], *((_UNSTEADY,) if unsteady else ())),
    )


def _problem(problem: Mapping[str, str], folder: str, *, on_gpu: bool) -> UserError:
    """Put into words what the script itself has found wrong."""
    detail = problem["detail"].rstrip(".")
    match problem["problem"]:
        case "torch":
            return UserError(
                f"The engine in {folder} has no PyTorch that works: {detail}.", "Install the engine again in Settings."
            )
        case "no gpu":
            return UserError(
                "The engine's PyTorch finds no GPU.",
                f"Check the driver with `specdeck doctor`, or use a CPU build. {_OLD_STAYS}",
            )
        case "memory":
            return UserError(
                f"There is too little free memory to measure: {detail}.",
                f"Close other programs that use it, then measure again. {_OLD_STAYS}",
            )
        case _:
            words = "a GPU" if on_gpu else "the processor"
            return UserError(
                f"PyTorch failed while it measured {words}: {detail}.",
                f"{_GPU_FAILED if on_gpu else ''}{_OLD_STAYS}",
            )


def _ended(done: bounded.Done, limit_s: float) -> UserError:
    """Put into words that the script ended, or was ended, without having said anything."""
    if done.code is None:
        return UserError(
            f"The calibration gave no answer within {limit_s:.0f} s, so it was ended: a driver hangs, or this machine "
            "is very busy.",
            f"Try again when it is quiet. {_OLD_STAYS}",
        )
    names = {known.value: known.name for known in signal.Signals}
    number = -done.code if done.code < 0 else done.code - 128  # a shell in between tells a signal as 128 + number
    if number in names:
        why = ", most likely because memory ran out." if number == signal.SIGKILL else "."
        return UserError(f"The calibration was ended by {names[number]}{why}", f"Try again. {_OLD_STAYS}")
    said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    words = f": {said[-1].strip()}" if said else "."
    return UserError(f"The calibration ended with code {done.code} and without figures{words}", _OLD_STAYS)
