"""The rail of pages at the left edge."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QButtonGroup, QFrame, QToolButton, QVBoxLayout, QWidget

from gui.theme import icon, text_font, theme

WIDTH_PX = 76


class Rail(QFrame):
    """One button for each page; Ctrl+1, Ctrl+2 ... choose them, Ctrl+, the one at the bottom.

    Signals:
        chosen(str): the page's key.
    """

    chosen = Signal(str)

    def __init__(self, pages: tuple[tuple[str, str], ...], parent: QWidget | None = None) -> None:
        """Show `pages`, each its key (also the symbol's name) and title; the last one stands at the bottom."""
        super().__init__(parent)
        self.setProperty("bar", "true")
        self.setAccessibleName("Pages")
        self.setFixedWidth(WIDTH_PX)
        self._group = QButtonGroup(self)
        self._buttons: dict[str, QToolButton] = {}
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 12, 8, 12)
        layout.setSpacing(6)
        for number, (key, title) in enumerate(pages, 1):
            is_last = number == len(pages)
            if is_last:
                layout.addStretch()
            keys = "Ctrl+," if is_last else f"Ctrl+{number}"
            button = QToolButton()
            button.setText(title)
            button.setFont(text_font(11))
            button.setAccessibleName(title)
            button.setToolTip(f"{title} ({keys})")
            button.setProperty("kind", "rail")
            button.setProperty("page", key)
            button.setCheckable(True)
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click must not leave a mark on the page before
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
            button.setIconSize(QSize(20, 20))
            button.setFixedSize(WIDTH_PX - 16, 54)
            button.clicked.connect(self._on_clicked)
            QShortcut(QKeySequence(keys), self).activated.connect(button.click)
            self._group.addButton(button)
            self._buttons[key] = button
            layout.addWidget(button)
        theme.changed.connect(self._paint)
        self._group.buttonToggled.connect(self._paint)
        self._paint()

    def choose(self, key: str) -> None:
        """Mark a page as the current one, without telling."""
        self._buttons[key].setChecked(True)

    def _on_clicked(self) -> None:
        self.chosen.emit(str(self.sender().property("page")))

    def _paint(self) -> None:
        for key, button in self._buttons.items():
            colour = theme.tokens.accent if button.isChecked() else theme.tokens.muted
            button.setIcon(icon(key, colour, size_px=20))
