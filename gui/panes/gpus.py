"""The GPUs page: every GPU at a glance, and below charts, processes and hardware of those that are chosen."""

from PySide6.QtCore import QSettings, Qt
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from backend.desk.types import Reading, RunView, SettingsView
from backend.errors import UserError
from backend.hardware import GpuInfo, GpuSnapshot
from gui.bridge import Bridge
from gui.theme import NOTE_PX, text_font
from gui.widgets import gpu_words
from gui.widgets.card import Moment
from gui.widgets.card_grid import CardGrid
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.gpu_cards import gpu_cards
from gui.widgets.gpu_hardware import GpuHardware
from gui.widgets.gpu_process_table import GpuProcessTable
from gui.widgets.gpu_run_cards import BandwidthCard
from gui.widgets.gpu_table import MOST_ROWS, GpuTable
from gui.widgets.live_charts import LiveCharts, NewestReading
from gui.widgets.message_card import MessageCard
from gui.widgets.run_cards import cache_card, host_card
from gui.widgets.span_bar import SpanBar

_SPACING = 12
_CHARTS, _PROCESSES, _HARDWARE = range(3)
_SECTIONS = (
    ("Charts", "Charts of the GPUs that are chosen"),
    ("Processes", "Who holds memory of them"),
    ("Hardware", "What they are, how they are connected, and their peak bandwidth"),
)
# What the GPUs' performance counters are read for.
_MEASURED_CARDS = ("gpu_bandwidth", "gpu_activity")
_NVLINK_CARD = "gpu_nvlink"
_ABSENT_TITLE = "No NVIDIA GPU is seen"


