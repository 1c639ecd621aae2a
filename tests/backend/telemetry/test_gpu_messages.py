"""Lines between the sampler and the program: what goes in comes out, and what is no message is refused."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.hardware import (
    GPU_FIGURES,
    GpuInfo,
    GpuLink,
    GpuProcess,
    GpuReading,
    GpuSnapshot,
    PeakSource,
    Why,
)
from backend.telemetry.gpu_messages import MAX_INTERVAL_S, MIN_INTERVAL_S, Decoder, Encoder, SamplerOptions

GPU = GpuInfo("GPU-1", "H200", 0, compute_capability=(9, 0), peak_bytes_per_s=4.8e12, peak_source=PeakSource.TABLE)
numbers = st.floats(allow_nan=False, allow_infinity=False)
processes = st.builds(
    GpuProcess, st.integers(1, 2**31), st.none() | st.integers(0, 2**40), st.text(max_size=20), st.just(False)
)


@st.composite
def readings(draw: st.DrawFn, t: float) -> GpuReading:
    names = [each.name for each in fields(GpuReading) if each.name in GPU_FIGURES]
    figures = draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, numbers)))
    return GpuReading(
        uuid=draw(st.text(max_size=20)),
        t=t,
        lost=draw(st.booleans()),
        throttle=draw(st.none() | st.lists(st.text(max_size=10), max_size=3).map(tuple)),
        processes=draw(st.none() | st.lists(processes, max_size=3).map(tuple)),
        why=draw(st.dictionaries(st.sampled_from(names), st.sampled_from(Why))),
        **figures,
    )


@st.composite
def snapshots(draw: st.DrawFn) -> GpuSnapshot:
    t = draw(st.floats(0, 1e10))
    return GpuSnapshot(
        t=t,
        problem=draw(st.text(max_size=20)),
        driver=draw(st.sampled_from(["", "580.95.05"])),
        nvml=draw(st.text(max_size=5)),
        cuda=draw(st.none() | st.tuples(st.integers(0, 99), st.integers(0, 9))),
        note=draw(st.sampled_from(["", "WSL"])),
        gpus=draw(st.sampled_from([(), (GPU,), (GPU, replace(GPU, uuid="GPU-2", peak_source=None))])),
        readings=tuple(draw(st.lists(readings(t), max_size=3))),
        links=draw(st.sampled_from([(), (GpuLink("GPU-1", "GPU-2", True, None, "PIX"),)])),
        cost_s=draw(st.none() | st.floats(0, 10)),
        interval_s=draw(st.floats(0.25, 600)),
    )


@given(st.lists(snapshots(), min_size=1, max_size=5))
def test_every_snapshot_arrives_as_it_was(told: list[GpuSnapshot]) -> None:
    encoder, decoder = Encoder(), Decoder()
    for snapshot in told:
        line = encoder.line(snapshot)
        assert line.endswith("\n")
        assert line.count("\n") == 1
        assert decoder.snapshot(line.encode()) == snapshot


def test_what_does_not_change_is_said_once() -> None:
    encoder = Encoder()
    snapshot = GpuSnapshot(1.0, driver="580", gpus=(GPU,))
    assert {"driver", "gpus", "links"} <= json.loads(encoder.line(snapshot)).keys()
    assert not {"driver", "gpus", "links", "note", "cuda"} & json.loads(encoder.line(replace(snapshot, t=2.0))).keys()
    changed = json.loads(encoder.line(replace(snapshot, gpus=(replace(GPU, power_limit_w=300.0),))))
    assert changed["gpus"][0]["power_limit_w"] == 300.0
    assert "driver" not in changed


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no json",
        "[]",
        "1",
        "{}",
        '{"t": 1, "problem": "", "cost_s": null, "interval_s": 1}',
        '{"t": 1, "problem": "", "cost_s": null, "interval_s": 1, "readings": [{"uuid": "a"}]}',
        '{"t": 1, "problem": "", "cost_s": null, "interval_s": 1, "readings": [{"uuid": "a", "why": {"t": "no"}}]}',
        '{"t": 1, "problem": "", "cost_s": null, "interval_s": 1, "readings": [], "gpus": [{"uuid": "a"}]}',
        '{"t": 1, "problem": "", "cost_s": null, "interval_s": 1, "readings": [], "cuda": [1]}',
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_snapshot_is_refused(line: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Decoder().snapshot(line)


options = st.builds(
    SamplerOptions,
    interval_s=st.floats(MIN_INTERVAL_S, MAX_INTERVAL_S),
    activity=st.booleans(),
    pcie_snapshot=st.booleans(),
    processes=st.booleans(),
    peaks=st.dictionaries(st.text(max_size=10), st.floats(1, 1e15), max_size=3),
)


@given(options, options)
def test_options_arrive_whatever_was_before(before: SamplerOptions, wanted: SamplerOptions) -> None:
    assert before.changed(wanted.line()) == wanted


def test_a_command_changes_only_what_it_names() -> None:
    before = SamplerOptions(2.0, activity=True, processes=False, peaks={"a": 1.0})
    assert before.changed('{"interval_s": 5}') == replace(before, interval_s=5.0)
    assert before.changed('{"activity": false, "peaks": {"b": 2}}') == replace(before, activity=False, peaks={"b": 2.0})
    assert before.changed("{}") == before


@pytest.mark.parametrize(("asked", "held"), [(0.0, 0.25), (-5, 0.25), (0.2, 0.25), (0.3, 0.3), (1e9, 600.0)])
def test_interval_is_held_in_its_limits(asked: float, held: float) -> None:
    assert SamplerOptions(interval_s=asked).interval_s == held
    assert SamplerOptions().changed(json.dumps({"interval_s": asked})).interval_s == held


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        "[]",
        "null",
        '{"interval_s": "1"}',
        '{"interval_s": NaN}',
        '{"interval_s": true}',
        '{"activity": 1}',
        '{"peaks": {"a": "b"}}',
        '{"peaks": []}',
        '{"speed": 1}',
    ],
)
def test_what_is_no_command_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        SamplerOptions().changed(line)


def test_a_peak_that_is_none_is_left_out() -> None:
    assert SamplerOptions().changed('{"peaks": {"a": 0, "b": 3}}').peaks == {"b": 3.0}
