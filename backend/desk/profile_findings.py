"""What is worth knowing before a profile is started, found while somebody types: quickly, and without the network."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from backend.checkpoints import catalog
from backend.checkpoints.catalog import ModelFiles
from backend.desk import profile_text
from backend.errors import ModelError
from backend.events import Finding, RunStatus, Severity
from backend.launch import preflight
from backend.launch.code_loading import code_loading
from backend.launch.profile import Profile

_TITLES = {field.path: field.title for field in profile_text.EDITABLE}
_DOTTED = sorted((path for path in _TITLES if "." in path), key=len, reverse=True)
_NAMES = re.compile(r"\b(" + "|".join(map(re.escape, _DOTTED)) + r")\b( = true)?")
_LIST_CHARACTERS = 80
_ASKED = "You will be asked before the start."


def title(path: str) -> str:
    """Return the label of a field, "The profile" for none."""
    return f"“{_TITLES[path]}”" if path in _TITLES else "The profile:"


def asked_before_a_start(profile: Profile) -> list[Finding]:
    """Name each setting that loads code or a file."""
    return [Finding(Severity.NOTE, f"{use.field}: {use.why}.", fix=_ASKED) for use in code_loading(profile)]


def port(
    profile: Profile, *, running_url: str, is_running: bool, live_runs: Callable[[], Sequence[RunStatus]]
) -> list[Finding]:
    """Say when the port cannot be had.

    Args:
        profile: what would run.
        is_running: that engine runs this very profile, so that a restart gets its port.
        running_url: address of the engine that the window runs now, "" without one.
        live_runs: gives every run that lives, whoever supervises it.
    """
    host, number = profile.server.host, profile.server.port
    if re.search(rf":{number}(/|$)", running_url):
        if is_running:
            return []
        words = f"server.port: {number} is the port of the engine that runs now."
        return [Finding(Severity.NOTE, words, fix="It is free again once that engine has stopped.")]
    if not _is_plain_address(host):
        return []  # to look a name up would ask the network
    found = preflight.check_port(host, number)
    if not found:
        found = preflight.check_runs(number, live_runs())
        found = [replace(finding, fix="Stop it first, or use another port.") for finding in found]
    return [replace(finding, what=f"server.port: {finding.what}") for finding in found]


def models(profile: Profile, missing_models: Callable[[Profile], Sequence[ModelFiles]]) -> list[Finding]:
    """Say which models are not whole on this machine."""
    try:
        missing = missing_models(profile)
    except ModelError as error:
        return [Finding(Severity.ERROR, error.message, fix=error.what_to_do)]
    found = []
    if any(catalog.is_built(files.model) for files in missing):
        found.append(Finding(Severity.NOTE, "The demo models are not built yet.", fix=_ASKED))
    for files in missing:
        if catalog.is_built(files.model):
            continue
        is_target = files.model == profile.target.model
        known = profile.target.download_bytes if is_target else profile.speculation.download_bytes
        size_bytes = None if known is None else max(0, known - files.present_bytes)
        place = "target.model" if is_target else "speculation.model"
        for finding in preflight.check_weights([(files, size_bytes, True)]):
            shown = replace(finding, severity=Severity.WARNING, why="", fix=_ASKED) if finding.consent else finding
            found.append(replace(shown, what=f"{place}: {finding.what}"))
    return found


def placed(finding: Finding) -> tuple[Finding, str]:
    """Return a finding with labels in place of the fields' names, and the path of the field that it is about."""
    path, words = "", finding.what
    start = re.match(r"([a-z_]+(?:\.[A-Za-z0-9_-]+)*)(?: [^:]*)?: ", words)
    if start is not None:
        parts = start.group(1).split(".")
        candidates = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
        path = next((one for one in candidates if one in _TITLES), "")
        if not path and parts[0] == "speculation":
            path = "speculation.method"
    if path and start is not None:
        rest = words[start.end() :]
        words = rest if rest.startswith(_TITLES[path]) else f"{_TITLES[path]}: {rest}"
    return replace(finding, what=_labelled(words), why=_labelled(finding.why), fix=_labelled(finding.fix)), path


def _labelled(words: str) -> str:
    listed = re.search(r"; it (?:has|knows) (.*)\.$", words)
    if listed is not None and len(listed.group(1)) > _LIST_CHARACTERS:  # the form offers them anyway
        words = f"{words[: listed.start()]}."
    words = words.replace(" a cpu engine", " a CPU engine")
    return _NAMES.sub(lambda found: f"“{_TITLES[found.group(1)]}”{' to yes' if found.group(2) else ''}", words)


def _is_plain_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
