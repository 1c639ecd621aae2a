"""Cards of lines over time, and the card of acceptance by position."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QPushButton, QStackedLayout, QWidget

from backend.curves import EACH_S, Floats
from gui.theme import NOTE_PX, text_font
from gui.widgets import figures, pooled_acceptance
from gui.widgets.card import Card, Moment
from gui.widgets.card_parts import Headline, LegendEntry, Source
from gui.widgets.chart import Chart
from gui.widgets.chart_level import Level
from gui.widgets.chart_lines import Line
from gui.widgets.pooled_acceptance import Drafts
from gui.widgets.position_bars import POSITIONS_COLOUR, PositionBars
from gui.widgets.time_axis import TimeMarks, since_marks

# A plot is drawn anew when it has moved by this share of its span, and at the latest after so many seconds.
_OLDEST_S = 5.0


@dataclass(frozen=True, slots=True)
class Series:
    """One line: `scale` turns its unit into that of the plot, `text` says a value of the plot.

    `holds`: between two values the last one is said, for what comes only now and then. `dashed` tells lines of one
    colour apart.
    """

    name: str
    label: str
    colour: int
    scale: Callable[[Moment], float]
    text: Callable[[float | None], str]
    fill: bool = False
    holds: bool = False
    dashed: bool = False


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
        level: a value that counts, drawn as a dashed line.
        bands: stretches of time that are marked along the top, as seconds before the right end.
        short: the legend in fewer words, the longest first, for where it has little room.
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
    level: Callable[[Moment], Level | None] = lambda _moment: None
    bands: Callable[[Moment], Sequence[tuple[float, float]]] = lambda _moment: ()
    short: Callable[[Sequence[LegendEntry]], Sequence[Sequence[LegendEntry]]] = lambda _entries: ()


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
        self._made: dict[int, Chart] = {}  # by view; made when it is first drawn, in a turn of the card's own
        self._buttons = QButtonGroup(self)
        self._buttons.idClicked.connect(self._on_view_clicked)
        for index, view in enumerate(self.views if len(self.views) > 1 else ()):
            self._add_button(index, view.label, view.tip)

    @property
    def chart(self) -> Chart:
        """The plot of the view that is shown."""
        if self.view_index not in self._made:
            self._made[self.view_index] = chart = self._make_chart(self.views[self.view_index])
            self._charts.addWidget(chart)
        return self._made[self.view_index]

    def _make_chart(self, view: CardView) -> Chart:
        chart = Chart(
            _lines(view),
            limit=view.limit,
            least_limit=view.least_limit,
            most_limit=view.most_limit,
            unit=view.unit,
        )
        chart.pointed.connect(self.pointed)
        return chart

    def _add_button(self, index: int, label: str, tip: str) -> None:
        button = QPushButton(label, self)
        button.setProperty("kind", "chip")
        button.setFont(text_font(NOTE_PX))
        button.setCheckable(True)
        button.setChecked(index == self.view_index)
        button.setAccessibleName(f"{self.title}: {tip}")
        button.setToolTip(tip)
        self._buttons.addButton(button, index)
        self._legend_row.addWidget(button)

    def replace_views(self, views: Sequence[CardView]) -> None:
        """Show other lines, in as many views with the same buttons and axes as before."""
        self.views, self._drawn = tuple(views), None
        for index, chart in self._made.items():
            chart.set_lines(_lines(self.views[index]))

    def choose_view(self, index: int) -> None:
        """Show another view."""
        if not 0 <= index < len(self.views) or index == self.view_index:
            return
        self._show_view(index)
        self.view_chosen.emit(index)

    def _on_view_clicked(self, index: int) -> None:
        self.choose_view(index)

    def _show_view(self, index: int) -> None:
        self.view_index = index
        if self._buttons.button(index) is not None:
            self._buttons.button(index).setChecked(True)
        self._drawn = None
        if self.moment is not None:
            self.show_moment(self.moment)

    def show_moment(self, moment: Moment) -> None:
        """Hand the curves of the span to the plot, and say the newest values."""
        view = self.views[self.view_index]
        has_values = self._is_fresh(moment) or self._draw(moment)
        if has_values:
            self.chart.show_bands(view.bands(moment))
        self._say_source(view.source, moment)
        headline = view.figure(moment)
        if has_values:
            self.figure.show_figure(*_of_run(headline, moment))
        self._show_message("" if has_values else headline.words)
        self.show_cursor(moment)

    def _is_fresh(self, moment: Moment) -> bool:
        """Whether the plot still shows this moment: its lines have moved by less than a pixel since."""
        before = self._drawn
        return (
            before is not None
            and self.message.text() == ""
            and (before.span_s, before.state) == (moment.span_s, moment.state)
            and not _is_other_run(before, moment)
            and 0 <= moment.now - before.now < min(moment.span_s / max(1, self.chart.plot_width), _OLDEST_S)
        )

    def _draw(self, moment: Moment) -> bool:
        """Hand the curves to the plot; returns whether they have any value."""
        view, chart = self.views[self.view_index], self.chart
        self._charts.setCurrentWidget(chart)
        chart.set_span(moment.span_s, _axis(moment))
        curves = _curves(view, moment)
        other = _curves(view, moment.other) if moment.other is not None else None
        has_values = _has_values(curves) or (other is not None and _has_values(other))
        if has_values or chart.drawn:
            is_new = self._drawn is None or _is_other_run(self._drawn, moment)
            chart.show_level(view.level(moment))
            chart.draw(curves if has_values else {}, other, anew=is_new)
        chart.show_marks(moment.placed_marks())
        self._drawn = moment
        return has_values

    def show_cursor(self, moment: Moment) -> None:
        """Draw the line of the read-out, and say the values there."""
        self.chart.set_cursor(self.cursor_at)
        happened = self.chart.mark_near(self.cursor_at) if self.cursor_at is not None else None
        view = self.views[self.view_index]
        self._show_source(
            moment, [series.name for series in view.series], happened.words if happened is not None else ""
        )
        if self.message.text():
            return
        caution = view.caution(moment, self.cursor_at)
        entries = self._entries(moment, caution)
        if moment.other is not None:
            entries += self._entries(moment.other, view.caution(moment.other, self.cursor_at), is_other=True)
        self.legend.show_entries(entries, caution, view.short(entries))

    def _entries(self, moment: Moment, caution: str, *, is_other: bool = False) -> list[LegendEntry]:
        """Return the legend of one run."""
        entries = []
        letter = " B" if is_other else " A" if moment.other is not None else ""
        for series in self.views[self.view_index].series:
            shown = self._value(moment, series)
            about = "\N{ALMOST EQUAL TO}" if caution and shown is not None else ""
            label, text = f"{series.label}{letter}", f"{about}{series.text(shown)}"
            entries.append(LegendEntry(label, text, series.colour, is_other, series.dashed, amount=shown))
        return entries

    def _value(self, moment: Moment, series: Series) -> float | None:
        """Return the value of a series at the read-out or that stands for the moment, in the unit of the plot."""
        if self.cursor_at is not None:
            value = moment.mean_at(series.name, self.cursor_at)
        else:
            value = moment.value(series.name)
            if value is None and series.holds and moment.past is None and (known := moment.last_known(series.name)):
                value = known[1]
        return None if value is None else value * series.scale(moment)


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
        self._other: Drafts | None = None

    def show_moment(self, moment: Moment) -> None:
        """Show all drafts of the span, or of the part of it that is known reading by reading."""
        self._say_source(self._source, moment)
        self._source_words = self._source.word  # also of the past: drafts are added up, there is no mean
        self._drafts = moment.drafts(min(moment.span_s, EACH_S), self._names())
        self._other = moment.other.drafts(moment.span_s, self._names()) if moment.other is not None else None
        self.show_cursor(moment)

    def show_cursor(self, moment: Moment) -> None:
        """Show the reading at the read-out's time, or all of them."""
        self._show_source(moment, self._names())
        of_all: tuple[float | None, ...] = self._drafts.positions
        at = self.cursor_at
        ratios = of_all if at is None else self._ratios_at(moment, at, n_least=len(of_all))
        others: tuple[float | None, ...] = self._other.positions if self._other is not None else ()
        if moment.other is not None and at is not None:
            others = self._ratios_at(moment.other, at, n_least=len(others))
        known = any(ratio is not None for ratio in ratios)
        if not known and not of_all and not others:
            self.bars.show_ratios(())
            self._show_message(self._words(moment, self._drafts))
            return
        self.bars.show_ratios(ratios, others)
        self._show_message("")
        tokens = "draft token" if len(ratios) == 1 else "draft tokens"
        if at is None:
            count, span = pooled_acceptance.count_words(self._drafts), pooled_acceptance.span_words(self._drafts.over_s)
            last = "the last " if moment.past is None else ""
            said = Headline(str(len(ratios)), f"{tokens}, {count} in {last}{span}", f"{tokens}, {count} in {span}")
            self.figure.show_figure(*_of_run(said, moment))
        else:
            when = figures.clock(moment.now + at)
            self.figure.show_figure(
                str(len(ratios)) if known else figures.UNKNOWN,
                f"{tokens}, read at {when}" if known else f"no drafts at {when}",
            )
        label = "tokens per step"
        if moment.other is None:
            entries = [LegendEntry(label, figures.number(_length(ratios), 2))]
        else:
            entries = [
                LegendEntry(f"{label} A", figures.number(_length(ratios), 2), POSITIONS_COLOUR),
                LegendEntry("B", figures.number(_length(others), 2), POSITIONS_COLOUR, is_other=True),
            ]
        self.legend.show_entries(entries)

    def _ratios_at(self, moment: Moment, x: float, *, n_least: int) -> tuple[float | None, ...]:
        """Return what each position showed at `x`; positions that showed nothing at the end are left out."""
        found = [moment.mean_at(name, x) for name in self._names()]
        while len(found) > n_least and found[-1] is None:
            found.pop()
        return tuple(found)


