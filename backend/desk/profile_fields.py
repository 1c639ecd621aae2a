"""The fields of the profile form: their order and headings, and what the engine makes of an empty one."""

import re
from collections.abc import Mapping, Sequence

from backend.desk import profile_text
from backend.desk.types import FieldSpec
from backend.launch.probe import EngineOption, Probe, SpecField
from backend.launch.profile import Profile, ProfileField

_GROUPS = {
    "": "Profile", "target": "Target model", "speculation": "Speculation", "parallel": "Parallelism",
    "memory": "Memory", "scheduler": "Scheduler", "server": "Server", "engine": "Engine",
}  # fmt: skip
_ADVANCED_GROUP = "Advanced"
_PLAIN = frozenset(
    {
        "title", "description", "hardware", "env", "extra_args",
        "target.model", "target.dtype", "target.quantization", "target.max_model_len",
        "speculation.method", "speculation.model", "speculation.num_speculative_tokens",
        "speculation.prompt_lookup_min", "speculation.prompt_lookup_max",
        "parallel.tensor_parallel_size", "parallel.device_ids",
        "memory.gpu_memory_utilization", "memory.kv_cache_bytes", "memory.cpu_kv_cache_gib",
        "memory.kv_cache_dtype", "memory.enforce_eager",
        "scheduler.max_num_seqs", "scheduler.max_num_batched_tokens",
        "server.host", "server.port", "server.api_key", "engine.environment",
    }
)  # fmt: skip
_FLAGS = {
    "server.per_request_spec_metrics": "--per-request-spec-decode-metrics",
    "target.tokenizer": "--tokenizer",
    "target.served_model_name": "--served-model-name",
    "server.chat_template": "--chat-template",
}
"""Options of fields that carry none as it is, to look up choices and for the tooltip."""

_EMPTY = {
    "title": "the profile's name",
    "target.model": "",
    "target.revision": "the main branch",
    "target.code_revision": "the main branch",
    "target.tokenizer": "the model's own",
    "target.tokenizer_revision": "the main branch",
    "target.quantization": "what the model says",
    "target.max_model_len": "the model's own limit",
    "target.served_model_name": "the model's own name",
    "target.hf_overrides": "none",
    "target.download_bytes": "unknown",
    "speculation.method": "no speculation",
    "speculation.model": "none",
    "speculation.num_speculative_tokens": "what the draft's config says",
    "speculation.draft_tensor_parallel_size": "as many as the target",
    "speculation.synthetic_acceptance_length": "none",
    "speculation.synthetic_acceptance_rates": "none",
    "speculation.num_speculative_tokens_per_batch_size": "the same for any load",
    "speculation.max_model_len": "the target's",
    "speculation.quantization": "what the draft says",
    "speculation.revision": "the main branch",
    "speculation.download_bytes": "unknown",
    "speculation.other": "none",
    "parallel.device_ids": "the first ones",
    "memory.kv_cache_bytes": "what the share leaves",
    "memory.cpu_kv_cache_gib": "the KV cache above, rounded up",
    "memory.kv_offloading_gib": "none",
    "server.reasoning_parser": "none",
    "server.tool_parser": "none",
    "server.chat_template": "the model's own",
    "engine.environment": "the best there is",
    "env": "none",
    "extra_args": "none",
}
"""What happens with an empty field, where neither a default of vLLM nor one of ours says it."""

CHOICE_FIELDS = frozenset(
    {
        "target.model", "target.dtype",
        "speculation.method", "speculation.model", "speculation.quantization",
        "speculation.rejection_sample_method", "speculation.draft_sample_method",
        "parallel.distributed_executor_backend",
        "memory.kv_cache_dtype", "memory.offload_backend", "memory.kv_offloading_backend",
        "scheduler.policy", "server.per_request_spec_metrics", "engine.environment",
    }
)  # fmt: skip
"""Fields with something to choose from; fixed, so that a form does not change when an engine's choices get known."""

