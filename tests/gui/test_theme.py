"""Both themes can be read, and nobody names a colour outside them."""

import re
from pathlib import Path

import pytest
from PySide6.QtGui import QFontInfo
from PySide6.QtWidgets import QApplication

from gui import theme
from gui.theme import DARK, LIGHT, Tokens

GUI = Path(theme.__file__).parent
ASSETS = GUI.parent / "assets"


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    bright, dim = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("tokens", [DARK, LIGHT], ids=["dark", "light"])
def test_every_text_colour_can_be_read_on_every_ground(tokens: Tokens) -> None:
    for name in ("text", "muted", "accent", "ok", "warn", "bad"):
        for ground in ("bg", "surface", "raised"):
            assert contrast(getattr(tokens, name), getattr(tokens, ground)) >= 4.5, (name, ground)
    assert contrast(tokens.on_accent, tokens.accent) >= 4.5


@pytest.mark.parametrize("tokens", [DARK, LIGHT], ids=["dark", "light"])
def test_tinted_grounds_can_be_read_too(tokens: Tokens) -> None:
    sheet = (ASSETS / "style.qss").read_text()
    rules = re.findall(r"background: @(\w+)~(\w+)~(\d+); [^}]*?(?<![-\w])color: @(\w+)[;~ ]", sheet)
    assert rules, "the pills are such rules"
    for ground, other, percent, text in rules:
        tint = theme.mix(getattr(tokens, ground), getattr(tokens, other), int(percent) / 100)
        assert contrast(getattr(tokens, text), tint) >= 4.5, (ground, other, percent, text)


@pytest.mark.parametrize("tokens", [DARK, LIGHT], ids=["dark", "light"])
def test_lines_of_charts_stand_out(tokens: Tokens) -> None:
    assert len(set(tokens.series)) == len(tokens.series) >= 4
    for colour in tokens.series:
        assert contrast(colour, tokens.surface) >= 3.0, colour


def test_colours_are_named_in_one_place() -> None:
    found = {
        f"{file.relative_to(GUI)}: {colour}"
        for file in GUI.rglob("*.py")
        if file.name != "theme.py"
        for colour in re.findall(r"#[0-9a-fA-F]{6}\b|#[0-9a-fA-F]{3}\b", file.read_text())
    }
    assert found == set()


def test_the_fonts_that_ship_are_used(themed_app: QApplication) -> None:
    assert QFontInfo(themed_app.font()).family() == "Inter"
    assert QFontInfo(theme.code_font()).family() == "JetBrains Mono"


def test_a_theme_reaches_palette_and_style_sheet(themed_app: QApplication) -> None:
    changes: list[str] = []
    theme.theme.changed.connect(lambda: changes.append(theme.theme.choice))
    try:
        theme.theme.apply("light")
        assert themed_app.palette().window().color().name() == LIGHT.bg
        assert LIGHT.accent in themed_app.styleSheet()
        assert "@" not in themed_app.styleSheet()
        assert theme.theme.tokens is LIGHT
    finally:
        theme.theme.apply("dark")
    assert themed_app.palette().window().color().name() == DARK.bg
    assert changes == ["light", "dark"]


def test_every_symbol_is_drawn_in_the_colour_asked_for(themed_app: QApplication) -> None:
    for file in sorted((ASSETS / "symbols").glob("*.svg")):
        image = theme.symbol(file.stem, DARK.ok, size_px=24).toImage()
        colours = {
            image.pixelColor(x, y).name()
            for x in range(image.width())
            for y in range(image.height())
            if image.pixelColor(x, y).alpha() > 250
        }
        assert DARK.ok in colours, file.name
