"""A machine with GPUs and an engine at work on it, invented: figures that fit together and move as real ones do."""

import random
from dataclasses import dataclass, replace
from functools import lru_cache

from backend.events import HostSample, Sample, Speculation, Verdict
from backend.hardware import GpuInfo, GpuProcess, GpuReading, GpuSnapshot
from backend.planning.bound import Load, judge
from tests.gui import gpu_scenes as scenes

_GIB = scenes.GIB
_PROMPT_TOKENS, _LONGEST_S, _SAME_TEXT_S = 420.0, 3600, 12
_NOTEBOOK_BYTES = 2.4 * _GIB
_HOT_GPU = 6


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine does: `load` on each of its GPUs, the rates of acceptance by position, `seed` of its requests."""

    n_gpus: int
    load: scenes.Load
    positions: tuple[float, ...] = scenes.POSITIONS
    seed: int = 4


def on(n_gpus: int) -> Engine:
    """Return an engine on so many GPUs; without one, the demo on the processor of a laptop."""
    return Engine(n_gpus, scenes.LOADS[n_gpus] if n_gpus else scenes.Load(0.269e9, 5.39))


def gpu(number: int) -> GpuInfo:
    """Return one of the GPUs."""
    serial = (0x6B3F91C7 + number * 0x2F1D4B39) & 0xFFFFFFFF
    return scenes.info(number, uuid=f"GPU-{serial:08x}-52c8-7e40-a1d6-{serial * 40503 & 0xFFFFFFFFFFFF:012x}")


@lru_cache
def _requests(seed: int) -> tuple[tuple[int, int], ...]:
    """Return begin and end of every request, in seconds: one after the other, with a pause now and then."""
    chance, begin, found = random.Random(seed), 0, []
    while begin < _LONGEST_S:
        length = chance.randint(20, 110)
        found.append((begin, begin + length))
        begin += length + chance.choice((2, 3, 5, 14, 40))
    return tuple(found)


def _since(second: int, seed: int) -> int | None:
    """Return for how long the request of that second has been answered, None while there is none."""
    begin, end = next(each for each in reversed(_requests(seed)) if each[0] <= second)
    return second - begin if second < end else None


def sample(second: int, engine: Engine, t: float) -> Sample:
    """Return a reading of an engine that answers one request after the other."""
    since = _since(second, engine.seed)
    makes = since is not None
    text = (second + _SAME_TEXT_S - 1) // _SAME_TEXT_S  # what is easy to guess stays so for a while
    rates = tuple(min(rate * (1 + 0.07 * scenes.wave(text, 40, 9)), 0.99) for rate in engine.positions)
    length = 1 + sum(rates)
    steps = engine.load.steps_per_s * (1 + 0.03 * scenes.wave(second, 41)) if makes else 0.0
    first_s = 0.19 + 0.05 * scenes.wave(second, 42) if since == 1 else None
    power_w = sum(281.0 + 4 * number + 14 * scenes.wave(second, number, 19) for number in range(engine.n_gpus))
    drafts = makes and bool(rates)
    return scenes.sample(
        t=t,
        second=second,
        steps_per_s=steps,
        generation_tokens_per_s=steps * length,
        prompt_tokens_per_s=_PROMPT_TOKENS * (1 + 0.3 * scenes.wave(second, 43)) if since == 0 else 0.0,
        acceptance_rate=sum(rates) / len(rates) if drafts else None,
        mean_acceptance_length=length if drafts else None,
        acceptance_per_position=rates if drafts else None,
        drafts=steps if drafts else 0.0,
        draft_tokens=steps * len(rates),
        ttft_count=0.0 if first_s is None else 1.0,
        ttft_p50_s=first_s,
        ttft_p95_s=None if first_s is None else 1.2 * first_s,
        itl_p50_s=1 / steps if makes else None,
        itl_p95_s=1.12 / steps if makes else None,
        kv_cache_usage_ratio=0.0 if since is None else 0.004 + 0.0004 * since,
        requests_running=float(makes),
        implied_bytes_per_s=engine.load.bytes_per_step * steps,
        joules_per_token=power_w / (steps * length) if makes and engine.n_gpus else None,
        speculation=Speculation.COUNTING if drafts else Speculation.IDLE if engine.positions else Speculation.OFF,
    )


def snapshot(second: int, engine: Engine, t: float, *, loaded: float = 1.0) -> GpuSnapshot:
    """Return what the GPUs showed at Unix time `t`; before an engine is ready it has only a part of its memory."""
    if not engine.n_gpus:
        return replace(scenes.no_gpus(), t=t)
    gpus = tuple(gpu(number) for number in range(engine.n_gpus))
    readings = tuple(_reading(second, number, t, loaded, engine.seed) for number in range(engine.n_gpus))
    return scenes.snapshot(second, gpus=gpus, readings=readings, t=t)


def _reading(second: int, number: int, t: float, loaded: float, seed: int) -> GpuReading:
    """Return a reading of a GPU; on the first one somebody has a notebook open, and one of many is too hot."""
    others = _NOTEBOOK_BYTES if number == 0 else 0.0
    made = scenes.reading(second, number, uuid=gpu(number).uuid, t=t)
    assert made.engine_bytes is not None
    held = loaded * made.engine_bytes
    processes = [GpuProcess(scenes.ENGINE_PID + number, round(held), "VLLM::Worker", is_engine=True)]
    if others:
        processes.append(GpuProcess(1337, round(others), "python -m ipykernel_launcher"))
    made = replace(
        made,
        memory_used_bytes=held + others,
        memory_free_bytes=scenes.TOTAL - scenes.RESERVED - held - others,
        engine_bytes=held,
        other_bytes=others,
        processes=tuple(processes),
    )
    if _since(second, seed) is None or loaded < 1:
        made = replace(
            made,
            busy_ratio=0.0,
            memory_busy_ratio=0.0,
            dram_ratio=0.0,
            dram_bytes_per_s=0.0,
            sm_ratio=0.0,
            tensor_ratio=0.0,
            power_w=118.0 + number,
            nvlink_rx_bytes_per_s=0.0,
            nvlink_tx_bytes_per_s=0.0,
        )
    elif number == _HOT_GPU and (second + 20) % 110 < 48:
        made = replace(made, throttle=("too hot",), sm_clock_mhz=1545.0, temperature_c=87.0)
    return made


def host(second: int, t: float, *, is_laptop: bool = False) -> HostSample:
    """Return a reading of the machine."""
    used, total = (9.4, 31.1) if is_laptop else (61.0, 503.5)
    cpu = (0.62 if is_laptop else 0.12) + 0.02 * scenes.wave(second, 3)
    return HostSample(t, cpu, round((used + 0.1 * scenes.wave(second, 44)) * _GIB), round(total * _GIB))


def verdict(read: Sample, gpus: GpuSnapshot) -> Verdict:
    """Say what holds the engine back, from these figures."""
    known = [each for each in gpus.readings if each.dram_bytes_per_s is not None]
    if not known:
        return judge(Load(read.steps_per_s, read.implied_bytes_per_s, "implied", None, is_gpu=False))
    mean = sum(each.dram_bytes_per_s or 0.0 for each in known) / len(known)
    return judge(Load(read.steps_per_s, mean, "measured", scenes.PEAK, known[0].busy_ratio))
