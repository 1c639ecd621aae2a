"""What stays the same about GPUs: what they are, how they are connected, and their peak bandwidth."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QLabel, QScrollArea, QVBoxLayout, QWidget

from backend.hardware import GpuInfo, GpuSnapshot
from gui.widgets import figures, gpu_words
from gui.widgets.cell_rows import Cell, Column, Row
from gui.widgets.cell_table import CellTable
from gui.widgets.gpu_peaks import GpuPeaks
from gui.widgets.setting_rows import SettingCard

_FACTS = (
    (Column("GPU"), 70),
    (Column("Name"), 190),
    (Column("UUID"), 110),
    (Column("PCI bus"), 130),
    (Column("Compute", "Compute capability"), 70),
    (Column("Memory"), 90),
    (Column("Memory bus"), 80),
    (Column("PCIe link", "As it is now, of the best there is; a link is slow while nothing runs"), 150),
    (Column("NVLinks"), 66),
)
_BUS_COLUMN, _UUID_COLUMN, _NAME_COLUMN = 6, 2, 1
_LINK_PX = 62
_TONES = {"NVLink": "ok", "SYS": "warn"}
_SELF = Cell("\N{MIDDLE DOT}", "The same GPU", "muted")


class GpuHardware(QScrollArea):
    """Facts of every GPU, the matrix of connections, and the peaks, each in a card.

    Attributes:
        peaks: the fields for the peak bandwidth.
        matrix: how each pair is connected; None while there is only one GPU.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.facts = CellTable("What the GPUs are", _FACTS, dispensable=(_BUS_COLUMN, _UUID_COLUMN, _NAME_COLUMN))
        self.facts.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.peaks = GpuPeaks()
        self.matrix: CellTable | None = None
        self._links: tuple[object, ...] = ()
        self.links_words = QLabel()
        self.links_words.setWordWrap(True)
        self.meanings = QLabel()
        self.meanings.setProperty("role", "note")
        self.meanings.setWordWrap(True)
        facts, peaks, self._links_card = SettingCard("Hardware"), SettingCard("Bandwidth"), SettingCard("Connections")
        facts.body.addWidget(self.facts)
        peaks.body.addWidget(self.peaks)
        self._links_card.body.addWidget(self.links_words)
        self._links_card.body.addWidget(self.meanings)
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(0, 0, 8, 0)
        column.setSpacing(12)
        for card in (facts, self._links_card, peaks):
            column.addWidget(card)
        column.addStretch(1)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidget(page)

    def show_snapshot(self, snapshot: GpuSnapshot) -> None:
        """Show what is known; what did not change stays as it is."""
        rows = [_facts(gpu, snapshot) for gpu in snapshot.gpus]
        if len(rows) != len(self.facts.rows.rows):
            self.facts.setFixedHeight(self.facts.height_for(len(rows)))
        self.facts.show_rows(rows)
        self.peaks.show_gpus(snapshot.gpus)
        whole = tuple(gpu for gpu in snapshot.gpus if not gpu.parent_uuid)
        if (whole, snapshot.links) != self._links:
            self._links = (whole, snapshot.links)
            self._show_links(whole, snapshot)

    def _show_links(self, gpus: Sequence[GpuInfo], snapshot: GpuSnapshot) -> None:
        if self.matrix is not None:
            self.matrix.hide()
            self.matrix.deleteLater()
            self.matrix = None
        self._links_card.setVisible(len(gpus) > 1)
        if len(gpus) < 2:
            return
        kinds = {(link.first, link.second): gpu_words.between(link) for link in snapshot.links}
        kinds |= {(second, first): kind for (first, second), kind in kinds.items()}
        names = [gpu_words.label(gpu, snapshot.gpus) for gpu in gpus]
        columns = [(Column(""), _LINK_PX), *((Column(name), _LINK_PX) for name in names)]
        self.matrix = CellTable("How the GPUs are connected", columns)
        self.matrix.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.matrix.setFixedHeight(self.matrix.height_for(len(gpus)))
        self.matrix.setMaximumWidth((len(gpus) + 1) * _LINK_PX * 2)
        self.matrix.show_rows(
            [
                Row(gpu.uuid, (Cell(name), *(_link(gpu, other, kinds) for other in gpus)))
                for gpu, name in zip(gpus, names, strict=True)
            ]
        )
        self._links_card.body.insertWidget(1, self.matrix)
        self.links_words.setText(gpu_words.links_words(snapshot.links))
        seen = set(kinds.values())
        self.meanings.setText(
            "   ".join(f"{kind}: {words}." for kind, words in gpu_words.PATHS.items() if kind in seen)
        )


def _link(gpu: GpuInfo, other: GpuInfo, kinds: dict[tuple[str, str], str]) -> Cell:
    if gpu.uuid == other.uuid:
        return _SELF
    kind = kinds.get((gpu.uuid, other.uuid), "")
    if not kind:
        return Cell(figures.UNKNOWN, "Nobody tells how these two are connected.", "muted")
    words = gpu_words.PATHS.get(kind, "")
    return Cell(kind, f"{words[:1].upper()}{words[1:]}." if words else "", _TONES.get(kind, ""))


def _facts(gpu: GpuInfo, snapshot: GpuSnapshot) -> Row:
    reading = gpu_words.reading_of(snapshot, gpu.uuid)
    capability = f"{gpu.compute_capability[0]}.{gpu.compute_capability[1]}" if gpu.compute_capability else ""
    now = ""
    if reading is not None and reading.pcie_generation is not None and reading.pcie_width is not None:
        now = f"gen {reading.pcie_generation:.0f} x{reading.pcie_width:.0f}"
    best = ""
    if gpu.max_pcie_generation is not None and gpu.max_pcie_width is not None:
        best = f"gen {gpu.max_pcie_generation} x{gpu.max_pcie_width}"
    link = f"{now} of {best}" if now and best else now or best
    texts = (
        gpu_words.label(gpu, snapshot.gpus),
        gpu.name,
        gpu_words.short_uuid(gpu.uuid),
        gpu.pci_bus_id,
        capability,
        figures.gib(gpu_words.total_bytes(gpu, reading)),
        "" if gpu.memory_bus_bits is None else f"{gpu.memory_bus_bits:,} bit",
        link,
        "" if gpu.nvlinks is None else str(gpu.nvlinks),
    )
    tips = {1: gpu.name, 2: gpu.uuid}
    return Row(
        gpu.uuid,
        tuple(
            Cell(
                text or figures.UNKNOWN,
                tips.get(number, "" if text else "The driver does not tell this."),
                "" if text else "muted",
            )
            for number, text in enumerate(texts)
        ),
    )
