"""The cards side by side: as many columns as fit, one read-out over all, each card redrawn in a turn of its own."""

from collections import deque
from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QScrollArea, QWidget

from gui.widgets.card import LEAST_HEIGHT, LEAST_WIDTH, Card, Moment
from gui.widgets.message_card import MessageCard

_MOST_COLUMNS = 3
_SPACING = 12
_BESIDE_SCROLL_BAR = 8
# Divides evenly among one, two or three cards: a row that is not full is filled by its cards.
_N_CELLS = 6
# Time between two cards, so that input and other work come in between.
_TURN_MS = 20


class CardGrid(QScrollArea):
    """Shows some of the cards in some order.

    Attributes:
        cards: every card by its key.
        order: keys of all cards, `shown` of those that a person wants to see.
        left_out: keys of the cards that have nothing to show on this machine.

    Signals:
        order_changed: other cards, or another order, than before.
    """

    order_changed = Signal()

    def __init__(self, cards: Sequence[Card], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.cards = {card.key: card for card in cards}
        self.order = tuple(self.cards)
        self.shown = frozenset(self.cards)
        self.left_out: frozenset[str] = frozenset()
        self.enlarged: str | None = None
        self._n_columns = self._n_rows = 0
        self._moment: Moment | None = None
        self._due: deque[Card] = deque()
        self._turn = QTimer(self)
        self._turn.setSingleShot(True)
        self._turn.setInterval(_TURN_MS)
        self._turn.timeout.connect(self._on_turn)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._page = QWidget()
        self._layout = QGridLayout(self._page)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(_SPACING)
        self.setWidget(self._page)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self.hint = QLabel("No card is chosen. Choose some under Cards.", self._page)
        self.hint.setProperty("role", "muted")
        self.hint.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.idle = MessageCard(
            "run",
            "No engine is running",
            "Choose a profile above and press Start. Its speed and acceptance are drawn here.",
            self._page,
        )
        self.is_idle = False
        for card in cards:
            card.setParent(self._page)
            card.pointed.connect(self.point_at)
            card.enlarge_asked.connect(self._on_enlarge_asked)
        self._arrange()

    # ---- what is shown ---------------------------------------------------------------------------------------

    @property
    def visible_cards(self) -> tuple[Card, ...]:
        """The cards on the page, in order."""
        if self.enlarged is not None:
            return (self.cards[self.enlarged],)
        chosen = (self.cards[key] for key in self.order if key in self.shown - self.left_out)
        return tuple(card for card in chosen if not (self.is_idle and card.needs_engine))

    def choose(self, order: Sequence[str], shown: Sequence[str]) -> None:
        """Show these cards.

        Keys that are unknown are left out, a card that is not named stands after the one it usually stands after.
        Cards that have nothing to show on this machine stay as they were chosen.
        """
        known = list(dict.fromkeys(key for key in order if key in self.cards))
        before: str | None = None
        for key in self.cards:
            if key not in known:
                known.insert(known.index(before) + 1 if before is not None else 0, key)
            before = key
        self.order = tuple(known)
        self.shown = (frozenset(shown) & self.cards.keys() - self.left_out) | (self.shown & self.left_out)
        if self.enlarged is not None and self.enlarged not in self.shown:
            self.enlarged = None
        self._arrange()
        self.order_changed.emit()

    def leave_out(self, keys: frozenset[str]) -> None:
        """Take away the cards that have nothing to show on this machine, and bring back all others that are wanted."""
        if keys == self.left_out:
            return
        self.left_out = keys
        if self.enlarged in keys:
            self.enlarge(None)
        else:
            self._arrange()
        self.order_changed.emit()

    def enlarge(self, key: str | None) -> None:
        """Show one card alone, or all chosen ones again."""
        self.enlarged = key
        for each, card in self.cards.items():
            card.set_enlarged(each == key)
        self._arrange()
        if key is not None:
            self.cards[key].setFocus()

    def set_idle(self, idle: bool) -> None:
        """Say once what to do, in place of all cards that need an engine, or show those again."""
        if idle == self.is_idle:
            return
        self.is_idle = idle
        if idle and self.enlarged is not None and self.cards[self.enlarged].needs_engine:
            self.enlarge(None)
        else:
            self._arrange()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Escape goes back from one card to all."""
        if event.key() == Qt.Key.Key_Escape and self.enlarged is not None:
            card = self.cards[self.enlarged]
            self.enlarge(None)
            card.setFocus()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Use as many columns as fit, and rows that fit whole."""
        super().resizeEvent(event)
        if self._columns_that_fit() != self._n_columns:
            self._arrange()
        else:
            self._fit_rows()
            self._on_scrolled()

    def _on_scrolled(self) -> None:
        """Draw the cards that have come into sight."""
        if self._moment is not None and any(card.moment is not self._moment for card in self.visible_cards):
            self.redraw(self._moment)

    def _on_enlarge_asked(self, enlarge: bool) -> None:
        card = self.sender()
        assert isinstance(card, Card)
        self.enlarge(card.key if enlarge else None)

    def _columns_that_fit(self) -> int:
        n_cards = max(len(self.visible_cards), 1)
        # Without the room of a scroll bar, so that it does not come and go with the number of columns.
        room = self.width() - _BESIDE_SCROLL_BAR - self.verticalScrollBar().sizeHint().width()
        fitting = max(1, (room + _SPACING) // (LEAST_WIDTH + _SPACING))
        wanted = 2 if n_cards == 4 else min(n_cards, _MOST_COLUMNS)  # four make a square
        return min(fitting, wanted)

    def _arrange(self) -> None:
        self._n_columns = n_columns = self._columns_that_fit()
        cards = self.visible_cards
        for card in self.cards.values():
            self._layout.removeWidget(card)
            card.setVisible(card in cards)
        shows_idle = self.is_idle and self.enlarged is None
        for widget, shown in ((self.hint, not cards and not shows_idle), (self.idle, shows_idle)):
            self._layout.removeWidget(widget)
            widget.setVisible(shown)
        if self.hint.isVisibleTo(self):
            self._layout.addWidget(self.hint, 0, 0, 1, _N_CELLS)
        if shows_idle:
            self._n_rows = self._place_idle(cards)
        else:
            self._n_rows = max(-(-len(cards) // n_columns), 1)
            self._place(cards, range(self._n_rows))
        for row in range(max(self._n_rows, self._layout.rowCount())):
            self._layout.setRowStretch(row, 1 if row < self._n_rows else 0)
        for cell in range(_N_CELLS):
            self._layout.setColumnStretch(cell, 1)
        self._fit_rows()
        previous: QWidget | None = None
        for card in cards:
            if previous is not None:
                QWidget.setTabOrder(previous, card)
            previous = card.last_control
        if self._moment is not None:
            self.redraw(self._moment)

    def _place_idle(self, cards: Sequence[Card]) -> int:
        """Put the words first and the cards that need no engine below; return the rows."""
        self._layout.addWidget(self.idle, 0, 0, 1, _N_CELLS)
        n_rows = -(-len(cards) // self._n_columns)
        self._place(cards, range(1, 1 + n_rows))
        return 1 + n_rows

    def _place(self, cards: Sequence[Card], rows: range) -> None:
        """Put the cards into rows of as equal a number of cards as can be, the fuller rows first."""
        left = deque(cards)
        for number, row in enumerate(rows):
            in_row = -(-len(left) // (len(rows) - number))
            wide = _N_CELLS // max(in_row, 1)
            for column in range(in_row):
                self._layout.addWidget(left.popleft(), row, column * wide, 1, wide)

    def _fit_rows(self) -> None:
        """Make rows that do not all fit so high that the last one in sight is whole."""
        height = self.viewport().height()
        fitting = max(1, (height + _SPACING) // (LEAST_HEIGHT + _SPACING))
        scrolls = fitting < self._n_rows
        row_height = max(LEAST_HEIGHT, (height - (fitting - 1) * _SPACING) // fitting) if scrolls else 0
        for row in range(self._layout.rowCount()):
            self._layout.setRowMinimumHeight(row, row_height if row < self._n_rows else 0)
        self._layout.setContentsMargins(0, 0, _BESIDE_SCROLL_BAR if scrolls else 0, 0)

    # ---- drawing ---------------------------------------------------------------------------------------------

    def redraw(self, moment: Moment) -> None:
        """Redraw the cards in sight one after the other; one that still waits is drawn with the newer moment."""
        self._moment = moment
        if not self.isVisible():
            return
        cards = self.visible_cards
        self._due = deque([*(card for card in self._due if card in cards), *(c for c in cards if c not in self._due)])
        if self._due and not self._turn.isActive():
            self._turn.start(0)

    @property
    def is_drawing(self) -> bool:
        """Whether cards still wait for their turn."""
        return self._turn.isActive()

    def freshen(self, card: Card) -> None:
        """Draw a card at once if it was out of sight when the others were drawn."""
        if self._moment is not None and card.moment is not self._moment:
            card.redraw(self._moment)

    def point_at(self, x: float | None) -> None:
        """Show the read-out of every card at `x` seconds before now (negative), or none."""
        for card in self.visible_cards:
            if card.cursor_at != x:
                card.set_cursor(x)

    def hideEvent(self, event: QHideEvent) -> None:
        """Draw nothing that nobody sees."""
        super().hideEvent(event)
        self._turn.stop()
        self._due.clear()

    def _on_turn(self) -> None:
        while self._due and self._moment is not None:
            card = self._due.popleft()
            if not card.visibleRegion().isEmpty():
                card.redraw(self._moment)
                break
        if self._due:
            self._turn.start(_TURN_MS)
