"""Whose memory it is that GPUs hold: the engine's that runs here, or that of others."""

from collections.abc import Collection
from dataclasses import replace

from backend.hardware import GpuReading, GpuSnapshot, Why


def attribute(snapshot: GpuSnapshot, pids: Collection[int] | None, *, why: Why = Why.HIDDEN) -> GpuSnapshot:
    """Split the memory in use into that of our engine and that of others.

    Args:
        snapshot: as the sampler told it.
        pids: processes that are proven to belong to our engine, none without an engine; None when they are not known.
        why: the reason in that case, by default that a container hides them.

    Returns:
        The snapshot with `is_engine`, `engine_bytes` and `other_bytes`; None with its reason where a share is not
        known, never 0.
    """
    own = None if pids is None else frozenset(pids)
    return replace(snapshot, readings=tuple(_attributed(reading, own, why) for reading in snapshot.readings))


def engine_gpus(snapshot: GpuSnapshot) -> frozenset[str] | None:
    """Return the UUIDs of the GPUs on which our engine holds memory; None when that cannot be told.

    Args:
        snapshot: as `attribute` returned it.
    """
    found = set()
    cut_up = {gpu.uuid for gpu in snapshot.gpus if gpu.mig_enabled}  # their slices stand in the list on their own
    for reading in snapshot.readings:
        if any(process.is_engine for process in reading.processes or ()):
            found.add(reading.uuid)
        elif reading.engine_bytes is None and not (reading.uuid in cut_up or _is_out_of_use(reading)):
            return None
    return frozenset(found)


def _is_out_of_use(reading: GpuReading) -> bool:
    return reading.lost or reading.why.get("processes") is Why.ASLEEP


def _attributed(reading: GpuReading, own: frozenset[int] | None, why_unknown: Why) -> GpuReading:
    processes = reading.processes and tuple(
        replace(process, is_engine=own is not None and process.pid in own) for process in reading.processes
    )
    engine_bytes: float | None = None
    other_bytes: float | None = None
    why = {name: reason for name, reason in reading.why.items() if name not in ("engine_bytes", "other_bytes")}
    reason = why_unknown if own is None and not reading.lost else _why_unknown(reading, own or frozenset())
    if reason is not None:
        why["engine_bytes"] = why["other_bytes"] = reason
    else:
        held = [process.used_bytes for process in processes or () if process.is_engine]
        engine_bytes = float(sum(used for used in held if used is not None))
        if reading.memory_used_bytes is None:
            why["other_bytes"] = why.get("memory_used_bytes", Why.ERROR)
        else:
            other_bytes = max(reading.memory_used_bytes - engine_bytes, 0.0)
    return replace(reading, processes=processes, engine_bytes=engine_bytes, other_bytes=other_bytes, why=why)


def _why_unknown(reading: GpuReading, own: frozenset[int]) -> Why | None:
    """Say why it is not known what our engine holds, None if it is."""
    if reading.lost:
        return Why.LOST
    if not own:
        return None  # nothing runs, so it holds nothing
    if reading.processes is None:
        return reading.why.get("processes", Why.NOT_READ)
    if any(process.pid in own and process.used_bytes is None for process in reading.processes):
        return Why.NOT_SUPPORTED
    return None
