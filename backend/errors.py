"""Errors that a person can fix: each says what happened and what to do."""


class UserError(Exception):
    """A problem a person can solve, as opposed to a bug.

    Attributes:
        message: what happened and why, one or two plain sentences.
        what_to_do: the next step, or "" if the message already says it.
    """

    def __init__(self, message: str, what_to_do: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.what_to_do = what_to_do

    def __str__(self) -> str:
        return f"{self.message} {self.what_to_do}".strip()


class UsageError(UserError):
    """The request itself is wrong (unknown profile, bad option); exit code 2."""


class ProfileError(UserError):
    """A launch profile cannot be read, written or used."""


class EngineEnvironmentError(UserError):
    """An engine environment is missing, broken or cannot be installed."""


class InstallRefusedError(EngineEnvironmentError):
    """The person did not agree to a download, or nobody could be asked."""


class ModelError(UserError):
    """A model is missing or damaged."""


class EngineError(UserError):
    """The engine failed to start, died, or refused a request; exit code 3."""


class EngineUnreachableError(EngineError):
    """Nothing answers at the engine's address.

    Attributes:
        refused: True when nothing listens there, False for a timeout or a broken answer.
    """

    def __init__(self, message: str, what_to_do: str = "", *, refused: bool) -> None:
        super().__init__(message, what_to_do)
        self.refused = refused


class StoreError(UserError):
    """The store of recorded runs cannot be read or written."""


class Cancelled(Exception):
    """Somebody gave the work up: nothing to solve and nothing to tell, so no `UserError`."""
