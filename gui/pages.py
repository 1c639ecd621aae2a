"""Makes the pages of the window when they are first shown: to load the charts alone takes longer than all else."""

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QWidget

from gui.bridge import Bridge


def make(key: str, bridge: Bridge, store: QSettings) -> QWidget:
    """Return a new page by its key; choices are kept in `store`."""
    match key:
        case "run":
            from gui.panes.chat import ChatPane
            from gui.panes.run import RunPane

            return RunPane(bridge, store, ChatPane(bridge))
        case "profiles":
            from gui.panes.profiles import ProfilesPane

            return ProfilesPane(bridge)
        case "gpus":
            from gui.panes.gpus import GpusPane

            return GpusPane(bridge, store)
        case "history":
            from gui.panes.history import HistoryPane

            return HistoryPane(bridge, store)
        case "logs":
            from gui.panes.logs import LogsPane

            return LogsPane(bridge)
        case "settings":
            from gui.panes.settings import SettingsPane

            return SettingsPane(bridge)
    raise KeyError(key)
