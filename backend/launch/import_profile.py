"""From a server's command to a profile for one vLLM, with every change and what to know about the result."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from backend.errors import UserError
from backend.events import Change, Finding, Fix, Severity
from backend.launch import engine_options, option_changes, speculation_changes, variable_changes, vllm_arguments
from backend.launch.change_list import ChangeKind, Gathered, OptionChange
from backend.launch.code_loading import code_loading
from backend.launch.import_text import Word, redacted
from backend.launch.option_table import parse_version, table
from backend.launch.option_values import shown_value
from backend.launch.probe import Probe
from backend.launch.profile import Profile
from backend.launch.profile_model import Speculation
from backend.launch.profile_toml import reason
from backend.launch.server_command import ServerCommand

_PORT_INSIDE = 8000
# Of settings that do not fit together, the one to do without.
_CHECKED_TOGETHER: tuple[str, ...] = (
    "prompt_lookup_min",
    "synthetic_acceptance_length",
    "synthetic_acceptance_rates",
    "method",
)
_RELATIVE = re.compile(r"\.{1,2}(/|$)")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What a text came to.

    Attributes:
        profile: ready to be saved; its name is a suggestion.
        version: of the vLLM that it was made for.
        changes: what became of everything that was given, in its order.
        findings: what speaks against a start, and what a person will be asked.
        secrets: values that must not stand in a profile, by variable; whoever saves the profile keeps them apart.
    """

    profile: Profile
    version: str
    changes: tuple[OptionChange, ...]
    findings: tuple[Finding, ...]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def make(command: ServerCommand, out: Gathered, *, probe: Probe, name: str = "") -> ImportResult:
    """Make a profile of a command.

    Args:
        command: what a text starts.
        out: what was told of the text so far; the rest is added.
        probe: what the vLLM accepts that the profile is for.
        name: of the profile; by default one is made of the model's.

    Raises:
        ImportTextError: the arguments make no sense; the message points at them.
    """
    return _Maker(command, out, probe).make(name)


