"""The form of a profile: made once, in slices that never hold the window up, and reused for every profile."""

import time
from collections import deque
from collections.abc import Mapping

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QLineEdit, QScrollArea, QVBoxLayout, QWidget

from backend.desk.types import FieldSpec, ProfileForm
from gui.theme import symbol, theme
from gui.widgets.edge_line import EdgeLine
from gui.widgets.field_editor import FieldEditor
from gui.widgets.form_section import FormSection, haystack

_RIGHT_PX = 14  # the scroll bar and what is between it and the fields
_SLICE_S = 0.003  # laying out what was made takes longer than making it


class ProfileFormView(QFrame):
    """Title, search for a setting, and the fields under their headings.

    Signals:
        edited(str, str): path and new text of a field, for what a person typed or chose.
        built: every field that was asked for is there.
    """

    edited = Signal(str, str)
    built = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setAccessibleName("Profile")
        self._specs: dict[str, FieldSpec] = {}
        self._sections: dict[str, FormSection] = {}
        self._values: Mapping[str, str] = {}
        self._problems: Mapping[str, str] = {}
        self._name = ""
        self._words: list[str] = []  # what is searched for
        self._platform = ""
        self._todo: deque[FieldSpec] = deque()
        self._queued: set[str] = set()
        self._reveal = ""
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._on_slice)
        self.title = QLabel()
        self.title.setProperty("role", "heading")
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.title.setWordWrap(True)
        self.note = QLabel()
        self.note.setProperty("role", "muted")
        self.note.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.search = QLineEdit()
        self.search.setPlaceholderText("Find a setting")
        self.search.setAccessibleName("Find a setting")
        self.search.setToolTip("Show only the settings with these words, also vLLM's own names (Ctrl+F)")
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._on_search)
        head = QVBoxLayout()
        head.setContentsMargins(0, 0, _RIGHT_PX, 0)  # ends where the fields end
        head.setSpacing(10)
        first = QHBoxLayout()
        first.setSpacing(12)
        first.addWidget(self.title, 1)
        first.addWidget(self.note)
        head.addLayout(first)
        head.addWidget(self.search)
        self._nothing = QLabel("No setting has these words. An option without a field goes into “Extra arguments”.")
        self._nothing.setProperty("role", "muted")
        self._nothing.setWordWrap(True)
        self._nothing.hide()
        self._content = QWidget()
        self._column = QVBoxLayout(self._content)
        self._column.setContentsMargins(0, 4, 4, 20)
        self._column.setSpacing(8)
        self._column.addWidget(self._nothing)
        self._column.addStretch()
        self.area = QScrollArea()
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setProperty("role", "steady")
        self.area.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)  # fields keep their width
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setWidget(self._content)
        EdgeLine(self.area)
        self._broken = QWidget()
        broken = QHBoxLayout(self._broken)
        broken.setContentsMargins(0, 8, _RIGHT_PX, 0)
        broken.setSpacing(10)
        self._broken_mark = QLabel()
        self.broken_words = QLabel()
        self.broken_words.setWordWrap(True)
        self.broken_words.setTextFormat(Qt.TextFormat.PlainText)
        self.broken_words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        broken.addWidget(self._broken_mark, 0, Qt.AlignmentFlag.AlignTop)
        broken.addWidget(self.broken_words, 1, Qt.AlignmentFlag.AlignTop)
        self._broken.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(20, 14, 6, 8)
        layout.setSpacing(10)
        layout.addLayout(head)
        layout.addWidget(self.area, 1)
        layout.addWidget(self._broken, 1)
        theme.changed.connect(self._paint)
        self._paint()

    # ---- what is shown ---------------------------------------------------------------------------------------

    @property
    def is_building(self) -> bool:
        """Whether fields are still being made."""
        return bool(self._todo)

    def row(self, path: str) -> FieldEditor | None:
        """Return a field, None while it was not made."""
        spec = self._specs.get(path)
        section = self._sections.get(spec.group) if spec else None
        return section.rows.get(path) if section else None

    def show_form(self, form: ProfileForm, values: Mapping[str, str], *, title: str) -> None:
        """Show a profile with what is to stand in its fields; problems of the one before are gone."""
        is_other, self._name = form.name != self._name, form.name
        self.title.setText(title)
        self._values = dict(values)
        self._platform = form.platform
        self._broken.setVisible(bool(form.problem))
        self.broken_words.setText(form.problem)
        self.area.setVisible(not form.problem)
        self.search.setVisible(not form.problem)
        first = not self._specs
        self._specs = {spec.path: spec for spec in form.fields}
        if first:
            self._queue([spec for spec in form.fields if not spec.advanced])
        for spec in form.fields:
            if (row := self.row(spec.path)) is not None:
                row.show_spec(spec, unused=self._is_unused(spec))
                row.show_text(self._values.get(spec.path, ""))
        self.show_problems({})
        self._count_set()
        if is_other:
            self.area.verticalScrollBar().setValue(0)

    def show_problems(self, problems: Mapping[str, str]) -> None:
        """Mark the fields with problems; a folded one is unfolded."""
        gone = [path for path in self._problems if path not in problems]
        self._problems = dict(problems)
        for path in gone:
            if (row := self.row(path)) is not None:
                row.show_problem("")
        for path, words in problems.items():
            if (row := self.row(path)) is not None:
                row.show_problem(words)
            if path in self._specs and self._specs[path].advanced:
                self._section(self._specs[path].group).unfold()

    def reveal(self, path: str) -> None:
        """Bring a field into sight and put the cursor there, as soon as it is made."""
        spec = self._specs.get(path)
        if spec is None:
            return
        self.search.clear()
        if spec.advanced:
            self._section(spec.group).unfold()
        self._reveal = path
        if not self.is_building:
            self._show_revealed()

    # ---- making ----------------------------------------------------------------------------------------------

    def _section(self, group: str) -> FormSection:
        """Return the section of a group, made when it is first needed."""
        section = self._sections.get(group)
        if section is None:
            n_folded = sum(spec.advanced for spec in self._specs.values() if spec.group == group)
            section = FormSection(group, n_folded)
            section.unfolded.connect(self._on_unfolded)
            order = list(dict.fromkeys(spec.group for spec in self._specs.values()))
            before = order[: order.index(group)]
            self._column.insertWidget(1 + sum(title in before for title in self._sections), section)
            self._sections[group] = section
            section.search(self._words)
        return section

    def _queue(self, specs: list[FieldSpec]) -> None:
        self._todo.extend(spec for spec in specs if spec.path not in self._queued)
        self._queued.update(spec.path for spec in specs)
        if self._todo:
            self._timer.start()

    def _on_slice(self) -> None:
        """Make a few fields, as many as a moment allows."""
        end_s = time.perf_counter() + _SLICE_S
        while self._todo and time.perf_counter() < end_s:
            path = self._todo.popleft().path
            spec = self._specs[path]  # the engine may have changed since it was queued
            row = FieldEditor(spec, unused=self._is_unused(spec))
            row.show_text(self._values.get(path, ""))
            row.show_problem(self._problems.get(path, ""))
            row.edited.connect(self._on_edited)
            self._section(spec.group).add(row)
        if not self._todo:
            self._timer.stop()
            self._show_sections()
            self._count_set()
            if self._reveal:
                self._show_revealed()
            self.built.emit()

    def _is_unused(self, spec: FieldSpec) -> bool:
        return spec.gpu_only and self._platform == "cpu"

    def _on_unfolded(self) -> None:
        unfolded = [section.title for section in self._sections.values() if section.more.isChecked()]
        self._queue([spec for spec in self._specs.values() if spec.group in unfolded])

    # ---- what a person does ----------------------------------------------------------------------------------

    def _on_edited(self, path: str, text: str) -> None:
        self._values = {**self._values, path: text}
        self._count_set()
        self.edited.emit(path, text)

    def _on_search(self, text: str) -> None:
        self._words = words = text.casefold().split()
        if words:
            self._queue([spec for spec in self._specs.values() if all(word in haystack(spec) for word in words)])
        for section in self._sections.values():
            section.search(words)
        self._show_sections()

    def _show_sections(self) -> None:
        """Hide the headings that a search leaves empty."""
        left = {spec.group for spec in self._specs.values() if all(word in haystack(spec) for word in self._words)}
        for title, section in self._sections.items():
            section.setVisible(title in left)
        self._nothing.setVisible(bool(self._specs) and not left)

    def _count_set(self) -> None:
        for title, section in self._sections.items():
            section.count_set(self._values, [spec for spec in self._specs.values() if spec.group == title])

    def _show_revealed(self) -> None:
        row = self.row(self._reveal)
        self._reveal = ""
        if row is not None:
            self._column.activate()
            self.area.ensureWidgetVisible(row, 0, 80)
            row.setFocus(Qt.FocusReason.OtherFocusReason)

    def _paint(self) -> None:
        self._broken_mark.setPixmap(symbol("error", theme.tokens.bad))
