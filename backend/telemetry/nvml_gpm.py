"""Reads what a GPU's performance counters (GPM: Hopper, Blackwell and newer) show between two samples."""

import math
from typing import Any

import pynvml

from backend.hardware import Why
from backend.telemetry.nvml_ask import FAILURES, GpuLostError, ask, reason, why_of

_MIB = 1024.0 * 1024.0
_METRICS: dict[str, tuple[int, float]] = {
    "dram_ratio": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 0.01),
    "sm_ratio": (pynvml.NVML_GPM_METRIC_SM_UTIL, 0.01),
    "tensor_ratio": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 0.01),
    "pcie_tx_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, _MIB),
    "pcie_rx_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, _MIB),
    "nvlink_rx_bytes_per_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, _MIB),
    "nvlink_tx_bytes_per_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, _MIB),
}
"""Figure -> metric and what makes it a ratio or bytes/s."""

ACTIVITY = ("dram_ratio", "sm_ratio", "tensor_ratio")
"""What only these counters tell."""


def supports_gpm(handle: Any) -> bool:
    """Whether the driver says that a GPU has these counters; the first sample may still be refused.

    Raises:
        GpuLostError: the GPU is gone.
    """
    answer = ask(pynvml.nvmlGpmQueryDeviceSupport, handle)
    return not isinstance(answer, Why) and bool(answer.isSupportedDevice)


class GpmPair:
    """Two samples of one GPU or MIG slice, which swap their roles at each reading."""

    def __init__(self, handle: Any, *, parent: Any = None, instance: int | None = None) -> None:
        """Allocate the samples.

        Args:
            handle: of the GPU or the slice.
            parent: for a slice the handle of its GPU; older drivers want that and the number of the `instance`.
            instance: GPU instance of the slice.

        Raises:
            GpuLostError: the GPU is gone.
        """
        self.refused: Why | None = None
        self._handle, self._parent, self._instance = handle, parent, instance
        self._seeded = False
        self._samples: list[Any] = []
        for _ in range(2):
            sample = ask(pynvml.nvmlGpmSampleAlloc)
            if isinstance(sample, Why):
                self.refused = sample
                self.close()
                return
            self._samples.append(sample)
        self._query = pynvml.c_nvmlGpmMetricsGet_t()  # 19 kB, hence once
        self._query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._query.numMetrics = len(_METRICS)
        for place, (metric, _) in enumerate(_METRICS.values()):
            self._query.metrics[place].metricId = metric

    def read(self) -> dict[str, float | Why]:
        """Take a sample and return the figures since the one before; two samples must be 100 ms apart.

        `refused` is set once the driver does not give samples to this user or of this GPU.

        Raises:
            GpuLostError: the GPU is gone.
        """
        if self.refused is not None:
            return dict.fromkeys(_METRICS, self.refused)
        older, newer = self._samples
        if (why := self._take(newer)) is not None:
            self._seeded = False
            if why in (Why.NOT_SUPPORTED, Why.NO_PERMISSION):
                self.refused = why
            return dict.fromkeys(_METRICS, why)
        self._samples = [newer, older]
        if not self._seeded:
            self._seeded = True
            return dict.fromkeys(_METRICS, Why.NOT_YET)
        self._query.sample1, self._query.sample2 = older, newer
        answer = ask(pynvml.nvmlGpmMetricsGet, self._query)
        if isinstance(answer, Why):
            return dict.fromkeys(_METRICS, answer)
        return {
            name: _value(self._query.metrics[place], scale) for place, (name, (_, scale)) in enumerate(_METRICS.items())
        }

    def _take(self, sample: Any) -> Why | None:
        """Take one sample; on failure why."""
        try:
            if self._instance is None:
                pynvml.nvmlGpmSampleGet(self._handle, sample)
            else:
                self._take_of_slice(sample)
        except FAILURES as error:
            why = why_of(error)
            if why is Why.LOST:
                raise GpuLostError from error
            return why
        return None

    def _take_of_slice(self, sample: Any) -> None:
        try:
            pynvml.nvmlGpmSampleGet(self._handle, sample)
        except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):  # before driver 580
            pynvml.nvmlGpmMigSampleGet(self._parent, self._instance, sample)

    def pause(self) -> None:
        """Forget the sample taken last, so that the next reading does not span the time until then."""
        self._seeded = False

    def close(self) -> None:
        """Give the samples back; this does not touch the GPU."""
        while self._samples:
            ask(pynvml.nvmlGpmSampleFree, self._samples.pop())


def _value(metric: Any, scale: float) -> float | Why:
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return reason(metric.nvmlReturn)
    value = float(metric.value)
    return value * scale if math.isfinite(value) and value >= 0 else Why.ERROR
