"""A small table over the charts: the figures of the run that is shown, of the second one, and how they compare."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QWidget

from gui.theme import NOTE_PX, code_font, text_font
from gui.widgets import figures
from gui.widgets.elided_label import ElidedLabel

_ROW_PX = 20


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of one whole run; None is unknown.

    Attributes:
        title: its profile.
        words: when it was, and how it ended.
        tokens_per_s: while it generated.
        acceptance: accepted / drafted tokens, 0..1.
        length: tokens per step of one request.
        ttft_p50_s: mean of the readings' medians, each weighted by its requests.
        lasted_s: from READY to the end.
    """

    title: str
    words: str
    tokens_per_s: float | None = None
    acceptance: float | None = None
    length: float | None = None
    ttft_p50_s: float | None = None
    lasted_s: float | None = None

    @property
    def values(self) -> tuple[float | None, ...]:
        """The figures in the order of the columns."""
        return self.tokens_per_s, self.acceptance, self.length, self.ttft_p50_s, self.lasted_s

    def texts(self) -> tuple[str, ...]:
        """Return the figures as people read them."""
        first_ms = None if self.ttft_p50_s is None else self.ttft_p50_s * 1000
        about = "" if first_ms is None else "\N{ALMOST EQUAL TO}"
        return (
            figures.rate(self.tokens_per_s),
            figures.percent(self.acceptance, 1),
            figures.number(self.length, 2),
            f"{about}{figures.rate(first_ms)}{'' if first_ms is None else ' ms'}",
            figures.UNKNOWN if self.lasted_s is None else figures.uptime(self.lasted_s),
        )


_COLUMNS = (
    ("tokens/s", "Generated tokens per second of the whole run, over the time in which any were made"),
    ("accepted", "Accepted over drafted tokens of the whole run"),
    ("per step", "Tokens per step of one request: 1 + accepted tokens / drafts"),
    ("first token", "Median time to the first token: mean of the readings' medians, each weighted by its requests"),
    ("lasted", "From ready to the end"),
)


def ratios(first: RunFigures, second: RunFigures) -> tuple[float | None, ...]:
    """Return second / first for each column, None where either is not known or the first is 0."""
    return tuple(
        None if a is None or b is None or a == 0 else b / a for a, b in zip(first.values, second.values, strict=True)
    )


class RunSummary(QFrame):
    """One row for a run, and two more when another one is laid over it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", True)
        self.setAccessibleName("Figures of the whole run")
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(14, 6, 14, 6)
        self._grid.setHorizontalSpacing(16)
        self._grid.setVerticalSpacing(0)
        self._grid.setColumnStretch(1, 1)
        self._heads = [self._label("whole run", _COLUMNS[0][1])]
        self._heads[0].setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self._heads[0].setToolTip("These figures tell of the whole run, the cards below of what they show")
        self._grid.addWidget(self._heads[0], 0, 0, 1, 2)
        for column, (name, tip) in enumerate(_COLUMNS, start=2):
            self._heads.append(self._label(name, tip))
            self._grid.addWidget(self._heads[-1], 0, column)
        self._letters = [QLabel("A"), QLabel("B"), QLabel("B / A")]
        self._titles = [ElidedLabel("", font=text_font(), mode=Qt.TextElideMode.ElideRight) for _ in range(2)]
        self._cells: list[list[QLabel]] = []
        for row, letter in enumerate(self._letters, start=1):
            letter.setFont(text_font(bold=True))
            self._grid.addWidget(letter, row, 0, 1, 2 if row > len(self._titles) else 1)
            if row <= len(self._titles):
                self._grid.addWidget(self._titles[row - 1], row, 1)
            self._cells.append([self._cell(tip) for _, tip in _COLUMNS])
            for column, cell in enumerate(self._cells[-1], start=2):
                self._grid.addWidget(cell, row, column)
        self.show_runs(())

    def show_runs(self, runs: Sequence[RunFigures]) -> None:
        """Show one run or two."""
        rows: list[tuple[str, ...]] = [run.texts() for run in runs]
        if len(runs) > 1:
            rows.append(tuple(figures.times(ratio) for ratio in ratios(runs[0], runs[1])))
        for number, run in enumerate(runs):
            self._titles[number].show_text(f"{run.title}  \N{MIDDLE DOT}  {run.words}")
        self._grid.removeWidget(self._titles[0])
        has_letters = len(runs) > 1
        self._grid.addWidget(self._titles[0], 1, int(has_letters), 1, 1 if has_letters else 2)
        for number, (letter, cells) in enumerate(zip(self._letters, self._cells, strict=True)):
            shown = number < len(rows)
            letter.setVisible(shown and len(runs) > 1)
            if number < len(self._titles):
                self._titles[number].setVisible(shown)
            for cell, text, (name, _) in zip(
                cells, rows[number] if shown else ("",) * len(cells), _COLUMNS, strict=True
            ):
                cell.setText(text)
                cell.setAccessibleName(f"{letter.text()} {name}: {text}" if len(runs) > 1 else f"{name}: {text}")
                cell.setVisible(shown)
            self._grid.setRowMinimumHeight(number + 1, _ROW_PX if shown else 0)

    def rows(self) -> list[list[str]]:
        """Return what the cells say, row by row."""
        return [[cell.text() for cell in cells] for cells in self._cells if not cells[0].isHidden()]

    def _label(self, text: str, tip: str) -> QLabel:
        label = QLabel(text, self)
        label.setProperty("role", "note")
        label.setFont(text_font(NOTE_PX))
        label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        label.setToolTip(tip)
        return label

    def _cell(self, tip: str) -> QLabel:
        cell = QLabel(self)
        cell.setFont(code_font())
        cell.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        cell.setToolTip(tip)
        return cell
