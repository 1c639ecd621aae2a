"""Adding an engine that the person made: a path, typed or chosen, and what became of it."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget


class AddEnginePanel(QFrame):
    """Hidden until `begin`.

    Signals:
        path_given(str): use this folder.
        closed: the panel was closed.
    """

    path_given = Signal(str)
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("inset", True)
        self.setAccessibleName("Add an engine")
        self.dialog: QFileDialog | None = None
        title = QLabel("Add an engine that you have")
        title.setProperty("role", "title")
        note = QLabel(
            "The folder of a Python environment with vLLM in it, or its interpreter. Nothing in it is changed."
        )
        note.setProperty("role", "muted")
        note.setWordWrap(True)
        self.path = QLineEdit()
        self.path.setPlaceholderText("/home/me/venvs/vllm")
        self.path.setAccessibleName("Folder of the engine")
        self.path.setToolTip("Folder of an environment, or its bin/python")
        self.browse = QPushButton("Choose…")
        self.browse.setAccessibleName("Choose the folder")
        self.browse.setToolTip("Look for the folder")
        self.problem = QLabel()
        self.problem.setProperty("role", "bad")
        self.problem.setWordWrap(True)
        self.problem.setAccessibleName("Why it was not added")
        self.problem.hide()
        self.cancel = QPushButton("Cancel")
        self.cancel.setAccessibleName("Close without adding")
        self.cancel.setToolTip("Close without adding")
        self.add = QPushButton("Add")
        self.add.setProperty("kind", "primary")
        self.add.setAccessibleName("Add this engine")
        self.add.setToolTip("Remember it, and ask its vLLM what it accepts (about 20 s)")
        self.add.setEnabled(False)
        line = QHBoxLayout()
        line.setSpacing(8)
        line.addWidget(self.path, 1)
        line.addWidget(self.browse)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.problem, 1)
        row.addStretch()
        row.addWidget(self.cancel)
        row.addWidget(self.add)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 12, 12, 12)
        layout.setSpacing(10)
        layout.addWidget(title)
        layout.addWidget(note)
        layout.addLayout(line)
        layout.addLayout(row)
        self.path.textChanged.connect(self._on_text)
        self.path.returnPressed.connect(self._on_add)
        self.browse.clicked.connect(self._on_browse)
        self.cancel.clicked.connect(self._on_cancel)
        self.add.clicked.connect(self._on_add)
        self.hide()

    def begin(self) -> None:
        """Show the panel, ready for a path."""
        self.show()
        self.path.setFocus()

    def show_busy(self, busy: bool) -> None:
        """Say that the engine is being asked, or no longer."""
        self.path.setEnabled(not busy)
        self.browse.setEnabled(not busy)
        self.cancel.setEnabled(not busy)
        self.add.setEnabled(not busy and bool(self.path.text().strip()))
        self.add.setText("Asking its vLLM …" if busy else "Add")
        self.show_problem("")

    def show_problem(self, words: str) -> None:
        """Say why it was not added, "" for nothing."""
        self.problem.setText(words)
        self.problem.setVisible(bool(words))

    def finish(self) -> None:
        """Hide the panel: it was added."""
        self.path.clear()
        self.hide()

    def _on_text(self, text: str) -> None:
        self.add.setEnabled(bool(text.strip()))
        self.show_problem("")

    def _on_add(self) -> None:
        if self.add.isEnabled():
            self.path_given.emit(self.path.text().strip())

    def _on_cancel(self) -> None:
        self.finish()
        self.closed.emit()

    def _on_browse(self) -> None:
        self.dialog = QFileDialog(self, "Choose the folder of an engine")
        self.dialog.setFileMode(QFileDialog.FileMode.Directory)
        self.dialog.setOption(QFileDialog.Option.ShowDirsOnly, True)
        self.dialog.fileSelected.connect(self.path.setText)
        self.dialog.finished.connect(self.dialog.deleteLater)
        self.dialog.open()
