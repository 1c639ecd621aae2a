"""The Profiles page on a bridge that answers at once from a real room of profiles, and how a person works with it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLineEdit
from pytestqt.qtbot import QtBot

from backend import paths
from backend.desk.types import RunView
from gui.panes.profiles import ProfilesPane
from gui.qt_models.profile_list import ENTRY
from gui.widgets.field_editor import FieldEditor
from gui.widgets.name_dialog import NameDialog
from tests.backend.desk.profile_rooms import Rooms
from tests.gui.panes.direct_bridge import DirectBridge

LEFT = Qt.MouseButton.LeftButton


class RoomBridge(DirectBridge):
    """Answers from real rooms; while `held`, answers wait until `release`."""

    def __init__(self, rooms: Rooms) -> None:
        super().__init__()
        self.desk = SimpleNamespace(profiles=rooms.profiles)
        self.held: list[Callable[[], None]] | None = None
        self._rooms = rooms

    def show_run(self, run: RunView) -> None:
        """Tell another state of the engine, to the room too."""
        self.run = self._rooms.runs.shown = run
        self.run_changed.emit(run)

    def answer(self, give: Callable[[], None]) -> None:
        """Give an answer, or keep it."""
        if self.held is None:
            give()
        else:
            self.held.append(give)

    def release(self, *, newest_first: bool) -> None:
        """Give the answers that were held, and hold no more."""
        held, self.held = self.held or [], None
        for give in reversed(held) if newest_first else held:
            give()


class Page:
    """The page, and how a person works with it."""

    def __init__(self, qtbot: QtBot, *, width: int = 1364, height: int = 802) -> None:
        self.qtbot = qtbot
        self.rooms = Rooms()
        self.bridge = RoomBridge(self.rooms)
        self.pane = ProfilesPane(self.bridge.as_bridge)
        qtbot.addWidget(self.pane)
        self.pane.resize(width, height)
        self.pane.show()
        self.pane.activateWindow()
        self.built()

    def built(self) -> None:
        self.qtbot.waitUntil(lambda: not self.pane.form.is_building, timeout=20_000)

    def choose(self, name: str) -> None:
        self.pane.select(name)
        self.built()
        assert self.pane.current == name

    def row(self, path: str) -> FieldEditor:
        row = self.pane.form.row(path)
        assert row is not None, path
        return row

    def type(self, path: str, text: str) -> None:
        """Put `text` in place of what stands in a field, key by key, and wait for the check of it."""
        editor = self.row(path).editor
        editor.setFocus()
        assert isinstance(editor, QLineEdit | QComboBox)
        target = editor if isinstance(editor, QLineEdit) else editor.lineEdit()
        assert target is not None
        target.selectAll()
        QTest.keyClick(target, Qt.Key.Key_Delete)
        QTest.keyClicks(target, text)
        self.checked()

    def checked(self) -> None:
        typing = self.pane._typing
        self.qtbot.waitUntil(lambda: not typing.isActive(), timeout=20_000)

    def click(self, button: QAbstractButton) -> None:
        assert button.isEnabled(), button.text()
        QTest.mouseClick(button, LEFT)

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        """Press a key while the list has the focus."""
        view = self.pane.sidebar.view
        self.pane.activateWindow()  # a dialog may have been the active one
        view.setFocus()
        self.qtbot.waitUntil(view.hasFocus, timeout=20_000)
        QTest.keyClick(self.pane.sidebar.view, key, modifier)

    @property
    def dialog(self) -> NameDialog:
        dialog = self.pane._changes.dialog
        assert dialog is not None
        return dialog

    def name(self, name: str) -> None:
        """Answer the dialog."""
        self.dialog.line.setText(name)
        self.click(self.dialog.yes)

    @property
    def unsaved(self) -> list[str]:
        return list(self.pane.has_unsaved)

    @property
    def names(self) -> list[str]:
        """The profiles in the list, as far as a search leaves them."""
        model = self.pane.model
        entries = [model.index(row).data(ENTRY) for row in range(model.rowCount())]
        return [entry.name for entry in entries if entry is not None]

    def data(self, name: str, role: int) -> object:
        model = self.pane.model
        row = next(row for row in range(model.rowCount()) if (e := model.index(row).data(ENTRY)) and e.name == name)
        return model.index(row).data(role)


def own_file(name: str) -> Path:
    """Where a profile of the person's own lies."""
    return paths.folders().profiles / f"{name}.toml"
