"""A run's state as a coloured pill with a mark and a word; the colour is never the only sign."""

from PySide6.QtWidgets import QLabel, QWidget

from backend.events import RunState

_LOOK = {
    RunState.STOPPED: ("muted", "\N{WHITE CIRCLE}", "Stopped"),
    RunState.PREFLIGHT: ("accent", "\N{CIRCLE WITH LEFT HALF BLACK}", "Preparing"),
    RunState.STARTING: ("accent", "\N{CIRCLE WITH LEFT HALF BLACK}", "Starting"),
    RunState.READY: ("ok", "\N{BLACK CIRCLE}", "Ready"),
    RunState.UNRESPONSIVE: ("warn", "\N{WARNING SIGN}\N{VARIATION SELECTOR-15}", "Not responding"),
    RunState.STOPPING: ("warn", "\N{CIRCLE WITH LEFT HALF BLACK}", "Stopping"),
    RunState.FAILED: ("bad", "\N{MULTIPLICATION SIGN}", "Failed"),
}


class StatePill(QLabel):
    """Shows one RunState."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("State of the engine")
        self.setFixedHeight(26)
        self.state = RunState.STOPPED
        self.show_state(RunState.STOPPED)

    def show_state(self, state: RunState) -> None:
        """Show another state."""
        tone, mark, word = _LOOK[state]
        self.state = state
        self.setText(f"{mark}  {word}")
        self.setToolTip(f"The engine: {word.lower()}")
        if self.property("pill") != tone:
            self.setProperty("pill", tone)
            self.style().unpolish(self)
            self.style().polish(self)
