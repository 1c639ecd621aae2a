"""The speculative config over vLLM's releases: old options and keys become today's, and what each release can do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend.events import Change, Finding, Fix, Severity
from backend.launch.option_table import at_least, span_words, table
from backend.launch.probe import Probe
from backend.launch.profile import Profile
from backend.launch.profile_model import Speculation

OPTION_KEYS: dict[str, str] = {
    "--speculative-model": "model",
    "--num-speculative-tokens": "num_speculative_tokens",
    "--speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "--speculative-max-model-len": "max_model_len",
    "--speculative-disable-by-batch-size": "disable_by_batch_size",
    "--speculative-model-quantization": "quantization",
    "--ngram-prompt-lookup-max": "prompt_lookup_max",
    "--ngram-prompt-lookup-min": "prompt_lookup_min",
    "--spec-decoding-acceptance-method": "acceptance_method",
    "--typical-acceptance-sampler-posterior-threshold": "posterior_threshold",
    "--typical-acceptance-sampler-posterior-alpha": "posterior_alpha",
    "--disable-logprobs-during-spec-decoding": "disable_logprobs",
    "--speculative-disable-mqa-scorer": "disable_mqa_scorer",
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
"""Options that carry one key of the speculative config each."""

_RENAMED = {
    **{option.removeprefix("--").replace("-", "_"): key for option, key in OPTION_KEYS.items()},
    "tensor_parallel_size": "draft_tensor_parallel_size",
    "speculative_method": "method",
}
# Keys that a vLLM without them does not miss, and why.
_NOT_MISSED = {
    "disable_by_batch_size": "only the V0 engine heeded it; from 0.24 on num_speculative_tokens_per_batch_size "
    "sets the draft tokens by load",
    "disable_logprobs": "the engine decides by each request",
    "disable_mqa_scorer": "it chose a kernel of the V0 engine",
    "disable_log_stats": "it belongs to the engine's own settings",
    "enable_chunked_prefill": "it belongs to the engine's own settings",
    "posterior_threshold": "it belonged to typical acceptance, which went with the V0 engine",
    "posterior_alpha": "it belonged to typical acceptance, which went with the V0 engine",
}
_DRAFT_MODEL_GONE, _DRAFT_MODEL_BACK = "0.10.0", "0.15.0"
_V0_METHODS = frozenset({"draft_model", "medusa", "mlp_speculator"})
_NOT_ON_RUNNER_2 = frozenset({"suffix", "medusa", "mlp_speculator", "custom_class"})
_NOT_ON_OLDER_RUNNER_2 = frozenset({"ngram", "draft_model"})


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What became of one key.

    Attributes:
        kind: "kept", "translated", "dropped" or "refused" or "unknown", as `option_changes.ChangeKind` has them.
        key: today's key; "" when it is no more.
        value: its value there.
        why: the reason, a part of a sentence.
    """

    kind: str
    key: str
    value: Any
    why: str = ""


def change_key(name: str, value: Any, probe: Probe) -> KeyChange:
    """Say what one key of a speculative config becomes for a vLLM.

    Args:
        name: the key as given; dashes are underscores.
        value: what it says.
        probe: what the vLLM accepts.
    """
    given = name.replace("-", "_")
    key = _RENAMED.get(given, given)
    why = f"it is called {key} now" if key != given else ""
    if given == "tensor_parallel_size":
        why = "vLLM refuses it here: the draft's own value is draft_tensor_parallel_size"
    kind = "translated" if key != given else "kept"
    fields = {field.name for field in probe.spec_fields if not field.internal} - {"tensor_parallel_size"}
    fields = fields or set(Speculation.model_fields)
    if key in {"method", "model"} and value in ("ngram", "[ngram]"):
        return KeyChange("kept" if key == "method" and value == "ngram" else "translated", "method", "ngram",
                         "" if key == "method" else "n-gram look-up is a method now, not a model")  # fmt: skip
    if key in fields:
        return KeyChange(kind, key, value, why)
    if key == "acceptance_method" and value == "rejection_sampler":
        return KeyChange("dropped", "", None, "rejection sampling is what every vLLM does by itself")
    if key == "acceptance_method":
        return KeyChange(
            "refused", "", None, f"{value} went with the V0 engine; guesses are accepted by rejection sampling"
        )
    if key == "synthetic_acceptance_rate" and "synthetic_acceptance_rates" in fields:
        return KeyChange("refused", "", None, "one rate became a rate for each position: synthetic_acceptance_rates")
    if key in table().internal_fields:
        return KeyChange("refused", "", None, "vLLM sets it by itself")
    spans = table().fields.get(key)
    if key in _NOT_MISSED:
        return KeyChange("dropped", "", None, _NOT_MISSED[key])
    if spans is not None:
        return KeyChange("refused", "", None, f"vLLM {probe.version} has no such field ({span_words(spans)})")
    return KeyChange("unknown", "", None, f"no vLLM that Specdeck knows has a field {given} in its speculative config")


