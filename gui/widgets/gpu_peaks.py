"""The peak memory bandwidth of each GPU: what is known of it and from where, and a field to enter it."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QLineEdit, QWidget

from backend.hardware import GpuInfo, PeakSource
from gui.widgets import gpu_words
from gui.widgets.setting_rows import SettingRow

KEY = "gpu_peak_bytes_per_s"
_LOW, _HIGH = 1.0, 100_000.0
_FIELD_PX = 96
_NOTE = (
    "What the bandwidth is measured against. Enter it where it is wrong or not known; empty again uses what is known."
)


class GpuPeaks(SettingRow):
    """A field in GB/s for each GPU; told as a whole, GPUs that are not here now included."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(KEY, "Peak memory bandwidth", _NOTE, parent)
        self.fields: dict[str, QLineEdit] = {}
        self.known: dict[str, QLabel] = {}
        self._gpus: tuple[GpuInfo, ...] = ()
        self._entered: dict[str, float] = {}
        self._told: dict[str, float] | None = {}  # what is set; None when that failed
        self._lines: QWidget | None = None
        self._nothing = QLabel("No GPU is seen")
        self._nothing.setProperty("role", "muted")
        self.controls.addWidget(self._nothing)

    def show_gpus(self, gpus: Sequence[GpuInfo]) -> None:
        """Offer a field for each of these GPUs; slices have no bandwidth of their own."""
        whole = tuple(gpu for gpu in gpus if not gpu.parent_uuid)
        if whole == self._gpus:
            return
        is_same = [gpu.uuid for gpu in whole] == [gpu.uuid for gpu in self._gpus]
        self._gpus = whole
        if is_same:  # someone may be typing
            self._fill()
        else:
            self._make_lines()

    def show_value(self, value: object) -> None:
        """Show what was entered, by UUID in bytes per second."""
        assert isinstance(value, Mapping)
        self._told = self._entered = {str(uuid): float(peak) for uuid, peak in value.items()}
        self._fill()
        self.show_problem("")

    def show_problem(self, words: str) -> None:
        """Say what is wrong, and let it be tried again; no field is marked any more when nothing is."""
        super().show_problem(words)
        if words:
            self._told = None
            return
        for field in self.fields.values():
            self._mark(field, bad=False)

    def _make_lines(self) -> None:
        if self._lines is not None:
            self._lines.hide()
            self._lines.deleteLater()
        self.fields, self.known = {}, {}
        self._lines = QWidget(self)
        grid = QGridLayout(self._lines)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        for row, gpu in enumerate(self._gpus):
            name = gpu_words.label(gpu, self._gpus)
            title = QLabel(name)
            title.setToolTip(f"{gpu.name}\n{gpu.uuid}")
            field = QLineEdit()
            field.setFixedWidth(_FIELD_PX)
            field.setAlignment(Qt.AlignmentFlag.AlignRight)
            field.setAccessibleName(f"Peak memory bandwidth of {name}, GB/s")
            field.setToolTip(f"Peak memory bandwidth of {name} in GB/s; empty uses what is known")
            field.editingFinished.connect(partial(self._on_finished, gpu.uuid))
            title.setBuddy(field)
            known = QLabel()
            known.setProperty("role", "muted")
            for column, widget in enumerate((title, field, known)):
                grid.addWidget(widget, row, column)
            self.fields[gpu.uuid], self.known[gpu.uuid] = field, known
        self._nothing.setVisible(not self._gpus)
        self.controls.addWidget(self._lines)
        self.name.setBuddy(next(iter(self.fields.values()), self._nothing))
        self._fill()

    def _fill(self) -> None:
        for gpu in self._gpus:
            field = self.fields[gpu.uuid]
            self.known[gpu.uuid].setText(f"GB/s  \N{MIDDLE DOT}  used now: {gpu_words.peak_words(gpu)}")
            entered = self._entered.get(gpu.uuid)
            if not field.hasFocus():
                field.setText("" if entered is None else f"{entered / gpu_words.GIGA:.6g}")
            is_known = gpu.peak_bytes_per_s is not None and gpu.peak_source is not PeakSource.USER
            field.setPlaceholderText(gpu_words.gigabytes(gpu.peak_bytes_per_s) if is_known else "")

    def _on_finished(self, uuid: str) -> None:
        field = self.fields[uuid]
        text = re.sub(r",(?=\d{3}(?!\d))", "", field.text().strip()).replace(",", ".")  # "3,352" as it is shown; "1,5"
        entered = dict(self._entered)
        if text:
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if not _LOW <= number <= _HIGH:
                self.show_problem(f"Give a number of GB/s from {_LOW:,.0f} to {_HIGH:,.0f}, or leave it empty.")
                self._mark(field, bad=True)
                return
            entered[uuid] = number * gpu_words.GIGA
        else:
            entered.pop(uuid, None)
        self.show_problem("")
        if entered != self._told:
            self._told = self._entered = entered
            self.changed.emit(self.key, entered)

    @staticmethod
    def _mark(field: QLineEdit, *, bad: bool) -> None:
        field.setProperty("state", "bad" if bad else "")
        field.style().unpolish(field)
        field.style().polish(field)
