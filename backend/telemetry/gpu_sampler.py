"""Reads the GPUs in a process of its own (`python -P -m backend.telemetry.gpu_sampler`), since NVML may crash or hang.

It writes a snapshot as one line at each tick, and takes `SamplerOptions` as lines on its standard input, whose end
ends it. See `backend.telemetry.gpu_messages` for both. It is the only module that loads NVML.
"""

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from backend.hardware import GpuSnapshot
from backend.telemetry.gpu_messages import Encoder, SamplerOptions
from backend.telemetry.nvml_session import RESCAN_S, NvmlSession

_MOST_OF_A_TICK = 0.2
_MOST_SLOWER = 8
_COSTLY_TICKS = 2  # a busy machine makes a single one slow, which says nothing of the driver
_CHEAP_TICKS = 5
_PROBLEM_S = 5.0
_RATES_S = 0.3  # between two readings that rates are made of


class Pace:
    """Slows the ticks down while they cost more than a fifth of the time between two, and comes back."""

    def __init__(self) -> None:
        self._slower = 1
        self._costly = self._cheap = 0

    def interval_s(self, wanted_s: float) -> float:
        """Return the time between two ticks, where `wanted_s` was asked for."""
        return wanted_s * self._slower

    def took(self, cost_s: float, *, wanted_s: float) -> None:
        """Take in what a tick cost."""
        most_s = _MOST_OF_A_TICK * self.interval_s(wanted_s)
        self._costly = self._costly + 1 if cost_s > most_s else 0
        self._cheap = self._cheap + 1 if cost_s < most_s / 3 else 0  # it would also be at twice the pace
        if self._costly >= _COSTLY_TICKS:
            self._slower, self._costly = min(2 * self._slower, _MOST_SLOWER), 0
        elif self._cheap >= _CHEAP_TICKS:
            self._slower, self._cheap = max(self._slower // 2, 1), 0


class _Commands:
    """Lines on the standard input."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""

    def wait(self, limit_s: float) -> list[bytes] | None:
        """Return the lines that came within a time, at once when some have come; None at the end of input."""
        ready, _, _ = select.select([self._fd], [], [], max(limit_s, 0.0))
        if not ready:
            return []
        some = os.read(self._fd, 65536)
        if not some:
            return None
        *lines, self._rest = (self._rest + some).split(b"\n")
        return lines


def _follow(session: NvmlSession, options: SamplerOptions) -> None:
    """Write snapshots until the input ends."""
    commands, encoder, pace = _Commands(sys.stdin.fileno()), Encoder(), Pace()
    is_first = True
    while True:
        began_s = time.monotonic()
        snapshot = session.read(options, interval_s=pace.interval_s(options.interval_s))
        cost_s = time.monotonic() - began_s
        if not is_first:  # the first one also starts NVML, which says nothing of the others
            pace.took(cost_s, wanted_s=options.interval_s)
        is_first = False
        _write(encoder.line(replace(snapshot, cost_s=cost_s, interval_s=_wait_s(snapshot, options, pace))))
        if session.is_outdated:
            return
        while True:
            left_s = began_s + _wait_s(snapshot, options, pace) - time.monotonic()
            lines = commands.wait(left_s)
            if lines is None:
                return
            for line in lines:
                options = _obey(options, line)
            if not lines and left_s <= 0:
                break


def _wait_s(snapshot: GpuSnapshot, options: SamplerOptions, pace: Pace) -> float:
    """Time to the next tick; where nothing can be read, a line now and then shows that we are alive."""
    interval_s = pace.interval_s(options.interval_s)
    return max(interval_s, min(10 * interval_s, _PROBLEM_S)) if snapshot.problem else interval_s


def _obey(options: SamplerOptions, line: bytes) -> SamplerOptions:
    try:
        return options.changed(line)
    except ValueError as error:
        sys.stderr.write(f"Ignored a command: {error}\n")
        return options


def _write(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_sampler", description="Write what the GPUs show as lines of JSON.")
    parser.add_argument("--interval", type=float, default=0.5, metavar="SECONDS", help="time between two readings")
    parser.add_argument("--activity", action="store_true", help="read performance counters: bandwidth, SMs, tensors")
    parser.add_argument("--pcie-snapshot", action="store_true", help="measure PCIe traffic for 40 ms where need be")
    parser.add_argument("--no-processes", action="store_true", help="do not read who holds memory")
    parser.add_argument(
        "--peak", type=_peak, action="append", default=[], metavar="UUID=BYTES_PER_S", help="highest memory bandwidth"
    )
    parser.add_argument(
        "--rescan", type=float, default=RESCAN_S, metavar="SECONDS", help="how often to look for GPUs or a driver"
    )
    parser.add_argument("--once", action="store_true", help="write one whole snapshot and end; wakes GPUs that sleep")
    return parser.parse_args(argv)


def _peak(text: str) -> tuple[str, float]:
    uuid, _, peak = text.partition("=")
    return uuid, float(peak)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the GPUs until the input ends, or with --once a single time."""
    wanted = _options(argv)
    options = SamplerOptions(
        interval_s=wanted.interval,
        activity=wanted.activity,
        pcie_snapshot=wanted.pcie_snapshot,
        processes=not wanted.no_processes,
        peaks=dict(wanted.peak),
    )
    session = NvmlSession(rescan_s=wanted.rescan, wake=wanted.once)
    if wanted.once:
        snapshot = session.read(options, interval_s=_RATES_S)
        if not snapshot.problem:
            time.sleep(_RATES_S)
            snapshot = session.read(options, interval_s=_RATES_S)
        _write(Encoder().line(replace(snapshot, interval_s=_RATES_S)))
        return
    # Ctrl-C in a terminal reaches all of the program; this one goes when its input ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _follow(session, options)


if __name__ == "__main__":
    main()
