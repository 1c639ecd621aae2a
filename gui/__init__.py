"""The window: panes, widgets and the bridge to the backend."""
