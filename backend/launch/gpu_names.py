"""Which GPUs an engine sees: kept by UUID in profiles, written into CUDA_VISIBLE_DEVICES as its vLLM takes them."""

import re
from collections.abc import Mapping, Sequence

from backend.launch.option_table import at_least, table
from backend.launch.probe import Probe
from backend.launch.profile import Profile

VARIABLE = "CUDA_VISIBLE_DEVICES"
GpuList = Sequence[tuple[str, int]]
"""The GPUs of this machine: (UUID, its number in PCI order as nvidia-smi shows it)."""

_MIG = "MIG-"
_NAME = re.compile(r"\d{1,3}|(GPU|MIG)-[A-Za-z0-9/-]+")
_NO_GPU = frozenset({"", "-1", "none", "void", "NoDevFiles"})


def takes_uuids(probe: Probe) -> bool:
    """Whether a vLLM looks UUIDs up; others read every name as a number and end with an error."""
    return at_least(probe.version, table().gpu_uuids_since) if probe.gpu_uuids is None else probe.gpu_uuids


def wanted(profile: Profile, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that a profile names, else those that its variables do; empty when nobody chose.

    Args:
        profile: what would run.
        env: the variables that its engine would get.
    """
    if profile.parallel.device_ids is not None:
        return profile.parallel.device_ids
    value = env.get(VARIABLE, "")
    return () if value in _NO_GPU else tuple(name.strip() for name in value.split(",") if name.strip())


def needs_list(profile: Profile, probe: Probe, env: Mapping[str, str]) -> bool:
    """Whether the machine's GPUs must be read before a start, to turn UUIDs into numbers."""
    names = wanted(profile, env)
    kinds = {name.isdecimal() for name in names}
    return (
        probe.platform != "cpu" and bool(names) and (len(kinds) == 2 or (kinds == {False} and not takes_uuids(probe)))
    )


def problem(names: Sequence[str], probe: Probe) -> str:
    """Say why a vLLM cannot run on GPUs of these names, whatever the machine has; "" when it can."""
    slices = [name for name in names if name.startswith(_MIG)]
    if slices and not takes_uuids(probe):
        return f"vLLM {probe.version} knows GPUs by number only, and the MIG slice {slices[0]} has none of its own"
    if len(slices) > 1 and not probe.mig_uuids:
        return f"vLLM {probe.version} takes MIG slices for whole GPUs and cannot tell several of them apart; name one"
    if odd := next((name for name in names if not _NAME.fullmatch(name)), ""):
        return f"{odd} is no GPU; names are numbers in PCI order, or begin with GPU- or MIG-"
    if len(set(names)) != len(names):
        return "a GPU is named twice"
    return ""


def visible(names: Sequence[str], probe: Probe, gpus: GpuList | None) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES.

    Args:
        names: GPUs by UUID (or its beginning) or by number in PCI order.
        probe: the vLLM that would run.
        gpus: the machine's GPUs at this moment, None when they were not read.

    Raises:
        ValueError: it cannot be written so that this vLLM understands it; the message says why.
    """
    if words := problem(names, probe):
        raise ValueError(words)
    uuids = [name for name in names if not name.isdecimal()]
    if not uuids or (takes_uuids(probe) and len(uuids) == len(names)):
        return ",".join(names)
    if any(name.startswith(_MIG) for name in uuids):
        raise ValueError("MIG slices go by UUID, so that the other GPUs must be named by theirs too")
    return ",".join(name if name.isdecimal() else str(_number(name, gpus, probe)) for name in names)


def _number(uuid: str, gpus: GpuList | None, probe: Probe) -> int:
    if gpus is None:
        why = f"vLLM {probe.version} knows GPUs by number only"
        raise ValueError(f"{why}, and the GPUs of this machine could not be read to find that of {uuid}")
    found = [number for known, number in gpus if known.startswith(uuid)]
    if not found:
        raise ValueError(f"this machine has no GPU {uuid} now")
    if len(found) > 1:
        raise ValueError(f"{uuid} is the beginning of several GPUs' names")
    return found[0]