_CHOICES = {"parallel.distributed_executor_backend": ("mp", "ray")}
_SIZE_HINT = "Bytes, or with a unit: 8 GiB."


def specs(
    probe: Probe | None, *, environments: Sequence[str] = (), models: Sequence[str] = (), drafts: Sequence[str] = ()
) -> tuple[FieldSpec, ...]:
    """Return every field of the form in the order in which people fill it in.

    Args:
        probe: what the engine accepts that would serve; None while there is none.
        environments: ids of the engine environments to offer.
        models: names of target models to offer.
        drafts: names of draft models to offer.
    """
    options = {flag: option for option in probe.options for flag in option.flags} if probe else {}
    spec_fields = {f"speculation.{field.name}": field for field in probe.spec_fields} if probe else {}
    offered: Mapping[str, Sequence[str]] = {
        **_CHOICES,
        "engine.environment": environments,
        "target.model": models,
        "speculation.model": drafts,
        "speculation.method": probe.spec_methods if probe else (),
    }
    made = [_spec(field, options, spec_fields, offered) for field in profile_text.EDITABLE]
    order = [*_GROUPS.values(), _ADVANCED_GROUP]
    return tuple(sorted(made, key=lambda spec: (order.index(spec.group), spec.advanced)))


def _spec(
    field: ProfileField,
    options: Mapping[str, EngineOption],
    spec_fields: Mapping[str, SpecField],
    offered: Mapping[str, Sequence[str]],
) -> FieldSpec:
    path = field.path
    flag = field.flag or _FLAGS.get(path, "")
    is_size = field.unit == "bytes"
    choices = tuple(offered.get(path, ())) or _choices(options.get(flag), spec_fields.get(path))
    return FieldSpec(
        path=path,
        group=_ADVANCED_GROUP if path in {"env", "extra_args"} else _GROUPS[path.rpartition(".")[0]],
        title=field.title,
        description=f"{field.description} {_how(path, is_size)}".strip(),
        unit="" if is_size else field.unit,
        flag=flag,
        kind=profile_text.kind(path),
        default=_default(path, options.get(flag), spec_fields.get(path)),
        choices=choices if path in CHOICE_FIELDS else (),
        required=path == "target.model",
        # A CPU engine takes the exact size of the cache as the size of its own.
        gpu_only=field.gpu_only and path != "memory.kv_cache_bytes",
        advanced=path not in _PLAIN,
        is_choice=path in CHOICE_FIELDS,
    )


def _how(path: str, is_size: bool) -> str:
    if is_size:
        return _SIZE_HINT
    match profile_text.kind(path):
        case "variables":
            return "NAME=VALUE, one a line."
        case "table":
            return 'As JSON: {"name": 1}.'
        case "lines":
            return "One a line." if path != "extra_args" else "One word a line."
    return ""


def _default(path: str, option: EngineOption | None, spec_field: SpecField | None) -> str:
    if path in _EMPTY:
        return _EMPTY[path]
    ours = _own_default(path)
    if ours:
        return f"Specdeck: {_words(ours)}"
    if path in {"description", "hardware"}:
        return ""
    known = option or spec_field
    if known is None or known.default is None:
        return "vLLM decides"
    return f"vLLM: {_words(known.default)}"


def _own_default(path: str) -> object:
    """Return what a profile says by itself when the field is empty, () or "" for nothing."""
    if not path.startswith("server."):
        return ""
    value = getattr(Profile.model_fields["server"].get_default(), path.removeprefix("server."))
    return "no" if value is False else value if value is not None else ""


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict) or value == "":
        return "none"
    return str(value)


def _choices(option: EngineOption | None, spec_field: SpecField | None) -> tuple[str, ...]:
    if option is not None and option.choices:
        return option.choices
    if spec_field is not None and "Literal[" in spec_field.type:
        return tuple(re.findall(r"'([^']+)'", spec_field.type))
    return ()
