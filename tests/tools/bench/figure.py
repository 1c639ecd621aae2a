"""A budget and what was measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One budget and what was measured; `met` is None where there is no limit."""

    what: str
    value: str
    budget: str
    met: bool | None
