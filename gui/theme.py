"""How everything looks: colours of both themes, fonts, symbols and the style sheet; nobody else names a colour."""

import re
from dataclasses import dataclass, fields
from functools import lru_cache

from PySide6.QtCore import QByteArray, QObject, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QIcon, QPainter, QPalette, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication

from backend import paths

TEXT_FONT = "Inter"
CODE_FONT = "JetBrains Mono"
FONT_PX = 13
NOTE_PX = 11
TITLE_PX = 18
FIGURE_PX = 22
RADIUS_PX = 10
STEP_PX = 4


@dataclass(frozen=True, slots=True)
class Tokens:
    """Colours of one theme, as "#rrggbb"; `series` are those of chart lines, told apart by colour-blind people."""

    bg: str
    surface: str
    raised: str
    line: str
    text: str
    muted: str
    accent: str
    ok: str
    warn: str
    bad: str
    on_accent: str
    series: tuple[str, ...]


DARK = Tokens(
    bg="#0f1217",
    surface="#171b22",
    raised="#1e242d",
    line="#2a313c",
    text="#e6e9ee",
    muted="#98a2b3",
    accent="#5aa9ff",
    ok="#3ecf8e",
    warn="#f2b84b",
    bad="#ff6b6b",
    on_accent="#0b1320",
    series=("#5aa9ff", "#f2b84b", "#3ecf8e", "#c792ea", "#ff8f6b", "#6bd6e0"),
)
LIGHT = Tokens(
    bg="#f4f5f7",
    surface="#ffffff",
    raised="#f8f9fb",
    line="#dfe3e8",
    text="#1a1f27",
    muted="#5b6472",
    accent="#1769d2",
    ok="#0a7d4f",
    warn="#956400",
    bad="#c62f2f",
    on_accent="#ffffff",
    series=("#1769d2", "#b26a00", "#0a7d4f", "#8a3ffc", "#c2410c", "#0e7490"),
)


@lru_cache(maxsize=256)
def mix(first: str, second: str, share: float) -> str:
    """Return `first` with `share` (0..1) of `second`: a tint that needs no transparency."""
    a, b = QColor(first), QColor(second)
    parts = [
        round(x + (y - x) * share)
        for x, y in zip((a.red(), a.green(), a.blue()), (b.red(), b.green(), b.blue()), strict=True)
    ]
    return "#{:02x}{:02x}{:02x}".format(*parts)


class Theme(QObject):
    """The theme in use; widgets that paint themselves read `tokens` and repaint on `changed`.

    Signals:
        changed: the colours are others now.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.choice = "system"
        self.tokens = DARK

    def apply(self, choice: str) -> None:
        """Use "dark", "light" or what the "system" says, for the whole application."""
        self.choice = choice
        hints = QGuiApplication.styleHints()
        dark = choice == "dark" or (choice == "system" and hints.colorScheme() != Qt.ColorScheme.Light)
        self.tokens = DARK if dark else LIGHT
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.setPalette(_palette(self.tokens))
        app.setStyleSheet(_style_sheet(self.tokens))
        _pixmap.cache_clear()
        self.changed.emit()

    def follow_system(self) -> None:
        """Take up each change of the desktop's own theme while the choice is "system"."""
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._on_system_changed)

    def _on_system_changed(self) -> None:
        if self.choice == "system":
            self.apply("system")


theme = Theme()
"""The one theme of the application."""


def prepare(app: QApplication, choice: str) -> None:
    """Load fonts, set style and theme; once, before the first widget is made."""
    app.setStyle("Fusion")
    for file in sorted((paths.shipped("assets") / "fonts").glob("*.[ot]tf")):
        QFontDatabase.addApplicationFont(str(file))
    font = QFont(TEXT_FONT)
    font.setPixelSize(FONT_PX)
    font.setFeature(QFont.Tag("tnum"), 1)
    app.setFont(font)
    app.setWindowIcon(QIcon(str(paths.shipped("assets") / "icon.svg")))
    theme.apply(choice)
    theme.follow_system()


