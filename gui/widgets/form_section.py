"""One heading of a form with its fields; the seldom needed ones are folded away and made when they are first seen."""

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QToolButton, QVBoxLayout, QWidget

from backend.desk.types import FieldSpec
from gui.theme import icon, theme
from gui.widgets.field_editor import FieldEditor


class FormSection(QWidget):
    """Shows the fields that were added, filtered and folded.

    Signals:
        unfolded: the folded fields are wanted, so they have to be there.
    """

    unfolded = Signal()

    def __init__(self, title: str, n_folded: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title = title
        self.rows: dict[str, FieldEditor] = {}
        self._n_folded = n_folded
        self._search: tuple[str, ...] = ()
        heading = QLabel(title)
        heading.setProperty("role", "title")
        self.more = QToolButton()
        self.more.setProperty("kind", "quiet")
        self.more.setCheckable(True)
        self.more.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.more.setToolTip(f"Show or hide the settings of “{title}” that are seldom needed")
        self.more.toggled.connect(self._on_toggled)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 12)
        self._layout.setSpacing(10)
        self._layout.addWidget(heading)
        self._layout.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        self.more.setVisible(n_folded > 0)
        theme.changed.connect(self._paint)
        self._paint()
        self.count_set({}, ())

    def add(self, row: FieldEditor) -> None:
        """Add a field; folded ones come after the others."""
        self.rows[row.spec.path] = row
        at = self._layout.count() if row.spec.advanced else self._layout.indexOf(self.more)
        self._layout.insertWidget(at, row)
        row.setVisible(self._is_shown(row))  # not before, or it would be a window of its own

    def search(self, words: Sequence[str]) -> None:
        """Show only the fields with all these words, folded or not; without words everything as it was."""
        self._search = tuple(words)
        self.more.setVisible(self._n_folded > 0 and not words)
        for row in self.rows.values():
            row.setVisible(self._is_shown(row))

    def unfold(self) -> None:
        """Show the folded fields."""
        self.more.setChecked(True)

    def count_set(self, values: Mapping[str, str], specs: Sequence[FieldSpec]) -> None:
        """Tell how many of the folded fields say something."""
        n_set = sum(bool(values.get(spec.path)) for spec in specs if spec.advanced)
        words = f"{self._n_folded} more setting{'' if self._n_folded == 1 else 's'}"
        text = f"{words}, {n_set} set" if n_set else words
        if text != self.more.text():
            self.more.setText(text)
            self.more.setAccessibleName(f"{self.title}: {text}")

    def _is_shown(self, row: FieldEditor) -> bool:
        if self._search:
            return all(word in haystack(row.spec) for word in self._search)
        return self.more.isChecked() or not row.spec.advanced

    def _on_toggled(self, checked: bool) -> None:
        if checked:
            self.unfolded.emit()
        for row in self.rows.values():
            row.setVisible(self._is_shown(row))
        self._paint()

    def _paint(self) -> None:
        self.more.setIcon(icon("down" if self.more.isChecked() else "right", theme.tokens.muted, size_px=16))


def haystack(spec: FieldSpec) -> str:
    """Return what a search for settings looks through."""
    return f"{spec.title} {spec.description} {spec.path} {spec.flag} {spec.group}".casefold()
