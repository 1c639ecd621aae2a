"""Makes `backend/launch/data/vllm_options.json`, the table of what each vLLM version accepts.

    python -m tests.tools.make_option_table

It reads `tests/data/vllm_versions.json` (option strings, speculative methods and fields of 28 releases) and the
recorded probe of the newest one, which knows the kinds of options. Run it after adding a release to the former.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from backend import paths

DATA = Path(__file__).parents[1] / "data"
TABLE = Path(paths.__file__).parent / "launch" / "data" / "vllm_options.json"

# Kinds of options that the newest release no longer has, read in the sources of 0.8.5 to 0.28.
_GONE_SWITCHES = (
    "calculate-kv-scales disable-async-output-proc disable-frontend-multiprocessing disable-log-requests "
    "disable-mm-preprocessor-cache enable-bf16x3-router-gemm enable-lora-bias enable-mamba-fine-grained-prefix-cache "
    "enable-multimodal-encoder-data-parallel enable-prompt-adapter enable-reasoning eplb-log-balancedness "
    "expand-tools-even-if-tool-choice-none guided-decoding-disable-additional-properties "
    "guided-decoding-disable-any-whitespace guided-decoding-disable-fallback multi-step-stream-outputs "
    "use-gpu-for-pooling-score use-v2-block-manager"
)
_GONE_LISTS = "cuda-graph-sizes long-lora-scaling-factors prompt-adapters"
_GONE_JSON = "override-neuron-config override-pooler-config rope-scaling tokenizer-pool-extra-config"
# Options that left before the oldest release of the table, with their kinds (guides still show them).
_BEFORE = {
    "value": (
        "speculative-model num-speculative-tokens speculative-draft-tensor-parallel-size speculative-max-model-len "
        "speculative-disable-by-batch-size speculative-model-quantization ngram-prompt-lookup-max "
        "ngram-prompt-lookup-min spec-decoding-acceptance-method typical-acceptance-sampler-posterior-threshold "
        "typical-acceptance-sampler-posterior-alpha max-context-len-to-capture quantization-param-path"
    ),
    "switch": ("worker-use-ray engine-use-ray speculative-disable-mqa-scorer disable-logprobs-during-spec-decoding"),
}
_SHORT = {"-O": "--compilation-config", "-spec-draft-tp": "--speculative-draft-tensor-parallel-size"}
# Plain switches of the oldest releases, which had no "--no-" form yet.
_PLAIN_SWITCHES = frozenset({
    "--skip-tokenizer-init", "--trust-remote-code", "--disable-sliding-window", "--enforce-eager",
    "--enable-sleep-mode", "--disable-cascade-attn",
})  # fmt: skip
_NO_FORM_SINCE = "0.10.2"
_JSON_TYPES = frozenset({"loads", "parse_dataclass", "union_dict_and_str"})
_JSON_TOO = frozenset({
    "--quantization-config", "--model-class-overrides", "--pooler-config", "--override-generation-config",
    "--limit-mm-per-prompt", "--media-io-kwargs", "--mm-processor-kwargs", "--default-mm-loras",
    "--custom-histogram-buckets", "--speculative-config", "--watermark-config", "--diffusion-config",
    "--kv-transfer-config", "--kv-events-config", "--ec-transfer-config", "--engram-config", "--reasoning-config",
    "--weight-transfer-config",
})  # fmt: skip
# Platform code that resolves UUIDs in CUDA_VISIBLE_DEVICES: not in 0.23.0, there in 0.24.0.
_GPU_UUIDS_SINCE = "0.24.0"


def make(versions: Mapping[str, Mapping[str, Any]], probe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table.

    Args:
        versions: for each release, oldest first, its `serve_flags`, `speculative_methods`, `speculative_fields`.
        probe: what the probe script says of the newest release.
    """
    names = list(versions)
    flags = {name: set(versions[name]["serve_flags"]) - {"--help"} for name in names}
    _fill_gaps(names, versions, flags)
    entries = {flag: option for option in probe["flags"] for flag in option["flags"]}
    flags[names[-1]] = {flag for flag in entries if flag.startswith("--") and not _is_no_form(flag, entries)}
    options = {
        flag: _option(flag, names, [flag in flags[name] for name in names], entries)
        for flag in sorted(set().union(*flags.values()))
    }
    methods = {name: versions[name]["speculative_methods"] for name in names}
    fields = {name: versions[name]["speculative_fields"] for name in names}
    internal = {field["name"] for field in probe["spec_fields"] if field["internal"]}
    short = {
        flag: next(long for long in option["flags"] if long.startswith("--"))
        for option in probe["flags"]
        for flag in option["flags"]
        if not flag.startswith("--")
    }
    same = {long: option["flags"][0] for option in probe["flags"] for long in option["flags"][1:] if _alias(long)}
    return {
        "made_by": "tests/tools/make_option_table.py",
        "versions": names,
        "gpu_uuids_since": _GPU_UUIDS_SINCE,
        "short": dict(sorted({**short, **_SHORT}.items())),
        "same": same,
        "before": {f"--{flag}": kind for kind, words in _BEFORE.items() for flag in sorted(words.split())},
        "methods": {name: _spans(names, [name in methods[one] for one in names]) for name in _all(methods)},
        "fields": {
            name: {"in": _spans(names, [name in fields[one] for one in names])}
            | ({"internal": True} if name in internal else {})
            for name in _all(fields)
        },
        "options": options,
    }


