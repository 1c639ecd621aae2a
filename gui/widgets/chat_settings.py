"""How answers are asked for: system prompt and sampling, checked while somebody types."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from backend.desk.types import ChatSettings
from gui.widgets.prompt_edit import PromptEdit

_SETTLE_MS = 400
_SEED_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class _Field:
    """One number: `fits` says whether a value is possible, `rule` which ones are."""

    name: str
    title: str
    tooltip: str
    whole: bool
    fits: Callable[[float], bool]
    rule: str


_FIELDS = (
    _Field(
        "temperature",
        "Temperature",
        "0 always takes the likeliest token; higher values vary more",
        False,
        lambda value: math.isfinite(value) and value >= 0,
        "A number from 0 up",
    ),
    _Field(
        "top_p",
        "Top-p",
        "Only the likeliest tokens that together reach this share are considered",
        False,
        lambda value: 0 < value <= 1,
        "Above 0, up to 1",
    ),
    _Field(
        "max_tokens",
        "Longest answer",
        "Tokens after which an answer is cut; it can be continued",
        True,
        lambda value: value >= 1,
        "A whole number from 1",
    ),
    _Field(
        "seed",
        "Seed",
        "The same seed gives the same answer again",
        True,
        lambda value: -_SEED_LIMIT <= value < _SEED_LIMIT,
        "A whole number",
    ),
)


class ChatSettingsPanel(QFrame):
    """A form; an empty field leaves the choice to the model.

    Signals:
        changed(ChatSettings): valid settings that differ from those shown last, a moment after the last key.
    """

    changed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("inset", "true")
        self._shown = ChatSettings()
        self._settle = QTimer(self)
        self._settle.setSingleShot(True)
        self._settle.setInterval(_SETTLE_MS)
        self._settle.timeout.connect(self.settle)
        self.system = PromptEdit(least=2, most=6, sends=False)
        self.system.setAccessibleName("System prompt")
        self.system.setToolTip("Instructions that the model gets before the conversation")
        self.system.setPlaceholderText("None: the model's own")
        self.system.textChanged.connect(self._on_edited)
        title = QLabel("System prompt")
        title.setProperty("role", "note")
        title.setBuddy(self.system)
        self.inputs: dict[str, QLineEdit] = {}
        self.problems: dict[str, QLabel] = {}
        grid = QGridLayout()
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(4)
        for number, field in enumerate(_FIELDS):
            self._add(field, grid, row=3 * (number // 2), column=number % 2)
        self.defaults = QPushButton("Use the model's defaults")
        self.defaults.setProperty("kind", "chip")
        self.defaults.setAccessibleName("Use the model's defaults")
        self.defaults.setToolTip("Empty all fields")
        self.defaults.clicked.connect(self._on_defaults)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 10, 12, 12)
        layout.setSpacing(4)
        layout.addWidget(title)
        layout.addWidget(self.system)
        layout.addSpacing(4)
        layout.addLayout(grid)
        layout.addSpacing(4)
        layout.addWidget(self.defaults, 0, Qt.AlignmentFlag.AlignLeft)
        self._check()

    def _add(self, field: _Field, grid: QGridLayout, *, row: int, column: int) -> None:
        edit = QLineEdit()
        edit.setAccessibleName(field.title)
        edit.setToolTip(field.tooltip)
        edit.setPlaceholderText("Model's default")
        edit.setMinimumWidth(60)
        edit.textChanged.connect(self._on_edited)
        edit.editingFinished.connect(self.settle)
        title = QLabel(field.title)
        title.setProperty("role", "note")
        title.setBuddy(edit)
        problem = QLabel()
        problem.setProperty("role", "bad-note")
        problem.setWordWrap(True)
        problem.hide()
        grid.addWidget(title, row, column)
        grid.addWidget(edit, row + 1, column)
        grid.addWidget(problem, row + 2, column)
        grid.setColumnStretch(column, 1)
        self.inputs[field.name], self.problems[field.name] = edit, problem

    @property
    def settings(self) -> ChatSettings | None:
        """What the form says; None while a field is wrong."""
        values = {field.name: _value(field, self.inputs[field.name].text()) for field in _FIELDS}
        if any(isinstance(value, str) for value in values.values()):
            return None
        return ChatSettings(self.system.toPlainText().strip(), **values)  # type: ignore[arg-type]  # no text is left

    def show_settings(self, settings: ChatSettings) -> None:
        """Fill the form, unless somebody is just editing it."""
        if settings == self._shown or self._settle.isActive():
            return
        self._shown = settings
        if settings != self.settings:
            self._fill(settings)
        self._settle.stop()

    def settle(self) -> None:
        """Tell now what was edited."""
        self._settle.stop()
        settings = self.settings
        if settings is not None and settings != self._shown:
            self._shown = settings
            self.changed.emit(settings)

    def hideEvent(self, event: QHideEvent) -> None:
        """What was edited counts, also when the form is closed at once."""
        super().hideEvent(event)
        self.settle()

    def _fill(self, settings: ChatSettings) -> None:
        self.system.setPlainText(settings.system)
        for field in _FIELDS:
            value = getattr(settings, field.name)
            self.inputs[field.name].setText("" if value is None else f"{value}")

    def _on_edited(self) -> None:
        self._check()
        self._settle.start()

    def _on_defaults(self) -> None:
        self._fill(ChatSettings())
        self.settle()

    def _check(self) -> None:
        """Mark the fields that are wrong, and say what they may hold."""
        for field in _FIELDS:
            edit, problem = self.inputs[field.name], self.problems[field.name]
            wrong = isinstance(_value(field, edit.text()), str)
            problem.setText(field.rule if wrong else "")
            problem.setVisible(wrong)
            state = "bad" if wrong else ""
            if (edit.property("state") or "") != state:
                edit.setProperty("state", state)
                edit.style().unpolish(edit)
                edit.style().polish(edit)
            edit.setAccessibleDescription(field.rule if wrong else field.tooltip)


def _value(field: _Field, text: str) -> float | int | str | None:
    """The number that stands there, None for nothing, or the text itself if it is not possible."""
    text = text.strip()
    if not text:
        return None
    try:
        value: float | int = int(text) if field.whole else float(text.replace(",", "."))
    except ValueError:
        return text
    return value if field.fits(value) else text
