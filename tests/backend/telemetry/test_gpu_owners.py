"""Whose memory it is that GPUs hold."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backend.hardware import GpuInfo, GpuProcess, GpuReading, GpuSnapshot, Why
from backend.telemetry.gpu_owners import attribute, engine_gpus

ENGINE = frozenset({100, 101})


def reading(*processes: tuple[int, int | None], used: float | None = 10e9, uuid: str = "GPU-1") -> GpuReading:
    return GpuReading(
        uuid, 1.0, memory_used_bytes=used, processes=tuple(GpuProcess(pid, held, "python") for pid, held in processes)
    )


def one(given_reading: GpuReading, pids: frozenset[int] | None = ENGINE, *, why: Why = Why.HIDDEN) -> GpuReading:
    (found,) = attribute(GpuSnapshot(t=1.0, readings=(given_reading,)), pids, why=why).readings
    return found


def test_the_engine_holds_what_its_processes_hold_and_others_the_rest() -> None:
    found = one(reading((100, 6_000_000_000), (7, 2_000_000_000), (101, 1_000_000_000)))
    assert (found.engine_bytes, found.other_bytes) == (7e9, 3e9)
    assert found.processes is not None
    assert [(process.pid, process.is_engine) for process in found.processes] == [(100, True), (7, False), (101, True)]
    assert found.why == {}


def test_an_engine_that_is_not_on_this_gpu_holds_nothing_of_it() -> None:
    found = one(reading((7, 2_000_000_000)))
    assert (found.engine_bytes, found.other_bytes) == (0.0, 10e9)


def test_others_never_hold_less_than_nothing() -> None:
    found = one(reading((100, 6_000_000_000), used=5e9))  # the two were read one after the other
    assert (found.engine_bytes, found.other_bytes) == (6e9, 0.0)


def test_without_an_engine_all_is_that_of_others_even_where_processes_are_not_known() -> None:
    unread = replace(reading(), processes=None, why={"processes": Why.NO_PERMISSION})
    found = one(unread, frozenset())
    assert (found.engine_bytes, found.other_bytes) == (0.0, 10e9)
    assert found.why == {"processes": Why.NO_PERMISSION}


def test_memory_of_the_engine_that_the_driver_does_not_tell_is_unknown_and_not_zero() -> None:
    found = one(reading((100, None), (7, 2_000_000_000)))
    assert (found.engine_bytes, found.other_bytes) == (None, None)
    assert found.why == {"engine_bytes": Why.NOT_SUPPORTED, "other_bytes": Why.NOT_SUPPORTED}
    assert found.processes is not None
    assert found.processes[0].is_engine


def test_memory_of_another_process_that_the_driver_does_not_tell_changes_nothing() -> None:
    found = one(reading((100, 4_000_000_000), (7, None)))
    assert (found.engine_bytes, found.other_bytes) == (4e9, 6e9)


def test_what_cannot_be_told_apart_has_its_reason() -> None:
    hidden = one(reading((100, 4_000_000_000)), None)
    assert (hidden.engine_bytes, hidden.other_bytes) == (None, None)
    assert hidden.why == {"engine_bytes": Why.HIDDEN, "other_bytes": Why.HIDDEN}
    assert hidden.processes is not None
    assert not hidden.processes[0].is_engine
    assert one(reading(), None, why=Why.NOT_YET).why["engine_bytes"] is Why.NOT_YET
    unread = replace(reading(), processes=None, why={"processes": Why.NO_PERMISSION})
    assert one(unread).why["engine_bytes"] is Why.NO_PERMISSION
    assert one(replace(reading(), processes=None)).why["other_bytes"] is Why.NOT_READ


def test_a_lost_gpu_is_lost_for_every_reason() -> None:
    lost = GpuReading("GPU-1", 1.0, lost=True)
    for pids in (ENGINE, frozenset[int](), None):
        found = one(lost, pids)
        assert (found.engine_bytes, found.other_bytes) == (None, None)
        assert found.why["engine_bytes"] is Why.LOST


def test_memory_in_use_that_is_unknown_leaves_the_others_unknown() -> None:
    found = one(replace(reading((100, 4_000_000_000), used=None), why={"memory_used_bytes": Why.NO_PERMISSION}))
    assert (found.engine_bytes, found.other_bytes) == (4e9, None)
    assert found.why["other_bytes"] is Why.NO_PERMISSION
    assert "engine_bytes" not in found.why


def test_a_reason_of_before_does_not_stay() -> None:
    asked_again = replace(reading((100, 1_000_000_000)), why={"engine_bytes": Why.NOT_YET, "power_w": Why.ERROR})
    assert one(asked_again).why == {"power_w": Why.ERROR}


@given(
    st.dictionaries(st.integers(1, 9), st.integers(0, 10**10), max_size=8),
    st.frozensets(st.integers(1, 9), min_size=1),
    st.integers(0, 10**10),
)
def test_the_shares_add_up_to_what_is_used(held: dict[int, int], own: frozenset[int], unnamed: int) -> None:
    used = float(sum(held.values()) + unnamed)
    found = one(reading(*held.items(), used=used), own)
    assert found.engine_bytes == sum(size for pid, size in held.items() if pid in own)
    assert found.other_bytes is not None
    assert found.engine_bytes + found.other_bytes == used


def test_gpus_of_the_engine() -> None:
    snapshot = GpuSnapshot(
        t=1.0,
        readings=(
            reading((100, 1), uuid="GPU-1"),
            reading((7, 1), uuid="GPU-2"),
            reading((7, 1), (101, None), uuid="GPU-3"),
            GpuReading("GPU-4", 1.0, lost=True),
            GpuReading("GPU-5", 1.0, why={"processes": Why.ASLEEP}),
        ),
    )
    assert engine_gpus(attribute(snapshot, ENGINE)) == frozenset({"GPU-1", "GPU-3"})
    assert engine_gpus(attribute(snapshot, frozenset())) == frozenset()


def test_gpus_of_the_engine_are_unknown_where_it_cannot_be_told() -> None:
    assert engine_gpus(attribute(GpuSnapshot(t=1.0, readings=(reading((7, 1)),)), None)) is None
    unread = GpuReading("GPU-2", 1.0, why={"processes": Why.ERROR})
    assert engine_gpus(attribute(GpuSnapshot(t=1.0, readings=(reading((100, 1)), unread)), ENGINE)) is None


def test_a_gpu_that_is_cut_into_slices_counts_by_its_slices() -> None:
    snapshot = GpuSnapshot(
        t=1.0,
        gpus=(GpuInfo("GPU-1", "H200", 0, mig_enabled=True), GpuInfo("MIG-1", "H200", 0, parent_uuid="GPU-1")),
        readings=(GpuReading("GPU-1", 1.0), reading((100, 1), uuid="MIG-1")),
    )
    assert engine_gpus(attribute(snapshot, ENGINE)) == frozenset({"MIG-1"})