def code_font(px: int = FONT_PX - 1) -> QFont:
    """Return the font of figures and code."""
    font = QFont(CODE_FONT)
    font.setPixelSize(px)
    font.setFeature(QFont.Tag("calt"), 0)  # no ligatures: -- stays two signs
    font.setStyleHint(QFont.StyleHint.Monospace)
    return font


def text_font(px: int = FONT_PX, *, bold: bool = False) -> QFont:
    """Return the text font with numbers of equal width; bold means half bold, which is what ships."""
    font = QFont(TEXT_FONT)
    font.setPixelSize(px)
    font.setFeature(QFont.Tag("tnum"), 1)
    if bold:
        font.setWeight(QFont.Weight.DemiBold)
    return font


@lru_cache(maxsize=512)
def _pixmap(name: str, colour: str, size_px: int, scale: float) -> QPixmap:
    svg = (paths.shipped("assets") / "symbols" / f"{name}.svg").read_text(encoding="utf-8")
    renderer = QSvgRenderer(QByteArray(svg.replace("currentColor", colour).encode()))
    pixmap = QPixmap(round(size_px * scale), round(size_px * scale))
    pixmap.setDevicePixelRatio(scale)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    renderer.render(painter, QRectF(0, 0, size_px, size_px))
    painter.end()
    return pixmap


def symbol(name: str, colour: str | None = None, *, size_px: int = 18) -> QPixmap:
    """Return a symbol of assets/symbols as a picture, by default in the text colour."""
    app = QApplication.instance()
    scale = app.devicePixelRatio() if isinstance(app, QApplication) else 1.0
    return _pixmap(name, colour or theme.tokens.text, size_px, scale)


def icon(name: str, colour: str | None = None, *, size_px: int = 18) -> QIcon:
    """Return a symbol as an icon that greys when its control is disabled."""
    found = QIcon(symbol(name, colour, size_px=size_px))
    found.addPixmap(
        symbol(name, mix(theme.tokens.muted, theme.tokens.surface, 0.4), size_px=size_px), QIcon.Mode.Disabled
    )
    return found


def _palette(tokens: Tokens) -> QPalette:
    palette = QPalette()
    role = QPalette.ColorRole
    for which, colour in (
        (role.Window, tokens.bg),
        (role.WindowText, tokens.text),
        (role.Base, tokens.raised),
        (role.AlternateBase, tokens.surface),
        (role.Text, tokens.text),
        (role.PlaceholderText, tokens.muted),
        (role.Button, tokens.raised),
        (role.ButtonText, tokens.text),
        (role.BrightText, tokens.bad),
        (role.Highlight, tokens.accent),
        (role.HighlightedText, tokens.on_accent),
        (role.Link, tokens.accent),
        (role.LinkVisited, tokens.accent),
        (role.ToolTipBase, tokens.raised),
        (role.ToolTipText, tokens.text),
        (role.Light, tokens.raised),
        (role.Midlight, tokens.line),
        (role.Mid, tokens.line),
        (role.Dark, tokens.line),
        (role.Shadow, tokens.bg),
        (role.Accent, tokens.accent),
    ):
        palette.setColor(which, QColor(colour))
    grey = QColor(mix(tokens.muted, tokens.surface, 0.4))
    for which in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, which, grey)
    return palette


def _style_sheet(tokens: Tokens) -> str:
    """Fill assets/style.qss with the colours; `@name` is a token, `@name~other~30` a mix with 30 % of another."""
    assets = paths.shipped("assets")
    template = (assets / "style.qss").read_text(encoding="utf-8")
    known = {
        each.name: getattr(tokens, each.name) for each in fields(tokens) if isinstance(getattr(tokens, each.name), str)
    }

    known["assets"] = assets.as_posix()

    def fill(found: re.Match[str]) -> str:
        colour, other, percent = found.group(1), found.group(2), found.group(3)
        return mix(known[colour], known[other], int(percent) / 100) if other else str(known[colour])

    return re.sub(r"@([a-z_]+)(?:~([a-z_]+)~(\d+))?", fill, template)
