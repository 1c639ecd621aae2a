"""The store of what a machine reaches: what was kept comes back, and what is damaged is set aside."""

import json
import logging
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend import paths
from backend.calibration import AllReduce, AllReducePoint, Calibration, DeviceRates, Rate
from backend.telemetry import calibration

MINE = calibration.machine_id()


def known(machine: str = MINE) -> Calibration:
    flops = {"bfloat16": Rate(7e14, 6.5e14), "float16": None}
    devices = tuple(DeviceRates(f"GPU-{n}", "NVIDIA Fake", Rate(3e12, 2e12), Rate(2.5e12, 2.4e12), flops) for n in "ab")
    points = AllReduce(("GPU-a", "GPU-b"), (AllReducePoint(8192, 1.25e-5), AllReducePoint(16384, 2e-5)))
    return Calibration(machine, 1_700_000_000.5, devices, points, "2.13.0", "vllm 0.32.0", "580.1", quick=True)


def test_what_was_kept_comes_back() -> None:
    assert calibration.load() is None
    file = calibration.save(known())
    assert file == paths.folders().data / "calibration" / f"{MINE}.json"
    assert calibration.load() == known()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = json.loads(file.read_text())
    assert content["schema"] == 1
    assert content["calibration"]["devices"][1]["copy_bytes_per_s"] == {"best": 3e12, "median": 2e12}
    assert content["calibration"]["devices"][0]["flops_per_s"]["float16"] is None
    later = replace(known(), at=1_800_000_000.0, all_reduce=None, remarks=("It failed.",))
    calibration.save(later)
    assert calibration.load() == later


def test_each_machine_has_its_own() -> None:
    """A home folder may be shared."""
    calibration.save(known("other"))
    assert calibration.load() is None
    assert calibration.load("other") == known("other")


def damaged(**changes: Any) -> str:
    calibration.save(known())
    content = json.loads(calibration.file_of(MINE).read_text())
    content["calibration"] |= changes
    return json.dumps(content)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"schema": 1}',
        '{"schema": 2, "calibration": {}}',
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param({"machine": "other"}, id="of another machine"),
        pytest.param({"devices": [{"id": "cpu"}]}, id="incomplete"),
        pytest.param({"all_reduce": {"gpus": [], "points": [{"size_bytes": -1, "time_s": 1}]}}, id="no size"),
        pytest.param({"at": "soon"}, id="no time"),
    ],
)
def test_damage_is_set_aside_with_a_message(
    text: "str | bytes | dict[str, Any]", caplog: pytest.LogCaptureFixture
) -> None:
    file = calibration.file_of(MINE)
    file.parent.mkdir(parents=True)
    raw = damaged(**text) if isinstance(text, dict) else text
    file.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    before = file.read_bytes()
    with caplog.at_level(logging.WARNING):
        assert calibration.load() is None
    aside = file.with_name(f"{file.name}.damaged-1")
    assert aside.read_bytes() == before
    assert not file.exists()
    assert "Measure again" in caplog.text
    assert str(aside) in caplog.text
    calibration.save(known())
    assert calibration.load() == known()


def test_the_name_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same each time, tells nothing of what it comes from, and falls back on the host's name."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("0123456789abcdef\n")
    other.write_text("fedcba9876543210\n")
    names = [calibration.machine_id(file) for file in (one, one, other)]
    assert names[0] == names[1] != names[2]
    assert "0123456789abcdef" not in names
    monkeypatch.setattr("platform.node", lambda: "a")
    of_a = calibration.machine_id(tmp_path / "none")
    monkeypatch.setattr("platform.node", lambda: "b")
    assert calibration.machine_id(tmp_path / "none") != of_a
    one.write_text("\n")
    assert calibration.machine_id(one) == calibration.machine_id(tmp_path / "none")


rates = st.tuples(st.floats(1, 1e18), st.floats(0.01, 1)).map(lambda pair: Rate(pair[0], pair[0] * pair[1]))
devices = st.builds(
    DeviceRates, st.text(), st.text(), rates, rates, st.dictionaries(st.text(max_size=9), st.none() | rates, max_size=4)
)
points = st.builds(AllReducePoint, st.integers(1, 2**40), st.floats(1e-9, 1e3))
found = st.builds(
    Calibration,
    st.just(MINE),
    st.floats(0, 4e9),
    st.lists(devices, min_size=1, max_size=3).map(tuple),
    st.none() | st.builds(AllReduce, st.lists(st.text()).map(tuple), st.lists(points, max_size=3).map(tuple)),
    st.text(),
    st.text(),
    st.text(),
    st.booleans(),
    st.lists(st.text(), max_size=2).map(tuple),
)


@given(found)
def test_anything_comes_back(calibrated: Calibration) -> None:
    content = json.loads(json.dumps({"schema": 1, "calibration": calibration.as_dict(calibrated)}))
    assert calibration._read(json.dumps(content), MINE) == calibrated
