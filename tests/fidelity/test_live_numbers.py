"""Every number that the window draws or says of an engine and its GPUs, against what the test had set."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from backend.desk.runs import Runs
from backend.desk.types import Reading
from gui.widgets.chart_card import ChartCard, PositionCard
from gui.widgets.gpu_run_cards import GpuMemoryCard
from tests.fakes import metric_pages as pages
from tests.fakes.fake_nvml import FakeNvml, uuid
from tests.fidelity.stand import HIDDEN, KV_ELEMENTS, PARAMETERS, Stand, plain, stand

GIB = 1024**3
# What grows in one step of the counters: 3 tokens a step of a sequence, half of the drafted tokens accepted.
GROWTH = {"generation": 120, "prompt": 70, "steps": 20, "drafts": 40, "drafted": 160, "accepted": 80}
POSITIONS = (32, 24, 16, 8)
START = {"generation": 1000, "prompt": 500, "steps": 100, "drafts": 200, "drafted": 800, "accepted": 400}
RUNNING, WAITING, USAGE, ROOM = 2, 1, 0.25, 1600
READ, WRITTEN = 3e9, 1e9
# Latencies in the three buckets up to 0.1 s, 1 s and beyond: half of 20 lie in the first.
BUCKETS = (10, 20, 20)


def page(times: int) -> str:
    """A page of metrics after so many growths."""
    values = {name: float(START[name] + times * GROWTH[name]) for name in START}
    values |= {f"p{at}": float(100 + times * count) for at, count in enumerate(POSITIONS)}
    values |= {f"b{number}": float(times * count) for number, count in enumerate(BUCKETS)}
    values |= {"running": RUNNING, "waiting": WAITING, "usage": USAGE}
    labels = 'engine="0",model_name="m"'
    return pages.small_page(per_engine={"0": values}, positions=4) + (
        f"vllm:estimated_read_bytes_per_gpu_total{{{labels}}} {1e9 + times * READ}\n"
        f"vllm:estimated_write_bytes_per_gpu_total{{{labels}}} {1e9 + times * WRITTEN}\n"
        f'vllm:cache_config_info{{{labels},kv_cache_size_tokens="{ROOM}"}} 1\n'
    )


# 120 tokens in 20 steps of 3 tokens each are 2 sequences a step; they share a quarter of the cache's 1,600 tokens.
# On a GPU vLLM reads a model that is stored in 32 bits as 16 bits unless it is told otherwise.
STEP_BYTES = 2 * (PARAMETERS + RUNNING * (1 + 4) * HIDDEN + USAGE * ROOM * KV_ELEMENTS)
GPUS = (
    {"memory_used": 61e9, "busy": 97, "memory_busy": 71, "memory_mhz": 2619, "sm_mhz": 1755, "power_mw": 512345,
     "celsius": 61, "memory_celsius": 73, "pcie_tx": 1.2e9, "pcie_rx": 3.4e9, "nvlink_tx": 40e9, "nvlink_rx": 41e9},
    {"memory_used": 33e9, "busy": 12, "memory_busy": 34, "memory_mhz": 2000, "sm_mhz": 1200, "power_mw": 212000,
     "celsius": 44, "memory_celsius": 55, "pcie_tx": 0.5e9, "pcie_rx": 0.7e9, "nvlink_tx": 20e9, "nvlink_rx": 10e9},
)  # fmt: skip
GPM = ({10: 62.5, 2: 91.0, 5: 33.0}, {10: 30.0, 2: 50.0, 5: 20.0})  # DRAM, SM, tensor in percent
HELD = (24e9, 25e9)  # by the engine
TOTAL, RESERVED = 85899345920.0, 600e6
PEAK = 2 * 2619e6 * 5120 / 8

OF_GPU: dict[str, Callable[[int], float]] = {
    "memory_used_bytes": lambda gpu: GPUS[gpu]["memory_used"] / GIB,
    "engine_bytes": lambda gpu: HELD[gpu] / GIB,
    "dram_bytes_per_s": lambda gpu: GPM[gpu][10] / 100 * PEAK / 1e9,
    "dram_ratio": lambda gpu: GPM[gpu][10],
    "busy_ratio": lambda gpu: GPUS[gpu]["busy"],
    "sm_ratio": lambda gpu: GPM[gpu][2],
    "tensor_ratio": lambda gpu: GPM[gpu][5],
    "memory_busy_ratio": lambda gpu: GPUS[gpu]["memory_busy"],
    "power_w": lambda gpu: GPUS[gpu]["power_mw"] / 1000,
    "temperature_c": lambda gpu: GPUS[gpu]["celsius"],
    "memory_temperature_c": lambda gpu: GPUS[gpu]["memory_celsius"],
    "sm_clock_mhz": lambda gpu: GPUS[gpu]["sm_mhz"],
    "memory_clock_mhz": lambda gpu: GPUS[gpu]["memory_mhz"],
    "pcie_rx_bytes_per_s": lambda gpu: GPUS[gpu]["pcie_rx"] / 1e9,
    "pcie_tx_bytes_per_s": lambda gpu: GPUS[gpu]["pcie_tx"] / 1e9,
    "nvlink_rx_bytes_per_s": lambda gpu: GPUS[gpu]["nvlink_rx"] / 1e9,
    "nvlink_tx_bytes_per_s": lambda gpu: GPUS[gpu]["nvlink_tx"] / 1e9,
}
"""Each figure of a GPU in the unit of its plot, as it was set; it stays the same the whole time."""
OF_STEP: dict[str, Callable[[float], float]] = {
    "generation_tokens_per_s": lambda seconds: 120 / seconds,
    "prompt_tokens_per_s": lambda seconds: 70 / seconds,
    "recent_acceptance_rate": lambda _: 100 * 80 / 160,
    "ttft_p50_s": lambda _: 100,
    "ttft_p95_s": lambda _: 910,
    "itl_p50_s": lambda _: 100,
    "itl_p95_s": lambda _: 910,
    "estimated_bytes_per_s": lambda seconds: (READ + WRITTEN) / seconds / 1e9,
    "implied_bytes_per_s": lambda seconds: STEP_BYTES * 20 / seconds / 1e9,
    "joules_per_token": lambda seconds: (512.345 + 212.0) * seconds / 120,
}
"""Each figure of the one reading that spans the growth, in the unit of its plot, by the seconds that it spans."""
STEADY = {"kv_cache_usage_ratio": 100 * USAGE, "requests_running": RUNNING, "requests_waiting": WAITING}
"""Each figure that stays the same from the first page on."""
OF_HOST: dict[str, Callable[[Reading], float]] = {
    "cpu_ratio": lambda reading: 100 * (reading.host.cpu_ratio or 0.0),
    "memory_used_bytes": lambda reading: 100 * reading.host.memory_used_bytes / reading.host.memory_total_bytes,
}
"""Figures of this machine, which nobody can set: they are compared with what the window was given."""
HEADLINES = {
    ("run", "tokens"): "0 tokens/s generated, 0 of prompts read",
    ("run", "acceptance"): "50.0 % , 3.00 tokens per step, 40 drafts in 10 s",
    ("run", "positions"): "4 draft tokens, 40 drafts in the last 5 min",
    ("run", "gpu_memory"): "56.8 of 80.0 GiB on GPU 0, the fullest",
    ("run", "bandwidth"): "1,550 GB/s per GPU, mean of 2 GPUs, 46 % of peak",
    ("run", "cache"): "25.0 % , 2 running, 1 waiting",
    ("gpus", "gpu_memory"): "87.5 GiB used of 160.0 GiB, 2 GPUs together",
    ("gpus", "gpu_bandwidth"): "1,550 GB/s per GPU, mean of 2 GPUs, 46 % of peak",
    ("gpus", "gpu_busy"): "55 % of the time a kernel ran, mean of 2 GPUs",
    ("gpus", "gpu_activity"): "70 % SM activity, mean of 2 GPUs",
    ("gpus", "gpu_memory_busy"): "52 % of the time memory was in use, mean of 2 GPUs",
    ("gpus", "gpu_power"): "724 W, 2 GPUs together",
}
"""What stands above the plots in their first view, at rest after the growth: sums and means worked out by hand."""


@pytest.fixture
def made(qtbot: QtBot, tmp_path: Path, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setattr(Runs, "on_cpu", False)  # else the GPUs would not be the engine's, and their energy not its own
    with stand(qtbot, tmp_path, fake_nvml, monkeypatch) as one:
        yield one


def set_gpus(made: Stand) -> None:
    pid = made.engine_pid()
    made.nvml.say(
        *(f"{key} {gpu} {value}" for gpu, values in enumerate(GPUS) for key, value in values.items()),
        *(f"gpm {gpu} {metric} {value}" for gpu, values in enumerate(GPM) for metric, value in values.items()),
        *(f"process {gpu} compute {pid} {size}" for gpu, size in enumerate(HELD)),
    )


def test_every_line_of_every_chart(made: Stand) -> None:
    set_gpus(made)
    made.show("gpus")
    made.next_readings(4)  # so that rates of the GPUs are known when the engine moves
    spanning = made.step(page(0), page(1))
    assert spanning.engine is not None
    seconds = spanning.engine.interval_s
    assert seconds is not None
    before = made.readings[made.readings.index(spanning) - 1].engine
    assert before is not None
    assert seconds == pytest.approx(spanning.engine.t - before.t, abs=0.1), "the interval is that of the readings"
    told = set()
    for where in ("run", "gpus"):
        grid = made.show(where)
        for card in grid.visible_cards:
            if not isinstance(card, ChartCard):
                continue
            for view, name in made.lines(grid, card):
                told.add(name.rpartition("/")[2])
                check(made, card, view, name, spanning)
    assert told == {*OF_GPU, *OF_STEP, *STEADY, *OF_HOST}, "every figure of the tables is drawn somewhere"


def check(made: Stand, card: ChartCard, view: int, name: str, spanning: Reading) -> None:
    """Fail unless a line is drawn as it was set; a line that no table knows needs its truth there first."""
    at = f"{card.title}: {name}"
    gpu, _, figure = name.rpartition("/")
    values = made.known(card, view, name)
    assert values, at
    if gpu:
        truth = OF_GPU[figure](next(number for number in range(len(GPUS)) if uuid(number) == gpu))
        assert values[-1] == pytest.approx(truth, rel=2e-3), at
        ways = {"rx": "In", "tx": "Out"}
        assert card.views[view].label == ways.get(figure.split("_")[1], card.views[view].label), at
    elif figure in OF_STEP:
        assert spanning.engine is not None
        assert spanning.engine.interval_s is not None
        truth = OF_STEP[figure](spanning.engine.interval_s)
        tolerance = 0.05 if figure == "joules_per_token" else 1e-6  # GPUs are read at times of their own
        found = [value for value in values if value]
        assert found == pytest.approx([truth] * len(found), rel=tolerance), at
        n_times = 1 if figure != "recent_acceptance_rate" else len(found)
        assert len(found) == n_times, f"{at}: the growth is drawn once"
        assert found, at
    elif figure in STEADY:
        assert values[-3:] == [STEADY[figure]] * 3, at
    else:
        given = [OF_HOST[figure](reading) for reading in made.readings]
        assert all(any(value == pytest.approx(each) for each in given) for value in values[-3:]), at


def test_every_headline_bar_and_figure_of_the_status_bar(made: Stand) -> None:
    set_gpus(made)
    made.step(page(0), page(1))
    status = made.window.status
    shown = [status.tokens, status.acceptance, status.length, status.cache, status.queue]
    assert [plain(label.text()) for label in shown] == ["0", "50.0 %", "3.00", "25.0 %", "2 + 1 waiting"]
    assert [bar.used_ratio for bar in status.gpus.bars] == pytest.approx([gpu["memory_used"] / TOTAL for gpu in GPUS])
    assert plain(status.host.text()).startswith("724 W")
    assert "61 °C" in status.host.text()

    headlines: dict[tuple[str, str], str] = {}
    for where in ("gpus", "run"):
        grid = made.show(where)
        made.next_readings(4)
        headlines |= {
            (where, card.key): plain(f"{card.figure.figure} {card.figure.words}") for card in grid.visible_cards
        }
    assert {key: headlines[key] for key in HEADLINES} == HEADLINES

    cards = made.show("run").cards
    positions, memory = cards["positions"], cards["gpu_memory"]
    assert isinstance(positions, PositionCard)
    assert positions.bars.ratios == pytest.approx((0.8, 0.6, 0.4, 0.2))
    assert positions.legend.values() == {"tokens per step": "3.00"}
    assert isinstance(memory, GpuMemoryCard)
    for row, gpu, held in zip(memory.bars.rows, GPUS, HELD, strict=True):
        parts = {part.name: size for part, size in row.split.parts}
        used = gpu["memory_used"]
        assert list(parts.values()) == pytest.approx([held, used - held, RESERVED, TOTAL - used - RESERVED]), parts
