"""Fields of a profile as the text that a form holds, and back again with every problem in words."""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from backend.launch import profile_toml
from backend.launch.profile import FIELDS, SCHEMA, Profile, ProfileField

EDITABLE: tuple[ProfileField, ...] = tuple(
    field for field in FIELDS if not field.path.startswith(("measured.", "demo."))
)
"""The fields that a form shows; the others stay in the file as they are."""

_PROSE = frozenset({"description", "hardware", "server.chat_template"})
_AS_TYPED = _PROSE | {"title"}  # spaces at the ends are allowed there
_SIZES = {
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
_SIZE = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(_SIZES)})", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?(\d+|\d{1,3}([,_ ]\d{3})+)")
# What a check of a whole table found, and the field where a person mends it.
_MEANT = {
    "the shortest match": "speculation.prompt_lookup_min",
    "synthetic values need": "speculation.rejection_sample_method",
    "the method draft_model": "speculation.model",
    "has a field of its own": "speculation.other",
}
_LIMITS = {
    "greater_than_equal": "should be at least {ge}",
    "greater_than": "should be above {gt}",
    "less_than_equal": "should be at most {le}",
    "less_than": "should be below {lt}",
    "too_short": "should have at least {min_length} item",
    "string_too_short": "should not be empty",
    "string_pattern_mismatch": "should be letters, digits, dots, dashes and underscores",
    "finite_number": "should be a finite number",
    "int_parsing_size": "is too large",
}


def kind(path: str) -> str:
    """Return how a field is edited; the kinds are those of `FieldSpec`."""
    return _kind(_core(_INFOS[path].annotation), path)


def to_text(path: str, value: Any) -> str:
    """Return what a form shows for a value, "" for what the field is anyway when nothing is said."""
    info = _INFOS[path]
    if value is None or value == info.get_default(call_default_factory=True):
        return ""
    match kind(path):
        case "switch":
            return "true" if value else "false"
        case "integer":
            return _size_text(value) if _is_size(path) else f"{value:,}" if _unit(path) else str(value)
        case "number":
            return _number_text(value)
        case "table":
            return json.dumps(value, ensure_ascii=False, indent=2)
        case "variables":
            return "\n".join(f"{name}={_variable_text(text)}" for name, text in value.items())
        case "lines":
            return _lines_text(value)
    return str(value)


def from_text(path: str, text: str) -> Any:
    """Return the value that a text stands for, None when the field says nothing.

    Raises:
        ValueError: it stands for none; the message says what it should be.
    """
    if path in _AS_TYPED:
        return text or None
    text = text.strip()
    if not text:
        return None
    return _READERS[kind(path)](path, text)


def read(stored: Profile | None, name: str, values: Mapping[str, str]) -> tuple[Profile | None, dict[str, str]]:
    """Turn a form into a profile.

    Args:
        stored: the profile that the form was made of; gives what a form does not show. None for a new one.
        name: name of the profile.
        values: text by path of the field; a field that is not among them says nothing.

    Returns:
        The profile, or None and problems in words by path; path "" for what is about no single field.
    """
    document: dict[str, Any] = {"schema": SCHEMA, "name": name}
    if stored is not None:
        document |= stored.model_dump(include={"measured", "demo"}, exclude_none=True)
    problems: dict[str, str] = {}
    for field in EDITABLE:
        try:
            value = from_text(field.path, values.get(field.path, ""))
        except ValueError as error:
            problems[field.path] = str(error)
            continue
        if value is not None:
            table, _, key = field.path.rpartition(".")
            (document.setdefault(table, {}) if table else document)[key] = value
    document.setdefault("target", {})
    try:
        profile = Profile.model_validate(document)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path, words = _problem(detail)
            problems.setdefault(path, words)
        return None, problems
    return (None, problems) if problems else (profile, {})


# ---- kinds -----------------------------------------------------------------------------------------------------


def _info(path: str) -> FieldInfo:
    table: Any = Profile
    *tables, key = path.split(".")
    for part in tables:
        table = table.model_fields[part].annotation
    found: FieldInfo = table.model_fields[key]
    return found


_INFOS = {field.path: _info(field.path) for field in EDITABLE}
_UNITS = {field.path: field.unit for field in EDITABLE}


