"""What the tests of imports share: one way to import, and to look at what became of an option."""

from backend.launch import importers, option_table
from backend.launch.change_list import ChangeKind, OptionChange
from backend.launch.import_profile import ImportResult

NEWEST = "0.32.0"


def imported(text: str, version: str = NEWEST, *, platform: str = "cuda", folder: str = "") -> ImportResult:
    """Import a text for a release by the table that ships."""
    return importers.from_text(text, probe=option_table.probe_of(version, platform=platform), folder=folder)


def serve(options: str, version: str = NEWEST, *, platform: str = "cuda") -> ImportResult:
    """Import `vllm serve a/b` with options, listening at an address that needs no remark."""
    return imported(f"vllm serve a/b --host 127.0.0.1 {options}", version, platform=platform)


def change(result: ImportResult, beginning: str) -> OptionChange:
    """Return the one change whose `from` begins so."""
    found = [one for one in result.changes if one.from_.startswith(beginning)]
    assert len(found) == 1, (beginning, result.changes)
    return found[0]


def kind(result: ImportResult, beginning: str) -> ChangeKind:
    """Return what became of it."""
    return change(result, beginning).kind
