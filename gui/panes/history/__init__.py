"""The History page: runs of the past in the same charts, alone or one over the other."""

from gui.panes.history.pane import HistoryPane

__all__ = ["HistoryPane"]
