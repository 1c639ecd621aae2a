"""Options that one vLLM does not take: by rules in a file, what they become there, or why nothing can be done."""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.launch import relaxed_json
from backend.launch.change_list import ChangeKind, Gathered
from backend.launch.engine_options import OWN_FLAGS
from backend.launch.option_table import OptionKind, at_least, history
from backend.launch.option_values import dumps, put, scalar
from backend.launch.probe import Probe
from backend.launch.vllm_arguments import GivenOption

_FILE = Path(__file__).parent / "data" / "stale_options.toml"
ROPE = {"--rope-scaling": "rope_scaling", "--rope-theta": "rope_theta"}
_LISTS = frozenset({"--cudagraph-capture-sizes", "--cuda-graph-sizes"})
Rule = Mapping[str, Any]


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules, in their order."""
    return tuple(tomllib.loads(_FILE.read_text(encoding="utf-8"))["rule"])


def lacking(flag: str, version: str) -> str:
    """Say that a vLLM has no such option, and when others had it."""
    when = history(flag)
    return f"vLLM {version} has no {flag}{f' ({when})' if when else ''}"


def without_effect(flag: str) -> str:
    """Say why an option does nothing in a vLLM that still takes it; "" when it does something."""
    return next((rule["why"] for rule in rules() if flag in rule["flags"] and not rule.get("effect", True)), "")


def put_in(option: GivenOption, out: Gathered, *, probe: Probe, given: str) -> None:
    """Put an option that a vLLM does not take into `out` as far as it can be, and tell what became of it.

    Args:
        option: as it was given.
        out: what it is added to.
        probe: what the vLLM accepts.
        given: the option as a person would type it.
    """
    words = lacking(option.flag, probe.version)
    if option.flag in ROPE:
        _rope(option, out, probe, given, words)
        return
    for rule in rules():
        if option.flag in rule["flags"] and _fits(rule, option, probe):
            _DOING[rule["do"]](rule, option, out, given, f"{words}: {rule['why']}.")
            return
    path = OWN_FLAGS.get(option.flag)
    out.tell(ChangeKind.REFUSED, given, why=f"{words}.{f' The field {path} stays empty.' if path else ''}")


def _fits(rule: Rule, option: GivenOption, probe: Probe) -> bool:
    """Whether a rule is for this use of the option, and its target is there."""
    if "with" in rule and option.value not in rule["with"]:
        return False
    if rule.get("several") and len(option.values) < 2:
        return False
    if "only_key" in rule and _only_key(rule, option) is None:
        return False
    to = str(rule.get("to", ""))
    return not to.startswith("--") or probe.accepts(to)


def _only_key(rule: Rule, option: GivenOption) -> str | None:
    """Return the value of the one key that a rule is for; None when there are others."""
    if option.keys:
        return option.value if option.keys == (rule["only_key"],) else None
    try:
        value, _ = relaxed_json.loads(option.value)
    except relaxed_json.RelaxedJsonError:
        return None
    only = isinstance(value, dict) and set(value) == {rule["only_key"]}
    return str(value[rule["only_key"]]) if only else None


def _drop(rule: Rule, option: GivenOption, out: Gathered, given: str, why: str) -> None:
    out.tell(ChangeKind.DROPPED, given, why=why)


def _refuse(rule: Rule, option: GivenOption, out: Gathered, given: str, why: str) -> None:
    kind = ChangeKind.DROPPED if option.off else ChangeKind.REFUSED
    out.tell(kind, given, why=f"{why} It was switched off anyway." if option.off else why)


def _rename(rule: Rule, option: GivenOption, out: Gathered, given: str, why: str) -> None:
    if option.off:
        out.tell(ChangeKind.DROPPED, given, why=f"{why} It was switched off anyway.")
        return
    only = _only_key(rule, option) if "only_key" in rule else None
    values = [only] if only is not None else [value.text for value in option.values]
    values = [rule["value"]] if "value" in rule else values
    to = rule["to"]
    if "also" in rule:
        out.extra[rule["also"][0]] = [list(rule["also"])]
        why = f"{why} It comes with {' '.join(rule['also'])}."
    out.set_extra(to, [to, *(values if to in _LISTS else values[:1])], ChangeKind.TRANSLATED, given, why)


def _key(rule: Rule, option: GivenOption, out: Gathered, given: str, why: str) -> None:
    is_switch = option.known is not None and option.known.kind is OptionKind.SWITCH
    value: Any = not option.off if is_switch else scalar(option.value)
    to = rule["to"]
    put(out.json_extra.setdefault(to, {}), (rule["key"],), value)
    out.places[f"extra_args {to}"] = out.tell(
        ChangeKind.TRANSLATED, given, f"extra_args {to} {dumps(out.json_extra[to])}", why
    )


def _env(rule: Rule, option: GivenOption, out: Gathered, given: str, why: str) -> None:
    out.set_env(rule["to"], option.value, ChangeKind.TRANSLATED, given, why)


_DOING = {"drop": _drop, "refuse": _refuse, "rename": _rename, "key": _key, "env": _env}


def _rope(option: GivenOption, out: Gathered, probe: Probe, given: str, words: str) -> None:
    """Both are values of the model's config; from 0.12 on it has them together as rope_parameters."""
    try:
        value = relaxed_json.loads(option.value)[0]
    except relaxed_json.RelaxedJsonError as error:
        out.tell(ChangeKind.REFUSED, given, why=f"It is no JSON: {error}.")
        return
    overrides = dict(out.fields.get("target.hf_overrides", {}))
    if not at_least(probe.version, "0.12.0"):
        overrides[ROPE[option.flag]] = value
    elif option.flag == "--rope-theta":
        put(overrides, ("rope_parameters", "rope_theta"), value)
    elif isinstance(value, dict):
        for key, one in value.items():
            put(overrides, ("rope_parameters", "rope_type" if key == "type" else str(key)), one)
    else:
        out.tell(ChangeKind.REFUSED, given, why="It should be JSON in braces.")
        return
    why = f"{words}: it is a value of the model's config."
    out.set_field("target.hf_overrides", overrides, ChangeKind.TRANSLATED, given, why)
