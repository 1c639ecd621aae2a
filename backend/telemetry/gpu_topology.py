"""Reads how each pair of GPUs is connected: NVLink, peer access, and the way over PCIe."""

import contextlib
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import pynvml

from backend.hardware import GpuLink, Why
from backend.telemetry.nvml_ask import GpuLostError, ask

_READ = 0  # pynvml.NVML_P2P_CAPS_INDEX_READ is a tuple by mistake
_PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",  # two GPUs on one board, behind its own switch
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}


def read_links(handles: Mapping[str, Any], known: Iterable[GpuLink] = ()) -> tuple[GpuLink, ...]:
    """Return the link of each pair.

    Args:
        handles: of the GPUs to look at, by UUID, in their order.
        known: links that were read before; they are not read again, and stay while one end is lost.
    """
    links = {(link.first, link.second): link for link in known}
    for first, second in combinations(handles, 2):
        if (first, second) not in links and (second, first) not in links:
            with contextlib.suppress(GpuLostError):  # the next reading of that GPU says so
                links[first, second] = _link(first, second, handles[first], handles[second])
    return tuple(links.values())


def _link(first: str, second: str, one: Any, other: Any) -> GpuLink:
    level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return GpuLink(
        first,
        second,
        nvlink=_works(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK),
        peer_access=_works(one, other, _READ),
        path="" if isinstance(level, Why) else _PATHS.get(level, ""),
    )


def _works(one: Any, other: Any, what: int) -> bool | None:
    status = ask(pynvml.nvmlDeviceGetP2PStatus, one, other, what)
    if isinstance(status, Why) or status == pynvml.NVML_P2P_STATUS_UNKNOWN:
        return None
    return bool(status == pynvml.NVML_P2P_STATUS_OK)
