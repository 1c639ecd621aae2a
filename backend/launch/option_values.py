"""What the words behind an option mean: numbers with suffixes, JSON that a shell damaged, fields of a profile."""

import json
import re
from collections.abc import Sequence
from typing import Any, get_args

from backend.launch import relaxed_json
from backend.launch.profile import Profile
from backend.launch.vllm_arguments import GivenOption

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
MENDED = "its quotes were lost or changed on the way, and are strict JSON again"


def field_value(path: str, option: GivenOption) -> tuple[Any, str]:
    """Return what an option's words are as the value of a field, and a note if they mean something else than they seem.

    Raises:
        ValueError: the words make no such value; the message says why.
    """
    kinds = _kinds(path)
    text = option.value
    if bool in kinds:
        return not option.off, ""
    if option.off:
        raise ValueError("it takes a value")
    if path in {"parallel.device_ids", "server.quiet_endpoints"}:
        return [word.strip() for word in text.split(",") if word.strip()], ""
    if path == "target.served_model_name":
        rest = len(option.values) - 1
        return text, f"Specdeck serves one name, so the other {rest} are left out" if rest else ""
    if path == "target.hf_overrides":
        value, strict = _loads(text)
        if not isinstance(value, dict):
            raise ValueError("it should be JSON in braces")
        return value, "" if strict else MENDED
    if int in kinds:
        return whole_number(text)
    if float in kinds:
        try:
            return float(text), ""
        except ValueError:
            raise ValueError(f"{text} is no number") from None
    return text, ""


def whole_number(text: str) -> tuple[int | None, str]:
    """Return the number that vLLM reads in a text, and a note where it has a suffix: 32k is 32,000, 32K is 32,768.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)([kKmMgGtT])", text.strip())
    if found is not None:
        number, suffix = found.groups()
        if suffix.isupper() and "." in number:
            raise ValueError(f"vLLM takes no fraction before {suffix}; did you mean {number}{suffix.lower()}?")
        value = int(float(number) * _SUFFIXES[suffix]) if "." in number else int(number) * _SUFFIXES[suffix]
        other = suffix.lower() if suffix.isupper() else suffix.upper()
        note = f"{text.strip()} means {value:,}"
        if "." not in number:
            note += f"; {number}{other} would be {int(number) * _SUFFIXES[other]:,}"
        return value, note
    if text.strip().lower() == "auto" or text.strip() == "-1":
        raise ValueError(f"{text.strip()} lets vLLM choose by the free memory; a profile holds a number or nothing")
    if not re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        raise ValueError(f"{text} is no whole number")
    return int(text), ""


def _kinds(path: str) -> set[object]:
    value: Any = Profile
    for part in path.split("."):
        info = value.model_fields.get(part)
        if info is None:
            return set()
        value = info.annotation
        while not isinstance(value, type) and (arguments := [one for one in get_args(value) if one is not type(None)]):
            if len(arguments) > 1 or not hasattr(arguments[0], "model_fields"):
                return set(arguments)
            value = arguments[0]
    return {value}


def _loads(text: str) -> tuple[Any, bool]:
    try:
        return relaxed_json.loads(text)
    except relaxed_json.RelaxedJsonError as error:
        raise ValueError(f"it is no JSON: {error} (character {error.position + 1})") from error


def json_words(option: GivenOption) -> tuple[list[str], str]:
    """Return the words of an option that takes JSON, and a note if they were mended; some also take a plain word.

    Raises:
        ValueError: it is neither.
    """
    text = option.value
    if not text.strip().lstrip("'\"\\").startswith(("{", "[")):
        return [text], ""
    value, strict = _loads(text)
    return ([text], "") if strict else ([dumps(value)], MENDED)


def dotted_value(option: GivenOption) -> Any:
    """Return what vLLM makes of a dotted option's value: JSON, a number with a suffix, or text; "+" makes a list."""
    if option.appends:
        return [scalar(word) for word in option.value.split(",")]
    return scalar(option.value)


def scalar(text: str) -> Any:
    """Return a value that is JSON, a number with a suffix, or else text."""
    try:
        value, strict = relaxed_json.loads(text)
    except relaxed_json.RelaxedJsonError:
        return number_or_text(text)
    return value if strict or isinstance(value, dict | list) else number_or_text(text)


def number_or_text(text: str) -> Any:
    """Return a number, true or false where a text is one."""
    try:
        return whole_number(text)[0]
    except ValueError:
        pass
    if re.fullmatch(r"\d{1,9}\.\d{1,12}", text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def put(table_: dict[str, Any], keys: Sequence[str], value: Any, *, append: bool = False) -> None:
    """Set a value in tables inside tables; `append` makes a list longer."""
    for key in keys[:-1]:
        inner = table_.get(key)
        table_[key] = inner if isinstance(inner, dict) else {}
        table_ = table_[key]
    old = table_.get(keys[-1])
    if append and isinstance(old, list) and isinstance(value, list):
        table_[keys[-1]] = [*old, *value]
    else:
        table_[keys[-1]] = value


def dumps(value: Any) -> str:
    """Return strict JSON on one line."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def shown_value(value: Any) -> str:
    """Return a value for people to read."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def sentence(words: str) -> str:
    """Begin words like a sentence; names keep their own way."""
    return words[:1].upper() + words[1:] if words and not words.startswith(("vLLM", "n-gram")) else words
