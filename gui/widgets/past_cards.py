"""The cards that show a recorded run: those of the Run page, and those of its GPUs."""

from collections.abc import Callable, Collection, Iterable, Sequence

from backend.hardware import GpuInfo
from gui.widgets import gpu_words
from gui.widgets.card import Card
from gui.widgets.gpu_cards import gpu_cards
from gui.widgets.gpu_lines import GpuLinesCard
from gui.widgets.gpu_run_cards import BandwidthCard
from gui.widgets.run_cards import all_cards

_AFTER = "positions"
_AMID = "gpu_memory"  # of the GPUs' cards the one that stands amid the engine's
_LEFT_OUT = "gpu_bandwidth"  # the card that knows all sources of bandwidth has it


def past_cards(positions: Callable[[], Sequence[str]]) -> tuple[Card, ...]:
    """Make the cards in their usual order; `positions` names the series of acceptance by position."""
    engine = all_cards(positions)
    gpus = gpu_cards(lambda moment: gpu_words.of_engine(moment.gpus), titled=_of_gpu)
    place = next(number for number, card in enumerate(engine, start=1) if card.key == _AFTER)
    amid = [card for card in gpus if card.key == _AMID]
    rest = [card for card in gpus if card.key not in (_AMID, _LEFT_OUT)]
    return (*engine[:place], BandwidthCard(lambda: True), *amid, *engine[place:], *rest)


def _of_gpu(title: str) -> str:
    """Return "GPU power" for "Power", since other cards stand beside it."""
    return f"GPU {title[0].lower()}{title[1:]}" if title[1].islower() else title


def without_readings(cards: Iterable[Card], known: Collection[str], gpus: Sequence[GpuInfo]) -> frozenset[str]:
    """Return the keys of the cards of GPUs that have nothing to show when only the series `known` have values."""
    return frozenset(
        card.key
        for card in cards
        if isinstance(card, GpuLinesCard) and not any(name in known for name in card.series_of(gpus))
    )
