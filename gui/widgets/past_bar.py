"""The line over the cards of a recorded run: how much of it is shown and which part, the choice of cards, export."""

from collections.abc import Sequence

from PySide6.QtCore import QSettings, QSize, Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QPushButton, QWidget

from gui.theme import icon, text_font, theme
from gui.widgets import figures
from gui.widgets.card_chooser import CardChooser
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.export_menu import ExportButton

WHOLE = 0
SPANS_S = (60, 300, 1800, 7200, 21_600)
_ICON_PX = 14


class PastBar(QWidget):
    """Chips for the span, the stretch in words, Cards and Export.

    Signals:
        span_chosen(int): seconds to show, WHOLE for all of it.
        cards_chosen(list, list): order of all cards, and those to show.
    """

    span_chosen = Signal(int)
    cards_chosen = Signal(list, list)

    def __init__(self, titles: Sequence[tuple[str, str]], store: QSettings, parent: QWidget | None = None) -> None:
        """Offer the cards of `titles`, (key, title) each; the export remembers its folder in `store`."""
        super().__init__(parent)
        self._titles = dict(titles)
        self._spans = QButtonGroup(self)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        for span_s in (WHOLE, *SPANS_S):
            chip = QPushButton(figures.span(span_s) if span_s else "Whole", self)
            chip.setProperty("kind", "chip")
            chip.setCheckable(True)
            chip.setAccessibleName(self._tip(span_s))
            self._spans.addButton(chip, span_s)
            row.addWidget(chip)
        self._spans.idClicked.connect(self.span_chosen)
        self._words = ElidedLabel("", self, font=text_font(), mode=Qt.TextElideMode.ElideRight)
        self._words.setAccessibleName("What is shown")
        row.addSpacing(6)
        row.addWidget(self._words, 1)
        self._cards = QPushButton("Cards", self)
        self._cards.setProperty("kind", "chip")
        self._cards.setAccessibleName("Choose and order the cards")
        self._cards.setToolTip("Choose which cards are shown, and in which order")
        self._cards.setIconSize(QSize(_ICON_PX, _ICON_PX))
        self._cards.clicked.connect(self._on_cards_clicked)
        self.export = ExportButton(store, self)
        self.export.setText("Export")
        row.addWidget(self._cards)
        row.addWidget(self.export)
        self._chooser = CardChooser(self)
        self._chooser.chosen.connect(self.cards_chosen)
        self._order: tuple[str, ...] = tuple(self._titles)
        self._shown: frozenset[str] = frozenset(self._titles)
        theme.changed.connect(self._paint)
        self._paint()

    @property
    def words(self) -> str:
        """The stretch in words, as shown."""
        return self._words.text

    def show_span(self, span_s: int, *, length_s: float, words: str) -> None:
        """Mark the span that is shown of a run of `length_s` seconds, and say which stretch it is."""
        self._spans.button(span_s).setChecked(True)
        for each in SPANS_S:
            fits = each < length_s or each == span_s
            self._spans.button(each).setEnabled(fits)
            self._spans.button(each).setToolTip(self._tip(each) if fits else "The run is shorter")
        self._spans.button(WHOLE).setToolTip(self._tip(WHOLE))
        if words != self._words.text:
            self._words.show_text(words)

    def show_cards(self, order: Sequence[str], shown: frozenset[str]) -> None:
        """Take note of what is shown, for the choice."""
        self._order, self._shown = tuple(order), shown

    @staticmethod
    def _tip(span_s: int) -> str:
        return f"Show a stretch of {figures.span(span_s)}" if span_s else "Show the whole run"

    def _on_cards_clicked(self) -> None:
        self._chooser.open_below(self._cards, [(key, self._titles[key], key in self._shown) for key in self._order])

    def _paint(self) -> None:
        self._cards.setIcon(icon("cards", size_px=_ICON_PX))
