"""Secrets that came with imported commands: kept beside the settings in a file of mode 0600, never in a profile."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from backend import paths

log = logging.getLogger(__name__)

API_KEY = "VLLM_API_KEY"
"""The variable that carries the key which an engine asks for."""


def file() -> Path:
    """Return the file, which need not be there."""
    return paths.folders().config / "secrets.json"


def load(profile_name: str) -> dict[str, str]:
    """Return the secret variables of a profile, empty when it has none or they cannot be read."""
    return _all().get(profile_name, {})


def keep(profile_name: str, secrets: Mapping[str, str]) -> None:
    """Keep the secret variables of a profile in place of those that it had; none takes them away."""
    everything = _all()
    everything.pop(profile_name, None)
    if secrets:
        everything[profile_name] = dict(secrets)
    if everything or file().exists():
        paths.write_atomic(file(), json.dumps({"schema": 1, "profiles": everything}, indent=1), mode=0o600)


def rename(profile_name: str, new_name: str) -> None:
    """Let secrets follow a profile that was given another name."""
    secrets = load(profile_name)
    if secrets:
        keep(new_name, secrets)
        keep(profile_name, {})


def _all() -> dict[str, dict[str, str]]:
    try:
        content = json.loads(file().read_text(encoding="utf-8"))
        return {
            str(name): {str(key): str(value) for key, value in values.items()}
            for name, values in content["profiles"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        # The words of such an error could hold what the file says.
        if file().exists():
            log.warning("The file of secrets is damaged and was set aside: %s", paths.set_aside(file()))
        return {}
