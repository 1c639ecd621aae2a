"""A piece of text that is as high as what it holds: plain while it streams, Markdown once it is complete."""

import math
from typing import Any

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QPainter,
    QPaintEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFrameFormat,
    QTextOption,
    QTextTable,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser, QWidget

from gui.theme import CODE_FONT, FONT_PX, text_font, theme

_FEATURES = QTextDocument.MarkdownFeature.MarkdownNoHTML | QTextDocument.MarkdownFeature.MarkdownDialectGitHub
_LINE_HEIGHT_PERCENT = 135
_GAP_PX = 8
_HEADING_PX = {1: 17, 2: 15, 3: 14}
_CARET_PX = 3
_INDENT_PX = 22


class _InertDocument(QTextDocument):
    """A document that loads nothing, wherever it may lie; the view alone cannot refuse a local file."""

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        return None


class TextBlock(QTextBrowser):
    """Shows text of a model or a person, which is never trusted: no HTML, no resources, no link opens by itself.

    Signals:
        link_clicked(QUrl): somebody wants to follow a link.
    """

    link_clicked = Signal(QUrl)

    def __init__(self, parent: QWidget | None = None, *, muted: bool = False) -> None:
        super().__init__(parent)
        self._muted = muted
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # where there are links, Tab reaches it too
        self.setAccessibleName("Text")
        self.setMinimumWidth(40)
        self.setUndoRedoEnabled(False)
        self.setOpenLinks(False)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.length = 0
        self._markdown = ""
        self._caret = False
        self._tokens = theme.tokens
        self._taken: QTextDocument | None = None
        self.anchorClicked.connect(self.link_clicked)
        self._take(self._new_document())

    def add(self, text: str) -> None:
        """Append plain text."""
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        if self.length == 0:
            cursor.setBlockFormat(_block_format())
        cursor.insertText(text, self._plain_format())
        self.length += len(text)

    def set_caret(self, shown: bool) -> None:
        """Mark the end as the place where text will come."""
        self._caret = shown
        self.viewport().update()

    def set_markdown(self, text: str) -> None:
        """Show Markdown; HTML in it stays text, images become their address."""
        self._markdown, self._tokens = text, theme.tokens
        document = self._new_document()  # not shown yet, so it is laid out once and not after each change
        document.setMarkdown(text, _FEATURES)
        has_link = _beautify(document)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if has_link else Qt.FocusPolicy.ClickFocus)
        self._take(document)

    def take_theme(self) -> None:
        """Use the colours of the theme: those of links and code are part of the document, so it is made anew."""
        if self._tokens is theme.tokens:
            return
        self._tokens = theme.tokens
        if self._markdown:
            self.set_markdown(self._markdown)
        elif self._muted:
            cursor = QTextCursor(self.document())
            cursor.select(QTextCursor.SelectionType.Document)
            cursor.mergeCharFormat(self._plain_format())

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave the wheel to the transcript."""
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the text, and a bar where more is expected."""
        super().paintEvent(event)
        if self._caret:
            cursor = QTextCursor(self.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            rect = self.cursorRect(cursor)
            painter = QPainter(self.viewport())
            painter.fillRect(
                min(rect.left() + 1, self.viewport().width() - _CARET_PX),
                rect.top() + 2,
                _CARET_PX,
                self.fontMetrics().height() - 2,
                QColor(theme.tokens.accent),
            )
            painter.end()

    def _plain_format(self) -> QTextCharFormat:
        form = QTextCharFormat()
        if self._muted:
            form.setForeground(QColor(theme.tokens.muted))
        return form

    def _new_document(self) -> QTextDocument:
        document = _InertDocument(self)
        document.setUndoRedoEnabled(False)
        document.setDocumentMargin(0)
        document.setIndentWidth(_INDENT_PX)
        document.setDefaultFont(text_font())
        return document

    def _take(self, document: QTextDocument) -> None:
        old, self._taken = self._taken, document
        self.setDocument(document)
        document.documentLayout().documentSizeChanged.connect(self._fit)
        if old is not None:
            old.deleteLater()
        self._fit()

    def _fit(self) -> None:
        height = math.ceil(self.document().size().height())
        if height != self.minimumHeight() or height != self.maximumHeight():
            self.setFixedHeight(height)


def _block_format() -> QTextBlockFormat:
    form = QTextBlockFormat()
    form.setLineHeight(_LINE_HEIGHT_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
    return form


def _beautify(document: QTextDocument) -> bool:
    """Give a rendered document our fonts and distances; returns whether it has links."""
    has_link = False
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    images: list[tuple[int, int, str]] = []
    block = document.begin()
    while block.isValid():
        level = block.blockFormat().headingLevel()
        form = _block_format()
        in_table = isinstance(QTextCursor(block).currentTable(), QTextTable)
        if block.next().isValid() and not in_table:
            form.setBottomMargin(2 if block.textList() and block.next().textList() else _GAP_PX)
        if level:
            form.setTopMargin(_GAP_PX if block.blockNumber() else 0)
        quoted = block.blockFormat().intProperty(QTextBlockFormat.Property.BlockQuoteLevel)
        if quoted:
            form.setLeftMargin(_INDENT_PX * quoted)
        cursor.setPosition(block.position())
        cursor.mergeBlockFormat(form)
        fragments = block.begin()
        while not fragments.atEnd():
            fragment = fragments.fragment()
            current = fragment.charFormat()
            has_link = has_link or current.isAnchor()
            if current.isImageFormat():
                picture = current.toImageFormat()
                words = f"{picture.property(QTextCharFormat.Property.ImageAltText) or 'Image'} ({picture.name()})"
                images.append((fragment.position(), fragment.length(), words))
            changed = _char_format(current, level, quoted=bool(quoted))
            if changed is not None:
                cursor.setPosition(fragment.position())
                cursor.setPosition(fragment.position() + fragment.length(), QTextCursor.MoveMode.KeepAnchor)
                cursor.mergeCharFormat(changed)
            fragments += 1
        block = block.next()
    muted = QTextCharFormat()
    muted.setForeground(QColor(theme.tokens.muted))
    for position, length, words in reversed(images):
        cursor.setPosition(position)
        cursor.setPosition(position + length, QTextCursor.MoveMode.KeepAnchor)
        cursor.insertText(words, muted)
    cursor.endEditBlock()
    for frame in document.rootFrame().childFrames():
        if isinstance(frame, QTextTable):
            table = frame.format()
            table.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
            table.setBorderBrush(QColor(theme.tokens.line))
            table.setBottomMargin(_GAP_PX)
            frame.setFormat(table)
    return has_link


def _char_format(current: QTextCharFormat, heading: int, *, quoted: bool) -> QTextCharFormat | None:
    """What to change of a run of text, None for nothing."""
    changed = QTextCharFormat()
    if heading:
        changed.setProperty(QTextCharFormat.Property.FontSizeAdjustment, 0)
        changed.setProperty(QTextCharFormat.Property.FontPixelSize, _HEADING_PX.get(heading, FONT_PX))
    if quoted and not current.isAnchor():
        changed.setForeground(QColor(theme.tokens.muted))
    if current.fontWeight() > QFont.Weight.DemiBold:
        changed.setFontWeight(QFont.Weight.DemiBold)
    if current.fontFixedPitch():
        changed.setFontFamilies([CODE_FONT])
        changed.setProperty(QTextCharFormat.Property.FontPixelSize, FONT_PX - 1)
        changed.setBackground(QColor(theme.tokens.raised))
    return changed if changed.propertyCount() else None
