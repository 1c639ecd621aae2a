"""Every setting of the Settings page, card by card."""

from gui.widgets.gpu_peaks import GpuPeaks
from gui.widgets.setting_rows import ChoiceRow, NumberRow, SettingRow, SwitchRow


def setting_cards() -> tuple[tuple[str, tuple[SettingRow, ...]], ...]:
    """Make the rows, and return them by the title of their card."""
    return (
        (
            "Appearance",
            (ChoiceRow("theme", "Theme", "", (("system", "Follow the system"), ("dark", "Dark"), ("light", "Light"))),),
        ),
        (
            "Monitoring",
            (
                NumberRow(
                    "sample_interval_s",
                    "Sampling interval",
                    "How often the engine and this machine are read for the charts.",
                    unit="seconds",
                    low=0.25,
                    high=60,
                ),
                NumberRow(
                    "stall_s",
                    "Unresponsive after",
                    "An engine without any sign of life for this long is asked for one token, and called unresponsive "
                    "if that fails too.",
                    unit="seconds",
                    low=1,
                    high=3600,
                ),
                NumberRow(
                    "stop_grace_s",
                    "Stop timeout",
                    "How long a stopped engine may take to end by itself before it is killed.",
                    unit="seconds",
                    low=1,
                    high=600,
                ),
            ),
        ),
        ("GPUs", _gpus()),
        (
            "Closing the window",
            (
                ChoiceRow(
                    "on_close",
                    "A running engine",
                    "Left running, it keeps its memory; Specdeck takes it over when it is opened again.",
                    (("ask", "Ask each time"), ("stop", "Stop it"), ("leave", "Leave it running")),
                ),
            ),
        ),
        (
            "Recorded readings",
            (
                SwitchRow("record", "Record runs", "Keeps the readings of every run for the History page."),
                NumberRow(
                    "keep_history_days",
                    "Keep for",
                    "Readings of older runs are deleted.",
                    unit="days",
                    low=1,
                    high=10_000,
                ),
                NumberRow(
                    "keep_history_bytes",
                    "Together at most",
                    "When readings take more, those of the oldest runs are deleted.",
                    unit="GB",
                    low=0.01,
                    high=1000,
                    factor=1_000_000_000,
                ),
            ),
        ),
        (
            "Logs of runs",
            (
                NumberRow(
                    "keep_runs",
                    "Keep at most",
                    "Older runs are deleted with their logs.",
                    unit="runs",
                    low=1,
                    high=1000,
                    whole=True,
                ),
                NumberRow(
                    "keep_runs_bytes",
                    "Together at most",
                    "The newest finished run is always kept.",
                    unit="GB",
                    low=0.1,
                    high=1000,
                    factor=1_000_000_000,
                ),
            ),
        ),
    )


def _gpus() -> tuple[SettingRow, ...]:
    """The last row, that of the peaks, must be told which GPUs there are."""
    return (
        NumberRow(
            "gpu_interval_s",
            "Reading interval",
            "How often GPUs are read. Oftener than every 0.25 s would slow them down.",
            unit="seconds",
            low=0.25,
            high=60,
        ),
        SwitchRow(
            "gpu_profiling",
            "Measure bandwidth",
            "Reads the GPU's performance counters (GPM, Hopper or newer) while charts of bandwidth or activity are "
            "shown. Turn it off when another profiler needs the counters.",
        ),
        SwitchRow(
            "gpu_pcie_snapshot",
            "PCIe snapshots",
            "Where nothing else tells PCIe traffic, takes two samples of 20 ms of each GPU at every reading.",
        ),
        GpuPeaks(),
    )
