"""The engines on the Settings page: what each is, whether it works, and what can be done with it."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from backend.desk.types import EngineEntry
from gui.theme import symbol, theme
from gui.widgets.elided_label import ElidedLabel

# Words, symbol and tone of each state.
_STATES = {
    "ok": ("Installed", "check", "ok"),
    "unchecked": ("Not checked yet", "info", "muted"),
    "half-installed": ("Half installed", "warning", "warn"),
    "broken": ("Does not work", "error", "bad"),
    "foreign": ("No vLLM in it", "error", "bad"),
}
_IN_USE = "An engine runs from it. Stop that engine first."
_PLATFORMS = {"cpu": "CPU", "cuda": "CUDA"}


class EngineRow(QFrame):
    """One engine.

    Signals:
        probe_wanted(object), remove_wanted(object), add_wanted(object): a button was pressed; carries the entry.
    """

    probe_wanted = Signal(object)
    remove_wanted = Signal(object)
    add_wanted = Signal(object)

    def __init__(self, entry: EngineEntry, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entry = entry
        self.setProperty("inset", True)
        self.setAccessibleName(f"Engine {entry.id}")
        name = QLabel(entry.id)
        name.setProperty("role", "title")
        name.setTextFormat(Qt.TextFormat.PlainText)
        name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        kind = QLabel(" · ".join(_facts(entry)))
        kind.setProperty("role", "muted")
        kind.setTextFormat(Qt.TextFormat.PlainText)
        words, self._symbol, self._tone = _STATES.get(entry.state, (entry.state, "info", "warn"))
        self.state = QLabel(words)
        self.state.setProperty("role", self._tone)
        self._mark = QLabel()
        self.buttons: dict[str, QPushButton] = {}
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self._mark)
        head.addWidget(name)
        head.addWidget(self.state)
        head.addStretch()
        for key, label, tip in self._actions():
            button = QPushButton(label)
            button.setAccessibleName(f"{label} {entry.id}")
            button.setToolTip(tip)
            button.setProperty("action", key)
            button.clicked.connect(self._on_clicked)
            button.setEnabled(not (key == "remove" and entry.in_use))
            self.buttons[key] = button
            head.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 8, 8, 10)
        layout.setSpacing(2)
        layout.addLayout(head)
        layout.addWidget(kind)
        layout.addWidget(ElidedLabel(str(entry.folder)))
        self.problem = QLabel(_problem(entry))
        self.problem.setProperty("role", self._tone)
        self.problem.setWordWrap(True)
        self.problem.setTextFormat(Qt.TextFormat.PlainText)
        self.problem.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        if self.problem.text():
            layout.addSpacing(4)
            layout.addWidget(self.problem)
        theme.changed.connect(self._paint)
        self._paint()

    def _actions(self) -> list[tuple[str, str, str]]:
        if not self.entry.known:
            return [("add", "Use", "Remember this engine, and ask its vLLM what it accepts (about 20 s)")]
        tip = "Delete it from the disk" if self.entry.managed else "Forget it; its files stay"
        if self.entry.in_use:
            tip = _IN_USE
        remove = ("remove", "Remove…", tip)
        if self.entry.state == "half-installed":
            return [remove]
        return [("probe", "Check again", "Ask its vLLM again what it accepts (about 20 s)"), remove]

    def show_busy(self, words: str) -> None:
        """Say what is being done with it, "" when that is over; meanwhile nothing else can be."""
        for key, button in self.buttons.items():
            button.setEnabled(not words and not (key == "remove" and self.entry.in_use))
        if words:
            self.state.setText(words)

    def _on_clicked(self) -> None:
        action = self.sender().property("action")
        {"probe": self.probe_wanted, "remove": self.remove_wanted, "add": self.add_wanted}[action].emit(self.entry)

    def _paint(self) -> None:
        self._mark.setPixmap(symbol(self._symbol, getattr(theme.tokens, self._tone), size_px=16))


class EngineList(QWidget):
    """All engines, or what to do without one.

    Signals:
        probe_wanted(object), remove_wanted(object), add_wanted(object): as of the rows.
    """

    probe_wanted = Signal(object)
    remove_wanted = Signal(object)
    add_wanted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: dict[str, EngineRow] = {}
        self.empty = QLabel(
            "No vLLM yet. Press “Install vLLM…” to get the build that fits this machine, or “Add existing…” for one "
            "that you have."
        )
        self.empty.setProperty("role", "muted")
        self.empty.setWordWrap(True)
        self.empty.hide()
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(8)
        self._layout.addWidget(self.empty)

    def show_engines(self, entries: Sequence[EngineEntry]) -> None:
        """Show these engines; the keyboard stays where it was if that engine is still there."""
        focused = next(
            (
                (identity, key)
                for identity, row in self.rows.items()
                for key, button in row.buttons.items()
                if button.hasFocus()
            ),
            None,
        )
        for row in self.rows.values():
            self._layout.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = {}
        for entry in entries:
            row = EngineRow(entry, self)
            row.probe_wanted.connect(self.probe_wanted)
            row.remove_wanted.connect(self.remove_wanted)
            row.add_wanted.connect(self.add_wanted)
            self._layout.addWidget(row)
            self.rows[entry.id] = row
        self.empty.setVisible(not entries)
        if focused is not None and focused[0] in self.rows:
            button = self.rows[focused[0]].buttons.get(focused[1])
            if button is not None:
                button.setFocus()


def _facts(entry: EngineEntry) -> list[str]:
    facts = [entry.version] if entry.version and entry.version.replace(" ", "-") != entry.id else []
    if entry.platform:
        facts.append(_PLATFORMS.get(entry.platform, entry.platform))
    if not entry.known:
        facts.append("found on this machine, not used yet")
    else:
        facts.append("installed by Specdeck" if entry.managed else "added by you")
    if entry.in_use:
        facts.append("running now")
    return facts


def _problem(entry: EngineEntry) -> str:
    """What is wrong in words of this page; the backend's name its commands."""
    if entry.state == "ok" or not entry.known:
        return ""
    if entry.state == "unchecked":
        return "Press Check again to ask its vLLM what it accepts."
    if entry.state == "half-installed" and "now" not in entry.problem:
        return "The install was cut off. Press “Install vLLM…” to do it again, or remove it."
    return entry.problem[:1].upper() + entry.problem[1:]