def _core(annotation: Any) -> Any:
    """Strip Annotated and "or None" from a type."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType):
            (annotation,) = (each for each in get_args(annotation) if each is not NoneType)
        else:
            return annotation


def _kind(core: Any, path: str) -> str:
    if get_origin(core) is tuple:
        return "lines"
    if get_origin(core) is dict:
        return "variables" if path == "env" else "table"
    return {bool: "switch", int: "integer", float: "number"}.get(core) or ("prose" if path in _PROSE else "text")


def _item(path: str) -> Any:
    """Type of one item of a list: str, float, or tuple for a row of numbers."""
    core = _core(get_args(_core(_INFOS[path].annotation))[0])
    return get_origin(core) or core


def _unit(path: str) -> str:
    return _UNITS[path]


def _is_size(path: str) -> bool:
    return _unit(path) == "bytes"


# ---- values to text --------------------------------------------------------------------------------------------


def _number_text(value: float) -> str:
    return repr(value).removesuffix(".0")


def _size_text(value: int) -> str:
    """Write a size with the largest unit that says it exactly in a few digits."""
    for unit in ("TiB", "GiB", "MiB"):
        if value and value % _SIZES[unit] == 0:
            return f"{value // _SIZES[unit]:,} {unit}".replace(",", "")
    for unit, step in (("GB", 10**7), ("MB", 10**4)):
        if value >= _SIZES[unit] and value % step == 0:
            return f"{Decimal(value) / _SIZES[unit]:f} {unit}"
    return f"{value:,}"


def _variable_text(value: str) -> str:
    """Write a value plainly, or quoted where a line could not hold it as it is."""
    plain = value == value.strip() and "\n" not in value and not value.startswith('"')
    return value if plain else json.dumps(value, ensure_ascii=False)


def _lines_text(items: tuple[Any, ...]) -> str:
    """Write one item a line, or a JSON list where lines could not hold them."""
    if items and isinstance(items[0], str):
        plain = all(item and item == item.strip() and "\n" not in item for item in items)
        if plain and not items[0].startswith("["):
            return "\n".join(items)
        return json.dumps(list(items), ensure_ascii=False, indent=2)
    rows = (", ".join(map(str, item)) if isinstance(item, tuple) else _number_text(item) for item in items)
    return "\n".join(rows) if items else "[]"


# ---- text to values --------------------------------------------------------------------------------------------


def _read_text(_path: str, text: str) -> str:
    return text


def _read_switch(_path: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("should be yes or no")
    return text == "true"


def _read_integer(path: str, text: str) -> int:
    if _is_size(path):
        if size := _SIZE.fullmatch(text.replace(",", "")):
            factor = next(factor for unit, factor in _SIZES.items() if unit.lower() == size.group(2).lower())
            n_bytes = Decimal(size.group(1)) * factor
            if n_bytes == n_bytes.to_integral_value():
                return int(n_bytes)
            raise ValueError("should come to a whole number of bytes")
        if not _WHOLE.fullmatch(text):
            raise ValueError("should be a size, for example 8 GiB, or a whole number of bytes")
    if not _WHOLE.fullmatch(text) or len(text) > 40:
        raise ValueError("should be a whole number")
    return int(re.sub("[,_ ]", "", text))


def _read_number(_path: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("should be a number") from None


def _read_table(_path: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f'should be JSON like {{"name": 1}} ({where}: {error.msg.lower()})') from None
    except (ValueError, RecursionError):  # a number or a nesting that is too long to be read
        raise ValueError("should be simpler JSON") from None
    if not isinstance(value, dict):
        raise ValueError('should be names with values: {"name": 1}')  # noqa: TRY004 - what a person typed
    return value


def _read_variables(_path: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise ValueError(f"line {number} should be NAME=VALUE")
        if name in found:
            raise ValueError(f"line {number} sets {name} a second time")
        if len(value) > 1 and value.startswith('"') and value.endswith('"'):
            try:
                value = str(json.loads(value, strict=False))
            except ValueError:
                raise ValueError(f"line {number} has a quoted value that does not end as it should") from None
        found[name] = value
    return found


def _read_lines(path: str, text: str) -> list[Any]:
    if text.startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError):
            listed = None
        if isinstance(listed, list):
            return [float(one) if _item(path) is float and type(one) is int else one for one in listed]
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if _item(path) is str:
        return [line for _, line in lines]
    items: list[Any] = []
    for number, line in lines:
        try:
            items.append(float(line) if _item(path) is float else [int(one) for one in re.split(r"[,\s]+", line)])
        except ValueError:
            wanted = "a number" if _item(path) is float else "three whole numbers"
            raise ValueError(f"line {number} should be {wanted}") from None
    return items


_READERS: dict[str, Callable[[str, str], Any]] = {
    "text": _read_text,
    "switch": _read_switch,
    "integer": _read_integer,
    "number": _read_number,
    "table": _read_table,
    "variables": _read_variables,
    "lines": _read_lines,
}


# ---- problems --------------------------------------------------------------------------------------------------


def _problem(detail: ErrorDetails) -> tuple[str, str]:
    """Return (path, words) for one error of pydantic."""
    words = _words(detail)
    parts = [str(part) for part in detail["loc"]]
    for length in range(len(parts), 0, -1):
        path = ".".join(parts[:length])
        if path in _INFOS:
            inside = parts[length:]
            if not inside:
                return path, words
            if kind(path) == "lines":
                return path, f"item {int(inside[0]) + 1} {words}" if inside[0].isdigit() else words
            return path, f"{inside[0]} {words}"
    if words.startswith("env."):  # a check of the whole profile begins with the variable that it means
        return "env", words.removeprefix("env.")
    return next((path for begin, path in _MEANT.items() if begin in words), ""), words


def _words(detail: ErrorDetails) -> str:
    if detail["type"] == "missing":
        return "is needed: name a model of the hub, or the full path of a folder"
    pattern = _LIMITS.get(detail["type"])
    if pattern is None:
        return profile_toml.reason(detail)
    limits = {
        name: _number_text(limit) if isinstance(limit, float) else f"{limit:,}" if isinstance(limit, int) else limit
        for name, limit in detail.get("ctx", {}).items()
    }
    return pattern.format(**limits)
