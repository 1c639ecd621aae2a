"""The command of an engine that runs: read from /proc, only of a process of one's own."""

import os
import re
from pathlib import Path

from backend.errors import UsageError
from backend.launch import server_command
from backend.launch.change_list import ChangeKind, Gathered
from backend.launch.import_text import Source, Word
from backend.launch.profile_types import is_secret_variable
from backend.launch.server_command import ServerCommand

_TAKEN = re.compile(r"(VLLM_\w+|NCCL_\w+|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE)")
_PARENTS = 6


def read(pid: int, *, proc: Path = Path("/proc")) -> tuple[ServerCommand, Gathered]:
    """Read what a process was started with; of an engine's part, what its API server was.

    Args:
        pid: of the API server, or of a part of it.
        proc: where the system shows its processes.

    Raises:
        UsageError: there is no such process, it is somebody else's, or it is no vLLM server.
    """
    folder = proc / str(pid)
    for _ in range(_PARENTS):
        words = _words(folder, pid)
        found = server_command.find(words)
        if found is not None:
            return _server(folder, words, found)
        folder = proc / str(_parent(folder))
        if folder.name in {"0", "1"}:
            break
    raise UsageError(
        f"The process {pid} is no vLLM server.", "Give the pid of the one that was started as `vllm serve`."
    )


def _words(folder: Path, pid: int) -> list[Word]:
    try:
        owner = folder.stat().st_uid
        if owner != os.getuid():
            raise UsageError(f"The process {pid} belongs to somebody else.", "Specdeck reads your own ones only.")
        raw = (folder / "cmdline").read_bytes()
    except OSError as error:
        raise UsageError(f"There is no process {pid} that can be read.", "Look at `specdeck status`.") from error
    parts = raw.decode("utf-8", errors="replace").split("\0")
    return [Word(part, quoted=True) for part in (parts[:-1] if parts and not parts[-1] else parts)]


def _parent(folder: Path) -> int:
    try:
        status = (folder / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)
    return int(found.group(1)) if found else 0


def _server(folder: Path, words: list[Word], found: server_command.Start) -> tuple[ServerCommand, Gathered]:
    source = Source.of("")
    out = Gathered(source)
    out.tell(
        ChangeKind.TRANSLATED,
        " ".join(word.text for word in words[found.at : found.arguments]),
        "vllm serve",
        "The same server; Specdeck starts it with the program of the engine environment.",
    )
    env: list[tuple[str, Word]] = []
    for name, value in _variables(folder):
        if is_secret_variable(name):
            source.hide(value)
        if _TAKEN.fullmatch(name):
            env.append((name, Word(value, quoted=True)))
    try:
        where = os.readlink(folder / "cwd")
    except OSError:
        where = ""
    return ServerCommand(arguments=tuple(words[found.arguments :]), place=words[found.at], env=env, folder=where), out


def _variables(folder: Path) -> list[tuple[str, str]]:
    try:
        raw = (folder / "environ").read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return []
    pairs = (entry.partition("=") for entry in raw.split("\0") if "=" in entry)
    return [(name, value) for name, _, value in pairs]
