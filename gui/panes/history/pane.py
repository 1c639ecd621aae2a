"""The History page: which runs were recorded, and one of them or two over each other in the charts."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QSettings, Qt, QTimer
from PySide6.QtGui import QHideEvent, QKeySequence, QResizeEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from backend.desk.types import RunView, SettingsView, StoreProblem
from backend.errors import UserError
from backend.events import PastRun, RunState
from gui.bridge import Bridge
from gui.panes.exporting import Exporter
from gui.panes.history.opened import Opened, Pair, open_run
from gui.panes.history.run_delegate import PastRunDelegate
from gui.qt_models.past_runs import ORDERS, PastRunsModel
from gui.widgets import figures, past_run_words
from gui.widgets.card_grid import CardGrid
from gui.widgets.chart_card import ChartCard
from gui.widgets.choice_dialog import Answer, ChoiceDialog, DialogSlot
from gui.widgets.message_card import MessageCard
from gui.widgets.notice_bar import NoticeBar
from gui.widgets.past_bar import WHOLE, PastBar
from gui.widgets.past_cards import past_cards, without_readings
from gui.widgets.run_list import RunList
from gui.widgets.run_summary import RunSummary
from gui.widgets.time_strip import TimeStrip

_SPACING = 12
_SETTLE_MS = 120  # who goes through the list with the arrow keys does not want to read every run
_NARROW_PX = 1174
_WIDTHS = (224, 288)
_OFF = "Recording is off: new runs are not kept. Turn it on in Settings."
_ENGINE_SERIES = "requests_running"
_STRIP_SERIES = "generation_tokens_per_s"


class HistoryPane(QWidget):
    """The list at the left, the chosen run beside it. What a person chooses is kept under "history/"."""

    def __init__(self, bridge: Bridge, store: QSettings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._store = store
        self._serial = 0  # answers to older questions are dropped
        self._opened: dict[str, Opened] = {}  # those that are chosen, if they have ended
        self._pair: Pair | None = None
        self._span_s = WHOLE
        self._until = 0.0
        self._known = False  # the list has come once
        self._records = True
        self._run_shown: tuple[str, RunState] | None = None
        self.question = DialogSlot()
        self.model = PastRunsModel(past_run_words.said, self)
        self.list = RunList(self.model, PastRunDelegate(), {key: label for key, (label, _) in ORDERS.items()})
        cards = past_cards(self._positions)
        self.notice = NoticeBar()
        self.bar = PastBar([(card.key, card.title) for card in cards], store)
        self.strip = TimeStrip()
        self.summary = RunSummary()
        self.grid = CardGrid(cards)
        self.message = MessageCard("history", "", "")
        self._exporter = Exporter(bridge, self.notice, self)
        self._settle = QTimer(self)
        self._settle.setSingleShot(True)
        self._settle.setInterval(_SETTLE_MS)
        self._settle.timeout.connect(self._open_chosen)
        self._lay_out()
        self._connect()
        self._restore()
        self.setFocusProxy(self.list.view)
        self._show_message("Reading the recorded runs", "")

    def _lay_out(self) -> None:
        run = QWidget()
        column = QVBoxLayout(run)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        for widget in (self.bar, self.strip, self.summary):
            column.addWidget(widget)
        column.addWidget(self.grid, 1)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.message)
        self.stack.addWidget(run)
        right = QVBoxLayout()
        right.setSpacing(8)
        right.addWidget(self.notice)
        right.addWidget(self.stack, 1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(_SPACING)
        layout.addWidget(self.list)
        layout.addLayout(right, 1)

    def _connect(self) -> None:
        self.list.searched.connect(self.model.set_search)
        self.list.order_chosen.connect(self._on_order_chosen)
        self.list.chosen_changed.connect(self._on_chosen)
        self.list.delete_wanted.connect(self._on_delete)
        self.bar.span_chosen.connect(self._on_span_chosen)
        self.bar.cards_chosen.connect(self.grid.choose)
        self.bar.export.chosen.connect(self._on_export)
        self.grid.order_changed.connect(self._on_cards_changed)
        self.strip.moved.connect(self._on_moved)
        self._bridge.run_changed.connect(self._on_run_changed)
        self._bridge.store_problem_changed.connect(self._on_store_problem)
        shortcut = QShortcut(QKeySequence("Ctrl+F"), self)
        shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        shortcut.activated.connect(self._on_find)

    # ---- the list --------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Ask for the runs again: one may have begun or ended."""
        self._bridge.call(self, self._bridge.desk.settings_view(), done=self._on_settings)
        self._bridge.call(self, self._bridge.desk.history.list(), done=self._on_list, failed=self._on_list_failed)

    def _on_settings(self, view: SettingsView) -> None:
        self._records = bool(view.values["record"])
        self.list.show_note("" if self._records else _OFF)
        self._show_empty()

    def _on_list(self, runs: tuple[PastRun, ...]) -> None:
        self._known = True
        ids = [run.run_id for run in runs]
        # One that went on when it was read knows more by now.
        self._opened = {
            key: each for key, each in self._opened.items() if key in ids and each.recorded.run.ended_at is not None
        }
        self.model.set_runs(runs)
        kept = [run_id for run_id in self.list.chosen if run_id in ids]
        self.list.choose(kept or ids[:1])
        self._show_empty()
        self._open_chosen()

    def _on_list_failed(self, error: UserError) -> None:
        self._known = True
        if self._pair is None:
            self._show_message("The recorded runs cannot be read", str(error))
        else:
            self.notice.show_notice(str(error), tone="bad")

    def _show_empty(self) -> None:
        """Say what to do where there is no run."""
        if not self._known or self.model.runs:
            return
        problem = self._bridge.desk.history.problem
        words = problem or (_OFF if not self._records else "Start an engine; each run is kept here.")
        self._pair = None
        self._show_message("No run was recorded yet", words)
        self.list.allow_delete(False, "There is no run to delete")

    def _show_message(self, title: str, words: str) -> None:
        self.message.show_message(title, words)
        self.stack.setCurrentWidget(self.message)

    def _on_order_chosen(self, key: str) -> None:
        self.model.set_order(key)
        self._store.setValue("history/order", key)

    def _on_chosen(self) -> None:
        self._settle.start()

    def _on_run_changed(self, view: RunView) -> None:
        shown = (view.run_id, view.state)
        if shown != self._run_shown:
            self._run_shown = shown
            if self.isVisible():
                self.refresh()

    def _on_store_problem(self, problem: StoreProblem) -> None:
        if self.isVisible() and problem.lasts:
            self.refresh()

    def _on_find(self) -> None:
        self.list.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.list.search.selectAll()

    # ---- opening ---------------------------------------------------------------------------------------------

    def _open_chosen(self) -> None:
        """Show the chosen runs, as soon as both are read."""
        self._settle.stop()
        self._serial += 1
        chosen = self.list.chosen
        runs = [run for run_id in chosen if (run := self.model.run(run_id)) is not None]
        going_on = [run for run in runs if run.ended_at is None]
        self.list.allow_delete(
            bool(runs) and not going_on,
            "A run that goes on cannot be deleted; stop it first" if going_on else "Choose a run first",
        )
        if not chosen:
            if self.model.runs:
                self._show_message("No run is chosen", "Choose a run in the list.")
            return
        missing = next((run_id for run_id in chosen if run_id not in self._opened), None)
        if missing is None:
            second = self._opened[chosen[1]] if len(chosen) > 1 else None
            self._show_pair(Pair.of(self._opened[chosen[0]], second))
            return
        if self._pair is None:
            self._show_message("Opening the run", "")
        self._bridge.call(
            self,
            open_run(self._bridge.desk.history.open(missing)),
            done=partial(self._on_opened, self._serial),
            failed=partial(self._on_open_failed, self._serial, missing),
        )

    def _on_opened(self, serial: int, opened: Opened) -> None:
        if serial == self._serial:
            kept = {run_id: each for run_id, each in self._opened.items() if run_id in self.list.chosen}
            self._opened = {**kept, opened.id: opened}
            self._open_chosen()

    def _on_open_failed(self, serial: int, run_id: str, error: UserError) -> None:
        if serial != self._serial:
            return
        self.list.choose([each for each in self.list.chosen if each != run_id and each in self._opened])
        self.notice.show_notice(str(error), tone="bad")
        self._open_chosen()

    def _show_pair(self, pair: Pair) -> None:
        before, self._pair = self._pair, pair
        self._opened = {each.id: each for each in pair.opened}  # a long run takes much memory
        is_same = before is not None and before.first.id == pair.first.id
        self.model.set_letters(
            {each.id: letter for each, letter in zip(pair.opened, "AB", strict=False)} if pair.second else {}
        )
        self.summary.show_runs([each.figures() for each in pair.opened])
        run = pair.first
        curve = run.curves.curve(_STRIP_SERIES, run.end - run.begin, run.end)
        self.strip.show_run(pair.begin, pair.end, curve, pair.marks)
        known = frozenset[str]().union(*(each.curves.known for each in pair.opened))
        self.grid.leave_out(without_readings(self.grid.cards.values(), known, run.recorded.gpus))
        self.grid.idle.show_message("The engine was never read", past_run_words.unread(run.recorded.run))
        self.grid.set_idle(_ENGINE_SERIES not in known)
        self.stack.setCurrentIndex(1)
        self.grid.point_at(None)
        if not is_same:
            self._span_s = WHOLE
        self._show_stretch(self._until if is_same and self._span_s else pair.end)

    def _positions(self) -> Sequence[str]:
        opened = self._pair.opened if self._pair is not None else ()
        return tuple(dict.fromkeys(name for each in opened for name in each.curves.positions))

    # ---- the stretch that is shown ---------------------------------------------------------------------------

    def _show_stretch(self, until: float) -> None:
        """Show a stretch that ends there, as far as the run reaches."""
        pair = self._pair
        if pair is None:
            return
        length_s = pair.end - pair.begin
        span_s = min(float(self._span_s or length_s), length_s)
        self._until = min(max(until, pair.begin + span_s), pair.end)
        self.strip.show_stretch(span_s, self._until)
        self.strip.setVisible(True)
        self.bar.show_span(self._span_s, length_s=length_s, words=self._stretch_words(pair, span_s))
        self.bar.export.file_stem = self._file_stem(pair)
        self.grid.redraw(pair.moment(span_s, self._until))

    def _stretch_words(self, pair: Pair, span_s: float) -> str:
        begin = self._until - span_s
        if pair.second is None:
            return figures.stretch(begin, self._until)
        where = f"A and B aligned at {pair.event}"
        return f"{figures.span(round(span_s))}, {where}" if self._span_s else where

    def _file_stem(self, pair: Pair) -> str:
        names = " and ".join(past_run_words.title(each.recorded.run) for each in pair.opened)
        return f"{names}, {figures.date_stamp(self._until)}"

    def _on_span_chosen(self, span_s: int) -> None:
        if self._pair is None:
            return
        middle = self._until - self.strip.span_s / 2
        self._span_s = span_s
        self.grid.point_at(None)
        self._show_stretch(middle + span_s / 2)

    def _on_moved(self, until: float) -> None:
        self.grid.point_at(None)
        self._show_stretch(until)

    # ---- cards -----------------------------------------------------------------------------------------------

    def _on_cards_changed(self) -> None:
        listed = [key for key in self.grid.order if key not in self.grid.left_out]
        self.bar.show_cards(listed, self.grid.shown)
        self._store.setValue("history/cards", ",".join(self.grid.order))
        self._store.setValue("history/cards_hidden", ",".join(sorted(set(self.grid.order) - self.grid.shown)))

    def _on_view_chosen(self, index: int) -> None:
        card = self.sender()
        assert isinstance(card, ChartCard)
        self._store.setValue(f"history/view/{card.key}", index)

    def _restore(self) -> None:
        order = str(self._store.value("history/cards", "")).split(",")
        hidden = str(self._store.value("history/cards_hidden", "")).split(",")
        self.grid.choose(order, [key for key in self.grid.cards if key not in hidden])
        for card in self.grid.cards.values():
            if isinstance(card, ChartCard):
                stored = str(self._store.value(f"history/view/{card.key}", ""))
                if stored.isdecimal():
                    card.choose_view(int(stored))
                card.view_chosen.connect(self._on_view_chosen)
        kept = str(self._store.value("history/order", ""))
        if kept in ORDERS:
            self.list.order.setCurrentIndex(self.list.order.findData(kept))

    # ---- export and delete -----------------------------------------------------------------------------------

    def _on_export(self, kind: str, path: Path) -> None:
        pair = self._pair
        if pair is None:
            return
        if kind == "png":
            names = [
                f"{past_run_words.title(each.recorded.run)}, {past_run_words.when(each.recorded.run)}"
                for each in pair.opened
            ]
            title = f"{' and '.join(names)}  \N{MIDDLE DOT}  {self.bar.words}"
            self._exporter.picture(path, self.grid, title, [self.summary])
            return
        begin = self._until - self.strip.span_s
        data: Literal["csv", "json"] = "csv" if kind == "csv" else "json"
        work = self._bridge.desk.history.export(pair.first.id, path, data, begin, self._until)
        self._exporter.readings(path, work)

    def _on_delete(self) -> None:
        runs = [run for run_id in self.list.chosen if (run := self.model.run(run_id)) is not None]
        if not runs:
            return
        names = "\n".join(f"{past_run_words.title(run)}, {past_run_words.when(run)}" for run in runs)
        what = "this run" if len(runs) == 1 else "these runs"
        dialog = ChoiceDialog(
            self,
            title=f"Delete {what}?",
            text=f"{names}\n\nAll readings of {what} are deleted for good. Logs and profiles stay.",
            answers=[Answer("delete", "Delete", "danger"), Answer("keep", "Keep")],
        )
        dialog.chosen.connect(partial(self._on_delete_answer, tuple(run.run_id for run in runs)))
        self.question.open(dialog)

    def _on_delete_answer(self, run_ids: tuple[str, ...], key: str) -> None:
        if key == "delete":
            self._bridge.call(
                self,
                self._bridge.desk.history.delete(run_ids),
                done=partial(self._on_deleted, run_ids),
                failed=self._on_refused,
            )

    def _on_deleted(self, run_ids: tuple[str, ...], _nothing: None) -> None:
        """Show the run that stood after them in the list."""
        shown = [run.run_id for run in self.model.shown]
        last = max((shown.index(run_id) for run_id in run_ids if run_id in shown), default=-1)
        left = [*shown[last + 1 :], *reversed(shown[: last + 1])]
        self.list.choose([run_id for run_id in left if run_id not in run_ids][:1])
        self.refresh()

    def _on_refused(self, error: UserError) -> None:
        self.notice.show_notice(str(error), tone="bad")
        self.refresh()

    # ---- Qt --------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Look for new runs whenever the page comes up."""
        super().showEvent(event)
        if not event.spontaneous():
            self.refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        """Open nothing that nobody sees."""
        super().hideEvent(event)
        self._settle.stop()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the charts the room that they need."""
        super().resizeEvent(event)
        self.list.setFixedWidth(_WIDTHS[self.width() >= _NARROW_PX])
