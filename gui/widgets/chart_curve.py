"""The line of a chart: pyqtgraph's curve without the search for its bounds, which costs more than drawing it."""

import pyqtgraph as pg
from PySide6.QtCore import QRectF

from backend.curves import Floats

# Half of a line may stand outside of the plot at its very edge.
_MARGIN = 0.02


class ChartCurve(pg.PlotCurveItem):  # type: ignore[misc]  # pyqtgraph has no types
    """Claims the whole plot as its place, so that new values need nothing but a new picture.

    A chart sets its range itself, and nobody asks a curve for its bounds.
    """

    def __init__(self) -> None:
        super().__init__(connect="finite")
        self._area: QRectF | None = None

    def show_values(self, x: Floats, y: Floats) -> None:
        """Show other values: x ascending, NaN in y for a gap."""
        self.xData, self.yData = x, y
        self.path = self.fillPath = self._fillPathList = self._mouseShape = None
        self._lineSegmentsRendered = False
        self.update()

    def boundingRect(self) -> QRectF:
        """The range of the plot, and a little beside it."""
        if self._area is None:
            box = self.getViewBox()
            seen = QRectF() if box is None else box.viewRect()
            beside, over = seen.width() * _MARGIN, seen.height() * _MARGIN
            self._area = seen.adjusted(-beside, -over, beside, over)
        return self._area

    def viewTransformChanged(self) -> None:
        """Take the place of the new range."""
        self.prepareGeometryChange()
        self._area = None
