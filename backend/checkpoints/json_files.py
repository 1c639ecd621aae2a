"""Reads the files of a model without trusting them: limited sizes, typed fields, and no error but `ModelError`."""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from backend.errors import ModelError

GET_AGAIN = "Download the model again, or choose another."

_MOST_NUMBER = 1e40  # transformers writes 1e30 for "no limit"
_MOST = 2**50  # no size or count of a model comes near; larger numbers are damage


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file for reading; a pipe or a device is refused instead of waited for.

    Raises:
        FileNotFoundError: there is no such file, or a link leads nowhere.
        ModelError: it cannot be opened or read.
    """
    try:
        with open(path, "rb", opener=_open_plain) as file:
            yield file
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"{shown(path)} cannot be read: {reason}.", "Check the file and its rights.") from error


def _open_plain(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is not a file")
    return handle


def read_bytes(path: Path, *, most_bytes: int) -> bytes | None:
    """Return what a file holds, None if there is no such file.

    Raises:
        ModelError: it is larger than `most_bytes`, or cannot be read.
    """
    try:
        with open_file(path) as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        return None
    if len(content) > most_bytes:
        limit = f"{most_bytes / 2**20:,.0f} MiB"
        raise ModelError(f"{shown(path)} is larger than {limit}, so it cannot be what its name says.", GET_AGAIN)
    return content


def read_json(path: Path, *, most_bytes: int) -> dict[str, object] | None:
    """Return the JSON object in a file, None if there is no such file.

    Raises:
        ModelError: it holds no JSON object, is larger than `most_bytes`, or cannot be read.
    """
    content = read_bytes(path, most_bytes=most_bytes)
    if content is None:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{shown(path)} is damaged: no valid JSON ({reason}).", GET_AGAIN) from error
    if not isinstance(value, dict):
        raise ModelError(f"{shown(path)} is damaged: it holds no JSON object.", GET_AGAIN)
    return value


def shown(path: Path) -> str:
    """Return a file's name with its folder's, as messages show it."""
    text = f"{path.parent.name}/{path.name}"
    return text.encode("utf-8", "replace").decode("utf-8")  # a name may hold bytes that are no text


class Fields:
    """The fields of a JSON object, each checked when it is read; an absent field and `null` are both None."""

    __slots__ = ("_values", "_where")

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self._where = where

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def value(self, name: str) -> object:
        """Return a field as it stands."""
        return self._values.get(name)

    def count(self, *names: str, most: int = _MOST) -> int | None:
        """Return the first of these fields as a number of things; of a list (one for each layer) the largest.

        Raises:
            ModelError: it is no whole number from 0 to `most`.
        """
        for name in names:
            counts = self.counts(name, most=most)
            if counts:
                return max(counts)
        return None

    def counts(self, name: str, *, most: int = _MOST) -> tuple[int, ...]:
        """Return a field that holds one number, or one for each layer; () where there is none.

        Raises:
            ModelError: one is no whole number from 0 to `most`.
        """
        value = self._values.get(name)
        if value is None:
            return ()
        return tuple(self._whole(name, item, most) for item in (value if isinstance(value, list) else [value]))

    def number(self, *names: str) -> float | None:
        """Return the first of these fields as a number of 0 or more, and of a size that makes sense.

        Raises:
            ModelError: it is none.
        """
        for name in names:
            value = self._values.get(name)
            if value is not None:
                return self._number(name, value)
        return None

    def text(self, *names: str) -> str | None:
        """Return the first of these fields that is text."""
        return next((value for name in names if isinstance(value := self._values.get(name), str)), None)

    def texts(self, *names: str) -> tuple[str, ...]:
        """Return the words of the first of these fields that is a list or one text."""
        for name in names:
            value = self._values.get(name)
            if isinstance(value, str):
                return (value,)
            if isinstance(value, list) and value:
                return tuple(item for item in value if isinstance(item, str))
        return ()

    def flag(self, name: str) -> bool | None:
        """Return a field as yes or no, None where it is neither."""
        value = self._values.get(name)
        return bool(value) if isinstance(value, bool | int) else None

    def fields(self, *names: str) -> "Fields | None":
        """Return the first of these fields that is an object."""
        for name in names:
            value = self._values.get(name)
            if isinstance(value, dict):
                return Fields(value, f"{name} in {self._where}")
        return None

    def over(self, base: "Fields") -> "Fields":
        """Return these fields, and those of `base` where there are none here."""
        own = {name: value for name, value in self._values.items() if value is not None}
        return Fields({**base._values, **own}, self._where)

    def names(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(self._values)

    def damaged(self, name: str, why: str) -> ModelError:
        """Return the error that says what is wrong with a field."""
        return ModelError(f"{self._where} is damaged: {name} {why}.", GET_AGAIN)

    def _whole(self, name: str, value: object, most: int) -> int:
        number = self._number(name, value)
        if number > most or number != int(number):
            raise self.damaged(name, f"is {_brief(value)}")
        return int(number)

    def _number(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.damaged(name, "is not a number")
        if not 0 <= value <= _MOST_NUMBER:  # NaN is not, either
            raise self.damaged(name, f"is {_brief(value)}")
        return value


def _brief(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a number of absurd size"
    return text if len(text) <= 40 else f"{text[:40]}…"
