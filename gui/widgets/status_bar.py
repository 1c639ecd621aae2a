"""The bar at the bottom: the figures that count, from the newest reading."""

from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QWidget

from backend.desk.types import Reading
from gui.theme import code_font
from gui.widgets import figures, pooled_acceptance
from gui.widgets.gpu_strip import GpuStrip, summary
from gui.widgets.pooled_acceptance import Drafts

HEIGHT_PX = 34
_ACCEPTANCE_TIP = "Accepted over drafted tokens of the last 10 s"
_HOST_TIP = "Processor and memory of this machine, from psutil"
_LENGTH_TIP = "Mean tokens per step of one request over the last 10 s: 1 + accepted / drafts"


class StatusBar(QFrame):
    """Tokens/s and KV cache of the last interval, drafts of the last 10 s, a bar for each GPU, the machine."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("bar", "true")
        self.setFixedHeight(HEIGHT_PX)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(16, 0, 16, 0)
        self._row.setSpacing(8)
        self.tokens = self._figure(
            "tokens/s", "Generated tokens per second over the last reading, from the engine's counters"
        )
        self.acceptance = self._figure("acceptance", _ACCEPTANCE_TIP)
        self.length = self._figure("length", _LENGTH_TIP)
        self.cache = self._figure("KV cache", "Share of the KV cache in use")
        self.queue = self._figure("running", "Requests that run, and those that wait")
        self.gpus = GpuStrip()
        self._row.addWidget(self.gpus, 1000)
        self._row.addStretch(1)
        self.host = QLabel()
        self.host.setProperty("role", "note")
        self.host.setAccessibleName("This machine")
        self._row.addWidget(self.host)

    def _figure(self, name: str, tip: str) -> QLabel:
        title = QLabel(name)
        title.setProperty("role", "note")
        value = QLabel(figures.UNKNOWN)
        value.setFont(code_font(12))
        value.setAccessibleName(name)
        for label in (title, value):
            label.setToolTip(tip)
        self._row.addWidget(title)
        self._row.addWidget(value)
        self._row.addSpacing(12)
        return value

    def show_reading(self, reading: Reading, recent: Drafts) -> None:
        """Show the newest reading, and the drafts of the last RECENT_S; unknown is a dash."""
        engine, host = reading.engine, reading.host
        if engine is None:
            for label in (self.tokens, self.cache, self.queue):
                label.setText(figures.UNKNOWN)
        else:
            self.tokens.setText(figures.rate(engine.generation_tokens_per_s))
            self.cache.setText(figures.percent(engine.kv_cache_usage_ratio, 1))
            waiting = engine.requests_waiting
            waits = f" + {figures.number(waiting)} waiting" if waiting else ""
            self.queue.setText(figures.number(engine.requests_running) + waits)
        answers = engine is not None and engine.interval_s is not None
        self._show_drafts(recent if answers else Drafts(recent.over_s))
        self.gpus.show_snapshot(reading.gpus, host.t)
        self._show_machine(reading)

    def _show_machine(self, reading: Reading) -> None:
        """Show the GPUs in a few words, or processor and memory where there are none."""
        host = reading.host
        used, total = (figures.gib(size) for size in (host.memory_used_bytes, host.memory_total_bytes))
        words = f"CPU {figures.percent(host.cpu_ratio)}  \N{MIDDLE DOT}  memory {used.removesuffix(' GiB')} of {total}"
        tip, tone = _HOST_TIP, ""
        if reading.gpus is not None and reading.gpus.gpus:
            of_host = f"This machine: {words}"
            words, tip, tone = summary(reading.gpus, host.t)
            words, tip = words or figures.UNKNOWN, f"{tip}\n{of_host}"
        self.host.setText(words)
        self.host.setToolTip(tip)
        role = f"{tone}-note" if tone else "note"
        if role != self.host.property("role"):
            self.host.setProperty("role", role)
            self.host.style().unpolish(self.host)
            self.host.style().polish(self.host)

    def _show_drafts(self, known: Drafts) -> None:
        self.acceptance.setText(figures.percent(known.acceptance, 1))
        self.length.setText(figures.number(known.length, 2))
        behind = f": {pooled_acceptance.words(known)}" if known.count else ""
        self.acceptance.setToolTip(f"{_ACCEPTANCE_TIP}{behind}")
