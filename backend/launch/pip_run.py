"""Runs venv and pip for an install, with progress, a log, and reasons in words."""

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend import child
from backend.clean_env import clean_environment
from backend.errors import Cancelled, EngineEnvironmentError
from backend.launch import engine_folder
from backend.launch.pip_output import InstallStep, PipReader

_TICK_S = 0.5
_GRACE_S = 5.0
# Settings of a person's own pip that would put the packages elsewhere.
_MISPLACING = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PIP_PYTHON", "PIP_DRY_RUN")


class InstallCancelled(Cancelled):
    """Somebody gave the install up; what is half done stays marked as such."""


@dataclass(frozen=True, slots=True)
class Pip:
    """The pip of one environment.

    Attributes:
        python: the environment's interpreter; it exists after `make_environment`.
        folder: the environment.
        scratch: folder for pip's temporary files.
        record: log file that everything printed is added to.
        cancelled: asked at least twice a second; once it says yes, the running command is ended and every method
            raises InstallCancelled.
    """

    python: Path
    folder: Path
    scratch: Path
    record: Path
    cancelled: Callable[[], bool] = lambda: False

    def make_environment(self, base: Path) -> None:
        """Make the environment with another interpreter.

        Raises:
            EngineEnvironmentError: its venv module does not work.
        """
        reader = PipReader(download_bytes=0)
        if self._run([str(base), "-I", "-m", "venv", str(self.folder)], reader.feed) != 0:
            raise EngineEnvironmentError(
                f"{base} could not make an environment: {reader.last_error}",
                f"On Debian and Ubuntu the package python3-venv may be missing. The log is {self.record}.",
            )

    def install(
        self,
        requirements: Sequence[str],
        *,
        download_bytes: int,
        progress: Callable[[InstallStep], None],
        torch_index: str = "",
        torch_index_timeout_s: float = 60.0,
    ) -> None:
        """Install from the indexes and wheel folders that pip is set up with.

        Args:
            requirements: what to install.
            download_bytes: expected size, for the fraction.
            progress: told each step.
            torch_index: asked as well, but only if those have no CPU build of torch; "" for never.
            torch_index_timeout_s: how long to wait until that index answers.

        Raises:
            EngineEnvironmentError: pip failed; names the reason and the log.
        """
        reader = self._install_once(requirements, download_bytes, progress)
        if reader is None:
            return
        wanted = reader.missing
        if torch_index and wanted.startswith("torch==") and wanted.endswith("+cpu"):
            detail = f"pip's own indexes lack {wanted}; also asking {torch_index}"
            progress(InstallStep("Adding PyTorch's CPU index", detail=detail))
            self._note(detail)
            self._reach(torch_index, wanted, torch_index_timeout_s)
            reader = self._install_once(requirements, download_bytes, progress, "--extra-index-url", torch_index)
            if reader is None:
                return
        raise self._failure(reader)

    def uninstall(self, packages: Sequence[str]) -> None:
        """Remove packages.

        Raises:
            EngineEnvironmentError: pip failed.
        """
        reader = PipReader(download_bytes=0)
        if self._run([str(self.python), "-m", "pip", "uninstall", "--yes", *packages], reader.feed) != 0:
            raise self._failure(reader)

    def _install_once(
        self,
        requirements: Sequence[str],
        download_bytes: int,
        progress: Callable[[InstallStep], None],
        *options: str,
    ) -> PipReader | None:
        """Run pip; None when it worked, else what it said."""
        reader = PipReader(download_bytes=download_bytes)

        def on_line(line: str) -> None:
            if step := reader.feed(line):
                progress(step)

        def on_tick() -> None:
            if total := len(reader.packages):
                done = sum(1 for _ in self._dist_infos())
                progress(InstallStep("Unpacking", min(done / total, 1.0), f"{min(done, total)} of {total} packages"))

        argv = [str(self.python), "-m", "pip", "install", "--progress-bar", "off", *options, *requirements]
        return None if self._run(argv, on_line, on_tick) == 0 else reader

    def _dist_infos(self) -> list[Path]:
        return [p for place in engine_folder.site_packages(self.folder) for p in place.glob("*.dist-info")]

    def _reach(self, index: str, wanted: str, limit_s: float) -> None:
        """Find out in limited time whether an index answers, the way pip would reach it (proxy, certificates)."""
        reader = PipReader(download_bytes=0)
        argv = [str(self.python), "-m", "pip", "index", "versions", "torch", "--index-url", index]
        answered = self._run(argv, reader.feed, limit_s=limit_s)
        if answered is None or (answered != 0 and reader.network_trouble):
            raise EngineEnvironmentError(
                f"pip has no {wanted}, and PyTorch's CPU index {index} could not be reached within {limit_s:.0f} s.",
                "Check the network, put that wheel into a folder that pip searches (PIP_FIND_LINKS), or name "
                f"another index with torch_cpu_index in the settings. The log is {self.record}.",
            )

    def _failure(self, reader: PipReader) -> EngineEnvironmentError:
        where = f"The log is {self.record}."
        if "No space left on device" in reader.last_error or "Disk quota" in reader.last_error:
            return EngineEnvironmentError(f"The disk that holds {self.folder} is full.", f"Free some space. {where}")
        if reader.network_trouble:
            return EngineEnvironmentError(
                "The package index could not be reached, so nothing was installed.",
                f"Check the network (and pip's proxy settings), then install again. {where}",
            )
        return EngineEnvironmentError(f"pip could not install the engine. {reader.last_error}", where)

    def _check_wanted(self) -> None:
        if self.cancelled():
            raise InstallCancelled

    def _note(self, line: str) -> None:
        with self.record.open("a", encoding="utf-8") as file:
            file.write(f"[specdeck] {line}\n")

    def _environment(self) -> dict[str, str]:
        variables = clean_environment(also=_MISPLACING)
        variables |= {
            "PIP_USER": "0",
            "PIP_NO_INPUT": "1",
            "PIP_NO_COLOR": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.scratch),
        }
        # pip's own five make a missing network a long wait; with none, it does not even tell that it is missing.
        if variables.get("PIP_RETRIES", "0") == "0":
            variables["PIP_RETRIES"] = "2"
        return variables

    def _run(
        self,
        argv: Sequence[str],
        on_line: Callable[[str], object],
        on_tick: Callable[[], None] = lambda: None,
        *,
        limit_s: float | None = None,
    ) -> int | None:
        """Run a command line by line; return its exit code, None if it took longer than `limit_s`."""
        self._note(" ".join(argv))
        deadline = None if limit_s is None else time.monotonic() + limit_s
        with (
            self.record.open("ab") as record,
            subprocess.Popen(
                child.command(argv),
                env=self._environment(),
                cwd=self.scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process,
            selectors.DefaultSelector() as selector,
        ):
            try:
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ)
                rest = b""
                while True:
                    self._check_wanted()
                    if deadline is not None and time.monotonic() > deadline:
                        _end(process)
                        return None
                    if not selector.select(_TICK_S):
                        on_tick()
                        continue
                    data = os.read(process.stdout.fileno(), 65536)
                    record.write(data)
                    record.flush()
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        on_line(line.decode(errors="replace"))
                    if not data:
                        on_line(rest.decode(errors="replace"))
                        return process.wait()
            except BaseException:  # also Ctrl-C: pip must not go on alone
                _end(process)
                raise


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
