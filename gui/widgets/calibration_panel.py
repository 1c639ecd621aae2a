"""The calibration on the Settings page: what this machine was measured to reach, how old that is, and a new one."""

import time
from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from backend.calibration import AllReduce, Calibration, DeviceRates, Rate
from backend.desk.types import JobProgress
from gui.widgets import figures
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.gpu_words import short_uuid
from gui.widgets.setting_rows import SettingCard
from gui.widgets.words_label import words_label

_MEASURE_TIP = "Measure memory, matrix products and what is between the GPUs: half a minute, longer with many GPUs"
_RUNNING_TIP = "Stop the engine first: it would disturb the measurement."
_DTYPES = {"bfloat16": "BF16", "float16": "FP16", "float32": "FP32"}
_SHOWN_SIZES = 6


class CalibrationPanel(SettingCard):
    """A card with the last result; while a measurement runs also its progress.

    Signals:
        wanted: measure now.
        cancel_wanted: give the measurement up.
    """

    wanted = Signal()
    cancel_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(
            "Calibration",
            "What memory and matrix products really reach on this machine, measured with the engine's own PyTorch.",
            parent,
        )
        self._measuring = False
        self._engine_live = False
        self._found: Calibration | None = None
        self.measure = QPushButton("Measure")
        self.measure.setAccessibleName("Measure this machine")
        self.cancel = QPushButton("Cancel")
        self.cancel.setAccessibleName("Cancel the measurement")
        self.cancel.setToolTip("Give the measurement up; the earlier result stays")
        self.cancel.hide()
        self.head.addWidget(self.cancel)
        self.head.addWidget(self.measure)
        self._problem = words_label("bad", "Problem with the measurement")
        self._step = words_label("muted", "Step of the measurement")
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName("Progress of the measurement")
        self._bar.setToolTip("Progress of the whole measurement")
        self._empty = words_label("muted", "No result yet")
        self._empty.setText("Not measured yet. Stop the engine, press Measure, and leave the machine alone meanwhile.")
        self._results = QVBoxLayout()
        self._results.setSpacing(8)
        self._remark = words_label("warn", "What could not be measured")
        self._age = words_label("note", "When and with what it was measured")
        for widget in (self._problem, self._step, self._bar, self._empty):
            self.body.addWidget(widget)
        self.body.addLayout(self._results)
        self.body.addWidget(self._remark)
        self.body.addWidget(self._age)
        for hidden in (self._problem, self._step, self._bar, self._empty, self._remark, self._age):
            hidden.hide()
        self.measure.clicked.connect(self._on_measure)
        self.cancel.clicked.connect(self._on_cancel)
        self._show_buttons()

    @property
    def text(self) -> str:
        """Everything that is said below the buttons."""
        labels = [label for label in self.findChildren(QLabel) if not label.isHidden() and label.text()]
        return "\n".join(label.text() for label in labels)

    @property
    def is_measuring(self) -> bool:
        """Whether a measurement is under way here."""
        return self._measuring

    def set_engine_live(self, live: bool) -> None:
        """Let nobody measure while an engine runs."""
        self._engine_live = live
        self._show_buttons()

    def show_result(self, found: Calibration | None, *, now: float | None = None) -> None:
        """Show what was measured last, None if nothing was; `now` is the Unix time that its age is counted to."""
        if found != self._found:
            self._show_devices(found)
        self._found = found
        self._empty.setVisible(found is None and not self._measuring)
        self._age.setVisible(found is not None)
        remarks = "\n".join(found.remarks) if found is not None else ""
        self._remark.setText(remarks)
        self._remark.setVisible(bool(remarks))
        if found is not None:
            self._age.setText(_origin(found, time.time() if now is None else now))

    def show_progress(self, progress: JobProgress) -> None:
        """Show one step of the measurement that runs."""
        if not self._measuring or not self.cancel.isEnabled():
            return
        self._step.setText(progress.text)
        self._bar.setRange(0, 0 if progress.fraction is None else 1000)
        if progress.fraction is not None:
            self._bar.setValue(round(progress.fraction * 1000))

    def finish(self, problem: str = "") -> None:
        """The measurement has ended; `problem` says why there is no new result, "" when there is or nobody wants it."""
        had_focus = self.cancel.hasFocus()
        self._measuring = False
        self._problem.setText(problem)
        self._problem.setVisible(bool(problem))
        self._empty.setVisible(self._found is None)
        self._show_buttons()
        if had_focus:
            self.measure.setFocus()

    def _show_devices(self, found: Calibration | None) -> None:
        while (item := self._results.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        if found is None:
            return
        self._results.addWidget(_device_table(found.devices))
        if found.all_reduce is not None:
            self._results.addWidget(_all_reduce_table(found.all_reduce))

    def _show_buttons(self) -> None:
        for shown in (self._step, self._bar, self.cancel):
            shown.setVisible(self._measuring)
        self.measure.setVisible(not self._measuring)
        self.measure.setEnabled(not self._engine_live)
        self.measure.setToolTip(_RUNNING_TIP if self._engine_live else _MEASURE_TIP)

    def _on_measure(self) -> None:
        had_focus = self.measure.hasFocus()
        self._measuring = True
        self._problem.hide()
        self._empty.hide()
        self._step.setText("Beginning …")
        self._bar.setRange(0, 0)
        self.cancel.setEnabled(True)
        self._show_buttons()
        if had_focus:
            self.cancel.setFocus()
        self.wanted.emit()

    def _on_cancel(self) -> None:
        self._step.setText("Cancelling …")
        self._bar.setRange(0, 0)
        self.cancel.setEnabled(False)
        self.cancel_wanted.emit()


class _Table(QFrame):
    """Figures in columns, with a name before each row."""

    def __init__(self, name: str, headings: Sequence[str]) -> None:
        super().__init__()
        self.setProperty("inset", True)
        self.setAccessibleName(name)
        self._headings = headings
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(12, 10, 12, 10)
        self._grid.setHorizontalSpacing(16)
        self._grid.setVerticalSpacing(6)
        for column, words in enumerate((name, *headings)):
            head = QLabel(words)
            head.setProperty("role", "note")
            side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
            self._grid.addWidget(head, 0, column, side)
            self._grid.setColumnStretch(column, 1 if column else 3)

    def add(self, name: str, tip: str, cells: Sequence[tuple[str, str]]) -> None:
        """Add a row: its name with what more there is to say of it, and for each column a figure and its meaning."""
        row = self._grid.rowCount()
        title = ElidedLabel(name, font=self.font(), mode=Qt.TextElideMode.ElideRight)
        title.setToolTip(tip)
        self._grid.addWidget(title, row, 0)
        for column, (heading, (value, meaning)) in enumerate(zip(self._headings, cells, strict=True), 1):
            figure = QLabel(value)
            figure.setProperty("role", "code")
            figure.setAccessibleName(f"{name}, {heading}: {value}")
            figure.setToolTip(meaning)
            figure.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            self._grid.addWidget(figure, row, column, Qt.AlignmentFlag.AlignRight)


def _device_table(devices: Sequence[DeviceRates]) -> _Table:
    dtypes = list(dict.fromkeys(dtype for device in devices for dtype in device.flops_per_s))
    headings = ["Attainable", "Copy", "Read", *(_DTYPES.get(dtype, dtype) for dtype in dtypes)]
    table = _Table("Device", headings)
    names = [device.name for device in devices]
    for device in devices:
        attainable = f"{figures.rate(device.attainable_bytes_per_s / 1e9)} GB/s"
        cells = [
            (attainable, "Memory bandwidth that can be reached: the higher of copying and reading"),
            _bandwidth(device.copy_bytes_per_s, "Read and written bytes of a copy inside its memory"),
            _bandwidth(device.read_bytes_per_s, "A large matrix times a vector, which decoding is made of"),
            *(_products(device.flops_per_s.get(dtype), dtype) for dtype in dtypes),
        ]
        name = device.name.removeprefix("NVIDIA ")
        if names.count(device.name) > 1:  # which of them
            name = f"{short_uuid(device.id)} {name}"
        table.add(name, f"{device.name}\n{'All its cores together' if device.id == 'cpu' else device.id}", cells)
    return table


def _all_reduce_table(found: AllReduce) -> _Table:
    """How long GPUs take to add up what each has: a few of the sizes, from the smallest to the largest."""
    last = len(found.points) - 1
    shown = sorted({round(part * last / (_SHOWN_SIZES - 1)) for part in range(_SHOWN_SIZES)})
    points = [found.points[index] for index in shown if index >= 0]
    table = _Table("All-reduce", [_size(point.size_bytes) for point in points])
    meaning = "Median time of one all-reduce of this size"
    cells = [(f"{figures.rate(point.time_s * 1e6)} µs", meaning) for point in points]
    table.add(f"Between {len(found.gpus)} GPUs", "\n".join(found.gpus), cells)
    return table


def _bandwidth(rate: Rate, meaning: str) -> tuple[str, str]:
    words = f"{figures.rate(rate.best / 1e9)} GB/s"
    return words, f"{meaning}: best of the repeats, median {figures.rate(rate.median / 1e9)} GB/s"


def _products(rate: Rate | None, dtype: str) -> tuple[str, str]:
    if rate is None:
        return figures.UNKNOWN, f"This PyTorch has no matrix product in {dtype} here"
    unit, word = (1e12, "TFLOP/s") if rate.best >= 1e12 else (1e9, "GFLOP/s")
    median = f"{figures.rate(rate.median / unit)} {word}"
    return (
        f"{figures.rate(rate.best / unit)} {word}",
        f"Matrix products in {dtype}: best of the repeats, median {median}",
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes // 1024**2:,} MiB" if size_bytes >= 1024**2 else f"{size_bytes // 1024:,} KiB"


def _origin(found: Calibration, now: float) -> str:
    parts = [f"Measured {_age(now - found.at)} with PyTorch {found.torch} of {found.engine}"]
    if found.driver:
        parts.append(f"driver {found.driver}")
    if found.quick:
        parts.append("with fewer sizes and repeats")
    return ", ".join(parts) + f" ({figures.date(found.at, now)})."


def _age(seconds: float) -> str:
    """Return "just now", "12 min ago", "5 h ago" or "3 days ago"."""
    for unit_s, word in ((86_400, "day"), (3600, "h"), (60, "min")):
        count = int(seconds // unit_s)
        if count >= 1:
            return f"{count:,} {word}{'s' if word == 'day' and count > 1 else ''} ago"
    return "just now"
