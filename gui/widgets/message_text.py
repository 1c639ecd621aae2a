"""The text of a message: plain and cheap to grow, or rendered from Markdown piece by piece."""

from collections.abc import Iterator

from PySide6.QtCore import QUrl, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from gui.widgets.code_block import CodeBlock
from gui.widgets.markdown_blocks import Code, split
from gui.widgets.slices import Slices
from gui.widgets.text_block import TextBlock

# Appending to a block costs time with its length, so a new one is begun at a line's end, or in a line if it must be.
_BLOCK_CHARS = 1200
_HARD_CHARS = 2000
_UNLIMITED_PX = 16_777_215


class PlainText(QWidget):
    """Text as it is, that grows at its end; what stands before is not laid out again."""

    def __init__(self, parent: QWidget | None = None, *, muted: bool = False) -> None:
        super().__init__(parent)
        self._muted = muted
        self._layout = _column(self, 0)
        self._parts: list[str] = []
        self._block: TextBlock | None = None
        self._caret = False

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._parts)

    @property
    def blocks(self) -> list[TextBlock]:
        """The blocks that show it."""
        return self.findChildren(TextBlock)

    def add(self, text: str) -> None:
        """Append text at once."""
        for _ in self.steps(text):
            pass

    def steps(self, text: str) -> Iterator[None]:
        """Append text, with a pause after each block."""
        self._parts.append(text)
        while text:
            if self._block is None:
                self._block = TextBlock(muted=self._muted)
                self._block.set_caret(self._caret)
                self._layout.addWidget(self._block)
            block = self._block
            first = max(0, _BLOCK_CHARS - block.length)
            line_end = text.find("\n", first, _HARD_CHARS)
            if line_end >= 0:
                now, text, full = text[:line_end], text[line_end + 1 :], True
            else:
                room = max(0, _HARD_CHARS - block.length)
                full = len(text) > room
                cut = text.rfind(" ", 0, room) + 1 if full else 0
                now, text = text[: cut or room], text[cut or room :]
            if now:
                block.add(now)
            if full:
                block.set_caret(False)
                self._block = None
            yield

    def clear(self) -> None:
        """Drop all text."""
        for block in self.blocks:
            self._layout.removeWidget(block)
            block.setParent(None)
            block.deleteLater()
        self._parts, self._block = [], None

    def set_caret(self, shown: bool) -> None:
        """Mark the end as the place where text will come."""
        self._caret = shown
        if self._block is not None:
            self._block.set_caret(shown)


class RichText(QWidget):
    """Rendered Markdown.

    Signals:
        link_clicked(QUrl): somebody wants to follow a link.
        rendered: all of it is there.
    """

    link_clicked = Signal(QUrl)
    rendered = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._layout = _column(self, 8)
        self._text = text

    def render_in(self, slices: Slices) -> None:
        """Render bit by bit, before other waiting work."""
        slices.add(self, self._steps(), first=True)

    def set_waiting(self, waiting: bool) -> None:
        """Take no room while the pieces are made, so that the whole can appear at once."""
        self.setMaximumHeight(0 if waiting else _UNLIMITED_PX)

    def _steps(self) -> Iterator[None]:
        for piece in split(self._text):
            if isinstance(piece, Code):
                code = CodeBlock(piece.language)
                self._layout.addWidget(code)
                yield from code.steps(piece.text)
            elif piece is not None:
                block = TextBlock()
                block.resize(self.width(), block.height())  # so that it is laid out once
                block.link_clicked.connect(self.link_clicked)
                self._layout.addWidget(block)
                block.set_markdown(piece.text)
            yield
        yield  # one more turn, in which the last piece gets its size
        self.rendered.emit()


def _column(widget: QWidget, spacing: int) -> QVBoxLayout:
    layout = QVBoxLayout(widget)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(spacing)
    return layout
