"""The Profiles page."""

from gui.panes.profiles.pane import ProfilesPane

__all__ = ["ProfilesPane"]