def _of_run(said: Headline, moment: Moment) -> Headline:
    """Say which of two runs a figure is of."""
    if moment.other is None:
        return said
    return said._replace(words=f"{said.words} (A)", short=f"{said.short or said.words} (A)")


def _lines(view: CardView) -> list[Line]:
    return [Line(series.name, series.colour, series.fill, series.dashed) for series in view.series]


def _curves(view: CardView, moment: Moment) -> dict[str, tuple[Floats, Floats]]:
    """Return what a plot shows of a run: seconds before the right end, and values in the unit of the plot."""
    curves = {}
    for series in view.series:
        times, values = moment.read(series.name, moment.span_s, moment.now)
        curves[series.name] = (times - moment.now, values * series.scale(moment))
    return curves


def _has_values(curves: Mapping[str, tuple[Floats, Floats]]) -> bool:
    return any(np.isfinite(values).any() for _, values in curves.values())


def _axis(moment: Moment) -> TimeMarks | None:
    """Return the labels of the time axis of a run of the past."""
    past = moment.past
    if past is None:
        return None
    end_s = moment.now - past.origin
    return since_marks(end_s - moment.span_s, end_s, is_end=moment.now >= past.end)


def _is_other_run(before: Moment, moment: Moment) -> bool:
    """Whether there is another run to show, or another one laid over it, than before."""
    if before.read != moment.read or (before.other is None) != (moment.other is None):
        return True
    return before.other is not None and moment.other is not None and before.other.read != moment.other.read


def _length(ratios: Sequence[float | None]) -> float | None:
    """Return the tokens per step that ratios of acceptance by position amount to."""
    known = [ratio for ratio in ratios if ratio is not None]
    return 1 + sum(known) if known else None
