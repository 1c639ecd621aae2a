"""Readings of the machine against what /proc says."""

from pathlib import Path

from backend.telemetry.host import HostReader


def test_memory_is_what_proc_says_and_cpu_needs_two_readings() -> None:
    reader = HostReader()
    first = reader.read()
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    total = int(lines["MemTotal"].split()[0]) * 1024
    used = total - int(lines["MemAvailable"].split()[0]) * 1024
    assert first.memory_total_bytes == total
    assert abs(first.memory_used_bytes - used) < 0.1 * total
    assert first.cpu_ratio is None
    second = reader.read()
    while second.cpu_ratio is None:  # the kernel counts in hundredths of a second
        second = reader.read()
    assert 0 <= second.cpu_ratio <= 1
    assert second.t >= first.t