class _Maker:
    def __init__(self, command: ServerCommand, out: Gathered, probe: Probe) -> None:
        self._command = command
        self._out = out
        self._probe = probe
        self._findings: list[Finding] = []

    def make(self, name: str) -> ImportResult:
        out, command = self._out, self._command
        arguments = vllm_arguments.parse(command.arguments, probe=self._probe, source=out.source)
        for variable, word in command.env:
            if vllm_arguments.is_placeholder(word.text, braces=False):
                out.source.fail_at(word, f"{word.text} is a placeholder.", "Write the real value, or take it out.")
            variable_changes.take(
                variable, word, out, probe=self._probe, in_command=variable in command.used, resolve=self._path
            )
        option_changes.translate(arguments.options, out, probe=self._probe)
        self._model(arguments.model)
        self._paths()
        self._address()
        profile = self._validated(name)
        findings = [self._without_secrets(finding) for finding in self._look(profile)]
        self._mark_refused(findings)
        return ImportResult(
            profile=profile,
            version=self._probe.version,
            changes=tuple(out.changes),
            findings=tuple(findings),
            secrets=dict(out.secrets),
        )

    # ---- model, paths and address ----------------------------------------------------------------------------------

    def _model(self, alone: Word | None) -> None:
        out = self._out
        if alone is not None:
            if alone.from_env:
                out.source.fail_at(alone, f"${alone.from_env} is not set anywhere before.", "Write the model's name.")
            if "target.model" in out.fields:
                why = f"The model stands behind `vllm serve` already: {alone.text}."
                out.take_back("target.model", why, kind=ChangeKind.DROPPED)
            out.set_field("target.model", alone.text, ChangeKind.KEPT, alone.text, "It is the field “Model”.")
        if not out.fields.get("target.model"):
            out.source.fail_at(self._command.place, "no model is named.", "Write its name behind `vllm serve`.")

    def _path(self, value: str) -> str:
        """Return the path outside of a container, or a whole path for a relative one; other values as they are."""
        for mount in sorted(self._command.mounts, key=lambda one: len(one.inside), reverse=True):
            if value == mount.inside:
                return mount.host
            if value.startswith(f"{mount.inside.rstrip('/')}/"):
                return f"{mount.host.rstrip('/')}/{value.removeprefix(mount.inside.rstrip('/')).lstrip('/')}"
        if _RELATIVE.match(value) and self._command.folder:
            return str(Path(self._command.folder) / value)
        return value

    def _paths(self) -> None:
        """Paths of a container, and relative ones, as they are on this machine."""
        out = self._out
        for path in ("target.model", "target.tokenizer", "server.chat_template"):
            value = out.fields.get(path)
            if isinstance(value, str) and self._path(value) != value:
                out.fields[path] = self._path(value)
                self._moved(path, f"{path} = {out.fields[path]}")
        model = out.speculation.get("model")
        if isinstance(model, str) and self._path(model) != model:
            out.speculation["model"] = self._path(model)
            self._moved("speculation.model", f"speculation.model = {out.speculation['model']}")
        for flag, groups in out.extra.items():
            for group in groups:
                moved = [group[0], *(self._path(word) for word in group[1:])]
                if moved != group:
                    group[:] = moved
                    self._moved(f"extra_args {flag}", f"extra_args {' '.join(moved)}")

    def _moved(self, place: str, to: str) -> None:
        number = self._out.places.get(place)
        if number is not None:
            old = self._out.changes[number]
            why = f"{old.why} The path is the whole one on this machine."
            self._out.tell_anew(number, ChangeKind.TRANSLATED, to, why)

    def _address(self) -> None:
        """Where it listens: a container's own address and port are not those of this machine."""
        out, fields = self._out, self._out.fields
        if self._command.in_container:
            inside = fields.get("server.port", _PORT_INSIDE)
            why = "It is an address of the container; where it can be reached is told by its ports."
            out.take_back("server.host", why, kind=ChangeKind.DROPPED)
            fields.pop("server.host", None)
            for publish in self._command.published:
                if publish.inside == inside:
                    fields["server.port"] = publish.port
                    if publish.address:
                        fields["server.host"] = publish.address
                    break
        host = fields.get("server.host")
        if host is None and not self._command.published:
            what = "server.host: the command names no address, so vLLM would listen on every one of this machine."
            fix = "Specdeck listens on 127.0.0.1, this machine only. Write 0.0.0.0 for others; it asks for a key then."
            self._findings.append(Finding(Severity.NOTE, what, fix=fix, field="server.host"))
        elif isinstance(host, str) and not engine_options.is_loopback(host):
            if not fields.get("server.api_key"):
                fields["server.api_key"] = True
                given = f"an address that other machines reach: {host}"
                why = "An engine that others can reach asks for a key. Specdeck makes it and keeps it elsewhere."
                out.tell(ChangeKind.TRANSLATED, given, "server.api_key = true", why)
            what = f"server.host: {host} can be reached by other machines, so clients must send a key."
            this_only = Fix(
                "Listen on this machine only",
                (Change("server.host", "127.0.0.1"), Change("server.api_key", False)),
            )
            self._findings.append(Finding(Severity.WARNING, what, field="server.host", fixes=(this_only,)))

    # ---- the profile -----------------------------------------------------------------------------------------------

    def _validated(self, name: str) -> Profile:
        """Build the profile; what turns out to be no possible value is taken out and told."""
        out = self._out
        spec = {
            key: value for key, value in out.speculation.items() if key in Speculation.model_fields and key != "other"
        }
        other = {key: value for key, value in out.speculation.items() if key not in spec}
        for path, value in {**out.fields}.items():
            if isinstance(value, str) and out.source.holds_secret(value):
                if path == "target.model":
                    out.source.fail_at(self._command.place, "the model's name looks like a secret.", "Write its name.")
                out.take_back(path, "Its value looks like a secret, which no profile may hold.")
                del out.fields[path]
        while True:
            document: dict[str, Any] = {"name": name or suggested_name(str(out.fields.get("target.model", "")))}
            for path, value in out.fields.items():
                first, _, last = path.partition(".")
                document.setdefault(first, {})[last] = value
            if spec or other:
                document["speculation"] = {**spec, **({"other": other} if other else {})}
            document |= {"env": dict(out.env), "extra_args": list(out.extra_args())}
            try:
                return Profile.model_validate(document)
            except ValidationError as error:
                gone = [self._without(detail, spec, other) for detail in error.errors(include_url=False)]
                if not any(gone):
                    words = "; ".join(reason(detail) for detail in error.errors(include_url=False))
                    raise UserError("These settings do not make a profile together.", f"{words}.") from error

    def _without(self, detail: Any, spec: dict[str, Any], other: dict[str, Any]) -> bool:
        """Take out the value that a check refused; False if it is not one that can go."""
        out = self._out
        place = tuple(str(part) for part in detail["loc"])
        given = detail.get("input")
        why = f"{'It' if isinstance(given, dict) else shown_value(given)} {reason(detail)}."
        if place[:1] == ("speculation",):
            return self._without_speculation(place, why, spec, other)
        if place[:2] == ("target", "model"):
            out.source.fail_at(self._command.place, f"the model {out.fields['target.model']} {reason(detail)}.")
        path = ".".join(place[:2])
        if path in out.fields:
            del out.fields[path]
            out.take_back(path, why)
            return True
        if place[:1] == ("extra_args",):
            flags = [
                flag for flag, groups in out.extra.items() if any(_unfit(word) for group in groups for word in group)
            ]
            for flag in flags:
                del out.extra[flag]
                out.take_back(f"extra_args {flag}", f"Its value {reason(detail)}.")
            return bool(flags)
        if place[:1] == ("env",) and len(place) > 1 and place[1] in out.env:
            del out.env[place[1]]
            out.take_back(f"env.{place[1]}", why)
            return True
        return False

    def _without_speculation(
        self, place: tuple[str, ...], why: str, spec: dict[str, Any], other: dict[str, Any]
    ) -> bool:
        keys = [place[1]] if len(place) > 1 else []
        if place[1:2] == ("other",):
            keys = list(other) if len(place) < 3 else [place[2]]
        elif not keys:  # a check of several together
            keys = [key for key in _CHECKED_TOGETHER if key in spec][:1]
        found = False
        for key in keys:
            if spec.pop(key, None) is not None or other.pop(key, None) is not None or key in other:
                found = True
                place_ = f"speculation.{key}"
                number = self._out.places.get(place_)
                whole = number is not None and self._out.changes[number].to == "speculation"
                if whole or not self._out.take_back(place_, why):
                    self._out.tell(ChangeKind.REFUSED, f"--speculative-config: {key}", why=why)
        return found

    def _mark_refused(self, findings: Sequence[Finding]) -> None:
        """What the profile keeps although this vLLM cannot do it is no success."""
        for finding in findings:
            number = self._out.places.get(finding.field)
            if finding.severity is Severity.ERROR and number is not None:
                old = self._out.changes[number]
                why = f"{finding.what.partition(': ')[2] or finding.what} {finding.fix}".strip()
                self._out.tell_anew(number, ChangeKind.REFUSED, old.to, why)

    def _without_secrets(self, finding: Finding) -> Finding:
        hidden = self._out.source.secrets
        what, why, fix = (redacted(words, hidden) for words in (finding.what, finding.why, finding.fix))
        return replace(finding, what=what, why=why, fix=fix)

    # ---- what to know ------------------------------------------------------------------------------------------------

    def _look(self, profile: Profile) -> list[Finding]:
        found = [*self._findings, *speculation_changes.can_do(profile, self._probe)]
        told = {finding.field for finding in found if finding.severity is Severity.ERROR}
        _, problems = engine_options.build_options(profile, probe=self._probe, resolve=lambda model: model)
        for problem in problems:
            place = re.match(r"[a-z_]+(?:\.[A-Za-z0-9_]+)*", problem)
            if not (place and place.group() in told):
                found.append(Finding(Severity.ERROR, problem, field=place.group() if place else ""))
        for use in code_loading(profile):
            what = f"{use.field}: {use.why}."
            found.append(Finding(Severity.WARNING, what, fix="You will be asked before a start.", field=use.field))
        if parse_version(self._probe.version)[:3] > parse_version(table().newest)[:3] and self._probe.tier != 1:
            what = f"Specdeck's own table ends with vLLM {table().newest}; {self._probe.version} may differ."
            found.append(Finding(Severity.NOTE, what, fix="Install it, and Specdeck asks its parser."))
        return found


def _unfit(word: str) -> bool:
    return word == "--" or any((ord(c) < 32 and c not in "\n\t") or ord(c) == 127 for c in word)


def suggested_name(model: str) -> str:
    """Return a good name for a profile of a model: the end of its name, in small letters."""
    last = model.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-._")[:56] or "imported"
