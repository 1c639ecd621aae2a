"""Keeps what this machine was measured to reach: one small file for each machine that shares the data folder."""

import hashlib
import json
import logging
import platform
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from backend import paths
from backend.calibration import Calibration

log = logging.getLogger(__name__)

_SCHEMA = 1
_MACHINE_ID = Path("/etc/machine-id")
_ADAPTER = TypeAdapter(Calibration)


def machine_id(file: Path = _MACHINE_ID) -> str:
    """Return a name of this machine that stays and tells nothing: from systemd's machine id, else its host name."""
    try:
        known = file.read_text(encoding="utf-8").strip()
    except OSError:
        known = ""
    return hashlib.sha256(f"specdeck {known or platform.node()}".encode()).hexdigest()[:16]


def file_of(machine: str) -> Path:
    """Return where the calibration of a machine is kept."""
    return paths.folders().data / "calibration" / f"{machine}.json"


def load(machine: str | None = None) -> Calibration | None:
    """Return what was measured last; None when nothing was. A damaged file is set aside with a message.

    Args:
        machine: its id, by default this one's.
    """
    machine = machine or machine_id()
    file = file_of(machine)
    try:
        return _read(file.read_text(encoding="utf-8"), machine)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:  # pydantic's errors are ValueErrors
        aside = paths.set_aside(file)
        words = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
        log.warning("The calibration was damaged (%s); the file is now %s. Measure again.", words, aside)
        return None


def _read(text: str, machine: str) -> Calibration:
    content = json.loads(text)
    if content["schema"] != _SCHEMA:
        raise ValueError(f"schema {content['schema']!r} instead of {_SCHEMA}")
    found = _ADAPTER.validate_python(content["calibration"])
    if found.machine != machine:
        raise ValueError(f"it is of machine {found.machine}")
    return found


def save(calibration: Calibration) -> Path:
    """Keep a calibration in place of the earlier one of that machine; returns the file."""
    file = file_of(calibration.machine)
    content = {"schema": _SCHEMA, "calibration": as_dict(calibration)}
    paths.write_atomic(file, json.dumps(content, indent=1) + "\n")
    return file


def as_dict(calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as JSON knows it; unknown is None."""
    content: dict[str, Any] = _ADAPTER.dump_python(calibration, mode="json")
    return content
