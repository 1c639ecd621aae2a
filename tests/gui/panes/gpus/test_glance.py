"""Every GPU at a glance on the GPUs page, and the odd cases."""

import pytest
from pytestqt.qtbot import QtBot

from backend.hardware import GPU_FIGURES, GpuInfo, GpuReading, Why
from gui.panes.gpus import GpusPane
from gui.widgets import figures
from gui.widgets.gpu_table import ALL
from tests.gui import gpu_scenes as scenes
from tests.gui.gpu_scenes import GIB, STARTED
from tests.gui.panes.gpus.gpus_page import (
    GPU,
    MEMORY,
    POWER,
    RUN,
    STATE,
    TEMPERATURE,
    UUID,
    card,
    cells,
    reading,
    says,
    settle,
    show,
    tip,
)
from tests.gui.panes.readings import FakeBridge


@pytest.mark.parametrize("n_gpus", [1, 2, 8])
def test_each_gpu_has_a_row_with_its_figures(qtbot: QtBot, bridge: FakeBridge, page: GpusPane, n_gpus: int) -> None:
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, n_gpus))
    keys = [row.key for row in page.table.rows.rows]
    assert keys == ([ALL] if n_gpus > 1 else []) + [scenes.uuid(n) for n in range(n_gpus)]
    assert page.title.text() == ("1 GPU" if n_gpus == 1 else f"{n_gpus} GPUs")
    for number in range(n_gpus):
        made = scenes.reading(9, number)
        assert made.power_w is not None
        assert made.busy_ratio is not None
        assert cells(page, scenes.uuid(number)) == [
            f"GPU {number}",
            "H100 80GB HBM3",
            f"GPU-{number:08x}",
            f"{70.2 - 0.1 * number + 0.45:.1f} of 79.7 GiB",
            f"{made.busy_ratio * 100:.0f} %",
            f"{made.power_w:.0f} of 700 W",
            f"{made.temperature_c:.0f} °C",
            f"P0, {made.sm_clock_mhz:,.0f} MHz",
            "not throttled",
        ]
        assert tip(page, scenes.uuid(number), UUID) == scenes.uuid(number)
    assert page.note.text == "driver 580.95.05, CUDA 13.0  ·  read every 0.5 s, which takes 3 ms"
    assert page.table.height() >= page.table.height_for(len(keys)) - 2, "all rows are in sight"


def test_all_gpus_together(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    readings = [
        scenes.reading(0, n, power_w=300.0, busy_ratio=0.5 + 0.25 * n, temperature_c=60.0 + n, sm_clock_mhz=1900.0 - n)
        for n in range(2)
    ]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2, readings=readings))
    assert cells(page, ALL) == [
        "All", "2 \N{MULTIPLICATION SIGN} H100 80GB HBM3", "", "141.2 of 159.3 GiB", "62 %", "600 of 1,400 W", "61 °C",
        "1,899 MHz",
        "not throttled",
    ]  # fmt: skip


def test_throttled_lost_and_unknown_are_said_with_their_reason(
    qtbot: QtBot, bridge: FakeBridge, page: GpusPane
) -> None:
    readings = [
        scenes.reading(0, 0, throttle=("power cap", "thermal limit")),
        scenes.lost(0, 1),
        scenes.without(scenes.reading(0, 2), Why.NOT_SUPPORTED, "temperature_c", "throttle"),
        scenes.without(scenes.reading(0, 3), Why.NO_PERMISSION, "power_w"),
    ]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 4, readings=readings))
    assert cells(page, scenes.uuid(0))[STATE] == "throttled: power cap, thermal limit"
    assert cells(page, scenes.uuid(1))[MEMORY:] == [*[figures.UNKNOWN] * 5, "lost: fell off the bus"]
    assert "fallen off the bus" in tip(page, scenes.uuid(1), POWER)
    assert cells(page, scenes.uuid(2))[TEMPERATURE] == figures.UNKNOWN
    assert tip(page, scenes.uuid(2), TEMPERATURE) == "This GPU does not tell its temperature."
    assert cells(page, scenes.uuid(2))[STATE] == figures.UNKNOWN
    assert "does not let this user read its power" in tip(page, scenes.uuid(3), POWER)
    assert cells(page, ALL)[STATE] == "1 lost"
    assert says(page, "gpu_temperature") == f"{scenes.reading(0, 3).temperature_c:.0f} °C, highest on GPU 3"


