"""Says when speculation can hardly pay: nearly every guess of the last half minute was refused."""

from collections.abc import Sequence

from gui.widgets import figures

WITHIN_S = 30.0
_LEAST_READINGS = 5
# Each step also runs the draft and checks its guesses: with so few tokens more, that is hardly ever earned back.
_FEW_TOKENS_PER_STEP = 1.15


def few_accepted(lengths: Sequence[float]) -> str:
    """Return the sentence, or "" while there is nothing to say.

    Args:
        lengths: mean acceptance length (tokens per step) of each reading of the last `WITHIN_S`, NaN for a gap.
    """
    known = [length for length in lengths if figures.is_known(length)]
    if len(known) < _LEAST_READINGS or sum(known) / len(known) > _FEW_TOKENS_PER_STEP:
        return ""
    return (
        f"Few guesses are accepted ({figures.number(sum(known) / len(known), 2)} tokens per step): speculation "
        "probably costs more than it gives. Try fewer draft tokens or another draft."
    )
