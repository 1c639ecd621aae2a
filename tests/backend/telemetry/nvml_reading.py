"""What the tests of the NVML reader share: a session on the fake, its time, and short ways to its answers."""

from dataclasses import dataclass, field
from pathlib import Path

from backend.hardware import GpuInfo, GpuReading, GpuSnapshot
from backend.telemetry.gpu_messages import SamplerOptions
from backend.telemetry.nvml_session import NvmlSession
from tests.fakes.fake_nvml import uuid

OPTIONS = SamplerOptions()
ACTIVITY = SamplerOptions(activity=True)
RESCAN_S = 30.0


@dataclass
class Bench:
    """One session in this process; `now_s` is its time, `sysfs` its folder of devices."""

    sysfs: Path
    now_s: float = 1000.0
    session: NvmlSession = field(init=False)

    def __post_init__(self) -> None:
        self.session = NvmlSession(rescan_s=RESCAN_S, sysfs=self.sysfs, clock=lambda: self.now_s)

    def snapshot(self, options: SamplerOptions = OPTIONS, *, interval_s: float = 2.0) -> GpuSnapshot:
        """Read once; by default at a pace at which everything is read each time."""
        return self.session.read(options, interval_s=interval_s)

    def reading(self, gpu: int = 0, options: SamplerOptions = OPTIONS) -> GpuReading:
        """Read once and return one GPU's part."""
        return by_uuid(self.snapshot(options))[uuid(gpu)]

    def info(self, gpu: int = 0, options: SamplerOptions = OPTIONS) -> GpuInfo:
        """Read once and return what stays the same about one GPU."""
        return next(each for each in self.snapshot(options).gpus if each.uuid == uuid(gpu))

    def rescan(self) -> None:
        """Let so much time go by that the next reading looks for GPUs."""
        self.now_s += RESCAN_S


def by_uuid(snapshot: GpuSnapshot) -> dict[str, GpuReading]:
    """The readings of a snapshot by UUID; checks that there is one for each GPU, in their order."""
    assert [each.uuid for each in snapshot.readings] == [each.uuid for each in snapshot.gpus]
    return {each.uuid: each for each in snapshot.readings}
