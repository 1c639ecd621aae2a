"""The fake NVML (`fake_nvml.c`) compiled, and its state: what a test writes into it, and the calls it counts."""

import ctypes
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent / "fake_nvml.c"
SLOT = struct.Struct("=56sQ")

# What NVML returns.
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, LOST, MISMATCH, UNKNOWN = 3, 4, 9, 13, 15, 18, 999


def uuid(gpu: int) -> str:
    """The UUID that the fake gives a GPU unless told otherwise."""
    return f"GPU-00000000-0000-0000-0000-{gpu:012d}"


class FakeNvml:
    """State of one fake library, which a process loads when it is started with `environment`."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.library = library
        self.state = folder / "nvml"
        self._lines: list[str] = []
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process finds this library as NVIDIA's."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML": str(self.state)}

    def say(self, *lines: str) -> None:
        """Add lines to the state, all at once; what they set takes the place of what was set before."""
        self._lines += lines
        self._write()

    def unsay(self, start: str) -> None:
        """Take back all lines that start like this."""
        self._lines = [line for line in self._lines if not line.startswith(start)]
        self._write()

    def _write(self) -> None:
        new = self.state.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in self._lines))
        new.replace(self.state)

    def calls(self, function: str) -> int:
        """How often a function was called, by all processes with this state."""
        try:
            slots = SLOT.iter_unpack(self.state.with_suffix(".calls").read_bytes())
        except FileNotFoundError:
            return 0
        return next((count for name, count in slots if name.rstrip(b"\0") == function.encode()[:55]), 0)


def build(folder: Path) -> Path:
    """Compile the library into a folder. Without a compiler this fails: nothing about GPUs would be tested."""
    library = folder / "libnvidia-ml.so.1"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    linking = ["-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{library.name}"]
    subprocess.run(["gcc", "-O1", *warnings, *linking, "-o", str(library), str(SOURCE)], check=True)
    return library


@pytest.fixture(scope="session", name="nvml_library")
def nvml_library_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(name="fake_nvml")
def fake_nvml_fixture(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    """A fake with two GPUs that nobody has changed yet."""
    return FakeNvml(nvml_library, tmp_path)


@pytest.fixture(name="loaded_nvml")
def loaded_nvml_fixture(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """A fake that pynvml finds in this very process: its name in the library is that of NVIDIA's."""
    monkeypatch.setitem(os.environ, "FAKE_NVML", fake_nvml.environment["FAKE_NVML"])
    library = ctypes.CDLL(str(fake_nvml.library))
    yield fake_nvml
    fake_nvml.unsay("")  # no fault may stand in the way
    while library.nvmlShutdown() == 0:
        pass
