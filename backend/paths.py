"""Where things are: the user's folders, the files that ship, and how files are written."""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Folders:
    """The user's XDG folders of Specdeck; none is created before something is written into it."""

    config: Path
    state: Path
    data: Path
    cache: Path

    @property
    def profiles(self) -> Path:
        """The user's own launch profiles, one TOML file each."""
        return self.config / "profiles"

    @property
    def settings_file(self) -> Path:
        """The user's settings."""
        return self.config / "settings.toml"

    @property
    def runs(self) -> Path:
        """One folder for each run: run.json and engine.log."""
        return self.state / "runs"

    @property
    def engines(self) -> Path:
        """Engine environments that Specdeck installed, one folder each."""
        return self.data / "engines"

    @property
    def models(self) -> Path:
        """Models that Specdeck built."""
        return self.data / "models"

    @property
    def history_file(self) -> Path:
        """Readings of past runs."""
        return self.data / "history.sqlite"

    @property
    def logs(self) -> Path:
        """Logs of installs and builds."""
        return self.state / "logs"


def folders() -> Folders:
    """Return the user's folders, from the XDG variables as they are now."""
    dirs = platformdirs.PlatformDirs("specdeck", appauthor=False)
    return Folders(
        config=dirs.user_config_path,
        state=dirs.user_state_path,
        data=dirs.user_data_path,
        cache=dirs.user_cache_path,
    )


def shipped(name: str) -> Path:
    """Return a file or folder that ships with the program ("profiles", "assets").

    An installed wheel carries them inside this package; a checkout has them at its top.
    """
    packaged = _PACKAGE / "_shipped"
    return (packaged if packaged.is_dir() else _PACKAGE.parent) / name


def write_atomic(path: Path, text: str | Iterable[str], *, mode: int = 0o600) -> None:
    """Write `text`, or its parts, so that a reader or a crash sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def set_aside(path: Path) -> Path:
    """Move a damaged file out of the way, beside itself, and return its new place."""
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}.damaged-{number}")
        if not aside.exists():
            os.replace(path, aside)
            return aside
    raise FileExistsError(path)
