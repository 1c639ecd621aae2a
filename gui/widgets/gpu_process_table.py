"""Who holds memory of the GPUs, process by process, and which of them are the engine's."""

from collections.abc import Sequence

from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from backend.hardware import GpuInfo, GpuProcess, GpuSnapshot
from gui.widgets import figures, gpu_words
from gui.widgets.cell_rows import Cell, Column, Row
from gui.widgets.cell_table import CellTable

_COLUMNS = (
    (Column("PID", "As the driver names it; inside a container that is the number on the host"), 80),
    (Column("Process"), 260),
    (Column("GPU"), 80),
    (Column("Memory", "Memory of that GPU which the process holds"), 120),
    (Column("Owner", "Whether it belongs to the engine that runs here"), 160),
)
_HIDDEN = "not seen from here"
_HIDDEN_TIP = "A process of the host or of another container: only its number is known here."
_SIZE_TIP = "The driver does not tell sizes here. Under WSL it never does."


class GpuProcessTable(QWidget):
    """The processes of some GPUs, the engine's first; words where there are none to show."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.table = CellTable("Processes on the GPUs", _COLUMNS)
        self.words = QLabel(self)
        self.words.setProperty("role", "muted")
        self.words.setWordWrap(True)
        self.words.setContentsMargins(8, 8, 8, 0)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.words)
        layout.addWidget(self.table, 1)

    def show_snapshot(self, snapshot: GpuSnapshot, gpus: Sequence[GpuInfo], now: float) -> None:
        """Show who holds memory of these GPUs; `now` is the Unix time that old figures are measured by.

        The order stays as long as the same processes are there: sizes that change all the time would make it jump.
        """
        held = [
            (gpu, process)
            for gpu in gpus
            if (read := gpu_words.reading_of(snapshot, gpu.uuid)) is not None
            for process in read.processes or ()
        ]
        held.sort(key=lambda each: (not each[1].is_engine, -(each[1].used_bytes or 0), each[1].pid, each[0].index))
        rows = {row.key: row for row in (_row(gpu, process, snapshot) for gpu, process in held)}
        before = [row.key for row in self.table.rows.rows]
        self.table.show_rows([rows[key] for key in (before if rows.keys() == set(before) else rows)])
        self.table.setVisible(bool(held))
        words = gpu_words.trouble_words(snapshot, now) or self._words(snapshot, gpus, bool(held))
        if words != self.words.text():
            self.words.setText(words)
        self.words.setVisible(bool(words))

    @staticmethod
    def _words(snapshot: GpuSnapshot, gpus: Sequence[GpuInfo], has_processes: bool) -> str:
        """Say what is not known, or that there is nothing."""
        silent = [
            gpu for gpu in gpus if (read := gpu_words.reading_of(snapshot, gpu.uuid)) is None or read.processes is None
        ]
        if silent:
            names = ", ".join(gpu_words.label(gpu, snapshot.gpus) for gpu in silent)
            why = gpu_words.why_words("processes", gpu_words.reading_of(snapshot, silent[0].uuid))
            return f"{names}: {why}" if len(silent) < len(gpus) else why
        if snapshot.note:
            return snapshot.note
        return "" if has_processes else "No process holds memory of these GPUs."


def _row(gpu: GpuInfo, process: GpuProcess, snapshot: GpuSnapshot) -> Row:
    size = figures.gib(process.used_bytes)
    if process.is_engine:
        owner = Cell("this engine", "It belongs to the engine that runs here", "ok")
    elif process.name:
        owner = Cell("another program", "It does not belong to the engine that runs here", "muted")
    else:
        owner = Cell(figures.UNKNOWN, _HIDDEN_TIP, "muted")
    return Row(
        f"{gpu.uuid}/{process.pid}/{process.is_engine}",
        (
            Cell(str(process.pid)),
            Cell(process.name, process.name) if process.name else Cell(_HIDDEN, _HIDDEN_TIP, "muted"),
            Cell(gpu_words.label(gpu, snapshot.gpus), gpu.name),
            Cell(
                size,
                "" if process.used_bytes is not None else _SIZE_TIP,
                "" if process.used_bytes is not None else "muted",
            ),
            owner,
        ),
    )
