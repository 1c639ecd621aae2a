"""What an import comes to: the values of a profile in the making, and the list of what became of each thing given."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from backend.launch.import_text import Source, redacted
from backend.launch.option_values import dumps, shown_value


class ChangeKind(StrEnum):
    """What became of something: REFUSED asked for what cannot be done, UNKNOWN is known to no release."""

    TRANSLATED = "translated"
    KEPT = "kept"
    DROPPED = "dropped"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OptionChange:
    """What became of one thing that was given.

    Attributes:
        kind: what happened.
        from_: as it was given, secrets hidden.
        to: where it is in the profile, "" when it is not.
        why: the reason, a sentence.
    """

    kind: ChangeKind
    from_: str
    to: str = ""
    why: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return it as the command line prints it."""
        return {"kind": self.kind.value, "from": self.from_, "to": self.to, "why": self.why}


@dataclass(slots=True)
class Gathered:
    """What options and variables come to, before it becomes a profile.

    Attributes:
        source: the text they come from; it knows the secrets that are hidden in every change.
        fields: by path, what the fields of the profile say; `speculation` the keys of the speculative config.
        extra: options without a field, each with its words; `json_extra` those that take JSON.
        env: variables of the profile.
        secrets: variables that must not stand in a profile.
        changes: what became of each thing, in the order in which it was given.
        places: for each path, "extra_args FLAG" or "env.NAME", which of the changes set it.
    """

    source: Source
    fields: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, list[list[str]]] = field(default_factory=dict)
    json_extra: dict[str, dict[str, Any]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    changes: list[OptionChange] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def tell(self, kind: ChangeKind, given: str, to: str = "", why: str = "") -> int:
        """Add to the list what became of something, and return its number there."""
        hidden = self.source.secrets
        change = OptionChange(kind, redacted(given, hidden), redacted(to, hidden), redacted(why, hidden))
        self.changes.append(change)
        return len(self.changes) - 1

    def set_field(self, path: str, value: Any, kind: ChangeKind, given: str, why: str) -> None:
        """Set a field of the profile and tell of it."""
        self.fields[path] = value
        self.places[path] = self.tell(kind, given, f"{path} = {shown_value(value)}", why)

    def set_extra(
        self, flag: str, group: list[str], kind: ChangeKind, given: str, why: str, *, also: bool = False
    ) -> None:
        """Set an extra argument, or add one more of it, and tell of it."""
        self.json_extra.pop(flag, None)
        self.extra[flag] = [*(self.extra.get(flag, []) if also else []), group]
        self.places[f"extra_args {flag}"] = self.tell(kind, given, f"extra_args {' '.join(group)}", why)

    def set_env(self, name: str, value: str, kind: ChangeKind, given: str, why: str) -> None:
        """Set a variable of the profile and tell of it."""
        self.env[name] = value
        self.places[f"env.{name}"] = self.tell(kind, given, f"env.{name} = {value}", why)

    def take_back(self, place: str, why: str, *, kind: ChangeKind = ChangeKind.REFUSED) -> bool:
        """Tell that what had been set is not in the profile after all; False if nothing was told of it yet."""
        number = self.places.pop(place, None)
        if number is not None:
            self.tell_anew(number, kind, "", why)
        return number is not None

    def tell_anew(self, number: int, kind: ChangeKind, to: str, why: str) -> None:
        """Tell something else of what was given than before."""
        hidden = self.source.secrets
        self.changes[number] = OptionChange(
            kind, self.changes[number].from_, redacted(to, hidden), redacted(why, hidden)
        )

    def extra_args(self) -> tuple[str, ...]:
        """Return the extra arguments, JSON merged."""
        words = [word for groups in self.extra.values() for group in groups for word in group]
        for flag, value in self.json_extra.items():
            words += [flag, dumps(value)]
        return tuple(words)
