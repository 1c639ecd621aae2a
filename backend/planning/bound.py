"""What holds an engine's steps back: memory bandwidth, arithmetic, or everything between the steps."""

from dataclasses import dataclass

from backend.events import Bound, Verdict

# Engines that decode one stream reach 0.58 to 0.84 of the peak (A100, H100, H200, 5090, int4 and fp8 models), the
# rest of a step being launches: with half of the peak, the read of the weights is the larger part of a step.
_BANDWIDTH_BOUND = 0.5
_COMPUTE_BOUND = 0.5
# A kernel runs nearly always while a GPU waits for its memory; below this the GPU waits for the host.
_WAITS_FOR_HOST = 0.6
# Fewer tokens a step than this cannot fill the tensor units: a weight that was read is used that often, and the
# GPUs of today compute 70 (int4) to 600 (bf16) times with a weight in the time of reading it.
_FEW_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Load:
    """What one accelerator of an engine did over one reading; None is unknown.

    Attributes:
        steps_per_s: steps of its engine.
        bytes_per_s: memory traffic, `source` says where that is from ("measured", "engine estimate", "implied").
        peak_bytes_per_s: what its memory can give at most.
        busy_ratio: share of time in which some kernel ran, 0..1.
        compute_ratio: share of the arithmetic that it can do, 0..1.
        tokens_per_step: tokens that one step works on: requests x (drafted tokens + 1).
        is_gpu: False for an engine on the CPU, where few tokens fill the cores already.
        is_measured_peak: `peak_bytes_per_s` is what the calibration attained, a little less than the peak.
    """

    steps_per_s: float | None
    bytes_per_s: float | None
    source: str
    peak_bytes_per_s: float | None
    busy_ratio: float | None = None
    compute_ratio: float | None = None
    tokens_per_step: float | None = None
    is_gpu: bool = True
    is_measured_peak: bool = False


def judge(load: Load) -> Verdict:
    """Say what holds the steps back, with the figures it rests on; unknown where these do not tell."""
    if not load.steps_per_s:
        return Verdict(Bound.UNKNOWN, "The engine makes no steps now.")
    if load.bytes_per_s is None:
        return Verdict(Bound.UNKNOWN, "The memory traffic of a step is not known.")
    if load.peak_bytes_per_s is None:
        how = "Enter it on the GPUs page, or run" if load.is_gpu else "Run"
        return Verdict(Bound.UNKNOWN, f"Peak bandwidth not known. {how} the calibration.")
    share = load.bytes_per_s / load.peak_bytes_per_s
    memory = f"memory {_percent(share)} of {'the attainable' if load.is_measured_peak else 'peak'} ({load.source})"
    if share >= _BANDWIDTH_BOUND:
        return Verdict(Bound.BANDWIDTH, f"{memory}: a step waits for its weights, so more tokens a step pay.")
    if load.compute_ratio is not None and load.compute_ratio >= _COMPUTE_BOUND:
        return Verdict(
            Bound.COMPUTE,
            f"arithmetic {_percent(load.compute_ratio)} busy, {memory}: more draft tokens or requests cost time.",
        )
    if load.busy_ratio is not None and load.busy_ratio < _WAITS_FOR_HOST:
        return Verdict(Bound.HOST, f"kernels run {_percent(load.busy_ratio)} of the time, {memory}: {_HOST_WORDS}")
    few_tokens = load.is_gpu and load.tokens_per_step is not None and load.tokens_per_step < _FEW_TOKENS
    if load.compute_ratio is not None:
        return Verdict(Bound.HOST, f"{memory}, arithmetic {_percent(load.compute_ratio)} busy: {_HOST_WORDS}")
    if few_tokens:
        return Verdict(Bound.HOST, f"{memory}, {load.tokens_per_step:.0f} tokens a step: {_HOST_WORDS}")
    return Verdict(Bound.UNKNOWN, f"{memory}; how busy the arithmetic is, is not known.")


_HOST_WORDS = "launches, the CPU or all-reduce hold the steps back."


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"
