"""Strips colour codes and the other control sequences of a terminal from a line of a log."""

import re

# ECMA-48: control sequences (colours), operating system commands (titles, links), the other strings and short ones.
# A line may end inside one: the rest of it is on its way, or never comes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|(?=\x1b)|$)"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|(?=\x1b)|$)"
    r"|\x1b[ -/]*(?:[0-~]|$)"
)


def strip(text: str) -> str:
    """Return `text` without them."""
    return _ESCAPES.sub("", text) if "\x1b" in text or "\x9b" in text else text
