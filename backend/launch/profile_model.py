"""Tables of a launch profile that say what runs: target, speculation, and what a demo measured."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from backend.launch.profile_types import JsonTable, ModelName, Prose, Table, Text, setting

# TOML writes a row as an array, which a strict tuple would refuse; its three numbers stay strict.
BatchRow = Annotated[
    tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=0)]], Field(strict=False)
]


class Target(Table):
    """Target model: the big model whose answers you get."""

    model: ModelName = setting(
        "Model",
        "Hub id, full path of a folder, or specdeck://NAME for a demo model that Specdeck built.",
        default=...,
    )
    revision: Text | None = setting("Revision", "Branch, tag or commit on the hub.", flag="--revision")
    code_revision: Text | None = setting(
        "Code revision",
        "Branch, tag or commit of the model's own code on the hub.",
        flag="--code-revision",
    )
    tokenizer: ModelName | None = setting("Tokenizer", "Another tokenizer than the model's own: hub id or full path.")
    tokenizer_revision: Text | None = setting(
        "Tokenizer revision",
        "Branch, tag or commit of that tokenizer.",
        flag="--tokenizer-revision",
    )
    tokenizer_mode: Text | None = setting("Tokenizer mode", "How vLLM loads the tokenizer.", flag="--tokenizer-mode")
    dtype: Text | None = setting("Number format", "Format of weights and sums, for example bfloat16.", flag="--dtype")
    quantization: Text | None = setting(
        "Quantization",
        "How the weights are quantized; vLLM usually finds out by itself.",
        flag="--quantization",
    )
    max_model_len: int | None = setting(
        "Longest context",
        "Prompt and answer together. Shorter needs less KV cache.",
        unit="tokens",
        flag="--max-model-len",
        ge=1,
    )
    trust_remote_code: bool | None = setting(
        "Trust the model's code",
        "Runs Python code that comes with the model. Only for sources that you trust.",
        flag="--trust-remote-code",
    )
    served_model_name: Text | None = setting("Name in requests", "Name that clients use; by default the model's own.")
    load_format: Text | None = setting("Weight format", "Format of the weight files.", flag="--load-format")
    seed: int | None = setting("Seed", "Start of the random numbers.", flag="--seed")
    hf_overrides: JsonTable | None = setting(
        "Config overrides",
        "Values that replace those in the model's config.json.",
        flag="--hf-overrides",
    )
    download_bytes: int | None = setting(
        "Download size",
        "Approximate; used when the hub cannot be asked.",
        unit="bytes",
        ge=0,
    )


class Speculation(Table):
    """Speculation: a cheap draft guesses tokens, the target checks several of them in one step."""

    method: Text | None = setting(
        "Method",
        "How tokens are guessed: draft_model, eagle3, mtp, ngram and others. Empty: no speculation.",
    )
    model: ModelName | None = setting("Draft model", "Draft model or head: hub id, full path or specdeck://NAME.")
    num_speculative_tokens: int | None = setting("Draft tokens", "Tokens guessed in each step.", unit="tokens", ge=1)
    prompt_lookup_min: int | None = setting(
        "Shortest match", "n-gram: fewest tokens that must match.", unit="tokens", ge=1
    )
    prompt_lookup_max: int | None = setting(
        "Longest match", "n-gram: most tokens that are compared.", unit="tokens", ge=1
    )
    draft_tensor_parallel_size: int | None = setting(
        "GPUs for the draft",
        "Best left empty: then it is the target's. Other values pass the check and fail at load.",
        unit="GPUs",
        ge=1,
    )
    rejection_sample_method: Text | None = setting(
        "Acceptance rule",
        "How guesses are accepted: standard, block, or synthetic (invented acceptance, for tests).",
    )
    synthetic_acceptance_length: float | None = setting(
        "Synthetic length",
        "Synthetic rule: mean tokens per step, from 1 to draft tokens + 1.",
        unit="tokens per step",
        ge=1,
    )
    synthetic_acceptance_rates: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = setting(
        "Synthetic rates",
        "Synthetic rule: share of accepted guesses at each position.",
        unit="0 to 1",
        strict=False,
    )
    num_speculative_tokens_per_batch_size: tuple[BatchRow, ...] | None = setting(
        "Draft tokens by load",
        "Rows of: from this many requests, to this many, draft tokens.",
        unit="requests, requests, tokens",
        strict=False,
    )
    use_heterogeneous_vocab: bool | None = setting(
        "Different vocabularies",
        "Lets target and draft differ in vocabulary size; only tokens that both have are guessed.",
    )
    draft_sample_method: Text | None = setting(
        "Draft sampling", "greedy, or probabilistic (better when warm, needs more memory)."
    )
    quantization: Text | None = setting("Draft quantization", "Quantization of the draft.")
    max_model_len: int | None = setting(
        "Draft's longest context", "No guesses beyond this length.", unit="tokens", ge=1
    )
    revision: Text | None = setting("Draft revision", "Branch, tag or commit of the draft on the hub.")
    download_bytes: int | None = setting(
        "Draft download size",
        "Approximate; used when the hub cannot be asked.",
        unit="bytes",
        ge=0,
    )
    other: JsonTable = Field(
        default_factory=dict,
        title="Other",
        description="Any other field of vLLM's speculative config, by its own name.",
        json_schema_extra={"unit": "", "flag": "", "gpu_only": False},
    )

    @property
    def on(self) -> bool:
        """Whether the engine is asked to speculate."""
        return self.method is not None or self.model is not None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        if low is not None and high is not None and low > high:
            raise ValueError("the shortest match should not be above the longest match")
        synthetic = self.synthetic_acceptance_length is not None or self.synthetic_acceptance_rates is not None
        if synthetic and self.rejection_sample_method != "synthetic":
            raise ValueError('synthetic values need rejection_sample_method = "synthetic"')
        if self.method == "draft_model" and self.model is None:
            raise ValueError("the method draft_model needs a draft model")
        for name in self.other:
            if name.replace("-", "_") in type(self).model_fields:
                raise ValueError(f"{name} has a field of its own and should not stand in other")
        return self


class Measured(Table):
    """Measured: what a shipped demo really did, so that nobody expects more."""

    speed_ratio: float = setting(
        "Speed", "Tokens per second with speculation over without.", default=..., unit="times", gt=0
    )
    acceptance_ratio: float = setting(
        "Acceptance", "Accepted guesses over all guesses.", default=..., unit="0 to 1", ge=0, le=1
    )
    on: Prose = setting("Machine", "Where and when it was measured.", default="")
    note: Prose = setting("Note", "What the figures mean, in a sentence.", default="")


class Demo(Table):
    """Demo: what a first chat asks."""

    prompt: Prose = setting("Prompt", "Text of the first chat.", default=..., min_length=1)
