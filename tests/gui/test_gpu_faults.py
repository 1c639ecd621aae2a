"""The window, the real sampler and the real pynvml on an NVML that refuses, lies, crashes, hangs or is not there.

In each case the page of the GPUs tells the truth, the window goes on, and closing it leaves no sampler behind.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QTimer
from pytestqt.qtbot import QtBot

from backend.telemetry import gpus
from backend.telemetry.gpus import Timing
from gui.panes.gpus import GpusPane
from tests.fakes.fake_nvml import DRIVER_NOT_LOADED, MISMATCH, NO_PERMISSION, NOT_SUPPORTED, FakeNvml, uuid
from tests.fidelity.stand import plain
from tests.gui.panel import Panel, make_panel

USED = "nvmlDeviceGetUtilizationRates"  # called at each tick
FALLEN = "This GPU has fallen off the bus. Restart the machine if it does not come back."
DASH = "\N{EN DASH}"
COLUMNS = ("GPU", "Name", "UUID", "Memory", "Busy", "Power", "Temp.", "Clock", "State")


class Pulse(QObject):
    """Counts how often the main thread came to its event loop."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.count = 0
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._on_timeout)
        self._timer.start(50)

    def _on_timeout(self) -> None:
        self.count += 1


class Bench:
    """The window with its page of GPUs, and what it says."""

    def __init__(self, panel: Panel, nvml: FakeNvml) -> None:
        self.panel, self.nvml = panel, nvml
        self.n_readings = 0
        panel.bridge.sampled.connect(self._on_sampled)
        panel.window.show_page("gpus")
        page = panel.window.page("gpus")
        assert isinstance(page, GpusPane)
        self.page = page
        self.pulse = Pulse(panel.window)

    def _on_sampled(self, _reading: object) -> None:
        self.n_readings += 1

    def rows(self) -> dict[str, dict[str, str]]:
        """What the table says, by the UUID of the row; "all" is the row of all."""
        return {
            row.key: {name: plain(cell.text) for name, cell in zip(COLUMNS, row.cells, strict=True)}
            for row in self.page.table.rows.rows
        }

    def tips(self, key: str) -> dict[str, str]:
        """What stands behind each cell of a row."""
        row = next(row for row in self.page.table.rows.rows if row.key == key)
        return {name: cell.tip for name, cell in zip(COLUMNS, row.cells, strict=True)}

    def says(self, gpu: int | str, column: str) -> str:
        return self.rows().get(uuid(gpu) if isinstance(gpu, int) else gpu, {}).get(column, "")

    @property
    def absent(self) -> str:
        """Why there is no GPU to show, "" while there is one."""
        return self.page.absent.words.text() if self.page.absent.isVisible() else ""

    def wait_for(self, gpu: int | str, **cells: str) -> None:
        """Wait until the row of a GPU says this."""
        self.panel.wait(lambda: all(self.says(gpu, column) == text for column, text in cells.items()))

    def goes_on(self) -> None:
        """Fail unless readings keep coming, the event loop turns, and pages come up while the case lasts."""
        readings, pulse = self.n_readings, self.pulse.count
        self.panel.wait(lambda: self.n_readings >= readings + 3)
        assert self.pulse.count > pulse + 3
        for page in ("run", "settings", "gpus"):
            self.panel.window.show_page(page)
            assert self.panel.window.page(page).isVisible()


@pytest.fixture
def nvml(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """The library that samplers of this test load."""
    for name, value in fake_nvml.environment.items():
        monkeypatch.setenv(name, value)
    return fake_nvml


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path, nvml: FakeNvml) -> Iterator[Bench]:
    with make_panel(qtbot, tmp_path) as panel:
        yield Bench(panel, nvml)


