"""From a profile to the options of `vllm serve`, each checked against what the installed vLLM accepts."""

import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backend.checkpoints import catalog
from backend.errors import ProfileError
from backend.launch.probe import EngineOption, Probe
from backend.launch.profile import FIELDS, Profile

SPECULATIVE_CONFIG = "--speculative-config"
_QUIET = "--disable-access-log-for-endpoints"
_SPEC_METRICS = "--per-request-spec-decode-metrics"
_DP_ADDRESS = "--data-parallel-address"

# Each has a field of its own that takes another way than its value as it is.
_SPECIAL_FLAGS = {
    "--model": "target.model",
    "--device-ids": "parallel.device_ids",
    "--tokenizer": "target.tokenizer",
    "--served-model-name": "target.served_model_name",
    "--chat-template": "server.chat_template",
    SPECULATIVE_CONFIG: "speculation",
    "--spec-method": "speculation.method",
    "--spec-model": "speculation.model",
    "--spec-tokens": "speculation.num_speculative_tokens",
    _SPEC_METRICS: "server.per_request_spec_metrics",
    _QUIET: "server.quiet_endpoints",
}
OWN_FLAGS: dict[str, str] = {**_SPECIAL_FLAGS, **{field.flag: field.path for field in FIELDS if field.flag}}
"""For each option that a field of the profile carries: that field's path."""

# An engine with one of these would show a secret, or not be the server that Specdeck starts and watches.
REFUSED_FLAGS: dict[str, str] = {
    "--api-key": "a key on the command line can be seen by every user of the machine; set server.api_key = true",
    "--hf-token": "a token on the command line can be seen by every user of the machine; set HF_TOKEN in your shell",
    "--config": "its file could change any setting unseen; write the settings into the profile",
    "--uds": "Specdeck watches the engine at an address and a port",
    "--headless": "Specdeck watches the engine at an address and a port",
    "--grpc": "Specdeck watches the engine at an address and a port",
    "--ssl-keyfile": "Specdeck speaks plain HTTP with the engine",
    "--ssl-certfile": "Specdeck speaks plain HTTP with the engine",
    "--disable-log-stats": "without its counters nothing can be shown",
}
"""Options that no engine of Specdeck may have, with the reason."""

_SPEC_FIELDS_NOT_SENT = frozenset({"other", "download_bytes"})


