"""Cards of lines over time, and the card of acceptance by position."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QPushButton, QStackedLayout, QWidget

from backend.curves import EACH_S, Curve
from gui.theme import NOTE_PX, text_font
from gui.widgets import figures, pooled_acceptance
from gui.widgets.card import Card, Moment
from gui.widgets.card_parts import Headline, LegendEntry, Source
from gui.widgets.chart import Chart, Line
from gui.widgets.pooled_acceptance import Drafts
from gui.widgets.position_bars import PositionBars

# A plot is drawn anew when it has moved by this share of its span, and at the latest after so many seconds.
_OLDEST_S = 5.0


@dataclass(frozen=True, slots=True)
class Series:
    """One line: `scale` turns its unit into that of the plot, `text` says a value of the plot.

    `holds`: between two values the last one is said, for what comes only now and then.
    """

    name: str
    label: str
    colour: int
    scale: Callable[[Moment], float]
    text: Callable[[float | None], str]
    fill: bool = False
    holds: bool = False


@dataclass(frozen=True, slots=True)
class CardView:
    """One of the plots that a card can show.

    Attributes:
        label: the button that chooses it; `tip` explains it.
        source: where its figures come from.
        unit: what the upper end of the value axis is called.
        caution: why the values at a time (seconds before now as a negative number, None for the newest) are only
            about right; "" where they are exact.
        figure: the current value and the words beside it; the words say why where there is no value.
        limit: fixed upper end, None follows the values and is no less than `least_limit`.
    """

    label: str
    tip: str
    source: Source
    series: tuple[Series, ...]
    figure: Callable[[Moment], Headline]
    limit: float | None = None
    least_limit: float = 1.0
    most_limit: float = float("inf")
    unit: str = ""
    caution: Callable[[Moment, float | None], str] = lambda _moment, _at: ""


class ChartCard(Card):
    """A card of lines over time; with several views, buttons choose which one is shown.

    Signals:
        view_chosen(int): another view is shown now.
    """

    view_chosen = Signal(int)

    def __init__(self, key: str, title: str, views: Sequence[CardView], *, needs_engine: bool = True) -> None:
        body = QWidget()
        super().__init__(key, title, body, needs_engine=needs_engine)
        self.views = tuple(views)
        self.view_index = 0
        self._drawn: Moment | None = None  # what the plot shows
        self._charts = QStackedLayout(body)
        self.charts = tuple(
            Chart(
                [Line(series.name, series.colour, series.fill) for series in view.series],
                limit=view.limit,
                least_limit=view.least_limit,
                most_limit=view.most_limit,
                unit=view.unit,
            )
            for view in self.views
        )
        self._buttons = QButtonGroup(self)
        for index, (view, chart) in enumerate(zip(self.views, self.charts, strict=True)):
            self._charts.addWidget(chart)
            chart.pointed.connect(self.pointed)
            if len(self.views) > 1:
                button = QPushButton(view.label, self)
                button.setProperty("kind", "chip")
                button.setFont(text_font(NOTE_PX))
                button.setCheckable(True)
                button.setChecked(index == 0)
                button.setAccessibleName(f"{title}: {view.tip}")
                button.setToolTip(view.tip)
                self._buttons.addButton(button, index)
                self._legend_row.addWidget(button)
        self._buttons.idClicked.connect(self.choose_view)

    @property
    def chart(self) -> Chart:
        """The plot that is shown."""
        return self.charts[self.view_index]

    def choose_view(self, index: int) -> None:
        """Show another view."""
        if not 0 <= index < len(self.views) or index == self.view_index:
            return
        self.view_index = index
        self._charts.setCurrentIndex(index)
        if self._buttons.button(index) is not None:
            self._buttons.button(index).setChecked(True)
        self._drawn = None
        if self.moment is not None:
            self.show_moment(self.moment)
        self.view_chosen.emit(index)

    def show_moment(self, moment: Moment) -> None:
        """Hand the curves of the span to the plot, and say the newest values."""
        view = self.views[self.view_index]
        has_values = self._is_fresh(moment) or self._draw(moment)
        self._say_source(view.source, moment.interval_s)
        headline = view.figure(moment)
        if has_values:
            self.figure.show_figure(*headline)
        self._show_message("" if has_values else headline.words)
        self.show_cursor(moment)

    def _is_fresh(self, moment: Moment) -> bool:
        """Whether the plot still shows this moment: its lines have moved by less than a pixel since."""
        before = self._drawn
        return (
            before is not None
            and self.message.text() == ""
            and (before.span_s, before.state) == (moment.span_s, moment.state)
            and 0 <= moment.now - before.now < min(moment.span_s / max(1, self.chart.plot_width), _OLDEST_S)
        )

    def _draw(self, moment: Moment) -> bool:
        """Hand the curves to the plot; returns whether they have any value."""
        view, chart = self.views[self.view_index], self.chart
        if chart.span_s != moment.span_s:
            chart.set_span(moment.span_s)
        curves = {}
        has_values = False
        for series in view.series:
            times, values = moment.read(series.name, moment.span_s, moment.now)
            curves[series.name] = (times - moment.now, values * series.scale(moment))
            has_values = has_values or bool(np.isfinite(values).any())
        if has_values or chart.drawn:
            chart.draw(curves if has_values else {series.name: _NOTHING for series in view.series})
        self._drawn = moment
        return has_values

    def show_cursor(self, moment: Moment) -> None:
        """Draw the line of the read-out, and say the values there."""
        self.chart.set_cursor(self.cursor_at)
        self._show_source()
        if self.message.text():
            return
        entries = []
        view = self.views[self.view_index]
        caution = view.caution(moment, self.cursor_at)
        for series in view.series:
            value = moment.newest(series.name)
            if value is None and series.holds and (known := moment.last_known(series.name)):
                value = known[1]
            shown = None if value is None else value * series.scale(moment)
            if self.cursor_at is not None:
                shown = self.chart.value_at(series.name, self.cursor_at)
            text = series.text(shown)
            about = "\N{ALMOST EQUAL TO}" if caution and shown is not None else ""
            entries.append(LegendEntry(series.label, f"{about}{text}", series.colour))
        self.legend.show_entries(entries, caution)


class PositionCard(Card):
    """A card of bars: how often the guess at each position of a draft was accepted, over the span."""

    def __init__(
        self,
        key: str,
        title: str,
        names: Callable[[], Sequence[str]],
        words: Callable[[Moment, Drafts], str],
        source: Source,
    ) -> None:
        """Show the series that `names` gives.

        Args:
            key: name in the settings.
            title: what it shows.
            names: the series there are.
            words: why there is nothing to show.
            source: where the figures come from.
        """
        self.bars = PositionBars()
        super().__init__(key, title, self.bars)
        self._names, self._words, self._source = names, words, source
        self._drafts = Drafts(0.0)

    def show_moment(self, moment: Moment) -> None:
        """Show all drafts of the span, or of the part of it that is known reading by reading."""
        self._say_source(self._source, moment.interval_s)
        self._drafts = moment.drafts(min(moment.span_s, EACH_S), self._names())
        self.show_cursor(moment)

    def show_cursor(self, moment: Moment) -> None:
        """Show the reading at the read-out's time, or all of them."""
        self._show_source()
        of_all: tuple[float | None, ...] = self._drafts.positions
        at = self.cursor_at
        ratios = of_all if at is None else self._ratios_at(moment, at, n_least=len(of_all))
        known = any(ratio is not None for ratio in ratios)
        if not known and not of_all:
            self.bars.show_ratios(())
            self._show_message(self._words(moment, self._drafts))
            return
        self.bars.show_ratios(ratios)
        self._show_message("")
        tokens = "draft token" if len(ratios) == 1 else "draft tokens"
        if at is None:
            count, span = pooled_acceptance.count_words(self._drafts), pooled_acceptance.span_words(self._drafts.over_s)
            self.figure.show_figure(
                str(len(ratios)), f"{tokens}, {count} in the last {span}", f"{tokens}, {count} in {span}"
            )
        else:
            when = figures.clock(moment.now + at)
            self.figure.show_figure(
                str(len(ratios)) if known else figures.UNKNOWN,
                f"{tokens}, read at {when}" if known else f"no drafts at {when}",
            )
        length = 1 + sum(ratio or 0.0 for ratio in ratios) if known else None
        self.legend.show_entries([LegendEntry("tokens per step", figures.number(length, 2))])

    def _ratios_at(self, moment: Moment, x: float, *, n_least: int) -> tuple[float | None, ...]:
        """Return what each position showed at `x`; positions that showed nothing at the end are left out."""
        found: list[float | None] = []
        for name in self._names():
            times, values = moment.read(name, moment.span_s, moment.now)
            if not times.size:
                continue
            near = int(np.argmin(np.abs(times - moment.now - x)))
            close = abs(times[near] - moment.now - x) <= max(2.5, moment.span_s / 100)
            found.append(float(values[near]) if close and np.isfinite(values[near]) else None)
        while len(found) > n_least and found[-1] is None:
            found.pop()
        return tuple(found)


_NOTHING = Curve(np.empty(0), np.empty(0))
