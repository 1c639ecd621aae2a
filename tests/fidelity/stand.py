"""The whole window on an engine and GPUs whose every number the test sets, and what the window then draws and says."""

import contextlib
import json
import math
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from backend.desk.types import Reading
from gui.main_window import MainWindow
from gui.widgets.card import Card
from gui.widgets.card_grid import CardGrid
from gui.widgets.chart_card import ChartCard
from tests.backend.desk.home import prepare_home
from tests.e2e.fake_environment import Traces
from tests.fakes.fake_nvml import FakeNvml
from tests.fakes.model_folders import write_model
from tests.gui.panel import Panel, make_panel

LAYERS, HIDDEN, HEADS, INNER, VOCABULARY = 2, 128, 4, 256, 512
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
# By hand: four attention matrices, three of the MLP and two norms a layer; a last norm, and the output head.
PARAMETERS = LAYERS * (4 * HIDDEN * HIDDEN + 3 * INNER * HIDDEN + 2 * HIDDEN) + HIDDEN + VOCABULARY * HIDDEN
KV_ELEMENTS = 2 * LAYERS * HIDDEN  # of one token


def _tensors() -> dict[str, tuple[str, tuple[int, ...]]]:
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("F32", (VOCABULARY, HIDDEN)),
        "model.norm.weight": ("F32", (HIDDEN,)),
        "lm_head.weight": ("F32", (VOCABULARY, HIDDEN)),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        found |= {f"{at}.self_attn.{part}_proj.weight": ("F32", (HIDDEN, HIDDEN)) for part in "qkvo"}
        found |= {f"{at}.mlp.{part}_proj.weight": ("F32", (INNER, HIDDEN)) for part in ("gate", "up")}
        found[f"{at}.mlp.down_proj.weight"] = ("F32", (HIDDEN, INNER))
        found |= {f"{at}.{part}_layernorm.weight": ("F32", (HIDDEN,)) for part in ("input", "post_attention")}
    return found


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line: seconds before the newest one, and the value in the unit of the plot; NaN is a gap."""

    before_s: float
    value: float


@dataclass(slots=True)
class Stand:
    """The window while an engine runs; `readings` are all that it was given, in order."""

    panel: Panel
    nvml: FakeNvml
    readings: list[Reading] = field(default_factory=list)

    @property
    def window(self) -> MainWindow:
        return self.panel.window

    def engine_pid(self) -> int:
        """A process of the engine."""
        return Traces.of_listener(self.panel.port).session

    def serve(self, page: str | None, **faults: object) -> None:
        """Have the engine answer with this page of metrics from now on; None is that of the fake itself."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.panel.port}/fake/faults",
            data=json.dumps({"metrics_text": page, **faults}).encode(),
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=60):
            pass

    def next_readings(self, n: int) -> list[Reading]:
        """Wait for so many readings that nobody has seen yet."""
        first = len(self.readings)
        self.panel.wait(lambda: len(self.readings) >= first + n)
        return self.readings[first:]

    def rest_on(self, page: str) -> None:
        """Serve a page until the window has seen it at rest."""
        self.serve(page)
        self.next_readings(3)

    def step(self, before: str, after: str) -> Reading:
        """Serve one page, then another; returns the one reading that spans both."""
        self.rest_on(before)
        first = len(self.readings)
        self.serve(after)
        self.next_readings(3)
        found = [
            reading
            for reading in self.readings[first:]
            if reading.engine is not None and reading.engine.generation_tokens_per_s
        ]
        assert len(found) == 1, "the counters grew once"
        return found[0]

    def show(self, page: str) -> CardGrid:
        """Bring up a page; returns its cards."""
        self.window.show_page(page)
        grid: CardGrid = self.window.page(page).grid  # type: ignore[attr-defined]
        return grid

    def lines(self, grid: CardGrid, card: Card) -> Iterator[tuple[int, str]]:
        """Bring a card into sight; gives every line of it: the number of its view, and the name of its series."""
        assert isinstance(card, ChartCard)
        grid.ensureWidgetVisible(card)
        # Not what it drew before it was scrolled away, perhaps when nothing but the machine was known.
        self.panel.wait(lambda: card.moment is not None and card.moment is grid._moment)
        for number, view in enumerate(card.views):
            for series in view.series:
                yield number, series.name

    def points(self, card: Card, view: int, name: str) -> list[Point]:
        """What a card in sight draws for a series, once it draws anything."""
        assert isinstance(card, ChartCard)
        card.choose_view(view)
        self.panel.wait(lambda: name in card.chart.drawn and card.chart.drawn[name][0].size > 0)
        drawn = card.chart.drawn
        times, values = drawn[name]
        return [Point(float(times[-1] - t), float(value)) for t, value in zip(times, values, strict=True)]

    def known(self, card: Card, view: int, name: str) -> list[float]:
        """The values that a card draws for a series."""
        return [point.value for point in self.points(card, view, name) if not math.isnan(point.value)]


def plain(words: str) -> str:
    """Words with usual spaces in place of the narrow ones."""
    return words.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{NO-BREAK SPACE}", " ").strip()


@contextlib.contextmanager
def stand(qtbot: QtBot, folder: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """Give a window whose engine is READY and serves what it is told."""
    for name, value in nvml.environment.items():
        monkeypatch.setenv(name, value)
    port = prepare_home(folder)
    write_model(folder / "model", CONFIG, _tensors())
    with make_panel(qtbot, folder, port=port) as panel:
        made = Stand(panel, nvml)
        panel.bridge.sampled.connect(made.readings.append)
        panel.start_and_wait()
        yield made
        made.serve(None)
