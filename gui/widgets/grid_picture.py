"""A picture of all cards on a page with a title over them, drawn card by card so that the window does not stand."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from PySide6.QtCore import QByteArray, QPoint, QRect, QSaveFile, Qt
from PySide6.QtGui import QColor, QFontMetrics, QImage, QImageWriter, QPainter, QRegion
from PySide6.QtWidgets import QWidget

from backend.errors import UserError
from gui.theme import text_font, theme
from gui.widgets.card_grid import CardGrid

_SCALE = 2
_PAD = 16
_TITLE_PX = 15
_GAP = 12


def steps(grid: CardGrid, title: str, over: Sequence[QWidget], take: Callable[[QImage], None]) -> Iterator[None]:
    """Draw the cards of a grid, also those that are scrolled away, and hand the picture to `take`; one card a step.

    Args:
        grid: the cards.
        title: a line over them.
        over: widgets that stand between the title and the cards; those that are hidden are left out.
        take: gets the picture.
    """
    cards = [card for card in grid.visible_cards if card.isVisible()]
    heads = [widget for widget in over if widget.isVisible()]
    areas = [card.geometry() for card in cards]
    whole = QRect()
    for area in areas:
        whole = whole.united(area)
    wide = max([whole.width(), *(widget.width() for widget in heads)], default=1)
    font = text_font(_TITLE_PX, bold=True)
    top = _PAD + QFontMetrics(font).height() + _GAP
    high = top + sum(widget.height() + _GAP for widget in heads) + whole.height() + _PAD
    image = QImage((wide + 2 * _PAD) * _SCALE, high * _SCALE, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(_SCALE)
    image.fill(QColor(theme.tokens.bg))
    painter = QPainter(image)
    painter.setFont(font)
    painter.setPen(QColor(theme.tokens.text))
    line = QRect(_PAD, _PAD, wide, QFontMetrics(font).height())
    shown = QFontMetrics(font).elidedText(title, Qt.TextElideMode.ElideRight, wide)
    painter.drawText(line, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
    painter.end()
    yield
    for widget in heads:
        _draw(image, widget, QPoint(_PAD, top))
        top += widget.height() + _GAP
        yield
    for card, area in zip(cards, areas, strict=True):
        grid.freshen(card)
        _draw(image, card, QPoint(_PAD, top) + area.topLeft() - whole.topLeft())
        yield
    take(image)


def _draw(image: QImage, widget: QWidget, at: QPoint) -> None:
    painter = QPainter(image)
    flag = QWidget.RenderFlag
    widget.render(painter, at, QRegion(), flag.DrawChildren | flag.IgnoreMask)
    painter.end()


def save(image: QImage, path: Path) -> None:
    """Write a picture as PNG; takes a moment, any thread.

    Raises:
        UserError: the file cannot be written.
    """
    file = QSaveFile(str(path))
    writer = QImageWriter(file, QByteArray(b"png"))
    if not (file.open(QSaveFile.OpenModeFlag.WriteOnly) and writer.write(image) and file.commit()):
        raise UserError(f"The picture cannot be written to {path}: {file.errorString()}.", "Choose another folder.")