def _alias(flag: str) -> bool:
    return flag.startswith("--") and not flag.startswith("--no-")


def _is_no_form(flag: str, entries: Mapping[str, Any]) -> bool:
    return flag.startswith("--no-") and f"--{flag.removeprefix('--no-')}" in entries


def _fill_gaps(names: Sequence[str], versions: Mapping[str, Any], flags: dict[str, set[str]]) -> None:
    """Some releases were read without their front end: they have what the ones before and after both have."""
    whole = [name for name in names if versions[name]["cli_args_files"] == max(
        version["cli_args_files"] for version in versions.values())]  # fmt: skip
    for place, name in enumerate(names):
        if name not in whole:
            before = next(other for other in reversed(names[:place]) if other in whole)
            after = next(other for other in names[place:] if other in whole)
            flags[name] |= flags[before] & flags[after]


def _option(flag: str, names: Sequence[str], there: Sequence[bool], entries: Mapping[str, Any]) -> dict[str, Any]:
    entry = entries.get(flag)
    spans = _spans(names, there)
    result: dict[str, Any] = {"kind": _kind(flag, entry), "in": spans}
    if entry is not None and _no(flag) in entry["flags"]:
        first = spans[0][0]
        plain = entry["group"] == "Frontend" or flag in _PLAIN_SWITCHES
        late = plain and names.index(first) < names.index(_NO_FORM_SINCE)
        result["no"] = _NO_FORM_SINCE if late else first
    if entry is not None and entry["choices"]:
        result["choices"] = [choice for choice in entry["choices"] if choice is not None]
    if entry is not None and isinstance(entry["default"], bool):
        result["default"] = entry["default"]
    return result


def _no(flag: str) -> str:
    return f"--no-{flag.removeprefix('--')}"


def _kind(flag: str, entry: Mapping[str, Any] | None) -> str:
    name = flag.removeprefix("--")
    if entry is None:
        for kind, words in (("switch", _GONE_SWITCHES), ("list", _GONE_LISTS), ("json", _GONE_JSON)):
            if name in words.split():
                return kind
        return "value"
    if entry["nargs"] == 0:
        return "switch"
    if entry["nargs"] in {"+", "?"}:
        return "list" if entry["nargs"] == "+" else "optional"
    return "json" if entry["type"] in _JSON_TYPES or flag in _JSON_TOO else "value"


def _all(by_version: Mapping[str, Collection[str]]) -> list[str]:
    return sorted({name for names in by_version.values() for name in names})


def _spans(names: Sequence[str], there: Sequence[bool]) -> list[list[str]]:
    """First and last release of each stretch in which something was there."""
    spans: list[list[str]] = []
    for place, (name, is_there) in enumerate(zip(names, there, strict=True)):
        if is_there and (place == 0 or not there[place - 1]):
            spans.append([name, name])
        elif is_there:
            spans[-1][1] = name
    return spans


def dumps(table: Mapping[str, Any]) -> str:
    """Return the table as JSON with one entry a line, so that a new release is a readable difference."""
    parts = []
    for key, value in table.items():
        if isinstance(value, dict):
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
            parts.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Write the table."""
    versions = json.loads((DATA / "vllm_versions.json").read_text(encoding="utf-8"))["versions"]
    newest = list(versions)[-1]
    probe = json.loads((DATA / f"vllm_{newest}_probe.json").read_text(encoding="utf-8"))
    TABLE.write_text(dumps(make(versions, probe)), encoding="utf-8")
    print(f"{TABLE}: {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
