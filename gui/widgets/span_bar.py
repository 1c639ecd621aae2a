"""The line over the cards: span of time, pause, choice of cards, export, and the figures of the moment."""

from collections.abc import Sequence

from PySide6.QtCore import QSettings, QSize, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from gui.theme import icon, theme
from gui.widgets import figures
from gui.widgets.card_chooser import CardChooser
from gui.widgets.export_menu import ExportButton

SPANS_S = (60, 300, 1800, 7200, 21_600, 86_400)
DEFAULT_SPAN_S = 300
_ICON_PX = 14


class SpanBar(QWidget):
    """Chips for the span, Pause, Cards, Export; the figures stand at the right, or below where it is narrow.

    Signals:
        span_chosen(int): seconds to show.
        paused(bool): hold the drawing, or let it go on.
        cards_chosen(list, list): order of all cards, and those to show.
    """

    span_chosen = Signal(int)
    paused = Signal(bool)
    cards_chosen = Signal(list, list)

    def __init__(
        self,
        titles: Sequence[tuple[str, str]],
        parent: QWidget | None = None,
        *,
        store: QSettings | None = None,
        figures_tip: str = "KV cache in use, requests, and engine steps per second",
    ) -> None:
        """Offer the cards of `titles`, (key, title) each, and to export them: that remembers its folder in `store`.

        `figures_tip` explains the figures at the right.
        """
        super().__init__(parent)
        self._titles = dict(titles)
        self._live = QLabel("Live", self)
        self._live.setProperty("role", "title")
        self._spans = QButtonGroup(self)
        first = QHBoxLayout()
        first.setContentsMargins(0, 0, 0, 0)
        first.setSpacing(6)
        first.addWidget(self._live)
        for span_s in SPANS_S:
            chip = QPushButton(figures.span(span_s), self)
            chip.setProperty("kind", "chip")
            chip.setCheckable(True)
            chip.setAccessibleName(f"Show the last {figures.span(span_s)}")
            chip.setToolTip(f"Show the last {figures.span(span_s)}")
            self._spans.addButton(chip, span_s)
            first.addWidget(chip)
        self._spans.idClicked.connect(self.span_chosen)
        self._pause = QPushButton(self)
        self._pause.setProperty("kind", "chip")
        self._pause.setCheckable(True)
        self._pause.toggled.connect(self._on_pause_toggled)
        self._cards = QPushButton("Cards", self)
        self._cards.setProperty("kind", "chip")
        self._cards.setAccessibleName("Choose and order the cards")
        self._cards.setToolTip("Choose which cards are shown, and in which order")
        self._cards.clicked.connect(self._on_cards_clicked)
        for button in (self._pause, self._cards):
            button.setIconSize(QSize(_ICON_PX, _ICON_PX))
            first.addWidget(button)
        self.export: ExportButton | None = None
        if store is not None:
            self.export = ExportButton(store, self)
            first.addWidget(self.export)
        first.addStretch(1)
        self._figures = QLabel(self)
        self._figures.setProperty("role", "muted")
        self._figures.setAccessibleName("Figures of the moment")
        self._figures.setToolTip(figures_tip)
        self._figures.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._first = first
        self._second = QHBoxLayout()
        self._second.setContentsMargins(0, 0, 0, 0)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        layout.addLayout(first)
        layout.addLayout(self._second)
        self._is_narrow = False
        first.addWidget(self._figures)
        self._chooser = CardChooser(self)
        self._chooser.chosen.connect(self.cards_chosen)
        self._order: tuple[str, ...] = tuple(self._titles)
        self._shown: frozenset[str] = frozenset(self._titles)
        theme.changed.connect(self._on_theme_changed)
        self._on_pause_toggled(False)

    def show_span(self, span_s: int) -> None:
        """Mark a span as the chosen one."""
        self._spans.button(span_s).setChecked(True)

    def show_cards(self, order: Sequence[str], shown: frozenset[str]) -> None:
        """Take note of what is shown, for the choice."""
        self._order, self._shown = tuple(order), shown

    def show_figures(self, words: str) -> None:
        """Show the figures of the moment."""
        if words != self._figures.text():
            self._figures.setText(words)
            self._place_figures()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the figures where they have room."""
        super().resizeEvent(event)
        self._place_figures()

    def minimumSizeHint(self) -> QSize:
        """The figures can go below, so they need no width."""
        hint = super().minimumSizeHint()
        return QSize(self._controls_width(), hint.height())

    def _controls_width(self) -> int:
        last = self.export or self._cards
        return (
            last.x() + last.width() if last.x() else self._first.sizeHint().width() - self._figures.sizeHint().width()
        )

    def _place_figures(self) -> None:
        narrow = self._controls_width() + 16 + self._figures.sizeHint().width() > self.width()
        if narrow == self._is_narrow:
            return
        self._is_narrow = narrow
        (self._first if narrow else self._second).removeWidget(self._figures)
        (self._second if narrow else self._first).addWidget(self._figures)

    def _on_pause_toggled(self, paused: bool) -> None:
        self._pause.setText("Resume" if paused else "Pause")
        name = "Go on drawing" if paused else "Hold the charts; recording goes on"
        self._pause.setAccessibleName("Resume" if paused else "Pause")
        self._pause.setToolTip(name)
        self._live.setText("Paused" if paused else "Live")
        self._live.setProperty("role", "warn" if paused else "title")
        self._live.style().unpolish(self._live)
        self._live.style().polish(self._live)
        self._on_theme_changed()
        self.paused.emit(paused)

    def _on_cards_clicked(self) -> None:
        self._chooser.open_below(self._cards, [(key, self._titles[key], key in self._shown) for key in self._order])

    def _on_theme_changed(self) -> None:
        paused = self._pause.isChecked()
        colour = theme.tokens.accent if paused else theme.tokens.text
        self._pause.setIcon(icon("start" if paused else "pause", colour, size_px=_ICON_PX))
        self._cards.setIcon(icon("cards", size_px=_ICON_PX))