class GpusPane(QWidget):
    """Shows what the GPUs do now; where there is none, why, and what the machine and the engine do.

    What a person chooses here is kept in the given settings under "gpus/".
    """

    def __init__(self, bridge: Bridge, store: QSettings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._newest = NewestReading(bridge)
        self.table = GpuTable()
        cards = gpu_cards(self._picked)
        self._gpu_keys = frozenset(card.key for card in cards)
        others = (BandwidthCard(self._may_measure), cache_card(), host_card())
        self._other_keys = frozenset(card.key for card in others)
        self.grid = CardGrid((*cards, *others), self)
        self.bar = SpanBar(
            [(card.key, card.title) for card in self.grid.cards.values()], self, figures_tip="The GPUs that are shown"
        )
        self.processes = GpuProcessTable(self)
        self.hardware = GpuHardware(self)
        self.absent = MessageCard("gpus", "", "", self)
        self._lay_out()
        self._charts = LiveCharts("gpus", store, self.bar, self.grid, now=self._moment)
        self._charts.shown_changed.connect(self._tell_activity)
        self.table.chosen.connect(self._on_chosen)
        self.hardware.peaks.changed.connect(self._on_peaks_changed)
        bridge.sampled.connect(self._on_sampled)
        bridge.run_changed.connect(self._on_run_changed)
        self._show_snapshot()

    def _lay_out(self) -> None:
        self._head = QFrame(self)
        self._head.setProperty("card", True)
        self._head.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.title = QLabel("GPUs")
        self.title.setProperty("role", "title")
        self.note = ElidedLabel("", font=text_font(NOTE_PX), mode=Qt.TextElideMode.ElideRight)
        self.note.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        top = QHBoxLayout()
        top.setContentsMargins(8, 0, 8, 0)
        top.addWidget(self.title)
        top.addStretch(1)
        top.addWidget(self.note)
        inner = QVBoxLayout(self._head)
        inner.setContentsMargins(6, 6, 6, 4)
        inner.setSpacing(2)
        inner.addLayout(top)
        inner.addWidget(self.table)
        self.sections = QButtonGroup(self)
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        self._chips = QWidget(self)
        chips = QHBoxLayout(self._chips)
        chips.setContentsMargins(0, 0, 12, 0)
        chips.setSpacing(6)
        for number, (name, tip) in enumerate(_SECTIONS):
            chip = QPushButton(name)
            chip.setProperty("kind", "chip")
            chip.setCheckable(True)
            chip.setChecked(number == _CHARTS)
            chip.setAccessibleName(name)
            chip.setToolTip(tip)
            self.sections.addButton(chip, number)
            chips.addWidget(chip)
        self.sections.idClicked.connect(self._on_section)
        row.addWidget(self._chips, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self.bar, 1000)
        row.addStretch(1)
        self.stack = QStackedWidget(self)
        holder = QFrame()
        holder.setProperty("card", True)
        QVBoxLayout(holder).addWidget(self.processes)
        for section in (self.grid, holder, self.hardware):
            self.stack.addWidget(section)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(_SPACING)
        column.addWidget(self._head)
        column.addWidget(self.absent)
        column.addLayout(row)
        column.addWidget(self.stack, 1)

    # ---- what is shown ---------------------------------------------------------------------------------------

    @property
    def _snapshot(self) -> GpuSnapshot | None:
        return self._newest.gpus

    @property
    def _is_seen(self) -> bool:
        return self.isVisible() and not self.window().isMinimized()

    @property
    def _now(self) -> float:
        """Unix time of the newest reading, 0 before the first."""
        return self._newest.host.t if self._newest.host is not None else 0.0

    def _picked(self, moment: Moment) -> tuple[GpuInfo, ...]:
        return self.table.picked(moment.gpus)  # while paused, not of what is here by now

    def _moment(self) -> Moment | None:
        return self._newest.moment(self._charts.span_s)

    def _may_measure(self) -> bool:
        return self._bridge.desk.settings.gpu_profiling

    def _on_sampled(self, reading: Reading) -> None:
        self._newest.take(reading)
        if self._is_seen:
            self._show_snapshot()
            if self.stack.currentIndex() == _CHARTS:
                self._charts.draw()
        self._tell_activity()

    def _on_run_changed(self, _view: RunView) -> None:
        if self._is_seen and self.stack.currentIndex() == _CHARTS:
            self._charts.draw()

    def _show_snapshot(self) -> None:
        """Show the newest snapshot, or why there is none."""
        snapshot = self._snapshot
        words = gpu_words.absent_words(snapshot)
        has_gpus = snapshot is not None and not words
        for widget in (self._head, self._chips):
            widget.setVisible(has_gpus)
        self.absent.setVisible(not has_gpus)
        if words != self.absent.words.text():
            self.absent.show_message(_ABSENT_TITLE if snapshot is not None else "GPUs", words)
        if not has_gpus or snapshot is None:
            self.grid.leave_out(self._gpu_keys)
            self._show_section(_CHARTS)
            return
        has_nvlink = any(gpu.nvlinks for gpu in snapshot.gpus)
        self.grid.leave_out(self._other_keys | (frozenset() if has_nvlink else {_NVLINK_CARD}))
        self.table.show_snapshot(snapshot, self._now)
        height = self.table.height_for(min(len(self.table.rows.rows), MOST_ROWS))
        if height != self.table.height():
            self.table.setFixedHeight(height)
        self._show_note(snapshot)
        self._show_picked(snapshot)

    def _show_note(self, snapshot: GpuSnapshot) -> None:
        """Say which driver tells this and what reading it costs, or what is wrong with it."""
        count = len([gpu for gpu in snapshot.gpus if not gpu.parent_uuid])
        title = "1 GPU" if count == 1 else f"{count} GPUs"
        if title != self.title.text():
            self.title.setText(title)
        parts = (snapshot.note, gpu_words.driver_words(snapshot), gpu_words.sampler_words(snapshot))
        note = gpu_words.trouble_words(snapshot, self._now) or "  \N{MIDDLE DOT}  ".join(filter(None, parts))
        if note != self.note.text:
            self.note.show_text(note)

    def _show_picked(self, snapshot: GpuSnapshot) -> None:
        """Show processes or hardware, and say of which GPUs the page tells."""
        picked = self.table.picked(snapshot)
        if self.stack.currentIndex() == _PROCESSES:
            self.processes.show_snapshot(snapshot, picked, self._now)
        elif self.stack.currentIndex() == _HARDWARE:
            self.hardware.show_snapshot(snapshot)
        label = gpu_words.label(picked[0], snapshot.gpus)
        is_all = len(picked) == len(snapshot.gpus)
        self.bar.show_figures("" if is_all else f"{label} only; choose All above for all of them")

    def _tell_activity(self) -> None:
        """Have the GPUs measured while what is measured is shown."""
        keys = {card.key for card in self.grid.visible_cards}
        shown = self._is_seen and self.stack.currentIndex() == _CHARTS and not keys.isdisjoint(_MEASURED_CARDS)
        self._bridge.want_activity("gpus", shown)

    # ---- what a person chooses -------------------------------------------------------------------------------

    def _on_chosen(self, _key: str) -> None:
        if self._snapshot is not None and self._is_seen:
            self._show_picked(self._snapshot)
            self._charts.draw_again()  # also what is held

    def _on_section(self, number: int) -> None:
        self._show_section(number)
        self._look_up_peaks()
        if self._snapshot is not None and self._snapshot.gpus:
            self._show_picked(self._snapshot)
        self._charts.draw_again()

    def _show_section(self, number: int) -> None:
        if number == self.stack.currentIndex():
            return
        self.sections.button(number).setChecked(True)
        self.stack.setCurrentIndex(number)
        self.bar.setVisible(number == _CHARTS)
        self._tell_activity()

    def _look_up_peaks(self) -> None:
        """Show what was entered, perhaps on the Settings page or in a terminal."""
        if self.stack.currentIndex() == _HARDWARE:
            self._bridge.call(self, self._bridge.desk.settings_view(), done=self._show_settings)

    def _show_settings(self, view: SettingsView) -> None:
        peaks = self.hardware.peaks
        peaks.show_value(view.values[peaks.key])

    def _on_peaks_changed(self, key: str, value: object) -> None:
        peaks = self.hardware.peaks

        def done(_view: SettingsView) -> None:
            peaks.show_saved()

        def failed(error: UserError) -> None:
            peaks.show_problem(str(error))

        self._bridge.call(self, self._bridge.desk.change_settings(**{key: value}), done=done, failed=failed)

    # ---- sight -----------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._show_snapshot()
        self._look_up_peaks()
        self._charts.draw_again()
        self._tell_activity()

    def hideEvent(self, event: QHideEvent) -> None:
        """Have nothing measured that nobody sees."""
        super().hideEvent(event)
        self._bridge.want_activity("gpus", False)
