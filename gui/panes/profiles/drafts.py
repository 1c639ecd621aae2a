"""What was typed into profiles and not saved yet, kept while other profiles and pages are looked at."""

from collections.abc import Mapping

from backend.desk.types import ProfileForm


class ProfileDrafts:
    """Edits by profile; an edit that says what is saved is none."""

    def __init__(self) -> None:
        self._saved: dict[str, Mapping[str, str]] = {}
        self._edits: dict[str, dict[str, str]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Profiles with unsaved changes."""
        return tuple(name for name, edits in self._edits.items() if edits)

    def count(self, name: str) -> int:
        """Return how many fields of a profile differ from what is saved."""
        return len(self._edits.get(name, {}))

    def load(self, form: ProfileForm) -> None:
        """Learn what is saved; edits stay where they still change something."""
        self._saved[form.name] = form.values
        self._keep(form.name, self._edits.get(form.name, {}))

    def values(self, name: str) -> dict[str, str]:
        """Return what the form shows: what is saved, with the edits over it."""
        return {**self._saved.get(name, {}), **self._edits.get(name, {})}

    def edit(self, name: str, path: str, text: str) -> None:
        """Note what was typed into a field."""
        self._keep(name, {**self._edits.get(name, {}), path: text})

    def saved(self, form: ProfileForm, sent: Mapping[str, str]) -> None:
        """Forget the edits that were saved; what was typed since `sent` was sent stays."""
        self._saved[form.name] = form.values
        edits = self._edits.get(form.name, {})
        self._keep(form.name, {path: text for path, text in edits.items() if sent.get(path, "") != text})

    def take(self, name: str) -> dict[str, str]:
        """Forget the edits of a profile and return them."""
        return self._edits.pop(name, {})

    def put(self, name: str, edits: Mapping[str, str]) -> None:
        """Take up edits that `take` gave, perhaps for another name."""
        self._edits[name] = dict(edits)

    def _keep(self, name: str, edits: Mapping[str, str]) -> None:
        saved = self._saved.get(name, {})
        self._edits[name] = {path: text for path, text in edits.items() if saved.get(path, "") != text}
