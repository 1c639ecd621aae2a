"""Asks for the NVIDIA driver and its GPUs once, through a sampler child that may crash or hang."""

import sys
from collections.abc import Sequence

from backend import bounded, child
from backend.hardware import Gpu, GpuSnapshot, NvidiaDriver
from backend.telemetry.gpu_messages import Decoder

_LIMIT_S = 10.0
_ARGV = (sys.executable, "-P", "-m", "backend.telemetry.gpu_sampler", "--once", "--no-processes")


def ask_child(*, argv: Sequence[str] | None = None, limit_s: float = _LIMIT_S) -> NvidiaDriver | str:
    """Read the driver in a child; a crash, a hang or a missing library is "no driver", with the reason in words.

    Args:
        argv: the command, by default a sampler that reads once.
        limit_s: the child is ended after this many seconds; one that hangs in the driver is left behind.
    """
    done = bounded.run(child.command(argv or _ARGV), limit_s=limit_s)
    if done.code is None:
        return f"NVML gave no answer within {limit_s:.0f} s"
    if done.code < 0:
        return f"NVML crashed (signal {-done.code})"
    try:
        snapshot = Decoder().snapshot(done.stdout)
    except ValueError:
        return f"NVML gave no usable answer (exit code {done.code})"
    if not snapshot.driver or snapshot.cuda is None:
        return snapshot.problem or "NVML does not tell the version of the driver"
    return NvidiaDriver(version=snapshot.driver, cuda=snapshot.cuda, gpus=_gpus(snapshot))


def _gpus(snapshot: GpuSnapshot) -> tuple[Gpu, ...]:
    """The whole GPUs: a MIG slice is part of one."""
    free = {reading.uuid: reading.memory_free_bytes for reading in snapshot.readings}
    return tuple(
        Gpu(gpu.uuid, gpu.name, gpu.memory_total_bytes, None if (left := free.get(gpu.uuid)) is None else int(left))
        for gpu in snapshot.gpus
        if not gpu.parent_uuid
    )
