"""One field of a form: label, the editor that fits its kind, unit, help, and what is wrong with it."""

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QEnterEvent, QPainter, QPaintEvent, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import (
    QComboBox,
    QCompleter,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)

from backend.desk.types import FieldSpec
from gui.theme import code_font, symbol, theme

LABEL_PX = 148
UNIT_PX = 76
_ARROW_PX = 14
_LINE_MARGINS_PX = 22  # of a line of text that has a frame; a few more than those of one in a combo box
_LEAST_LINES, _MOST_LINES = 2, 10
_CODE_KINDS = frozenset({"table", "variables", "lines"})
_YES_NO = {"true": "Yes", "false": "No"}


class _Combo(QComboBox):
    """A combo box whose wheel scrolls the form, not the value, with the arrow that the style sheet takes away."""

    def __init__(self) -> None:
        super().__init__()
        self.setMinimumContentsLength(6)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave the wheel to the form."""
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Add the arrow."""
        super().paintEvent(event)
        painter = QPainter(self)
        arrow = symbol("down", theme.tokens.muted, size_px=_ARROW_PX)
        painter.drawPixmap(self.width() - _ARROW_PX - 6, (self.height() - _ARROW_PX) // 2, arrow)
        painter.end()


class _Choice(_Combo):
    """A text with offers."""

    typed = Signal(str)

    def __init__(self, spec: FieldSpec) -> None:
        super().__init__()
        self.setEditable(True)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.setMaxVisibleItems(16)
        completer = self.completer()
        assert completer is not None
        completer.setCompletionMode(QCompleter.CompletionMode.PopupCompletion)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        self._offers: tuple[str, ...] = ()
        self.show_spec(spec)
        self.editTextChanged.connect(self.typed)
        self.activated.connect(self._on_activated)

    def show_spec(self, spec: FieldSpec) -> None:
        if spec.choices != self._offers:
            self._offers = spec.choices
            text = self.currentText()
            with QSignalBlocker(self):
                self.clear()
                self.addItems(list(spec.choices))
                self.setEditText(text)
        line = self.lineEdit()
        assert line is not None
        line.setPlaceholderText(spec.default)
        line.setAccessibleName(spec.title)

    def text(self) -> str:
        return self.currentText()

    def show_text(self, text: str) -> None:
        with QSignalBlocker(self):
            self.setEditText(text)
        self._on_activated()

    def _on_activated(self) -> None:
        """Show a long text from its beginning."""
        line = self.lineEdit()
        assert line is not None
        line.setCursorPosition(0)


class _Switch(_Combo):
    """Yes, no, or nothing said."""

    typed = Signal(str)

    def __init__(self, spec: FieldSpec) -> None:
        super().__init__()
        self.addItem("", "")
        for value, word in _YES_NO.items():
            self.addItem(word, value)
        self.show_spec(spec)
        self.currentIndexChanged.connect(self._on_changed)

    def show_spec(self, spec: FieldSpec) -> None:
        self.setItemText(0, f"Not set ({spec.default})" if spec.default else "Not set")

    def text(self) -> str:
        return str(self.currentData())

    def show_text(self, text: str) -> None:
        with QSignalBlocker(self):
            self.setCurrentIndex(max(0, self.findData(text)))

    def _on_changed(self) -> None:
        self.typed.emit(self.text())


class _Line(QLineEdit):
    """One line of text."""

    typed = Signal(str)

    def __init__(self, spec: FieldSpec) -> None:
        super().__init__()
        self.show_spec(spec)
        self.textEdited.connect(self.typed)

    def show_spec(self, spec: FieldSpec) -> None:
        self.setPlaceholderText(spec.default)

    def show_text(self, text: str) -> None:
        self.setText(text)
        self.setCursorPosition(0)


class _Area(QPlainTextEdit):
    """Several lines, as high as they need."""

    typed = Signal(str)

    def __init__(self, spec: FieldSpec) -> None:
        super().__init__()
        self.setTabChangesFocus(True)
        if spec.kind in _CODE_KINDS:
            self.setFont(code_font())
        self.show_spec(spec)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self.textChanged.connect(self._on_changed)
        self._fit()

    def show_spec(self, spec: FieldSpec) -> None:
        self.setPlaceholderText(spec.default)

    def text(self) -> str:
        return self.toPlainText()

    def show_text(self, text: str) -> None:
        with QSignalBlocker(self):
            self.setPlainText(text)
        self._fit()

    def _on_changed(self) -> None:
        self.typed.emit(self.toPlainText())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Wrapped at another width, the text has another height."""
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self._fit()

    def _fit(self) -> None:
        n_lines = round(self.document().size().height())  # a plain text's layout counts in lines
        policy = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if n_lines > _MOST_LINES else policy.ScrollBarAlwaysOff
        )
        n_lines = min(max(n_lines, _LEAST_LINES), _MOST_LINES)
        height = n_lines * self.fontMetrics().lineSpacing() + 22
        if height != self.minimumHeight():
            self.setFixedHeight(height)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll the form, unless this is where the person types and there is something to scroll."""
        bar = self.verticalScrollBar()
        if bar.maximum() > bar.minimum() and self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


class FieldEditor(QWidget):
    """A row of a form.

    Signals:
        edited(str, str): path and new text, for what a person typed or chose.
    """

    edited = Signal(str, str)

    def __init__(self, spec: FieldSpec, *, unused: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.spec = spec
        self._problem_row: QWidget | None = None
        self._problem = QLabel()
        self._mark = QLabel()
        self.label = QLabel(spec.title)
        self.label.setFixedWidth(LABEL_PX)
        self.label.setWordWrap(True)
        self.label.setContentsMargins(0, 6, 0, 0)
        self.editor = self._make(spec)
        self.editor.typed.connect(self._on_typed)
        self.label.setBuddy(self.editor)
        self.help = QLabel()
        self.help.setProperty("role", "note")
        self.help.setWordWrap(True)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(3)
        self._grid.setColumnStretch(1, 1)
        top = Qt.AlignmentFlag.AlignTop
        self._grid.addWidget(self.label, 0, 0, 2, 1, top)
        # Figures are short and have units; texts take the room of the unit that they do not have.
        has_unit = spec.kind in {"integer", "number"} or bool(spec.unit)
        self._grid.addWidget(self.editor, 0, 1, 1, 1 if has_unit else 2)
        if has_unit:
            unit = QLabel(spec.unit)
            unit.setProperty("role", "note")
            unit.setFixedWidth(UNIT_PX)
            unit.setWordWrap(True)
            unit.setContentsMargins(0, 8, 0, 0)
            self._grid.addWidget(unit, 0, 2, top)
        self._grid.addWidget(self.help, 2, 1, 1, 2)
        self.setFocusProxy(self.editor)
        self._tell(unused=unused)

    @staticmethod
    def _make(spec: FieldSpec) -> _Choice | _Switch | _Line | _Area:
        if spec.kind == "switch":
            return _Switch(spec)
        if spec.kind in _CODE_KINDS or spec.kind == "prose":
            return _Area(spec)
        return _Choice(spec) if spec.is_choice else _Line(spec)

    @property
    def text(self) -> str:
        """What stands in the editor."""
        return self.editor.text()

    @property
    def problem(self) -> str:
        """What is shown to be wrong, "" for nothing."""
        return self._problem.text() if self._problem_row is not None and not self._problem_row.isHidden() else ""

    def show_text(self, text: str) -> None:
        """Show a text; emits nothing."""
        if text != self.editor.text():
            self.editor.show_text(text)

    def show_spec(self, spec: FieldSpec, *, unused: bool) -> None:
        """Show what another engine makes of the field; `unused` when it does not use it at all."""
        if spec != self.spec:
            self.spec = spec
            self.editor.show_spec(spec)
        self._tell(unused=unused)

    def show_problem(self, words: str) -> None:
        """Say under the editor what is wrong, "" for nothing."""
        if words == self.problem:
            return
        if self._problem_row is None:
            self._problem_row = self._make_problem_row()
        self._problem.setText(_sentence(words))
        self._problem.setAccessibleName(f"{self.spec.title}: {words}" if words else "")
        self._problem_row.setVisible(bool(words))
        self.editor.setProperty("state", "bad" if words else "")
        self.editor.style().unpolish(self.editor)
        self.editor.style().polish(self.editor)
        self._paint()

    def _make_problem_row(self) -> QWidget:
        row = QWidget()
        line = QHBoxLayout(row)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(6)
        self._problem.setProperty("role", "bad-note")
        self._problem.setWordWrap(True)
        line.addWidget(self._mark, 0, Qt.AlignmentFlag.AlignTop)
        line.addWidget(self._problem, 1)
        self._grid.addWidget(row, 1, 1, 1, 2)
        theme.changed.connect(self._paint)
        return row

    def _tell(self, *, unused: bool) -> None:
        spec = self.spec
        self.help.setText(f"Not used by a CPU engine. {spec.description}" if unused else spec.description)
        if bool(self.label.property("role")) != unused:
            self.label.setProperty("role", "muted" if unused else "")
            self.label.style().unpolish(self.label)
            self.label.style().polish(self.label)
        self._tell_tip()
        self.editor.setAccessibleName(f"{spec.title}, {spec.unit}" if spec.unit else spec.title)
        self.editor.setAccessibleDescription(spec.description)

    def _tell_tip(self) -> None:
        """Say what the field is, and before that what stands in it where that does not fit."""
        spec, text = self.spec, ""
        if isinstance(self.editor, _Choice | _Line):
            text = self.editor.text()
            line = self.editor.lineEdit() if isinstance(self.editor, _Choice) else self.editor
            if line is None or line.fontMetrics().horizontalAdvance(text) <= line.width() - _LINE_MARGINS_PX:
                text = ""
        option = f"vllm serve {spec.flag}" if spec.flag else ""
        empty = f"Empty: {spec.default}" if spec.default else ""
        self.editor.setToolTip("\n".join(filter(None, (text, spec.description, option, empty))))

    def enterEvent(self, event: QEnterEvent) -> None:
        """The mouse comes: now the tooltip may be wanted."""
        super().enterEvent(event)
        self._tell_tip()

    def _on_typed(self, text: str) -> None:
        self.edited.emit(self.spec.path, text)

    def _paint(self) -> None:
        self._mark.setPixmap(symbol("error", theme.tokens.bad, size_px=14))


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith(('.', '?', '!', ')')) else '.'}" if words else ""
