"""The Profiles page for everybody: names, tooltips, nothing cut off in a small window, both themes."""

import pytest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from gui.theme import theme
from gui.widgets.field_editor import FieldEditor
from tests.gui.panes.profiles_page import Page


@pytest.mark.parametrize(("width", "height"), [(1364, 802), (1024, 602)])
def test_nothing_is_cut_and_every_control_has_a_name_and_a_tooltip(qtbot: QtBot, width: int, height: int) -> None:
    page = Page(qtbot, width=width, height=height)
    for section in page.pane.form._sections.values():
        section.unfold()
    page.built()
    page.pane.form._on_edited("speculation.method", "magic")
    page.checked()
    QApplication.processEvents()
    form = page.pane.form
    assert form._content.width() <= form.area.viewport().width()
    assert len(form.findChildren(FieldEditor)) == len(form._specs)
    controls = [
        widget
        for kind in (QAbstractButton, QLineEdit, QComboBox, QPlainTextEdit, QAbstractItemView)
        for widget in page.pane.findChildren(kind)
        if widget.isVisible()
    ]
    assert len(controls) > 70
    for widget in controls:
        if isinstance(widget.parentWidget(), QLineEdit | QComboBox):
            continue  # Qt's own parts of a field
        assert widget.accessibleName(), (widget, widget.parentWidget())
        assert widget.toolTip(), (widget, widget.accessibleName())
    for button in page.pane.findChildren(QPushButton):
        if button.isVisible():
            assert button.width() >= button.minimumSizeHint().width(), button.text()
    right = page.pane.actions_card
    assert right.mapTo(page.pane, right.rect().bottomRight()).y() <= height
    assert right.mapTo(page.pane, right.rect().bottomRight()).x() <= width
    page.pane.hide()


def test_another_theme_repaints_the_page(qtbot: QtBot) -> None:
    page = Page(qtbot)

    def colours(widget: QWidget) -> set[str]:
        image = widget.grab().toImage()
        return {image.pixelColor(x, y).name() for x in range(0, image.width(), 7) for y in range(0, image.height(), 7)}

    try:
        dark = colours(page.pane.sidebar)
        theme.apply("light")
        light = colours(page.pane.sidebar)
    finally:
        theme.apply("dark")
    assert theme.tokens.surface in dark
    assert theme.tokens.surface not in light
    page.pane.hide()