def build_options(profile: Profile, *, probe: Probe, resolve: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Return the options for a profile and what is wrong with it for this vLLM.

    Args:
        profile: what to run.
        probe: what the installed vLLM accepts.
        resolve: turns a model of the profile into what vLLM takes.

    Returns:
        The arguments after the model, and problems in words that each name a field; empty when all is well.
    """
    argv: list[str] = []
    problems: list[str] = []
    accepted = {flag: option for option in probe.options for flag in option.flags}
    for path, flag, value in _settings(profile, probe, resolve):
        problem, words = _option(flag, value, accepted=accepted, known=bool(accepted))
        if problem:
            problems.append(f"{path}: vLLM {probe.version} {problem}.")
        argv += words
    problems += _speculation_problems(profile, probe)
    problems += _extra_problems(profile, probe, accepted)
    return [*argv, *profile.extra_args], problems


def unused_fields(profile: Profile, probe: Probe) -> tuple[str, ...]:
    """Return the fields that are set but mean nothing on the engine's platform."""
    if probe.platform != "cpu":
        return ("memory.cpu_kv_cache_gib",) if profile.memory.cpu_kv_cache_gib is not None else ()
    used = set() if profile.memory.cpu_kv_cache_gib is not None else {"memory.kv_cache_bytes"}
    return tuple(
        field.path for field in FIELDS if field.gpu_only and field.value(profile) is not None and field.path not in used
    )


def _settings(profile: Profile, probe: Probe, resolve: Callable[[str], str]) -> Iterator[tuple[str, str, Any]]:
    """Yield (field, option, value) in the order in which people read them."""
    yield "target.served_model_name", "--served-model-name", served_name(profile)
    if profile.target.tokenizer is not None:
        yield "target.tokenizer", "--tokenizer", resolve(profile.target.tokenizer)
    for field in FIELDS:
        value = field.value(profile)
        if field.flag and value is not None and not (field.gpu_only and probe.platform == "cpu"):
            yield field.path, field.flag, value
    if profile.server.chat_template is not None:
        yield "server.chat_template", "--chat-template", _expanded(profile.server.chat_template)
    if profile.speculation.on:
        # vLLM refuses to start with these figures asked for and no speculation.
        if profile.server.per_request_spec_metrics is not None:
            yield "server.per_request_spec_metrics", _SPEC_METRICS, profile.server.per_request_spec_metrics
        yield "speculation", SPECULATIVE_CONFIG, speculative_config(profile, resolve)
    # Our own polling would bury the log, and a log that never rests hides a stall; not worth failing a start.
    if profile.server.quiet_endpoints and probe.accepts(_QUIET):
        yield "server.quiet_endpoints", _QUIET, ",".join(profile.server.quiet_endpoints)
    if (
        (profile.parallel.data_parallel_size or 1) > 1
        and is_loopback(profile.server.host)
        and _address_is_ours(profile, probe)
    ):
        yield "parallel.data_parallel_size", _DP_ADDRESS, "127.0.0.1"


def _address_is_ours(profile: Profile, probe: Probe) -> bool:
    """Whether the engines' own address is ours to choose: vLLM would take the machine's outer address."""
    return probe.accepts(_DP_ADDRESS) and not any(
        _flag_of(word) in {_DP_ADDRESS, "-dpa"} for word in profile.extra_args
    )


def served_name(profile: Profile) -> str:
    """Return the name that requests use; never a path, which would tell where the user's files are."""
    if profile.target.served_model_name is not None:
        return profile.target.served_model_name
    model = profile.target.model
    return Path(model).name if catalog.is_path(model) else model.removeprefix(catalog.BUILT_PREFIX)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an engine that listens at `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def speculative_config(profile: Profile, resolve: Callable[[str], str]) -> dict[str, Any]:
    """Return vLLM's speculative config for a profile whose speculation is on."""
    values = profile.speculation.model_dump(mode="json", exclude_none=True, exclude=set(_SPEC_FIELDS_NOT_SENT))
    # The "model" of a custom class is an import path, not a model.
    if "model" in values and profile.speculation.method != "custom_class":
        values["model"] = resolve(values["model"])
    return {**values, **profile.speculation.other}


def _expanded(template: str) -> str:
    return str(Path(template).expanduser()) if template.startswith("~/") else template


def _option(flag: str, value: Any, *, accepted: dict[str, EngineOption], known: bool) -> tuple[str, list[str]]:
    """Return (problem, words) for one option; the problem is "" when vLLM takes it."""
    option = accepted.get(flag)
    if known and option is None:
        return f"has no option {flag}", []
    if isinstance(value, bool):
        if value:
            return "", [flag]
        off = f"--no-{flag.removeprefix('--')}"
        if known and off not in accepted:
            return ("", []) if option and option.default in (None, False) else (f"cannot switch off {flag}", [])
        return "", [off]
    if isinstance(value, dict):
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    elif isinstance(value, list | tuple):
        text = ",".join(str(item) for item in value)
    else:
        text = str(value)
    if option and option.choices and text not in option.choices:
        return f"does not know {text!r} for {flag}; it knows {', '.join(map(str, option.choices))}", []
    # A value that looks like an option would be taken for one.
    return "", [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _speculation_problems(profile: Profile, probe: Probe) -> Iterator[str]:
    spec = profile.speculation
    if not spec.on:
        return
    if spec.method is not None and probe.spec_methods and spec.method not in probe.spec_methods:
        yield (
            f"speculation.method: vLLM {probe.version} has no method {spec.method!r}; "
            f"it has {', '.join(probe.spec_methods)}."
        )
    taken = {field.name for field in probe.spec_fields if not field.internal} - {"tensor_parallel_size"}
    for name in speculative_config(profile, lambda model: model):
        if probe.spec_fields and name.replace("-", "_") not in taken:
            path = f"speculation.other.{name}" if name in spec.other else f"speculation.{name}"
            yield f"{path}: vLLM {probe.version} has no such field in its speculative config."
    if spec.method == "suffix" and probe.packages and probe.packages.get("arctic-inference") is None:
        yield "speculation.method: suffix needs the package arctic-inference in the engine environment."


def _flag_of(word: str) -> str:
    """Return the option that a word of the extra arguments names, spelled as vLLM lists it; "" for a value."""
    if not re.match(r"--?[A-Za-z]", word):
        return ""
    flag = re.split(r"[=.]", word, maxsplit=1)[0]
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _extra_problems(profile: Profile, probe: Probe, accepted: dict[str, EngineOption]) -> Iterator[str]:
    """Yield what is wrong with the extra arguments; abbreviations are refused since they would slip past."""
    for word in profile.extra_args:
        flag = _flag_of(word)
        if not flag:
            continue
        option = accepted.get(flag)
        if accepted and option is None:
            yield f"extra_args: vLLM {probe.version} has no option {flag} (write options out in full)."
            continue
        spellings = {flag, flag.replace("--no-", "--", 1), *(option.flags if option else ())}
        if not accepted:  # the parser could not be read: be careful with everything that might be one of ours
            spellings |= {known for known in (*OWN_FLAGS, *REFUSED_FLAGS) if known.startswith(flag)}
        for spelling in sorted(spellings):
            if spelling in REFUSED_FLAGS:
                yield f"extra_args: {spelling} is not allowed: {REFUSED_FLAGS[spelling]}."
            elif spelling in OWN_FLAGS:
                yield f"extra_args: {spelling} has a field of its own; set {OWN_FLAGS[spelling]} instead."


def raise_problems(problems: list[str], *, profile: Profile) -> None:
    """Raise all problems as one error.

    Raises:
        ProfileError: there is at least one.
    """
    if problems:
        raise ProfileError(
            f"The profile {profile.name} does not fit this engine. {' '.join(problems)}",
            "Change the profile, or choose another engine environment.",
        )