def limits(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    monkeypatch.setattr(gpus, "Timing", lambda: replace(Timing(), **changes))  # type: ignore[arg-type]


@pytest.fixture
def early(request: pytest.FixtureRequest, nvml: FakeNvml) -> None:
    """State of the library before the sampler loads it."""
    nvml.say(*request.param)


def before(*lines: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("early", [lines], indirect=True, ids=["fault"])


def test_values(bench: Bench) -> None:
    # 33e9 bytes are 30.7 GiB of the 80; the row of all adds the 61e9 of the other.
    bench.nvml.say(
        "memory_used 1 33e9", "busy 1 13", "power_mw 1 212000", "celsius 1 44", "sm_mhz 1 1200", "p_state 1 2"
    )
    bench.wait_for(1, Memory="30.7 of 80.0 GiB", Busy="13 %", Power="212 of 700 W")
    bench.wait_for(1, **{"Temp.": "44 °C", "Clock": "P2, 1,200 MHz", "State": "not throttled"})
    bench.wait_for("all", Memory="87.5 of 160.0 GiB", Busy="55 %", Power="724 of 1,400 W", **{"Temp.": "61 °C"})
    assert bench.page.title.text() == "2 GPUs"
    assert "driver 580.95.05" in bench.page.note.text
    bench.nvml.say("throttle 1 4")
    bench.wait_for(1, State="throttled: power limit")
    bench.wait_for("all", State="1 throttled")
    bench.goes_on()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (NOT_SUPPORTED, "This GPU does not tell"),
        (NO_PERMISSION, "The driver does not let this user read"),
    ],
)
def test_what_is_refused_is_a_dash_that_says_why(bench: Bench, code: int, words: str) -> None:
    refused = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", USED, "nvmlDeviceGetTemperatureV")
    bench.nvml.say(*(f"fault 0 {function} return {code}" for function in (*refused, "nvmlDeviceGetTemperature")))
    bench.wait_for(0, Memory=DASH, Busy=DASH, **{"Temp.": DASH})
    tips = bench.tips(uuid(0))
    assert tips["Memory"].startswith(f"{words} the memory in use.")
    assert tips["Busy"].startswith(f"{words} how long it is busy.")
    bench.wait_for(0, Clock="P0, 1,755 MHz")  # what is not refused stays
    bench.wait_for(1, Memory="56.8 of 80.0 GiB", Busy="97 %")
    bench.wait_for("all", Memory="56.8 of 80.0 GiB")
    bench.goes_on()


@before("gpus * 3")
def test_one_gpu_falls_off_the_bus_in_mid_run_another_is_unplugged_and_both_return(early: None, bench: Bench) -> None:
    bench.wait_for(2, Busy="97 %")
    bench.nvml.say("lost 1 1", "lost 2 1", "absent 2 1", "busy 0 33")
    for gpu in (1, 2):
        bench.wait_for(gpu, Memory=DASH, Busy=DASH, Power=DASH, State="lost: fell off the bus")
        assert bench.tips(uuid(gpu))["Power"] == FALLEN
    bench.wait_for(0, Busy="33 %")
    bench.wait_for("all", State="2 lost", Power="512 of 700 W")
    assert [bar.lost for bar in bench.panel.window.status.gpus.bars] == [False, True, True]
    bench.goes_on()
    bench.nvml.say("lost * 0", "absent 2 0", "generation 1 1", "generation 2 1", "busy 2 5")
    bench.wait_for(1, Busy="97 %", State="not throttled")
    bench.wait_for(2, Busy="5 %", Memory="56.8 of 80.0 GiB")


@before("gpus * 8", "busy 7 8")
def test_eight_gpus_at_a_glance(early: None, bench: Bench) -> None:
    bench.wait_for(7, Busy="8 %")
    bench.wait_for("all", Memory="454.5 of 640.0 GiB", Power="4,099 of 5,600 W")  # 8 x 56.81 GiB, 8 x 512.345 W
    assert len(bench.rows()) == 9
    assert len(bench.panel.window.status.gpus.bars) == 8
    bench.goes_on()


@before("slices 0 2", "memory_used 0 3e9", "memory_reserved 0 1e8")
def test_slices_stand_below_their_gpu(early: None, bench: Bench) -> None:
    bench.panel.wait(lambda: len(bench.rows()) == 5)
    rows = list(bench.rows().values())
    assert [row["GPU"] for row in rows] == ["All", "GPU 0", "MIG 0:0", "MIG 0:1", "GPU 1"]
    assert [row["State"] for row in rows[1:3]] == ["cut into MIG slices", DASH]
    assert rows[2]["Busy"] == DASH
    bench.panel.wait(lambda: list(bench.rows().values())[2]["Memory"] == "2.8 of 9.3 GiB")  # 3e9 of 10e9 bytes
    assert bench.page.title.text() == "2 GPUs"
    bench.goes_on()


@before("unified 0 1", "name 0 NVIDIA GB10")
def test_unified_memory_is_told_as_shared(early: None, bench: Bench) -> None:
    bench.wait_for(0, State="memory shared with system")
    assert "shared with system" in bench.tips(uuid(0))["Memory"]
    assert "0.0 of 0.0" not in bench.says(0, "Memory")
    bench.goes_on()


