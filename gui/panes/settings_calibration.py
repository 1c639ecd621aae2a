"""The calibration card of the Settings page, connected to the backend."""

from PySide6.QtWidgets import QWidget

from backend.calibration import Calibration
from backend.desk.types import JobProgress, RunView
from backend.errors import UserError
from gui.bridge import Bridge
from gui.widgets.calibration_panel import CalibrationPanel


class CalibrationCard(CalibrationPanel):
    """Shows what was measured last, and measures."""

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._cancelling = False
        self.set_engine_live(bridge.run.is_live)
        bridge.job_progressed.connect(self._on_progress)
        bridge.run_changed.connect(self._on_run_changed)
        self.wanted.connect(self._on_wanted)
        self.cancel_wanted.connect(self._on_cancel_wanted)

    def refresh(self) -> None:
        """Look again: it may have been measured in a terminal, and the result has aged."""
        if not self.is_measuring:
            self._bridge.call(self, self._bridge.desk.calibration.last(), done=self.show_result)

    def _on_wanted(self) -> None:
        self._cancelling = False
        self._bridge.call(self, self._bridge.desk.calibration.run(), done=self._on_done, failed=self._on_failed)

    def _on_cancel_wanted(self) -> None:
        self._cancelling = True  # what awaits the result hears of its end
        self._bridge.call(self, self._bridge.desk.calibration.cancel())

    def _on_done(self, found: Calibration) -> None:
        self.show_result(found)
        self.finish()

    def _on_failed(self, error: UserError) -> None:
        self.finish("" if self._cancelling else str(error))

    def _on_progress(self, progress: JobProgress) -> None:
        if progress.job == "calibration":
            self.show_progress(progress)

    def _on_run_changed(self, run: RunView) -> None:
        self.set_engine_live(run.is_live)
