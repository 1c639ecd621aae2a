"""Options of any vLLM release put into a profile for one release, with every change told: nothing goes silently."""

from collections.abc import Sequence

from backend.launch import option_values, relaxed_json, speculation_changes, stale_options
from backend.launch.change_list import ChangeKind, Gathered
from backend.launch.engine_options import OWN_FLAGS, REFUSED_FLAGS, SPECULATIVE_CONFIG
from backend.launch.option_table import OptionKind, table
from backend.launch.option_values import MENDED, dumps, put, sentence, shown_value
from backend.launch.probe import Probe
from backend.launch.profile import FIELDS
from backend.launch.speculation_changes import KeyChange
from backend.launch.vllm_arguments import GivenOption

_APPENDED = frozenset({"--middleware"})  # each counts; of all others the last
SECRET_OPTIONS = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}
"""Options whose value is a secret, with the variable that carries it instead."""
_ALWAYS = frozenset({"--model", "--device-ids"})  # the profile has them in every release, whatever its parser takes
_TITLES = {one.path: one.title for one in FIELDS}
_DOTTED = "A key behind a dot is a value of the JSON."


def translate(options: Sequence[GivenOption], out: Gathered, *, probe: Probe) -> None:
    """Put options into `out` as one vLLM takes them, and tell of each what became of it.

    Args:
        options: as given, in their order.
        out: what they are added to.
        probe: what the vLLM accepts: that of an installed one, or `option_table.probe_of` a release.
    """
    translator = _Translator(out, probe)
    for option, counts in _which_count(options):
        translator.take(option, counts=counts)
    translator.finish()


def _which_count(options: Sequence[GivenOption]) -> list[tuple[GivenOption, bool]]:
    """Mark the options that count: of one that is given several times the last; dotted keys replace plain JSON."""
    names = [".".join((_same_name(option.flag), *option.keys)) for option in options]
    last = {name: place for place, name in enumerate(names)}
    dotted = {option.flag for option in options if option.keys}
    return [
        (
            option,
            (last[name] == place or option.appends or option.flag in _APPENDED or option.known is None)
            and not (option.flag in dotted and not option.keys),
        )
        for place, (option, name) in enumerate(zip(options, names, strict=True))
    ]


def _same_name(flag: str) -> str:
    """One name for the several options that say the same thing."""
    flag = table().same.get(flag, flag)
    key = speculation_changes.OPTION_KEYS.get(flag)
    return f"{SPECULATIVE_CONFIG}.{key}" if key else flag


