"""The variables that a child with another interpreter gets: the person's, without those that would mislead it."""

import fnmatch
import os
from collections.abc import Mapping, Sequence

# Inherited by accident from a shell, from our own environment or from a desktop program, each of these has broken
# engines, their figures, or the import of packages; run ids and keys belong to one run only.
_REMOVED = (
    "PYTHON*", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV", "LD_PRELOAD", "QT_*", "PROMETHEUS_MULTIPROC_DIR", "SPECDECK_*",
    "VLLM_API_KEY", "VLLM_PORT", "VLLM_TARGET_DEVICE",
)  # fmt: skip
# Harmless wishes: no packages from the home folder, and the same hashes (prefix cache keys) in every process.
_KEPT = ("PYTHONNOUSERSITE", "PYTHONHASHSEED")


def clean_environment(base: Mapping[str, str] | None = None, *, also: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables for a probe, pip, a converter or an engine.

    Args:
        base: variables to clean, by default our own.
        also: further names to leave out, with * for anything.
    """
    removed = (*_REMOVED, *also)

    def stays(name: str) -> bool:
        return name in _KEPT or not any(fnmatch.fnmatchcase(name, pattern) for pattern in removed)

    return {name: value for name, value in (os.environ if base is None else base).items() if stays(name)}
