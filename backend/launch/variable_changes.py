"""Environment variables of a pasted command put into a profile, with every one told: secrets never get there."""

import re
from collections.abc import Callable

from backend.launch.change_list import ChangeKind, Gathered
from backend.launch.import_text import Word
from backend.launch.option_table import at_least
from backend.launch.probe import Probe
from backend.launch.profile_types import MANAGED_VARIABLES, is_secret_variable, variable_problem

_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"})
_FOR_ENGINES = re.compile(
    r"(VLLM|CUDA|NCCL|HF|HUGGING|TORCH|PYTORCH|TRANSFORMERS|TOKENIZERS|RAY|OMP|MKL|GLOO|UCX|NVIDIA|XDG|LD|PYTHON|TRITON"
    r"|FLASHINFER|TMPDIR|PATH|HIP|ROCR|SAFETENSORS|LMCACHE)(_|$)"
)
_MOVED = "It is a secret, which no profile may hold, so it is kept apart from it."
_HUB_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HUGGINGFACE_TOKEN"})


def take(
    name: str, word: Word, out: Gathered, *, probe: Probe, in_command: bool = False, resolve: Callable[[str], str] = str
) -> None:
    """Put one variable into `out` and tell what became of it.

    Args:
        name: of the variable.
        word: its value and where it stands; a value that only the person's shell knows says so.
        out: what it is added to.
        probe: what the vLLM accepts.
        in_command: the script put its value into the command, so that it may be there for nothing else.
        resolve: turns a path of a container into one of this machine.
    """
    if is_secret_variable(name):
        _secret(name, word, out)
        return
    given = f"{name}={word.text}"
    value = resolve(word.text)
    if word.from_env:
        why = f"Its value depends on your shell's ${word.from_env}; set it there, or write it into the profile."
        out.tell(ChangeKind.REFUSED, f"{name}=${word.from_env}", why=why)
    elif out.source.holds_secret(value):
        out.source.hide(value)
        out.secrets[name] = value
        out.tell(ChangeKind.TRANSLATED, given, "moved", _MOVED)
    elif name in MANAGED_VARIABLES or name.startswith("SPECDECK_"):
        out.tell(ChangeKind.DROPPED, given, why="Specdeck sets it by itself for each run.")
    elif (problem := variable_problem(name)) or any((ord(c) < 32 and c not in "\n\t") or ord(c) == 127 for c in value):
        why = f"{name} {problem}." if problem else "Its value holds control characters."
        out.tell(ChangeKind.REFUSED, given, why=why)
    elif not _special(name, value, out, given, probe):
        if in_command and not _FOR_ENGINES.match(name):
            out.tell(ChangeKind.DROPPED, given, why="Its value is in the command already.")
        else:
            kind = ChangeKind.KEPT if value == word.text else ChangeKind.TRANSLATED
            why = "" if value == word.text else " The path is the one outside of the container."
            out.set_env(name, value, kind, given, f"It is one of the profile's own variables.{why}")


def _secret(name: str, word: Word, out: Gathered) -> None:
    variable = "HF_TOKEN" if name in _HUB_TOKENS else name
    out.source.hide(word.text)
    given = f"{name}={word.text}" if word.text else f"{name} from your shell" if word.from_env else f"{name}="
    if not word.text and not word.from_env:
        out.tell(ChangeKind.DROPPED, given, why="It has no value.")
        return
    in_shell = bool(word.from_env and not word.text)
    to = f"your shell's {variable}" if in_shell else "moved"
    why = f"No profile may hold a secret: set {variable} in your shell, where it is now." if in_shell else _MOVED
    if variable == "VLLM_API_KEY":
        out.fields["server.api_key"] = True
        to = "server.api_key = true" if in_shell else f"{to}; server.api_key = true"
        why = "Specdeck makes the key of an engine and keeps it elsewhere." if in_shell else why
    if not in_shell:
        out.secrets[variable] = word.text
    out.tell(ChangeKind.TRANSLATED, given, to, why)


def _special(name: str, value: str, out: Gathered, given: str, probe: Probe) -> bool:
    """Variables that are fields of the profile, or that mean nothing to this vLLM."""
    if name in _DEVICES and value not in {"", "-1", "none", "void", "NoDevFiles"}:
        if value == "all":
            out.tell(ChangeKind.DROPPED, given, why="An engine sees all GPUs unless parallel.device_ids names some.")
        else:
            names = [part.strip() for part in value.split(",") if part.strip()]
            why = "GPUs are named in the profile; numbers count in PCI order, as nvidia-smi shows them."
            out.set_field("parallel.device_ids", names, ChangeKind.TRANSLATED, given, why)
    elif name == "CUDA_DEVICE_ORDER":
        is_ours = value == "PCI_BUS_ID"
        kind = ChangeKind.DROPPED if is_ours else ChangeKind.REFUSED
        out.tell(kind, given, why="Specdeck always counts GPUs in PCI order, as nvidia-smi shows them.")
    elif name == "VLLM_CPU_KVCACHE_SPACE" and re.fullmatch(r"[1-9]\d{0,6}", value):
        field = "memory.cpu_kv_cache_gib"
        out.set_field(field, int(value), ChangeKind.TRANSLATED, given, "It is a field of the profile.")
    elif name == "VLLM_USE_V1" and at_least(probe.version, "0.11.0"):
        if value == "0":
            out.tell(ChangeKind.REFUSED, given, why="The V0 engine is gone since 0.11.0; only V1 is left.")
        else:
            out.tell(ChangeKind.DROPPED, given, why="Since 0.11.0 there is no other engine than V1.")
    elif name == "VLLM_ATTENTION_BACKEND" and probe.accepts("--attention-backend") and value:
        flag = "--attention-backend"
        out.set_extra(flag, [flag, value], ChangeKind.TRANSLATED, given, "It is an option since 0.13.0.")
    else:
        return False
    return True