class _Translator:
    def __init__(self, out: Gathered, probe: Probe) -> None:
        self._out = out
        self._probe = probe

    def take(self, option: GivenOption, *, counts: bool) -> None:
        if option.flag in SECRET_OPTIONS:
            for value in option.values:
                self._out.source.hide(value.text)
        given = option.shown(self._out.source)
        tell = self._out.tell
        if option.problem:
            tell(ChangeKind.REFUSED, given, why=f"The name is cut short: {option.problem}.")
        elif option.known is None:
            name = option.words[0].text.partition("=")[0]
            words = f"No vLLM from {table().versions[0]} to {table().newest} has {name}"
            tell(ChangeKind.UNKNOWN, given, why=f"{words}; it is left out.")
        elif not counts:
            tell(ChangeKind.DROPPED, given, why="It is given again, and then the last one or its dotted keys count.")
        elif option.flag in SECRET_OPTIONS:
            self._secret(option, given)
        elif any(value.from_env for value in option.values):
            why = "Its value is in your shell only; write it here, or set it there as a variable of vLLM."
            tell(ChangeKind.REFUSED, given, why=why)
        elif any(self._out.source.holds_secret(value.text) for value in option.values):
            tell(ChangeKind.REFUSED, given, why="Its value looks like a secret, which no profile may hold.")
        elif option.flag in speculation_changes.OPTION_KEYS:
            self._speculation_option(option, given)
        elif option.flag == SPECULATIVE_CONFIG:
            self._speculation_json(option, given)
        elif self._probe.accepts(table().same.get(option.flag, option.flag)) or option.flag in _ALWAYS:
            self._accepted(option, given)
        else:
            stale_options.put_in(option, self._out, probe=self._probe, given=given)

    def _secret(self, option: GivenOption, given: str) -> None:
        variable = SECRET_OPTIONS[option.flag]
        values = [value for value in option.values if value.text or value.from_env]
        if not values:
            why = "Without a value vLLM uses the token of your own login, as it does anyway."
            self._out.tell(ChangeKind.DROPPED, given, why=why)
            return
        in_shell = not values[0].text
        to = f"your shell's {variable}" if in_shell else "moved"
        why = "Every user of a machine can see a command line, so the value is kept apart from the profile."
        if in_shell:
            why = f"The value stays in your shell: set {variable} there before a start."
        else:
            self._out.secrets[variable] = values[0].text
        if variable == "VLLM_API_KEY":
            self._out.fields["server.api_key"] = True
            to = "server.api_key = true" if in_shell else f"{to}; server.api_key = true"
            why = "Specdeck makes the key of an engine and keeps it elsewhere." if in_shell else why
        if len(values) > 1:
            why += " Only the first of several is used."
        self._out.tell(ChangeKind.TRANSLATED, given, to, why)

    # ---- what this vLLM takes ------------------------------------------------------------------------------------

    def _accepted(self, option: GivenOption, given: str) -> None:
        flag = table().same.get(option.flag, option.flag)
        if flag in REFUSED_FLAGS:
            kind = ChangeKind.DROPPED if option.off else ChangeKind.REFUSED
            why = "It switches off what Specdeck never switches on" if option.off else sentence(REFUSED_FLAGS[flag])
            self._out.tell(kind, given, why=f"{why}.")
        elif flag in OWN_FLAGS:
            self._own_field(option, OWN_FLAGS[flag], given)
        else:
            self._extra(option, flag, given)

    def _own_field(self, option: GivenOption, path: str, given: str) -> None:
        if option.keys:
            if path != "target.hf_overrides":
                self._out.tell(ChangeKind.REFUSED, given, why=f"{option.flag} has no keys behind dots.")
                return
            overrides = dict(self._out.fields.get(path, {}))
            put(overrides, option.keys, option_values.dotted_value(option), append=option.appends)
            self._out.set_field(path, overrides, ChangeKind.TRANSLATED, given, _DOTTED)
            return
        try:
            value, note = option_values.field_value(path, option)
        except ValueError as error:
            self._out.tell(ChangeKind.REFUSED, given, why=f"{sentence(str(error))}.")
            return
        note = note or option.note
        why = f"{sentence(note)}." if note else f"It is the field “{_TITLES.get(path, path)}”."
        self._out.set_field(path, value, ChangeKind.TRANSLATED if note else ChangeKind.KEPT, given, why)

    def _extra(self, option: GivenOption, flag: str, given: str) -> None:
        note = option.note
        kind = option.known.kind if option.known else OptionKind.VALUE
        if option.keys:
            self._dotted_extra(option, flag, given)
            return
        words = [value.text for value in option.values]
        if kind is OptionKind.JSON:
            try:
                words, mended = option_values.json_words(option)
            except ValueError as error:
                self._out.tell(ChangeKind.REFUSED, given, why=f"{sentence(str(error))}.")
                return
            note = note or mended
        if kind is OptionKind.SWITCH:
            words = []
            if option.off and not self._probe.accepts(f"--no-{flag.removeprefix('--')}"):
                why = f"{flag} is off in vLLM {self._probe.version} by itself, and cannot be switched off."
                self._out.tell(ChangeKind.DROPPED, given, why=why)
                return
        no_effect = stale_options.without_effect(flag)
        if no_effect:
            why = f"vLLM {self._probe.version} takes it without effect: {no_effect}."
        else:
            why = f"{sentence(note)}." if note else f"vLLM {self._probe.version} has it; no field is for it."
        group = [f"--no-{flag.removeprefix('--')}" if option.off else flag, *words]
        result = ChangeKind.TRANSLATED if note else ChangeKind.KEPT
        self._out.set_extra(flag, group, result, given, why, also=flag in _APPENDED)

    def _dotted_extra(self, option: GivenOption, flag: str, given: str) -> None:
        value = self._out.json_extra.setdefault(flag, {})
        put(value, option.keys, option_values.dotted_value(option), append=option.appends)
        self._out.places[f"extra_args {flag}"] = self._out.tell(
            ChangeKind.TRANSLATED, given, f"extra_args {flag} {dumps(value)}", _DOTTED
        )

    # ---- speculation ---------------------------------------------------------------------------------------------

    def _speculation_option(self, option: GivenOption, given: str) -> None:
        key = speculation_changes.OPTION_KEYS[option.flag]
        is_switch = option.known is not None and option.known.kind is OptionKind.SWITCH
        value: object = not option.off if is_switch else option.value
        if not is_switch and key not in {"model", "method"}:
            value = option_values.number_or_text(option.value)
        accepted = self._probe.accepts(option.flag)
        change = speculation_changes.change_key(key, value, self._probe)
        why = change.why or ("the speculative settings stand together now" if not accepted else "")
        if not accepted:
            why = f"{stale_options.lacking(option.flag, self._probe.version)}: {why}"
        else:
            why = why or option.note or "it is one of the speculative settings"
        self._key(change, given, f"{sentence(why)}.", translated=True)

    def _speculation_json(self, option: GivenOption, given: str) -> None:
        if option.keys:
            self._dotted_key(option, given)
            return
        try:
            value, strict = relaxed_json.loads(option.value)
        except relaxed_json.RelaxedJsonError as error:
            why = f"It is no JSON: {error} (character {error.position + 1})."
            self._out.tell(ChangeKind.REFUSED, given, why=why)
            return
        if not isinstance(value, dict):
            self._out.tell(ChangeKind.REFUSED, given, why="It should be JSON in braces.")
            return
        note = option.note or ("" if strict else MENDED)
        why = f"{sentence(note)}." if note else "Its keys are the fields of “Speculation”."
        place = self._out.tell(ChangeKind.TRANSLATED if note else ChangeKind.KEPT, given, "speculation", why)
        for name, one in value.items():
            change = speculation_changes.change_key(str(name), one, self._probe)
            if change.kind == ChangeKind.KEPT:
                self._out.speculation[change.key] = change.value
                self._out.places[f"speculation.{change.key}"] = place
            else:
                shown = f"{SPECULATIVE_CONFIG}: {name} = {shown_value(one)}"
                self._key(change, shown, f"{sentence(change.why)}.")

    def _dotted_key(self, option: GivenOption, given: str) -> None:
        first, *rest = option.keys
        value = option_values.dotted_value(option)
        if rest:
            inner = dict(self._out.speculation.get(first.replace("-", "_")) or {})
            put(inner, rest, value, append=option.appends)
            value = inner
        change = speculation_changes.change_key(first, value, self._probe)
        self._key(change, given, f"{sentence(change.why)}." if change.why else _DOTTED, translated=True)

    def _key(self, change: KeyChange, given: str, why: str, *, translated: bool = False) -> None:
        kind = ChangeKind(change.kind)
        if not change.key:
            self._out.tell(kind, given, why=why)
            return
        self._out.speculation[change.key] = change.value
        path = f"speculation.{change.key}"
        kind = ChangeKind.TRANSLATED if translated else kind
        self._out.places[path] = self._out.tell(kind, given, f"{path} = {shown_value(change.value)}", why)

    def finish(self) -> None:
        """Settle what only all options together can tell."""
        values = self._out.speculation
        method = speculation_changes.method_of(values)
        if values.get("method") is None and method is not None:
            values["method"] = method
            self._out.places["speculation.method"] = self._out.tell(
                ChangeKind.TRANSLATED,
                f"the draft {values['model']}",
                f"speculation.method = {method}",
                "No method was given; this is the one that vLLM finds by the draft.",
            )
        problem = speculation_changes.draft_parallel_problem(
            values,
            method=method,
            target=self._out.fields.get("parallel.tensor_parallel_size") or 1,
            version=self._probe.version,
        )
        if problem:
            self._drop_draft_parallel(f"{sentence(problem)}; left out it is the target's.")

    def _drop_draft_parallel(self, why: str) -> None:
        draft = self._out.speculation.pop("draft_tensor_parallel_size")
        place = "speculation.draft_tensor_parallel_size"
        number = self._out.places.get(place)
        whole = number is not None and self._out.changes[number].to == "speculation"
        if whole or not self._out.take_back(place, why, kind=ChangeKind.DROPPED):
            given = f"{SPECULATIVE_CONFIG}: draft_tensor_parallel_size = {draft}"
            self._out.tell(ChangeKind.DROPPED, given, why=why)
