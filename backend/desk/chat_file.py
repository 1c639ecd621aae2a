"""The conversation on disk: one JSON file that is written whole, and set aside when it is damaged."""

import dataclasses
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from backend import paths
from backend.desk.types import ChatMessage, ChatSettings
from backend.events import ChatUsage

log = logging.getLogger(__name__)

_SCHEMA: Final = 1
CUT_BY_THE_END = "Specdeck ended before this answer was complete."


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class _File:
    schema: Literal[1]
    settings: ChatSettings = field(default_factory=ChatSettings)
    messages: tuple[ChatMessage, ...] = ()


_FILE = TypeAdapter(_File)


@dataclass(frozen=True, slots=True)
class Kept:
    """What was read; `notice` says in words what went wrong, "" normally."""

    messages: tuple[ChatMessage, ...] = ()
    settings: ChatSettings = field(default_factory=ChatSettings)
    notice: str = ""


def file() -> Path:
    """Where the conversation is kept."""
    return paths.folders().state / "conversation.json"


def read() -> Kept:
    """Read the kept conversation; a damaged file is set aside, and one that cannot be read is left alone.

    An answer that was never finished (the window was killed) reads as cut short.
    """
    path = file()
    try:
        kept = _FILE.validate_json(path.read_bytes())
        _check_order(kept.messages)
    except FileNotFoundError:
        return Kept()
    except (ValidationError, ValueError) as error:
        return Kept(notice=_set_aside(path, error))
    except OSError as error:
        log.warning("The conversation cannot be read: %s", error)
        return Kept(notice=f"The kept conversation cannot be read: {error.strerror or error}.")
    return Kept(tuple(_finished(message) for message in kept.messages), kept.settings)


def write(messages: tuple[ChatMessage, ...], settings: ChatSettings) -> str:
    """Write the conversation; returns why that failed, "" normally."""
    content = dataclasses.asdict(_File(_SCHEMA, settings, messages))
    try:
        paths.write_atomic(file(), json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        log.warning("The conversation cannot be kept: %s", error)
        return f"The conversation cannot be kept: {error.strerror or error}."
    return ""


def _check_order(messages: tuple[ChatMessage, ...]) -> None:
    """Questions and answers take turns, a question first."""
    for number, message in enumerate(messages):
        if message.role != ("assistant" if number % 2 else "user"):
            raise ValueError(f"message {number} is from {message.role!r}")
    if len(messages) % 2:
        raise ValueError("the last question has no answer")


def _finished(message: ChatMessage) -> ChatMessage:
    if message.role == "user" or message.usage is not None or message.error:
        return message
    return dataclasses.replace(message, usage=ChatUsage(None, None, None, None, "abort"), error=CUT_BY_THE_END)


def _set_aside(path: Path, error: Exception) -> str:
    log.warning("The kept conversation is damaged: %s", error)
    try:
        aside = paths.set_aside(path)
    except OSError:
        return "The kept conversation is damaged, and its file cannot be moved out of the way."
    log.warning("It was set aside as %s.", aside)
    return f"The kept conversation was damaged; its file is now {aside.name} in {aside.parent}."