def test_bad_process_lists(bench: Bench) -> None:
    bench.nvml.say(
        "process 0 compute 4000001 3e9",
        "process 0 graphics 4000001 3e9",  # again in another list: it holds that memory once
        "process 0 compute 0 5e9",  # no process
        "process 0 compute 4000002 9e15",  # more than there is
        "process 1 compute 4000003 -1",  # the driver does not tell
    )
    bench.page.sections.button(1).click()
    table = bench.page.processes

    def shown() -> list[list[str]]:
        return [[plain(cell.text) for cell in row.cells] for row in table.table.rows.rows]

    bench.panel.wait(lambda: any("4000001" in " ".join(row) for row in shown()))
    rows = {next(cell for cell in row if cell.isdigit() and len(cell) > 5): row for row in shown()}
    assert rows.keys() == {"4000001", "4000003"}, "the others make no sense"
    assert any("2.8" in cell for cell in rows["4000001"])  # 3e9 bytes in GiB
    assert DASH in rows["4000003"]
    bench.goes_on()


def test_a_counter_that_wraps_is_a_gap_and_no_spike(bench: Bench) -> None:
    bench.wait_for(0, Busy="97 %")
    card = bench.page.grid.cards["gpu_pcie"]
    bench.page.grid.ensureWidgetVisible(card)
    name = f"{uuid(0)}/pcie_rx_bytes_per_s"

    def drawn() -> list[float]:
        return list(card.chart.drawn.get(name, ((), ()))[1])  # type: ignore[attr-defined]

    bench.panel.wait(lambda: len([value for value in drawn() if not math.isnan(value)]) >= 2)
    counted = 2**32 - 1
    bench.nvml.say(f"field 0 198 {counted}")
    bench.goes_on()
    bench.nvml.say("field 0 198 5")  # it began anew
    n_before = len(drawn())
    bench.panel.wait(lambda: len(drawn()) >= n_before + 3)
    known = [value for value in drawn() if not math.isnan(value)]
    assert min(known) >= 0
    assert max(known) < 64, "no more than the link carries"
    bench.goes_on()


@before(f"fault * nvmlInitWithFlags return {MISMATCH}")
def test_a_driver_that_was_updated(early: None, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    bench.panel.wait(lambda: "was updated" in bench.absent)
    assert "estart" in bench.absent, "it says what to do"
    bench.goes_on()


@before(f"fault * nvmlInitWithFlags return {DRIVER_NOT_LOADED}")
def test_no_driver(early: None, bench: Bench) -> None:
    bench.panel.wait(lambda: "not loaded" in bench.absent)
    assert [card.key for card in bench.page.grid.visible_cards] == ["bandwidth", "cache", "host"]
    assert bench.panel.window.status.host.text().startswith("CPU ")
    bench.goes_on()


def test_no_library(qtbot: QtBot, tmp_path: Path, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("This is no library, and stands before one that there may be. " * 100)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with make_panel(qtbot, tmp_path) as panel:
        bench = Bench(panel, fake_nvml)
        panel.wait(lambda: "is not installed" in bench.absent)
        bench.goes_on()


def test_a_crash_inside_a_call(qtbot: QtBot, tmp_path: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, back_off_s=(4.0,))
    with make_panel(qtbot, tmp_path) as panel:
        bench = Bench(panel, nvml)
        bench.wait_for(0, Busy="97 %")
        nvml.say(f"fault 0 {USED} crash")
        bench.wait_for(0, State="old figures")
        assert "old" in bench.tips(uuid(0))["Busy"]
        bench.goes_on()
        nvml.unsay("fault")
        bench.wait_for(0, State="not throttled")


def test_a_call_that_hangs(qtbot: QtBot, tmp_path: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, stale_s=1.5, silence_s=6.0, back_off_s=(0.1, 0.1, 0.1))
    with make_panel(qtbot, tmp_path) as panel:
        bench = Bench(panel, nvml)
        bench.wait_for(1, Busy="97 %")
        nvml.say(f"fault 1 {USED} hang")
        bench.wait_for(1, State="old figures")
        bench.goes_on()
        assert bench.says(0, "Busy") == "97 %", "the last figures stay, marked as old"
        nvml.unsay("fault")
        bench.wait_for(1, State="not throttled")
