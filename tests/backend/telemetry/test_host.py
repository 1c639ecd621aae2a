"""Readings of the machine against what /proc says."""

import os
import resource
import subprocess
import sys
from pathlib import Path

from backend.telemetry.host import HostReader, process_use


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


def test_use_of_processes_adds_up_and_those_that_are_gone_count_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    before = resource.getrusage(resource.RUSAGE_SELF)
    own = process_use([os.getpid()])
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert own.n_processes == 1
    assert before.ru_utime + before.ru_stime - 0.05 <= own.cpu_s <= after.ru_utime + after.ru_stime + 0.05
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    assert abs(own.memory_bytes - pages * os.sysconf("SC_PAGE_SIZE")) < 0.2 * own.memory_bytes
    assert process_use([gone.pid]).n_processes == 0
    both = process_use([os.getpid(), os.getppid(), gone.pid])
    assert both.n_processes == 2
    assert both.memory_bytes > own.memory_bytes
