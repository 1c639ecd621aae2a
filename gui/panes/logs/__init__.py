"""The Logs page."""

from gui.panes.logs.pane import LogsPane

__all__ = ["LogsPane"]
