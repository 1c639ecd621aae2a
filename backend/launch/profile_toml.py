"""Profiles as TOML text: reading with errors in words, migrations, and edits that keep comments."""

import difflib
import re
import tomllib
from collections.abc import Callable, MutableMapping
from typing import Any

import tomlkit
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from backend.errors import ProfileError
from backend.launch.profile import SCHEMA, Profile

Document = MutableMapping[str, Any]

_FLAT_NAMES = {
    "speculative_method": "method",
    "speculative_model": "model",
    "num_speculative_tokens": "num_speculative_tokens",
    "speculative_draft_tensor_parallel_size": "draft_tensor_parallel_size",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
}


def _from_0(document: Document) -> None:
    """Schema 0 had the speculative settings flat at the top, named like vLLM's options before 0.8.3."""
    moved = {new: document.pop(old) for old, new in _FLAT_NAMES.items() if old in document}
    if moved:
        table = document.setdefault("speculation", {})
        for name, value in moved.items():
            table.setdefault(name, value)


MIGRATIONS: dict[int, Callable[[Document], None]] = {0: _from_0}
"""For each older schema number: the function that changes a document to the next one, in place."""


def migrate(document: Document) -> int:
    """Bring a document to today's schema in place and return the number that it had.

    Raises:
        ProfileError: the schema number is no number or belongs to a newer Specdeck.
    """
    found = document.get("schema", 0)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ProfileError("schema should be a whole number.", f"Write schema = {SCHEMA}.")
    if found > SCHEMA:
        raise ProfileError(
            f"The file has schema {found}; this Specdeck knows up to {SCHEMA}.", "Use a newer Specdeck for it."
        )
    for number in range(found, SCHEMA):
        MIGRATIONS[number](document)
    document["schema"] = SCHEMA
    return int(found)


def loads(text: str, *, name: str) -> Profile:
    """Read a profile from TOML text.

    Args:
        text: the whole file.
        name: name of the profile, the file's name without its ending.

    Raises:
        ProfileError: the text is no TOML or breaks the schema; the message names line and field.
    """
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"This is not valid TOML: {error}.", "Mend that line in a text editor.") from error
    migrate(document)
    if "name" in document:
        raise ProfileError(
            f"{_place(text, ('name',))}name should not stand in the file.", "The file's name is the profile's name."
        )
    try:
        return Profile.model_validate({**document, "name": name})
    except ValidationError as error:
        problems = [_in_words(detail, text) for detail in error.errors(include_url=False)]
        raise ProfileError("; ".join(dict.fromkeys(problems)) + ".", "Mend it in a text editor.") from error


def dumps(profile: Profile) -> str:
    """Write a profile as TOML text: the schema number and everything that differs from the defaults."""
    document = tomlkit.document()
    document["schema"] = SCHEMA
    _merge(document, _full(profile), _minimal(profile))
    return tomlkit.dumps(document)


def edit(text: str, profile: Profile) -> str:
    """Return `text` changed so that it says what `profile` says, with comments and order kept.

    Args:
        text: a valid profile of any known schema.
        profile: what the result must say.

    Raises:
        ProfileError: `text` is damaged, so it is not touched; or it is laid out so that it cannot be changed in place.
    """
    before = loads(text, name=profile.name)
    document = tomlkit.parse(text)
    if migrate(document) == SCHEMA and before == profile:
        return text
    _merge(document, _full(profile), _minimal(profile))
    edited = tomlkit.dumps(document)
    if loads(edited, name=profile.name) != profile:
        raise ProfileError("The file is laid out in a way that cannot be changed in place.", "Change it by hand.")
    return edited


def _full(profile: Profile) -> dict[str, Any]:
    return profile.model_dump(mode="json", by_alias=True, exclude_none=True)


def _minimal(profile: Profile) -> dict[str, Any]:
    return profile.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


def _merge(table: Document, full: dict[str, Any], minimal: dict[str, Any]) -> None:
    """Make `table` say `full`; a value that stands there stays as written, a default is not added."""
    for key in list(table):
        if key not in full:
            del table[key]
    for key, value in full.items():
        if isinstance(value, dict) and value and key in table and isinstance(table[key], MutableMapping):
            _merge(table[key], value, minimal.get(key, {}))
        elif key in table:
            if not _same(tomlkit.item(table[key]).unwrap(), value):
                table[key] = value
        elif key in minimal:
            table[key] = minimal[key]


def _same(old: object, new: object) -> bool:
    """Equal in type too: 1 and 1.0 and true are three things in TOML."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        return list(old) == list(new) and all(_same(old[key], new[key]) for key in old)
    return type(old) is type(new) and old == new


_KINDS = {
    "string_type": "should be text in quotes",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "bool_type": "should be true or false",
    "tuple_type": "should be a list in [ ]",
    "dict_type": "should be a table",
    "model_type": "should be a table",
    "missing": "is missing",
}


def reason(detail: ErrorDetails) -> str:
    """Say in words what is wrong with a value, without naming its field: "should be a whole number"."""
    words = _KINDS.get(detail["type"])
    return words or detail["msg"].removeprefix("Value error, ").replace("Input should", "should")


def _in_words(detail: ErrorDetails, text: str) -> str:
    place = tuple(str(part) for part in detail["loc"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        return f"{_place(text, place)}{'.'.join(place)} is no field of a profile{_guess(place)}"
    words = reason(detail)
    if not place:  # a check of the whole profile begins with the field that it means
        field, _, words = words.partition(" ")
        place = tuple(field.split("."))
    if kind != "missing" and not isinstance(detail["input"], dict | Profile):
        words += f" (it is {detail['input']!r})"
    colon = " " if words.startswith(("should", "is ", "looks")) else ": "
    return f"{_place(text, place)}{'.'.join(place)}{colon}{words}"


def _guess(place: tuple[str, ...]) -> str:
    table: Any = Profile
    for part in place[:-1]:
        table = table.model_fields[part].annotation if part in table.model_fields else None
        if not hasattr(table, "model_fields"):
            return ""
    close = difflib.get_close_matches(place[-1], [name for name in table.model_fields if name != "name"], n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _place(text: str, place: tuple[str, ...]) -> str:
    """Return "line N: " for the line that sets `place` or the nearest table around it, "" if none does."""
    best, depth = 0, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = tuple(part.strip(" \"'") for part in header.group(1).split("."))
            here = table
        elif key := re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line):
            here = (*table, *(part.strip("\"'") for part in key.group(1).split(".")))
        else:
            continue
        if len(here) > depth and place[: len(here)] == here:
            best, depth = number, len(here)
    return f"line {best}: " if best else ""
