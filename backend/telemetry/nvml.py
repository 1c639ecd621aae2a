"""Asks NVML for the NVIDIA driver and GPUs; run as a child (`-m backend.telemetry.nvml`) it prints them as JSON."""

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from backend import bounded, child
from backend.hardware import Gpu, NvidiaDriver

_LIMIT_S = 10.0


def read_driver() -> NvidiaDriver | str:
    """Load NVML and read the driver; only a child process should do this, since NVML may crash or hang.

    Returns:
        The driver, or in words why there is none.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML does not answer ({error})"
    try:
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()  # 13010 is 13.1
        return NvidiaDriver(
            version=_text(pynvml.nvmlSystemGetDriverVersion()),
            cuda=(number // 1000, number % 1000 // 10),
            gpus=tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())),
        )
    except pynvml.NVMLError as error:
        return f"NVML failed ({error})"
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    total: int | None = None
    free: int | None = None
    with contextlib.suppress(pynvml.NVMLError):  # a GPU with unified memory does not tell
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = int(memory.total), int(memory.free)
    return Gpu(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_total_bytes=total,
        memory_free_bytes=free,
    )


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def ask_child(*, argv: Sequence[str] | None = None, limit_s: float = _LIMIT_S) -> NvidiaDriver | str:
    """Read the driver in a child; a crash, a hang or a missing library is "no driver", with the reason in words.

    Args:
        argv: the command, by default this module.
        limit_s: the child is ended after this many seconds; one that hangs in the driver is left behind.
    """
    argv = argv or [sys.executable, "-P", "-m", "backend.telemetry.nvml"]
    done = bounded.run(child.command(argv), limit_s=limit_s)
    if done.code is None:
        return f"NVML gave no answer within {limit_s:.0f} s"
    if done.code < 0:
        return f"NVML crashed (signal {-done.code})"
    try:
        answer = json.loads(done.stdout)
        if answer["driver"] is None:
            return str(answer["problem"])
        driver = answer["driver"]
        return NvidiaDriver(
            version=driver["version"],
            cuda=(int(driver["cuda"][0]), int(driver["cuda"][1])),
            gpus=tuple(Gpu(**gpu) for gpu in driver["gpus"]),
        )
    except (ValueError, KeyError, TypeError):
        return f"NVML gave no usable answer (exit code {done.code})"


def main() -> None:
    """Print the driver as one JSON object."""
    found = read_driver()
    answer = {"driver": None, "problem": found} if isinstance(found, str) else {"driver": asdict(found), "problem": ""}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
