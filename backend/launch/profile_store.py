"""Where profiles are kept: presets that ship (read-only) and the user's own files, one profile each."""

import difflib
import itertools
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from backend import paths
from backend.errors import ProfileError, UsageError
from backend.launch import kept_secrets, profile_toml
from backend.launch.profile import Profile

_PUT_AWAY = ".deleted-"
_KEPT_AWAY = 20  # deleted profiles that can still be brought back
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """One profile file.

    Attributes:
        name: the file's name without ".toml".
        path: the file.
        read_only: True for a preset.
        profile: what it says, None when it is damaged.
        problem: why it cannot be used, "" when it can.
    """

    name: str
    path: Path
    read_only: bool
    profile: Profile | None
    problem: str = ""


class ProfileStore:
    """The presets and the user's profiles; a user's file hides a preset of the same name."""

    def __init__(self, *, presets: Path | None = None, own: Path | None = None) -> None:
        self._presets = presets or paths.shipped("profiles")
        self._own = own or paths.folders().profiles

    def list(self) -> tuple[StoredProfile, ...]:
        """Return every profile by name, the user's first; damaged ones carry their problem."""
        own = [read(path, read_only=False) for path in _files(self._own)]
        names = {stored.name for stored in own}
        presets = [read(path, read_only=True) for path in _files(self._presets) if path.stem not in names]
        return (*own, *presets)

    def find(self, name: str) -> StoredProfile:
        """Return one profile, also when it is damaged.

        Raises:
            UsageError: there is no profile of that name.
        """
        for folder, read_only in ((self._own, False), (self._presets, True)):
            path = folder / f"{name}.toml"
            if _NAME.fullmatch(name) and path.is_file():
                return read(path, read_only=read_only)
        for path in _files(self._own):
            if path.stem == name:  # a file that is there under a name that cannot be used says so itself
                return read(path, read_only=False)
        names = [path.stem for folder in (self._own, self._presets) for path in _files(folder)]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {close[0]}?" if close else "See the page Profiles, or `specdeck profiles list`."
        raise UsageError(f"There is no profile named {name}.", hint)

    def get(self, name: str) -> Profile:
        """Return one profile that can be used.

        Raises:
            UsageError: there is no profile of that name.
            ProfileError: it is damaged; the message names line and field.
        """
        stored = self.find(name)
        if stored.profile is None:
            raise ProfileError(f"The profile {stored.path} cannot be used: {stored.problem}")
        return stored.profile

    def save(self, profile: Profile) -> Path:
        """Write a profile under its name among the user's own, with the comments of the file it replaces.

        Raises:
            ProfileError: it is a preset's name, no good name, or the file there is damaged (and stays as it is).
        """
        path = self._own_path(profile.name)
        try:
            old = path.read_bytes()
        except FileNotFoundError:
            text = profile_toml.dumps(profile)
        else:
            try:
                text = profile_toml.edit(old.decode("utf-8"), profile)
            except (ProfileError, UnicodeDecodeError) as error:
                raise ProfileError(f"The profile {path} is damaged and was not overwritten: {error}") from error
        paths.write_atomic(path.resolve(), text)
        return path

    def copy(self, name: str, new_name: str) -> Path:
        """Copy a profile, comments included, to a new one of the user's own, and return its file.

        Raises:
            UsageError: there is no profile `name`.
            ProfileError: it is damaged, or `new_name` is taken or no good name.
        """
        self.get(name)
        path = self._free_path(new_name)
        paths.write_atomic(path, self.find(name).path.read_text(encoding="utf-8"))
        return path

    def rename(self, name: str, new_name: str) -> Path:
        """Give one of the user's own profiles another name, and return its file.

        Raises:
            UsageError: there is no profile `name`.
            ProfileError: it is a preset, or `new_name` is taken or no good name.
        """
        old = self._own_file(name)
        path = self._free_path(new_name)
        os.replace(old, path)
        kept_secrets.rename(name, new_name)
        return path

    def delete(self, name: str) -> None:
        """Delete one of the user's own profiles, damaged or not.

        Raises:
            UsageError: there is no profile `name`.
            ProfileError: it is a preset.
        """
        self._own_file(name).unlink()
        kept_secrets.keep(name, {})

    def put_away(self, name: str) -> str:
        """Delete one of the user's own profiles so that it can be brought back; returns the token for `bring_back`.

        Raises:
            UsageError: there is no profile `name`.
            ProfileError: it is a preset.
        """
        path = self._own_file(name)
        # In the same folder, since the file may be a link that says where to from here.
        hidden = path.with_name(f".{path.name}{_PUT_AWAY}{time.time_ns():020}")
        os.replace(path, hidden)
        kept_secrets.rename(name, hidden.name)
        kept = sorted(self._own.glob(f".*{_PUT_AWAY}*"), key=lambda one: one.name.rpartition("-")[2])
        for old in kept[:-_KEPT_AWAY]:
            old.unlink(missing_ok=True)
            kept_secrets.keep(old.name, {})
        return hidden.name

    def bring_back(self, token: str) -> str:
        """Undo `put_away`; returns the profile's name.

        Raises:
            ProfileError: the file is gone for good, or its name is taken by now.
        """
        file_name, found, _ = token.removeprefix(".").partition(f".toml{_PUT_AWAY}")
        hidden = self._own / token
        if not found or hidden.parent != self._own or not (hidden.exists() or hidden.is_symlink()):
            raise ProfileError("The deleted profile is no longer there.")
        path = self._own / f"{file_name}.toml"
        if path.exists() or path.is_symlink():
            raise ProfileError(f"There is already a profile named {file_name}.", "Rename that one first.")
        os.replace(hidden, path)
        kept_secrets.rename(token, file_name)
        return file_name

    def free_name(self, wish: str) -> str:
        """Return a good name that no profile has: `wish` itself, or with a number behind it."""
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", wish).strip("-._")[:56] or "profile"
        taken = {path.stem for folder in (self._own, self._presets) for path in _files(folder)}
        names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in taken)

    def _own_file(self, name: str) -> Path:
        stored = self.find(name)
        if stored.read_only:
            raise ProfileError(f"{name} ships with Specdeck and cannot be changed.", "Copy it and change the copy.")
        return stored.path

    def _own_path(self, name: str) -> Path:
        path = self._own / f"{name}.toml"
        if not _NAME.fullmatch(name):
            raise ProfileError(f"{name!r} is no good name for a profile.", _NAME_RULE)
        if (self._presets / f"{name}.toml").exists() and not path.exists():
            raise ProfileError(f"{name} ships with Specdeck and cannot be changed.", "Copy it and change the copy.")
        return path

    def _free_path(self, name: str) -> Path:
        path = self._own_path(name)
        if path.exists() or path.is_symlink():
            raise ProfileError(f"There is already a profile named {name}.", "Choose another name.")
        return path


