"""The program's side of the GPU sampler: death, hangs, nonsense, restarts and gaps."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend import bounded
from backend.hardware import GpuSnapshot, Why, gpu_series
from backend.telemetry.gpu_messages import SamplerOptions
from backend.telemetry.gpus import Gpus, Timing
from backend.telemetry.history import History
from tests.backend.telemetry.scripted_sampler import Script, is_alive

LIMIT_S = 60.0
# Restarts at once; a slow machine may take long for all the rest.
AT_ONCE = Timing(back_off_s=(0.01,) * 5, retry_s=0.01, look_s=0.05)
# A silence is noticed soon. What goes on must speak far oftener than this.
NOTICED_SOON = Timing(stale_s=0.3, silence_s=1.0, back_off_s=(0.01,) * 5, look_s=0.05)
SELDOM = 0.01  # the interval that a sampler claims, so that three ticks are nothing


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def sampled(
    script: Script, timing: Timing = AT_ONCE, options: SamplerOptions | None = None
) -> AsyncIterator[Gpus]:
    gpus = Gpus(options, argv=script.argv, timing=timing)
    await gpus.start()
    try:
        yield gpus
    finally:
        await gpus.close()


def now(gpus: Gpus) -> GpuSnapshot:
    snapshot = gpus.snapshot
    assert snapshot is not None
    return snapshot


def is_good(gpus: Gpus) -> bool:
    snapshot = gpus.snapshot
    return snapshot is not None and not snapshot.stale and not snapshot.problem


def has_problem(gpus: Gpus, words: str) -> bool:
    snapshot = gpus.snapshot
    return snapshot is not None and words in snapshot.problem


async def test_figures_arrive(tmp_path: Path) -> None:
    async with sampled(Script(tmp_path, "go_on('GPU-1', used=5e9, driver='580.95')")) as gpus:
        assert gpus.snapshot is None
        await until(lambda: gpus.snapshot is not None)
        first = now(gpus)
        assert (first.driver, first.stale, first.problem) == ("580.95", False, "")
        assert [reading.memory_used_bytes for reading in first.readings] == [5e9]
        await until(lambda: now(gpus).t > first.t)


# ---- commands --------------------------------------------------------------------------------------------------

ECHO = """
for line in sys.stdin:
    say("GPU-1", driver=line.strip(), interval_s=60.0)
"""


async def test_options_reach_the_sampler_at_its_start_and_at_once_when_they_change(tmp_path: Path) -> None:
    first = SamplerOptions(interval_s=2.0, peaks={"GPU-1": 9e11})
    async with sampled(Script(tmp_path, ECHO), options=first) as gpus:
        await until(lambda: gpus.snapshot is not None)
        told = json.loads(now(gpus).driver)
        assert (told["interval_s"], told["activity"], told["peaks"]) == (2.0, False, {"GPU-1": 9e11})
        gpus.ask(replace(first, activity=True, interval_s=5.0))
        await until(lambda: json.loads(now(gpus).driver)["activity"])
        assert json.loads(now(gpus).driver)["interval_s"] == 5.0


async def test_options_that_stay_the_same_are_not_sent_again(tmp_path: Path) -> None:
    code = """
    for n, line in enumerate(sys.stdin):
        say("GPU-1", driver=f"{n} {line}", interval_s=60.0)
    """
    async with sampled(Script(tmp_path, code)) as gpus:
        await until(lambda: gpus.snapshot is not None)
        for _ in range(3):
            gpus.ask(SamplerOptions())
        gpus.ask(SamplerOptions(activity=True))
        await until(lambda: '"activity": true' in now(gpus).driver)
        assert now(gpus).driver.startswith("1 ")


async def test_a_new_sampler_is_told_the_newest_options(tmp_path: Path) -> None:
    code = """
    wanted = sys.stdin.readline()
    say("GPU-1", driver=wanted)
    if life == 1:
        while '"activity": true' not in sys.stdin.readline():
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    go_on("GPU-1", driver=wanted)
    """
    script = Script(tmp_path, code)
    async with sampled(script) as gpus:
        await until(lambda: gpus.snapshot is not None)
        gpus.ask(SamplerOptions(activity=True, pcie_snapshot=True))
        await until(lambda: len(script.pids) == 2 and is_good(gpus))
        told = json.loads(now(gpus).driver)
        assert (told["activity"], told["pcie_snapshot"]) == (True, True)


async def test_a_sampler_that_never_reads_its_input_blocks_nobody(tmp_path: Path) -> None:
    async with sampled(Script(tmp_path, "go_on('GPU-1')")) as gpus:
        await until(lambda: gpus.snapshot is not None)
        for number in range(3000):  # more than a pipe holds
            gpus.ask(SamplerOptions(interval_s=1.0 + number % 2))
        then = now(gpus).t
        gpus.ask(SamplerOptions())
        await until(lambda: now(gpus).t > then and is_good(gpus))


# ---- death -----------------------------------------------------------------------------------------------------

DIES = """
if life == 1:
    say("GPU-1", used=5e9, interval_s=60.0)
    {death}
