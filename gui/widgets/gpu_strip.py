"""A small bar for the memory of each GPU, as many as there is room for."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from backend.hardware import GpuSnapshot
from gui.theme import NOTE_PX, mix, text_font, theme
from gui.widgets import gpu_words

_BAR_HEIGHT = 8
_BAR_WIDTHS = (56, 24)
_NARROWEST_BAR = 16
_GAP, _LABEL_GAP = 14, 6


@dataclass(frozen=True, slots=True)
class StripBar:
    """One bar: the part of the memory in use, 0..1, None where it is unknown; `lost` GPUs are crossed out."""

    label: str
    used_ratio: float | None
    lost: bool
    tip: str


class GpuStrip(QWidget):
    """Bars side by side; their labels are shortened where all would not fit, and the rest is counted."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.bars: tuple[StripBar, ...] = ()
        self._trouble = ""
        self._font = text_font(NOTE_PX)
        self._text = QFontMetrics(self._font)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Memory of the GPUs")
        theme.changed.connect(self.update)
        self.hide()

    def show_snapshot(self, snapshot: GpuSnapshot | None, now: float) -> None:
        """Show the memory in use on each GPU; old figures are pale."""
        bars = () if snapshot is None else tuple(_bars(snapshot))
        trouble = "" if snapshot is None else gpu_words.trouble_words(snapshot, now)
        if (bars, trouble) == (self.bars, self._trouble):
            return
        self.bars, self._trouble = bars, trouble
        lines = [*(bar.tip for bar in bars), *([trouble] if trouble else [])]
        self.setToolTip("\n".join(lines))
        self.setAccessibleDescription(". ".join(lines))
        self.setVisible(bool(bars))
        self.update()

    def layout_for(self, width: int) -> tuple[int, int, bool]:
        """Return how many bars fit into a width, how wide each is, and whether their labels are whole."""
        for whole in (True, False):
            labels = [self._text.horizontalAdvance(self._label(bar, whole=whole)) for bar in self.bars]
            room = width - sum(labels) - len(labels) * (_LABEL_GAP + _GAP)
            wide = room // max(len(labels), 1)
            if wide >= (_BAR_WIDTHS[1] if whole else _NARROWEST_BAR):
                return len(labels), min(wide, _BAR_WIDTHS[0]), whole
        each = self._text.horizontalAdvance("00") + _LABEL_GAP + _NARROWEST_BAR + _GAP
        return max((width - self._text.horizontalAdvance("+00")) // each, 0), _NARROWEST_BAR, False

    @staticmethod
    def _label(bar: StripBar, *, whole: bool) -> str:
        return bar.label if whole else bar.label.rpartition(" ")[2]

    def sizeHint(self) -> QSize:
        """Return room for all bars with their labels."""
        labels = sum(self._text.horizontalAdvance(bar.label) for bar in self.bars)
        return QSize(labels + len(self.bars) * (_LABEL_GAP + _GAP + _BAR_WIDTHS[0]), self._text.height() + 4)

    def minimumSizeHint(self) -> QSize:
        """It takes what there is."""
        return QSize(0, self._text.height() + 4)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint labels and bars."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self._font)
        n_fitting, wide, whole = self.layout_for(self.width())
        x = 0
        for bar in self.bars[:n_fitting]:
            label = self._label(bar, whole=whole)
            painter.setPen(QColor(theme.tokens.muted))
            painter.drawText(QRect(x, 0, self.width(), self.height()), Qt.AlignmentFlag.AlignVCenter, label)
            x += self._text.horizontalAdvance(label) + _LABEL_GAP
            self._paint_bar(painter, QRect(x, (self.height() - _BAR_HEIGHT) // 2, wide, _BAR_HEIGHT), bar)
            x += wide + _GAP
        if left := len(self.bars) - n_fitting:
            painter.setPen(QColor(theme.tokens.muted))
            painter.drawText(QRect(x, 0, self.width(), self.height()), Qt.AlignmentFlag.AlignVCenter, f"+{left}")

    def _paint_bar(self, painter: QPainter, area: QRect, bar: StripBar) -> None:
        tokens = theme.tokens
        is_known = bar.used_ratio is not None
        painter.setPen(Qt.PenStyle.NoPen if is_known else QPen(QColor(tokens.muted), 1, Qt.PenStyle.DotLine))
        painter.setBrush(QColor(tokens.line) if is_known else Qt.BrushStyle.NoBrush)  # unknown is not empty
        painter.drawRoundedRect(area, 3, 3)
        if bar.lost:
            painter.setPen(QPen(QColor(tokens.bad), 1))
            painter.drawLine(area.bottomLeft(), area.topRight())
            return
        if bar.used_ratio is None:
            return
        colour = mix(tokens.accent, tokens.surface, 0.6) if self._trouble else tokens.accent
        painter.setBrush(QColor(colour))
        full = area.adjusted(0, 0, round((min(bar.used_ratio, 1.0) - 1) * area.width()), 0)
        painter.drawRoundedRect(full, 3, 3)


def _bars(snapshot: GpuSnapshot) -> Sequence[StripBar]:
    made = []
    for gpu in snapshot.gpus:
        if gpu.parent_uuid:
            continue
        reading = gpu_words.reading_of(snapshot, gpu.uuid)
        label = gpu_words.label(gpu, snapshot.gpus)
        lost = reading is not None and reading.lost
        total = gpu_words.total_bytes(gpu, reading)
        used = reading.memory_used_bytes if reading is not None else None
        words = (
            gpu_words.why_words("memory_used_bytes", reading)
            if used is None
            else f"{gpu_words.used_words(gpu, reading)} in use"
        )
        ratio = used / total if used is not None and total else None
        made.append(StripBar(label, ratio, lost, f"{label}, {gpu.name}: {words}"))
    return made


def summary(snapshot: GpuSnapshot, now: float) -> tuple[str, str, str]:
    """Return power, temperature and throttling of all GPUs in a few words, more words on it, and the tone."""
    if words := gpu_words.trouble_words(snapshot, now):
        return "GPU figures are old" if snapshot.stale else "GPUs are not read", words, "warn"
    whole = [gpu for gpu in snapshot.gpus if not gpu.parent_uuid]
    readings = [(gpu, read) for gpu in whole if (read := gpu_words.reading_of(snapshot, gpu.uuid)) is not None]
    power = [read.power_w for _, read in readings if read.power_w is not None]
    heat = [read.temperature_c for _, read in readings if read.temperature_c is not None]
    lost = [gpu for gpu, read in readings if read.lost]
    held = [(gpu, read) for gpu, read in readings if read.throttle]
    parts = [f"{sum(power):,.0f} W"] if power else []
    parts += [f"{max(heat):.0f} \N{DEGREE SIGN}C"] if heat else []
    details = [f"{gpu_words.label(gpu, whole)}: {gpu_words.why_words('', read)}" for gpu, read in readings if read.lost]
    details += [f"{gpu_words.label(gpu, whole)} is throttled: {gpu_words.throttle_words(read)}" for gpu, read in held]
    tone = ""
    if lost:
        parts.append(f"{gpu_words.label(lost[0], whole)} lost" if len(lost) == 1 else f"{len(lost)} GPUs lost")
        tone = "bad"
    elif held:
        one = gpu_words.label(held[0][0], whole) if len(whole) > 1 else ""
        parts.append(f"{one} throttled".strip() if len(held) == 1 else f"{len(held)} GPUs throttled")
        tone = "warn"
    elif any(read.throttle is not None for _, read in readings):
        parts.append("no throttling")
    several = ", temperature"
    if len(whole) > 1:
        told = "all GPUs together" if len(power) == len(whole) else f"{len(power)} of {len(whole)} GPUs"
        several = f" of {told}, temperature of the hottest"
    details.append(f"Power{several}, and whether something holds the clocks down")
    return "  \N{MIDDLE DOT}  ".join(parts), ". ".join(details), tone