def method_of(values: Mapping[str, Any]) -> str | None:
    """Return the method that a speculative config means; None when only the draft's files can tell."""
    if values.get("method") is not None:
        return str(values["method"])
    model = str(values.get("model") or "").lower()
    if not model:
        return None
    for part, method in (
        ("eagle3", "eagle3"), ("eagle-3", "eagle3"), ("eagle", "eagle"), ("medusa", "medusa"),
        ("mlp-speculator", "mlp_speculator"), ("-accelerator", "mlp_speculator"), ("dflash", "dflash"),
    ):  # fmt: skip
        if part in model:
            return method
    return "draft_model"


def can_do(profile: Profile, probe: Probe) -> Iterator[Finding]:
    """Yield what a release can and cannot do of the speculation that a profile asks for.

    Args:
        profile: what would run.
        probe: the vLLM that would run it; a release rather than what its own lists say, since some list methods
            that they then refuse.
    """
    spec = profile.speculation
    if not spec.on:
        return
    version = probe.version
    method = method_of(spec.model_dump())
    yield from _method(method, spec, probe)
    if (profile.parallel.pipeline_parallel_size or 1) > 1:
        yield _pipeline(version)
    if probe.platform == "cpu" and not at_least(version, "0.12.0"):
        what = f"speculation.method: the CPU build of vLLM {version} refuses every speculation."
        yield _error(what, "It raises “spec decode is not supported” while it starts.", "speculation.method")
    yield from _runner(method, spec, profile, version)


def _method(method: str | None, spec: Speculation, probe: Probe) -> Iterator[Finding]:
    version = probe.version
    place = "speculation.method"
    if method == "draft_model" and at_least(version, _DRAFT_MODEL_GONE) and not at_least(version, _DRAFT_MODEL_BACK):
        yield _error(
            f"{place}: vLLM {version} cannot speculate with a draft model.",
            f"It lists the method and then ends with “Speculative decoding with draft model is not supported yet”: "
            f"releases up to 0.9 have it in the V0 engine, those from {_DRAFT_MODEL_BACK} on in V1.",
            place,
            fix=f"Use vLLM {_DRAFT_MODEL_BACK} or newer, or n-gram look-up or an EAGLE head with this one.",
            ways=(_to_ngram(), _off(), Fix("Choose another engine", action="engines")),
        )
        return
    listed = method is None or method in probe.spec_methods or not probe.spec_methods
    if not listed and not (method == "eagle3" and version.startswith(("0.8", "0.9"))):
        spans = table().methods.get(method or "")
        when = f" ({span_words(spans)})" if spans and span_words(spans) else ""
        hint = ""
        if method == "mtp":
            hint = "Before 0.11 each family has a name of its own, such as deepseek_mtp."
        yield _error(
            f"{place}: vLLM {version} has no method {method}{when}.",
            f"It has {', '.join(probe.spec_methods)}.",
            place,
            fix=hint or "Choose one of these, or another engine.",
            ways=(_off(), Fix("Choose another engine", action="engines")),
        )
    elif method in _V0_METHODS and not at_least(version, _DRAFT_MODEL_GONE):
        yield Finding(
            Severity.NOTE,
            f"{place}: vLLM {version} runs {method} in its old V0 engine only.",
            "It changes to that engine by itself; figures of speculation have other names there, and structured "
            "output together with a draft model fails.",
            "Newer releases do it in V1.",
            field=place,
        )
    elif method is not None and method.endswith("_mtp") and at_least(version, "0.11.0") and "mtp" in probe.spec_methods:
        yield Finding(
            Severity.NOTE, f"{place}: vLLM {version} takes {method} for mtp.", "It warns once and uses that name.",
            "Nothing needs to be done.", field=place, fixes=(Fix("Write mtp", (Change(place, "mtp"),)),),
        )  # fmt: skip
    if method == "suffix" and not probe.packages:  # of an installed one `command.check` knows
        yield Finding(
            Severity.WARNING, f"{place}: suffix needs the package arctic-inference in the engine environment.",
            "vLLM ends at once without it.", "Install it there with pip install arctic-inference.", field=place,
        )  # fmt: skip


