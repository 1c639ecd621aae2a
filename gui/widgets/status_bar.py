"""The bar at the bottom: the figures that count, from the newest reading."""

from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QWidget

from backend.desk.types import Reading
from gui.theme import code_font
from gui.widgets import figures, pooled_acceptance
from gui.widgets.pooled_acceptance import Drafts

HEIGHT_PX = 34
_ACCEPTANCE_TIP = "Accepted over drafted tokens of the last 10 s"
_LENGTH_TIP = "Mean tokens per step of one request over the last 10 s: 1 + accepted / drafts"


class StatusBar(QFrame):
    """Tokens/s and KV cache of the last interval, acceptance and length of the last 10 s, the machine at the right."""

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
        self._row.addStretch()
        self.host = QLabel()
        self.host.setProperty("role", "note")
        self.host.setAccessibleName("This machine")
        self.host.setToolTip("Processor and memory of this machine, from psutil")
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
        used, total = (figures.gib(size) for size in (host.memory_used_bytes, host.memory_total_bytes))
        self.host.setText(
            f"CPU {figures.percent(host.cpu_ratio)}  \N{MIDDLE DOT}  memory {used.removesuffix(' GiB')} of {total}"
        )

    def _show_drafts(self, known: Drafts) -> None:
        self.acceptance.setText(figures.percent(known.acceptance, 1))
        self.length.setText(figures.number(known.length, 2))
        behind = f": {pooled_acceptance.words(known)}" if known.count else ""
        self.acceptance.setToolTip(f"{_ACCEPTANCE_TIP}{behind}")
