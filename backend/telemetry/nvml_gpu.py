"""Reads the figures of one GPU, or of one MIG slice of it, through its handle."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from backend.hardware import GPU_FIGURES, GpuInfo, GpuReading, Why
from backend.telemetry.gpu_messages import SamplerOptions
from backend.telemetry.nvml_ask import ask, known
from backend.telemetry.nvml_counters import ALL_LINKS, Counter, read_fields, sensor
from backend.telemetry.nvml_gpm import ACTIVITY, GpmPair
from backend.telemetry.nvml_info import Slice, read_host_memory, read_info, read_memory, read_mig, sleep_file, with_peak
from backend.telemetry.nvml_processes import ProcessReader

_POWER = (pynvml.NVML_FI_DEV_POWER_AVERAGE, pynvml.NVML_FI_DEV_POWER_INSTANT)  # the first that the driver knows
_MEMORY_TEMPERATURE = pynvml.NVML_FI_DEV_MEMORY_TEMP
_ENERGY = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
# Figure -> the field that counts it up.
_PCIE = {
    "pcie_tx_bytes_per_s": pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
    "pcie_rx_bytes_per_s": pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
}
_NVLINK = {
    "nvlink_tx_bytes_per_s": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    "nvlink_rx_bytes_per_s": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
}
_KIB = 1024
_FIELDS = tuple((field, 0) for field in (*_POWER, _MEMORY_TEMPERATURE, _ENERGY, *_PCIE.values()))
_LINK_FIELDS = tuple((field, ALL_LINKS) for field in _NVLINK.values())
_SNAPSHOT = {
    "pcie_tx_bytes_per_s": pynvml.NVML_PCIE_UTIL_TX_BYTES,
    "pcie_rx_bytes_per_s": pynvml.NVML_PCIE_UTIL_RX_BYTES,
}
_MEMORY = ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes", "memory_free_bytes")

_PCIE_LANE_BYTES_PER_S = {1: 250e6, 2: 500e6, 3: 985e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
_ANY_PCIE_BYTES_PER_S = 150e9
_ANY_NVLINK_BYTES_PER_S = 4e12
_OVER = 1.1  # a driver reads the counter a little apart from the time that it says
_P_STATES = 16
_HOTTEST_C = 200.0

# Idle and clocks that somebody set hold the clocks down as well, but nothing is wrong then.
_THROTTLE = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power limit",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost with another GPU",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "too hot",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "much too hot",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake of the power supply",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "clocks of the display",
}
_SAYS_MORE = pynvml.nvmlClocksEventReasonHwThermalSlowdown | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown

# All that a sampler tells: which processes are the engine's is known to the program alone.
_ALL = tuple(name for name in (*GPU_FIGURES, "throttle", "processes") if name not in ("engine_bytes", "other_bytes"))


class GpuReader:
    """One GPU that answers, from its handle being found until it is lost."""

    def __init__(
        self, handle: Any, *, uuid: str, index: int, part: Slice | None = None, sysfs: Path = Path("/sys")
    ) -> None:
        """Read what stays the same.

        Args:
            handle: of the GPU or the slice.
            uuid: its UUID.
            index: its place in NVML's list; for a slice that of its GPU.
            part: for a MIG slice, where it is.
            sysfs: where the kernel shows devices.

        Raises:
            GpuLostError: it is gone.
        """
        self.handle = handle
        self.part = part
        self.info = read_info(handle, uuid=uuid, index=index, part=part)
        self.sleep_file = sleep_file(self.info.pci_bus_id, sysfs)
        self._counters: dict[str, Counter] = {}
        self._slow: dict[str, Any] = {}
        self._entered: float | None = None
        links = self.info.nvlinks or 0
        self._fields = _FIELDS + (_LINK_FIELDS if links else ())
        self._pcie_limit = _pcie_limit(self.info)
        self._nvlink_limit = _nvlink_limit(handle, links)
        self._gpm = (
            GpmPair(handle, parent=part and part.parent, instance=part.instance if part else None)
            if self.info.measures_bandwidth
            else None
        )

    def close(self) -> None:
        """Give back what the driver keeps for us; the handle is not used."""
        if self._gpm is not None:
            self._gpm.close()

    def look_again(self, index: int) -> None:
        """Take in what may have changed since it was found: its place, and whether it is cut into slices.

        Raises:
            GpuLostError: it is gone.
        """
        if self.part is None:
            self.info = replace(self.info, index=index, mig_enabled=read_mig(self.handle))
        else:
            self.info = replace(self.info, index=index)

    def forget(self) -> None:
        """Forget the last readings, so that no rate spans a time without any."""
        self._counters.clear()
        self._slow.clear()
        if self._gpm is not None:
            self._gpm.pause()

    def read(self, t: float, options: SamplerOptions, processes: ProcessReader, *, slow: bool) -> GpuReading:
        """Read the figures as they are now.

        Args:
            t: Unix time that the reading gets.
            options: what to read.
            processes: reader of process lists.
            slow: read also what is read less often; else those figures are repeated.

        Raises:
            GpuLostError: it is gone.
        """
        self._set_peak(options.peaks.get(self.info.uuid))
        found: dict[str, Any] = {}
        self._read_memory(found)
        gpm = self._read_gpm(found, options)
        if self.part is None:
            self._read_activity(found)
            self._read_counters(found, gpm, options)
        if slow or not self._slow:
            self._slow = {} if self.part else self._read_slow()
            self._slow["processes"] = Why.NOT_READ
            if options.processes:
                self._slow["processes"] = processes.read(self.handle, memory_total_bytes=self.info.memory_total_bytes)
        found |= self._slow
        why: dict[str, Why] = {}
        for name in _ALL:
            value = found.get(name)
            if value is None or isinstance(value, Why):
                why[name] = value or Why.NOT_SUPPORTED
        known_figures = {name: value for name, value in found.items() if not isinstance(value, Why)}
        return GpuReading(uuid=self.info.uuid, t=t, why=why, **known_figures)

    def _set_peak(self, entered: float | None) -> None:
        if entered != self._entered:
            self._entered = entered
            self.info = with_peak(self.info, entered)

    def _read_memory(self, found: dict[str, Any]) -> None:
        memory = read_host_memory() if self.info.unified_memory else read_memory(self.handle)
        if isinstance(memory, Why):
            found.update(dict.fromkeys(_MEMORY, memory))
            return
        found.update(zip(_MEMORY, (memory.total, memory.used, memory.reserved, memory.free), strict=True))
        if self.info.memory_total_bytes is None:
            self.info = with_peak(replace(self.info, memory_total_bytes=memory.total), self._entered)

    def _read_activity(self, found: dict[str, Any]) -> None:
        busy = ask(pynvml.nvmlDeviceGetUtilizationRates, self.handle)
        if isinstance(busy, Why):
            found["busy_ratio"] = found["memory_busy_ratio"] = busy
        else:
            found["busy_ratio"], found["memory_busy_ratio"] = busy.gpu / 100, busy.memory / 100
        found["memory_clock_mhz"] = ask(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_MEM)
        found["sm_clock_mhz"] = ask(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_SM)
        state = ask(pynvml.nvmlDeviceGetPerformanceState, self.handle)
        found["performance_state"] = state if isinstance(state, Why) or state < _P_STATES else Why.ERROR

    def _read_gpm(self, found: dict[str, Any], options: SamplerOptions) -> dict[str, float | Why]:
        """Read the performance counters; returns all their figures, also those that others may tell better."""
        if self._gpm is None:
            return {}
        if not options.activity:
            self._gpm.pause()
            found.update(dict.fromkeys((*ACTIVITY, "dram_bytes_per_s"), Why.NOT_READ))
            return dict.fromkeys((*_PCIE, *_NVLINK), Why.NOT_READ)
        figures = self._gpm.read()
        if self._gpm.refused is not None and self.info.measures_bandwidth:
            self.info = replace(self.info, measures_bandwidth=False)
        found.update({name: figures[name] for name in ACTIVITY})
        dram, peak = figures["dram_ratio"], self.info.peak_bytes_per_s
        if isinstance(dram, Why):
            found["dram_bytes_per_s"] = dram
        elif peak is not None:
            found["dram_bytes_per_s"] = dram * peak
        return figures

    def _read_counters(self, found: dict[str, Any], gpm: dict[str, float | Why], options: SamplerOptions) -> None:
        fields = read_fields(self.handle, self._fields)
        found["power_w"] = self._power(fields)
        found["memory_temperature_c"] = sensor(fields.get(_MEMORY_TEMPERATURE), limit=_HOTTEST_C)
        found["energy_j"] = sensor(fields.get(_ENERGY), scale=1e-3, limit=2**63 - 16)
        if not self.info.unified_memory:
            for name, field in _PCIE.items():
                counted = self._rate(name, fields.get(field), 1, self._pcie_limit)
                found[name] = self._pcie(name, _better(counted, gpm.get(name)), options)
        if self.info.nvlinks:
            for name, field in _NVLINK.items():
                counted = self._rate(name, fields.get(field), _KIB, self._nvlink_limit)
                found[name] = _better(counted, gpm.get(name))

    def _power(self, fields: dict[int, tuple[float, int] | Why]) -> float | Why:
        for field in _POWER:
            watts = sensor(fields.get(field), scale=1e-3)
            if not isinstance(watts, Why):
                return watts
        milliwatts = ask(pynvml.nvmlDeviceGetPowerUsage, self.handle)
        return milliwatts if isinstance(milliwatts, Why) else milliwatts * 1e-3

    def _pcie(self, name: str, rate: float | Why, options: SamplerOptions) -> float | Why:
        if rate not in (Why.NOT_SUPPORTED, Why.NO_PERMISSION, Why.NOT_READ):
            return rate
        if not options.pcie_snapshot:
            return Why.NOT_READ
        kb_per_s = ask(pynvml.nvmlDeviceGetPcieThroughput, self.handle, _SNAPSHOT[name])
        return kb_per_s if isinstance(kb_per_s, Why) else kb_per_s * 1e3

    def _rate(self, name: str, answer: tuple[float, int] | Why | None, scale: int, limit: float) -> float | Why:
        if answer is None or isinstance(answer, Why):
            return answer or Why.NOT_SUPPORTED
        count, t_us = answer
        counter = self._counters.setdefault(name, Counter())
        return counter.rate(count * scale, t_us or time.monotonic_ns() // 1000, limit_bytes_per_s=limit)

    def _read_slow(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        found["temperature_c"] = ask(pynvml.nvmlDeviceGetTemperatureV, self.handle, pynvml.NVML_TEMPERATURE_GPU)
        if found["temperature_c"] is Why.NOT_SUPPORTED:  # the function came with driver 575
            found["temperature_c"] = ask(pynvml.nvmlDeviceGetTemperature, self.handle, pynvml.NVML_TEMPERATURE_GPU)
        mask = ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, self.handle)
        if mask is Why.NOT_SUPPORTED:  # its name before driver 535
            mask = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.handle)
        found["throttle"] = mask if isinstance(mask, Why) else _throttle(mask)
        if not self.info.unified_memory:
            found["pcie_generation"] = ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, self.handle)
            found["pcie_width"] = ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, self.handle)
        milliwatts = known(ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, self.handle))
        limit_w = None if milliwatts is None else milliwatts / 1e3
        if limit_w != self.info.power_limit_w:
            self.info = replace(self.info, power_limit_w=limit_w)
        return found


def unread(info: GpuInfo, t: float, why: Why) -> GpuReading:
    """Return the reading of a GPU that cannot or must not be asked."""
    return GpuReading(uuid=info.uuid, t=t, lost=why is Why.LOST, why=dict.fromkeys(_ALL, why))


def _better(counted: float | Why, gpm: float | Why | None) -> float | Why:
    """The counter's rate; where there is no such counter, what GPM says."""
    return gpm if counted in (Why.NOT_SUPPORTED, Why.NO_PERMISSION) and gpm is not None else counted


def _pcie_limit(info: GpuInfo) -> float:
    lane = _PCIE_LANE_BYTES_PER_S.get(info.max_pcie_generation or 0, 0.0)
    return _OVER * (lane * (info.max_pcie_width or 0) or _ANY_PCIE_BYTES_PER_S)


def _nvlink_limit(handle: Any, links: int) -> float:
    field = pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
    speed = known(sensor(read_fields(handle, ((field, 0),)).get(field), scale=1e6)) if links else None
    return _OVER * links * speed if speed else _ANY_NVLINK_BYTES_PER_S


def _throttle(mask: int) -> tuple[str, ...]:
    if mask & _SAYS_MORE:  # the general reason is set along with these
        mask &= ~pynvml.nvmlClocksEventReasonHwSlowdown
    return tuple(words for bit, words in _THROTTLE.items() if mask & bit)