_NAME_RULE = "Use up to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit."


def _files(folder: Path) -> list[Path]:
    found = (path for path in folder.glob("*.toml") if not path.name.startswith("."))
    return sorted(found, key=lambda path: path.stem)


def read(path: Path, *, read_only: bool) -> StoredProfile:
    """Read any profile file; a damaged or unreadable one comes back with its problem in words."""
    profile, problem = None, ""
    try:
        profile = _loads(path)
    except ProfileError as error:
        problem = str(error)
    except UnicodeDecodeError:
        problem = "The file is no text in UTF-8. Save it again as UTF-8 in a text editor."
    except OSError as error:
        problem = f"The file cannot be read: {error.strerror}. Check its permissions."
    return StoredProfile(name=path.stem, path=path, read_only=read_only, profile=profile, problem=problem)


def _loads(path: Path) -> Profile:
    if path.is_fifo() or path.is_char_device() or path.is_socket():  # reading one may never end
        raise ProfileError("This is no file with a profile.", "Remove it from the folder of profiles.")
    if not _NAME.fullmatch(path.stem):
        raise ProfileError("The file's name is no good name for a profile.", _NAME_RULE)
    # Some editors begin a file with a byte order mark.
    return profile_toml.loads(path.read_text(encoding="utf-8-sig"), name=path.stem)
