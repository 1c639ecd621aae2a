"""Says when speculation can hardly pay: nearly every guess of the last half minute was refused."""

from gui.widgets import figures
from gui.widgets.pooled_acceptance import Drafts

WITHIN_S = 30.0
_LEAST_DRAFTS = 20
# Each step also runs the draft and checks its guesses: with so few tokens more, that is hardly ever earned back.
_FEW_TOKENS_PER_STEP = 1.15


def few_accepted(known: Drafts) -> str:
    """Return the sentence, or "" while there is nothing to say of the drafts of the last `WITHIN_S`."""
    if known.length is None or (known.count or 0) < _LEAST_DRAFTS or known.length > _FEW_TOKENS_PER_STEP:
        return ""
    return (
        f"Few guesses are accepted ({figures.number(known.length, 2)} tokens per step): speculation "
        "probably costs more than it gives. Try fewer draft tokens or another draft."
    )