go_on("GPU-1", used=6e9)
"""


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "NVML crashed (signal 11)."),
        ("os.abort()", "NVML crashed (signal 6)."),
        ("os.kill(os.getpid(), signal.SIGKILL)", "The GPU sampler was killed (signal 9)."),
        (
            "print('Traceback\\nOddError: no luck.\\n', file=sys.stderr); sys.exit(3)",
            "The GPU sampler failed (exit code 3): OddError: no luck.",
        ),
        ("sys.exit(0)", "The GPU sampler ended by itself."),
    ],
)
async def test_death_is_told_with_what_follows_and_the_last_figures_are_marked_as_old(
    tmp_path: Path, death: str, words: str
) -> None:
    script = Script(tmp_path, DIES.format(death=death))
    async with sampled(script, replace(AT_ONCE, back_off_s=(2.0,))) as gpus:
        await until(lambda: has_problem(gpus, words))
        dead = now(gpus)
        assert dead.problem == f"{words} It is started again after 2 s."
        assert dead.stale
        assert [reading.memory_used_bytes for reading in dead.readings] == [5e9]
        await until(lambda: is_good(gpus))
        assert [reading.memory_used_bytes for reading in now(gpus).readings] == [6e9]
        assert len(script.pids) == 2


async def test_words_of_a_death_before_the_first_figure(tmp_path: Path) -> None:
    script = Script(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)")
    async with sampled(script, Timing(back_off_s=(600.0,), rarely_s=900.0)) as gpus:
        await until(lambda: gpus.snapshot is not None)
        assert now(gpus).stale
        assert now(gpus).gpus == ()
        assert now(gpus).problem == "NVML crashed (signal 11). It is started again after 600 s."


async def test_time_goes_on_while_there_is_no_sampler(tmp_path: Path) -> None:
    script = Script(tmp_path, "say('GPU-1'); os.kill(os.getpid(), signal.SIGSEGV)")
    async with sampled(script, Timing(back_off_s=(600.0,))) as gpus:
        await until(lambda: has_problem(gpus, "crashed"))
        then = now(gpus).t
        await until(lambda: now(gpus).t > then + 0.05)


async def test_waits_between_starts_grow_and_at_last_it_is_seldom(tmp_path: Path) -> None:
    script = Script(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)")
    waits_s = (0.1, 0.5, 1.0)
    async with sampled(script, Timing(back_off_s=waits_s, rarely_s=300.0)) as gpus:
        await until(lambda: has_problem(gpus, "in a row"))
        assert now(gpus).problem == (
            "NVML crashed (signal 11). That was 4 times in a row; it is tried again every 5 min. "
            "Restart the GPU driver, or the machine."
        )
        starts = script.starts_s
        assert len(starts) == 4
        assert all(b - a >= wait for a, b, wait in zip(starts, starts[1:], waits_s, strict=False))


def test_the_limits_that_ship() -> None:
    usual = Timing()
    assert usual.back_off_s == (1.0, 2.0, 5.0, 15.0, 30.0)
    assert (usual.rarely_s, usual.healthy_s, usual.retry_s) == (300.0, 60.0, 30.0)
    assert (usual.stale_s, usual.silence_s) == (3.0, 10.0)
    assert 2 * usual.grace_s < 1


async def test_a_minute_of_health_forgets_the_failures_before(tmp_path: Path) -> None:
    script = Script(tmp_path, "say('GPU-1'); time.sleep(0.3); say('GPU-1'); os.kill(os.getpid(), signal.SIGSEGV)")
    async with sampled(script, Timing(back_off_s=(0.01,), rarely_s=3600.0, healthy_s=0.05)) as gpus:
        await until(lambda: len(script.pids) >= 4)
        assert "in a row" not in now(gpus).problem


async def test_failures_without_health_count_up_even_if_each_said_something(tmp_path: Path) -> None:
    script = Script(tmp_path, "say('GPU-1'); os.kill(os.getpid(), signal.SIGSEGV)")
    async with sampled(script, Timing(back_off_s=(0.01, 0.01), rarely_s=3600.0)) as gpus:
        await until(lambda: has_problem(gpus, "3 times in a row"))
        assert len(script.pids) == 3


async def test_one_that_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-such-python"))
    gpus = Gpus(argv=("anything",), timing=Timing(back_off_s=(600.0,)))
    await gpus.start()
    try:
        await until(lambda: gpus.snapshot is not None)
        assert now(gpus).problem.startswith("The GPU sampler cannot be started (No such file or directory).")
    finally:
        await gpus.close()


# ---- a sampler that has nothing to read ------------------------------------------------------------------------


async def test_a_problem_that_the_sampler_tells_before_it_ends_stays_as_it_told_it(tmp_path: Path) -> None:
    code = """
    if life <= 8:
        say(problem="The driver was updated. Restart the machine.")
    else:
        go_on("GPU-1")
    """
    script = Script(tmp_path, code)
    async with sampled(script, replace(AT_ONCE, back_off_s=(600.0,))) as gpus:
        await until(lambda: gpus.snapshot is not None)
        assert now(gpus).problem == "The driver was updated. Restart the machine."
        assert not now(gpus).stale
        await until(lambda: is_good(gpus))  # eight ends are no failures: none of them had to wait for long
        assert len(script.pids) == 9


async def test_the_wait_after_such_an_end(tmp_path: Path) -> None:
    script = Script(tmp_path, "say(problem='No driver.')")
    async with sampled(script, Timing(back_off_s=(0.01,), retry_s=0.7, look_s=0.05)):
        await until(lambda: len(script.pids) >= 2)
        assert script.starts_s[1] - script.starts_s[0] >= 0.7


async def test_a_crash_after_a_problem_is_a_crash(tmp_path: Path) -> None:
    script = Script(tmp_path, "say(problem='No driver.'); os.kill(os.getpid(), signal.SIGSEGV)")
    async with sampled(script, Timing(back_off_s=(600.0,))) as gpus:
        await until(lambda: has_problem(gpus, "NVML crashed (signal 11)"))


async def test_a_problem_of_one_that_goes_on_is_no_silence_before_its_interval_is_over(tmp_path: Path) -> None:
    script = Script(tmp_path, "say(problem='No driver.', interval_s=30.0); hang()")
    async with sampled(script, NOTICED_SOON) as gpus:
        await until(lambda: gpus.snapshot is not None)
        began = time.monotonic()
        await until(lambda: time.monotonic() > began + 2 * NOTICED_SOON.silence_s)
        assert (now(gpus).problem, now(gpus).stale) == ("No driver.", False)
        assert len(script.pids) == 1


# ---- hangs -----------------------------------------------------------------------------------------------------


async def test_a_silence_makes_figures_old_then_ends_the_sampler_and_starts_another(tmp_path: Path) -> None:
    code = f"""
    say("GPU-1", used=5e9, interval_s={SELDOM})
    if life == 1:
        hang()
    go_on("GPU-1", used=6e9)
    """
    script = Script(tmp_path, code)
    options = SamplerOptions(interval_s=0.25)
    async with sampled(script, replace(NOTICED_SOON, back_off_s=(1.5,), silence_s=3.0), options) as gpus:
        await until(lambda: gpus.snapshot is not None)
        assert is_good(gpus) or now(gpus).stale
        await until(lambda: now(gpus).stale)
        assert "have not been read for" in now(gpus).problem
        assert [reading.memory_used_bytes for reading in now(gpus).readings] == [5e9]
        assert is_alive(script.pids[0])
        await until(lambda: has_problem(gpus, "has not answered for 3 s. It is started again after 2 s."))
        assert not is_alive(script.pids[0])
        await until(lambda: now(gpus).readings[0].memory_used_bytes == 6e9)
        assert len(script.pids) == 2


async def test_a_seldom_interval_is_no_silence(tmp_path: Path) -> None:
    code = """
    say("GPU-1", interval_s=5.0)
    hang()
    """
    script = Script(tmp_path, code)
    async with sampled(script, NOTICED_SOON, SamplerOptions(interval_s=5.0)) as gpus:
        await until(lambda: gpus.snapshot is not None)
        gpus.ask(SamplerOptions(interval_s=0.25))  # shown again: the next line may still be some seconds away
        began = time.monotonic()
        await until(lambda: time.monotonic() > began + 2 * NOTICED_SOON.silence_s)
        assert not now(gpus).stale
        assert len(script.pids) == 1


async def test_a_slow_start_is_no_silence(tmp_path: Path) -> None:
    script = Script(tmp_path, "time.sleep(3); go_on('GPU-1')")
    async with sampled(script, NOTICED_SOON, SamplerOptions(interval_s=0.25)) as gpus:
        await until(lambda: is_good(gpus))
        assert len(script.pids) == 1


async def test_a_start_that_never_ends_is_ended(tmp_path: Path) -> None:
    script = Script(tmp_path, "hang() if life == 1 else go_on('GPU-1')")
    async with sampled(script, replace(AT_ONCE, start_s=4.0, back_off_s=(600.0,))) as gpus:
        await until(lambda: gpus.snapshot is not None)
        assert "has not answered for 4 s." in now(gpus).problem
        assert not any(map(is_alive, script.pids))


async def test_one_that_cannot_be_killed_is_left_behind_and_others_come_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)  # as in state D
    script = Script(tmp_path, f"say('GPU-1', interval_s={SELDOM}); hang()")
    timing = replace(NOTICED_SOON, back_off_s=(0.01,), rarely_s=3600.0, grace_s=0.1)
    try:
        async with sampled(script, timing, SamplerOptions(interval_s=0.25)) as gpus:
            await until(lambda: has_problem(gpus, "cannot be ended"))
            assert "It is tried again every 60 min." in now(gpus).problem
        (pid,) = script.pids
        assert is_alive(pid)
    finally:
        for pid in filter(is_alive, script.pids):
            os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))
    bounded.run([sys.executable, "-c", ""], limit_s=LIMIT_S)  # which collects what has ended meanwhile
    assert not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240 - it is no file on a disk


# ---- nonsense --------------------------------------------------------------------------------------------------


async def test_lines_that_are_no_snapshot_are_passed_over(tmp_path: Path) -> None:
    code = r"""
    odd = '{"t": "x", "problem": "", "readings": 3}'
    for bad in ("nonsense", "", "{}", "[1, 2]", "null", '{"t": 1', "[" * 200_000, odd):
        write(bad + "\n")
    sys.stdout.buffer.write(b"\xff\xfe\x00\n")
    write("x" * 5_000_000 + "\n")
    go_on("GPU-1", used=7e9)
    """
    script = Script(tmp_path, code)
    async with sampled(script) as gpus:
        await until(lambda: is_good(gpus))
        assert [reading.memory_used_bytes for reading in now(gpus).readings] == [7e9]
        assert len(script.pids) == 1


async def test_half_a_line_is_no_snapshot(tmp_path: Path) -> None:
    code = """
    line = encoder.line(GpuSnapshot(t=1.0, driver="half"))
    write(line.rstrip())
    """
    async with sampled(Script(tmp_path, code), Timing(back_off_s=(600.0,))) as gpus:
        await until(lambda: gpus.snapshot is not None)
        assert now(gpus).problem.startswith("The GPU sampler ended by itself.")
        assert now(gpus).driver == ""


@pytest.mark.parametrize("flood", ["while True: write('nonsense' * 10 + '\\n')", "while True: write('x' * 1_000_000)"])
async def test_a_flood_ends_the_sampler_and_the_loop_lives(tmp_path: Path, flood: str) -> None:
    script = Script(tmp_path, flood)
    async with sampled(script, Timing(back_off_s=(600.0,))) as gpus:
        await until(lambda: gpus.snapshot is not None)
        assert now(gpus).problem.startswith("The GPU sampler writes what is no reading.")
        assert not is_alive(script.pids[0])


async def test_nonsense_now_and_then_is_a_silence(tmp_path: Path) -> None:
    code = f"""
    say("GPU-1", interval_s={SELDOM})
    while True:
        write("nonsense\\n")
        time.sleep(0.2)
    """
    timing = replace(NOTICED_SOON, look_s=30.0, back_off_s=(600.0,))
    async with sampled(Script(tmp_path, code), timing, SamplerOptions(interval_s=0.25)) as gpus:
        await until(lambda: has_problem(gpus, "has not answered"))


async def test_a_flood_of_complaints_stops_nothing(tmp_path: Path) -> None:
    code = """
    for _ in range(3):
        print("complaint " * 100_000, file=sys.stderr, flush=True)
        say("GPU-1")
    print("the last one", file=sys.stderr)
    sys.exit(1)
    """
    async with sampled(Script(tmp_path, code), Timing(back_off_s=(600.0,), look_s=0.02)) as gpus:
        await until(lambda: has_problem(gpus, "failed"))
        assert now(gpus).problem.startswith("The GPU sampler failed (exit code 1): the last one.")


# ---- ends ------------------------------------------------------------------------------------------------------


async def test_closing_before_and_while_it_starts_and_twice(tmp_path: Path) -> None:
    script = Script(tmp_path, "go_on('GPU-1')")
    gpus = Gpus(argv=script.argv)
    await gpus.close()
    await gpus.start()
    await gpus.close()
    gpus = Gpus(argv=script.argv)
    await gpus.start()
    await asyncio.sleep(0.01)
    await gpus.close()
    await gpus.close()


@pytest.mark.parametrize("code", ["say('GPU-1'); hang()", "hang()", "go_on('GPU-1')", "while True: write('x' * 9999)"])
async def test_closing_ends_it_soon_whatever_it_does(tmp_path: Path, code: str) -> None:
    script = Script(tmp_path, code)
    async with sampled(script) as gpus:
        await until(lambda: bool(script.pids))
        if "say" in code:
            await until(lambda: gpus.snapshot is not None)
        began = time.monotonic()
    assert time.monotonic() - began < 5.0  # on a slow machine; it asks for two waits of 0.4 s
    assert not is_alive(script.pids[0])


async def test_closing_does_not_wait_for_a_restart(tmp_path: Path) -> None:
    script = Script(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)")
    async with sampled(script, Timing(back_off_s=(600.0,))) as gpus:
        await until(lambda: gpus.snapshot is not None)
        began = time.monotonic()
    assert time.monotonic() - began < 5.0
    assert len(script.pids) == 1


async def test_a_sampler_may_end_in_peace(tmp_path: Path) -> None:
    code = f"""
    say("GPU-1")
    sys.stdin.read()
    Path({str(tmp_path / "peace")!r}).touch()
    """
    async with sampled(Script(tmp_path, code), replace(AT_ONCE, grace_s=20.0)) as gpus:
        await until(lambda: gpus.snapshot is not None)
    assert (tmp_path / "peace").exists()


async def test_restarts_leave_no_open_files(tmp_path: Path) -> None:
    script = Script(tmp_path, "say('GPU-1'); os.kill(os.getpid(), signal.SIGSEGV)")
    before = len(os.listdir("/proc/self/fd"))
    async with sampled(script, Timing(back_off_s=(0.01,) * 6, rarely_s=3600.0)) as gpus:
        await until(lambda: has_problem(gpus, "in a row"))
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


# ---- gaps and GPUs that go away --------------------------------------------------------------------------------


async def test_a_stale_snapshot_is_a_gap_in_the_history(tmp_path: Path) -> None:
    code = """
    if life == 1:
        say("GPU-1", used=5e9)
        os.kill(os.getpid(), signal.SIGSEGV)
    go_on("GPU-1", used=6e9)
    """
    history = History()
    async with sampled(Script(tmp_path, code), replace(AT_ONCE, back_off_s=(2.0,))) as gpus:
        await until(lambda: gpus.snapshot is not None and now(gpus).stale)
        history.append_gpus(replace(now(gpus), t=99.0, stale=False, problem=""))
        history.append_gpus(replace(now(gpus), t=100.0))
        await until(lambda: is_good(gpus))
        history.append_gpus(replace(now(gpus), t=101.0))
    curve = history.last(gpu_series("GPU-1", "memory_used_bytes"), seconds=60)
    np.testing.assert_array_equal(curve.values, [5e9, np.nan, 6e9])


async def test_a_gpu_that_a_new_sampler_does_not_find_is_lost(tmp_path: Path) -> None:
    code = """
    if life == 1:
        say("GPU-1", "GPU-2", "GPU-3")
        os.kill(os.getpid(), signal.SIGSEGV)
    go_on("GPU-1", "GPU-3")
    """
    async with sampled(Script(tmp_path, code)) as gpus:
        await until(lambda: is_good(gpus) and any(reading.lost for reading in now(gpus).readings))
        found = now(gpus)
        assert sorted(gpu.uuid for gpu in found.gpus) == ["GPU-1", "GPU-2", "GPU-3"]
        assert [gpu.uuid for gpu in found.gpus] == [reading.uuid for reading in found.readings]
        by_uuid = {reading.uuid: reading for reading in found.readings}
        assert [uuid for uuid, reading in by_uuid.items() if reading.lost] == ["GPU-2"]
        assert by_uuid["GPU-2"].memory_used_bytes is None
        assert by_uuid["GPU-2"].why["memory_used_bytes"] is Why.LOST


async def test_gpus_stay_in_the_list_when_a_new_sampler_cannot_read_any(tmp_path: Path) -> None:
    code = """
    if life == 1:
        say("GPU-1", "GPU-2")
        os.kill(os.getpid(), signal.SIGSEGV)
    say(problem="The driver is being updated.")
    """
    async with sampled(Script(tmp_path, code), replace(AT_ONCE, retry_s=600.0)) as gpus:
        await until(lambda: has_problem(gpus, "updated"))
        found = now(gpus)
        assert [gpu.uuid for gpu in found.gpus] == ["GPU-1", "GPU-2"]
        assert [(reading.lost, reading.memory_used_bytes) for reading in found.readings] == [(False, None)] * 2
        assert found.readings[0].why["memory_used_bytes"] is Why.ERROR