def test_old_figures_are_marked_as_old(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    hangs = "The GPUs have not been read for 5 s; their driver does not answer."
    made = scenes.snapshot(4, 2)
    show(qtbot, bridge, page, lambda second: scenes.old(made, second, hangs) if second > 4 else made)
    for key in (ALL, scenes.uuid(0), scenes.uuid(1)):
        assert cells(page, key)[STATE] == "old figures"
    words = f"{hangs} The last figures are 5 s old."
    assert tip(page, scenes.uuid(0), POWER) == words
    assert tip(page, scenes.uuid(0), MEMORY).endswith(words)
    assert says(page, "gpu_power") == f"{figures.UNKNOWN} {words}"
    assert page.note.text == words


def test_why_gpus_that_were_seen_are_not_read_is_said(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    """The driver was taken away: those that an earlier sampler saw stay in the list, without any figure."""
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, 2))
    problem = "The NVIDIA driver is not loaded. Load it, or restart the machine."
    why = dict.fromkeys(GPU_FIGURES, Why.ERROR)
    blank = [GpuReading(scenes.uuid(n), STARTED + 10, why=why) for n in range(2)]
    bridge.feed(reading(10, scenes.snapshot(10, 2, readings=blank, problem=problem)))
    settle(qtbot, page)
    assert cells(page, scenes.uuid(0))[STATE] == "not read"
    assert tip(page, scenes.uuid(0), POWER) == problem
    assert page.note.text == problem
    assert says(page, "gpu_power") == f"{figures.UNKNOWN} {problem}"


def test_slices_stand_below_their_gpu_and_are_not_counted_twice(
    qtbot: QtBot, bridge: FakeBridge, page: GpusPane
) -> None:
    parent = scenes.info(0, mig_enabled=True)
    slices = [
        GpuInfo(f"MIG-{n}", "NVIDIA H100 MIG 3g.40gb", n, memory_total_bytes=40 * GIB, parent_uuid=parent.uuid)
        for n in range(2)
    ]
    of_slices = [
        GpuReading(each.uuid, STARTED, memory_total_bytes=40.0 * GIB, memory_used_bytes=n * 10.0 * GIB, engine_bytes=0,
                   other_bytes=n * 10.0 * GIB, why={"power_w": Why.NOT_SUPPORTED})
        for n, each in enumerate(slices)
    ]  # fmt: skip
    readings = [scenes.reading(0, 0), *of_slices]
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, gpus=[parent, *slices], readings=readings))
    assert [cells(page, row.key)[GPU] for row in page.table.rows.rows] == ["GPU 0", "MIG 0:0", "MIG 0:1"]
    assert page.title.text() == "1 GPU"
    assert cells(page, parent.uuid)[STATE] == "cut into MIG slices"
    assert cells(page, "MIG-1")[MEMORY] == "10.0 of 40.0 GiB"
    assert cells(page, "MIG-1")[POWER] == figures.UNKNOWN
    assert says(page, "gpu_memory") == "70.7 GiB used of 79.7 GiB", "a slice is part of its GPU"
    assert list(card(page, "gpu_memory").legend.values()) == ["GPU 0", "MIG 0:0", "MIG 0:1"]
    page.table.choose("MIG-1")
    settle(qtbot, page)
    assert says(page, "gpu_memory") == "10.0 GiB used of 40.0 GiB"


def test_unified_memory_says_so(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    spark = scenes.info(0, name="NVIDIA GB10", unified_memory=True)
    show(qtbot, bridge, page, lambda second: scenes.snapshot(second, gpus=[spark], readings=[scenes.reading(second)]))
    assert cells(page, spark.uuid)[MEMORY] == "70.7 of 79.7 GiB"
    assert cells(page, spark.uuid)[STATE] == "memory shared with system"
    assert tip(page, spark.uuid, MEMORY).startswith("70.7 of 79.7 GiB, shared with system")


def test_without_nvidia_the_page_says_why_and_shows_the_rest(qtbot: QtBot, bridge: FakeBridge, page: GpusPane) -> None:
    bridge.show(RUN)
    show(qtbot, bridge, page, scenes.no_gpus, lambda second: scenes.sample(second, 1))
    assert page.absent.isVisible()
    assert page.absent.words.text() == scenes.no_gpus().problem
    assert not page.table.isVisible()
    assert [each.key for each in page.grid.visible_cards] == ["bandwidth", "cache", "host"]
    implied = scenes.sample(9, 1).implied_bytes_per_s
    assert implied is not None
    assert says(page, "bandwidth") == f"{implied / 1e9:,.0f} GB/s implied"
    assert says(page, "host") == "25 % CPU, memory 8.0 of 16.0 GiB"
    assert bridge.measured_for == set()
    bridge.feed(reading(20, scenes.snapshot(20, 1), scenes.sample(20, 1)))  # a driver has come
    settle(qtbot, page)
    assert not page.absent.isVisible()
    assert page.table.isVisible()
    assert page.grid.cards["gpu_memory"].isVisible()


def test_before_the_first_reading(page: GpusPane) -> None:
    assert page.absent.title.text() == "GPUs", "nobody knows yet whether there are any"
    assert page.absent.words.text() == "Waiting for the first reading of the GPUs"