def _pipeline(version: str) -> Finding:
    place = "parallel.pipeline_parallel_size"
    one = Fix("Use one group", (Change(place, None),))
    if at_least(version, "0.28.0"):
        return Finding(
            Severity.WARNING, f"{place}: speculation over several pipeline groups is not to be trusted yet.",
            "Releases from 0.28 on start with it, but garbled answers were reported.", "Use tensor parallel alone.",
            field=place, fixes=(one,),
        )  # fmt: skip
    return _error(
        f"{place}: vLLM {version} does not speculate over several pipeline groups.",
        "It ends with an error, or answers wrongly.",
        place,
        fix="Use tensor parallel alone.",
        ways=(one, _off()),
    )


def _runner(method: str | None, spec: Speculation, profile: Profile, version: str) -> Iterator[Finding]:
    """Model Runner V2 that is forced by a variable does not do every method; unset, vLLM chooses a runner that does."""
    variable = "VLLM_USE_V2_MODEL_RUNNER"
    if profile.env.get(variable) not in {"1", "true", "True"}:
        return
    missing = (
        method in _NOT_ON_RUNNER_2 or bool(spec.use_heterogeneous_vocab) or bool(spec.other.get("parallel_drafting"))
    )
    if not at_least(version, "0.30.0"):
        missing = missing or method in _NOT_ON_OLDER_RUNNER_2
    if missing:
        yield _error(
            f"env.{variable}: the second model runner of vLLM {version} cannot do this speculation.",
            "It ends with “Model Runner V2 does not yet support”. Without the variable vLLM chooses a runner that can.",
            f"env.{variable}",
            fix="Take the variable out.",
            ways=(Fix("Take it out", (Change(f"env.{variable}", None),)),),
        )


def draft_parallel_problem(profile_values: Mapping[str, Any], *, method: str | None, target: int, version: str) -> str:
    """Say why a draft cannot be spread as asked; "" when it can.

    Args:
        profile_values: the speculative config.
        method: what it means.
        target: tensor parallel size of the target.
        version: of the vLLM that would run it.
    """
    draft = profile_values.get("draft_tensor_parallel_size")
    if not isinstance(draft, int) or draft == target:
        return ""
    if draft != 1:
        return f"vLLM takes 1 or the target's {target}, nothing else"
    if method == "draft_model" and at_least(version, _DRAFT_MODEL_BACK):
        return (
            f"vLLM {version} takes it and fails while loading: the draft must be spread like its target, over {target}"
        )
    return ""


def _to_ngram() -> Fix:
    changes = (
        Change("speculation.method", "ngram"), Change("speculation.model", None),
        Change("speculation.draft_tensor_parallel_size", None), Change("speculation.prompt_lookup_max", 4),
        Change("speculation.prompt_lookup_min", 2),
    )  # fmt: skip
    return Fix("Use n-gram look-up, which needs no draft", changes)


def _off() -> Fix:
    return Fix("Switch speculation off", (Change("speculation.method", None), Change("speculation.model", None)))


def _error(what: str, why: str, field: str, *, fix: str = "", ways: tuple[Fix, ...] = ()) -> Finding:
    return Finding(Severity.ERROR, what, why, fix, field=field, fixes=ways)
