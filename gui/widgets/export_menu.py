"""The button that exports what the charts show: readings as CSV or JSON, or a picture of the cards."""

from pathlib import Path

from PySide6.QtCore import QSettings, QSize, QStandardPaths, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFileDialog, QMenu, QPushButton, QWidget

from gui.theme import icon, theme

_ICON_PX = 14
_FOLDER = "export/folder"
_KINDS = {
    "csv": ("Readings as CSV…", "Comma-separated values (*.csv)", "A table with one row for each reading"),
    "json": ("Readings as JSON…", "JSON (*.json)", "The readings with what is known of the run"),
    "png": ("Picture as PNG…", "Picture (*.png)", "The cards as they are shown, twice as sharp"),
}
_UNSAFE = '/\\:*?"<>|'


class ExportButton(QPushButton):
    """Opens a menu, then asks for a file; the folder of the last one is remembered.

    Attributes:
        dialog: what asks for a file, None while nothing does.
        file_stem: suggested name without its ending.

    Signals:
        asked: the menu is about to open.
        chosen(str, Path): export as "csv", "json" or "png" into that file.
    """

    asked = Signal()
    chosen = Signal(str, object)

    def __init__(self, store: QSettings, parent: QWidget | None = None) -> None:
        """Remember the folder in `store`."""
        super().__init__(parent)
        self._store = store
        self.file_stem = "specdeck"
        self.dialog: QFileDialog | None = None
        self.setProperty("kind", "chip")
        self.setIconSize(QSize(_ICON_PX, _ICON_PX))
        self.setAccessibleName("Export what is shown")
        self.setToolTip("Export what is shown: readings as CSV or JSON, or a picture")
        self.menu_of_kinds = QMenu(self)
        self.menu_of_kinds.setToolTipsVisible(True)
        self.actions_by_kind: dict[str, QAction] = {}
        for kind, (label, _, tip) in _KINDS.items():
            action = self.menu_of_kinds.addAction(label)
            action.setToolTip(tip)
            action.setData(kind)
            self.actions_by_kind[kind] = action
        self.menu_of_kinds.triggered.connect(self._on_action)
        self.clicked.connect(self._on_clicked)
        theme.changed.connect(self._paint)
        self._paint()

    def allow_readings(self, allowed: bool, why: str = "") -> None:
        """Say whether there are readings to export, and if not, why."""
        for kind in ("csv", "json"):
            self.actions_by_kind[kind].setEnabled(allowed)
            self.actions_by_kind[kind].setToolTip(_KINDS[kind][2] if allowed else why)

    def ask(self, kind: str) -> None:
        """Ask for a file of that kind, without waiting for the answer."""
        _, pattern, _ = _KINDS[kind]
        name = "".join("-" if sign in _UNSAFE else sign for sign in self.file_stem)
        dialog = QFileDialog(self.window(), "Export", str(self._folder()), pattern)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(kind)
        dialog.selectFile(f"{name}.{kind}")
        dialog.setProperty("export", kind)
        dialog.fileSelected.connect(self._on_file)
        dialog.finished.connect(self._on_finished)
        self.dialog = dialog
        dialog.open()

    def _folder(self) -> Path:
        kept = Path(str(self._store.value(_FOLDER) or ""))
        documents = Path(QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation))
        return next((each for each in (kept, documents) if each.is_absolute() and each.is_dir()), Path.home())

    def _on_clicked(self) -> None:
        self.asked.emit()
        self.menu_of_kinds.popup(self.mapToGlobal(self.rect().bottomLeft()))

    def _on_action(self, action: QAction) -> None:
        self.ask(str(action.data()))

    def _on_file(self, file: str) -> None:
        kind = str(self.sender().property("export"))
        path = Path(file)
        self._store.setValue(_FOLDER, str(path.parent))
        self.chosen.emit(kind, path)

    def _on_finished(self) -> None:
        if self.dialog is not None:
            self.dialog.deleteLater()
            self.dialog = None

    def _paint(self) -> None:
        self.setIcon(icon("export", size_px=_ICON_PX))
