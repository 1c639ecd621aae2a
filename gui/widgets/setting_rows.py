"""One setting on the Settings page: its name, its control, what it means, and whether it was saved."""

import math
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from gui.widgets.elided_label import ElidedLabel

_SAVED_MS = 2000
_NAME_PX = 184


class SettingCard(QFrame):
    """A titled card of settings.

    Attributes:
        head: beside the title, for buttons.
        body: under it.
    """

    def __init__(self, title: str, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", True)
        self.setAccessibleName(title)
        heading = QLabel(title)
        heading.setProperty("role", "title")
        self.head = QHBoxLayout()
        self.head.setSpacing(8)
        self.head.addWidget(heading)
        self.head.addStretch()
        self.body = QVBoxLayout()
        self.body.setSpacing(12)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(20, 16, 20, 20)
        layout.setSpacing(12)
        layout.addLayout(self.head)
        if text:
            words = QLabel(text)
            words.setProperty("role", "muted")
            words.setWordWrap(True)
            layout.addWidget(words)
        layout.addLayout(self.body)


class SettingRow(QWidget):
    """What every row has: name at the left, control, a note below, and words about saving.

    Attributes:
        key: name of the setting.

    Signals:
        changed(str, object): key and new value.
    """

    changed = Signal(str, object)

    def __init__(self, key: str, name: str, note: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.key = key
        self.name = QLabel(name)
        self.name.setFixedWidth(_NAME_PX)
        self.name.setWordWrap(True)
        self.controls = QHBoxLayout()
        self.controls.setSpacing(8)
        self._said = QLabel()
        self._said.setProperty("role", "ok-note")
        self._said.setAccessibleName(f"{name}: saved or not")
        self._note = QLabel(note, self)  # without an owner it would flash as a window of its own
        self._note.setProperty("role", "note")
        self._note.setWordWrap(True)
        self._note.setVisible(bool(note))
        self._problem = QLabel()
        self._problem.setProperty("role", "bad-note")
        self._problem.setWordWrap(True)
        self._problem.setAccessibleName(f"Problem with {name}")
        self._problem.hide()
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(1, 1)
        line = QHBoxLayout()
        line.addLayout(self.controls)
        line.addSpacing(8)
        line.addWidget(self._said)
        line.addStretch(1)
        grid.addWidget(self.name, 0, 0, Qt.AlignmentFlag.AlignVCenter)
        grid.addLayout(line, 0, 1)
        grid.addWidget(self._problem, 1, 1)
        grid.addWidget(self._note, 2, 1)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_SAVED_MS)
        self._timer.timeout.connect(self._said.clear)

    @property
    def problem(self) -> str:
        """What is wrong, as shown."""
        return self._problem.text()

    @property
    def said(self) -> str:
        """What is said about saving, as shown."""
        return self._said.text()

    def show_value(self, value: object) -> None:
        """Show what is set, without telling it as a change."""
        raise NotImplementedError

    def show_saved(self) -> None:
        """Say for a moment that the value was written down."""
        self.show_problem("")
        self._said.setText("Saved")
        self._timer.start()

    def show_problem(self, words: str) -> None:
        """Say why a value was not taken, "" for nothing."""
        self._said.clear()
        self._problem.setText(words)
        self._problem.setVisible(bool(words))


class NumberRow(SettingRow):
    """A number with a unit and a range; it is told when the field is left or Enter is pressed."""

    def __init__(
        self,
        key: str,
        name: str,
        note: str,
        *,
        unit: str,
        low: float,
        high: float,
        whole: bool = False,
        factor: int = 1,
        parent: QWidget | None = None,
    ) -> None:
        """Show the setting divided by `factor`, for example bytes as GB."""
        super().__init__(key, name, note, parent)
        self._low, self._high, self._whole, self._factor = low, high, whole, factor
        self._value: object = None
        self.field = QLineEdit()
        self.field.setFixedWidth(96)
        self.field.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.field.setAccessibleName(f"{name}, {unit}")
        self.field.setToolTip(f"{note} {self._range_words()}".strip())
        self.name.setBuddy(self.field)
        units = QLabel(unit)
        units.setProperty("role", "muted")
        self.controls.addWidget(self.field)
        self.controls.addWidget(units)
        self.field.editingFinished.connect(self._on_finished)

    def show_value(self, value: object) -> None:
        """Show a number of the settings."""
        assert isinstance(value, int | float)
        self._value = value
        self.field.setText(f"{value / self._factor:.6g}")
        self.show_problem("")

    def show_problem(self, words: str) -> None:
        """Say what is wrong and mark the field; the same number may be told again then."""
        super().show_problem(words)
        if words:
            self._value = None
        self.field.setProperty("state", "bad" if words else "")
        self.field.style().unpolish(self.field)
        self.field.style().polish(self.field)

    def _range_words(self) -> str:
        kind = "a whole number" if self._whole else "a number"
        return f"Give {kind} from {self._low:,g} to {self._high:,g}."

    def _on_finished(self) -> None:
        text = self.field.text().strip().replace(",", ".")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not self._low <= number <= self._high or (self._whole and number != int(number)):
            self.show_problem(self._range_words())
            return
        value: float = number * self._factor
        if self._whole or self._factor > 1:
            value = round(value)
        if value == self._value:
            self.show_value(value)
            return
        self._value = value
        self.show_problem("")
        self.changed.emit(self.key, value)


class ChoiceRow(SettingRow):
    """One of a few values, as buttons of which one is down."""

    def __init__(
        self,
        key: str,
        name: str,
        note: str,
        choices: Sequence[tuple[str, str]],
        parent: QWidget | None = None,
    ) -> None:
        """Offer choices, as value and label."""
        super().__init__(key, name, note, parent)
        self.buttons: dict[str, QPushButton] = {}
        self._group = QButtonGroup(self)
        for value, label in choices:
            button = QPushButton(label)
            button.setProperty("kind", "chip")
            button.setCheckable(True)
            button.setAccessibleName(f"{name}: {label}")
            button.setToolTip(label)
            self._group.addButton(button)
            self.controls.addWidget(button)
            self.buttons[value] = button
        self.name.setBuddy(next(iter(self.buttons.values())))
        self._group.buttonToggled.connect(self._on_toggled)
        self._showing = False

    def show_value(self, value: object) -> None:
        """Press the button of a value."""
        self._showing = True
        self.buttons[str(value)].setChecked(True)
        self._showing = False
        self.show_problem("")

    def _on_toggled(self, button: QPushButton, checked: bool) -> None:
        if checked and not self._showing:
            value = next(value for value, known in self.buttons.items() if known is button)
            self.changed.emit(self.key, self._told(value))

    def _told(self, value: str) -> object:
        """Return what is set when the button of a value is pressed."""
        return value


class SwitchRow(ChoiceRow):
    """On or off."""

    def __init__(self, key: str, name: str, note: str, parent: QWidget | None = None) -> None:
        super().__init__(key, name, note, (("True", "On"), ("False", "Off")), parent)

    def _told(self, value: str) -> object:
        return value == "True"


class FolderRow(QWidget):
    """A folder with a button that opens it.

    Signals:
        open_wanted(object): the Path.
    """

    open_wanted = Signal(object)

    def __init__(self, name: str, folder: Path, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.folder = folder
        title = QLabel(name)
        title.setFixedWidth(_NAME_PX)
        where = ElidedLabel(str(folder))
        self.button = QPushButton("Open")
        self.button.setAccessibleName(f"Open {name}")
        self.button.setToolTip(f"Open {folder}")
        self.button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        title.setBuddy(self.button)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(16)
        row.addWidget(title)
        row.addWidget(where, 1)
        row.addWidget(self.button)
        self.button.clicked.connect(self._on_clicked)

    def _on_clicked(self) -> None:
        self.open_wanted.emit(self.folder)
