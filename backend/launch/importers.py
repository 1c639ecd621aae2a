"""Texts that start a vLLM server, of any kind, become a profile; nothing of them is ever run."""

from pathlib import Path

from backend.errors import UserError
from backend.launch import import_process, import_profile, import_script, import_unit, import_yaml
from backend.launch.change_list import Gathered
from backend.launch.import_profile import ImportResult
from backend.launch.import_text import ImportTextError, Source
from backend.launch.probe import Probe

MAX_CHARACTERS = 50_000
"""Longest text that is read: a launch script is never so long."""


def from_text(text: str, *, probe: Probe, name: str = "", folder: str = "") -> ImportResult:
    """Read a shell script or line, a `docker run`, a compose file, a Kubernetes manifest or a systemd unit.

    Args:
        text: as it was pasted.
        probe: what the vLLM accepts that the profile is for: an installed one's, or `option_table.probe_of`.
        name: of the profile; by default one is made of the model's name.
        folder: what relative paths in the text mean, "" if nobody knows.

    Raises:
        ImportTextError: it starts no server or several, is damaged, or would have to be run to be understood.
        UserError: it is far too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise UserError("The text is too long for a command.", "Paste only the part that starts vLLM.")
    source = Source.of(text)
    if "\0" in text or any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise ImportTextError("This is no text: it holds bytes that no text has.", "Choose another file.")
    out = Gathered(source)
    if import_yaml.is_yaml_of_containers(source):
        command = import_yaml.read(source, out, folder=folder)
    elif import_unit.is_unit(source):
        command = import_unit.read(source, out)
    else:
        command = import_script.read(source, out, folder=folder)
    return import_profile.make(command, out, probe=probe, name=name)


def from_process(pid: int, *, probe: Probe, name: str = "", proc: Path = Path("/proc")) -> ImportResult:
    """Read what a running engine of one's own was started with.

    Args:
        pid: of its API server, or of a part of it.
        probe: what the vLLM accepts that the profile is for.
        name: of the profile; by default one is made of the model's name.
        proc: where the system shows its processes.

    Raises:
        UsageError: there is no such process, it is somebody else's, or it is no vLLM server.
        UserError: its arguments make no profile.
    """
    command, out = import_process.read(pid, proc=proc)
    return import_profile.make(command, out, probe=probe, name=name)
