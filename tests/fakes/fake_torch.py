"""A `torch` without torch: tensors that only have a size, and a clock that moves as far as each piece of work takes.

It stands as `torch.py` in a fake environment. `FAKE_TORCH` holds JSON: `cpu` and `gpus` say how fast each device is,
`fault` what goes wrong and where. Work for a GPU is only asked for; its time passes when somebody waits for it, so a
measurement that does not wait comes out wrong.
"""

import json
import os
import signal
import sys
import time
import types
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__version__ = "2.99.0+fake"

_SETTINGS: dict[str, Any] = json.loads(os.environ["FAKE_TORCH"])
_FAULT: dict[str, str] = _SETTINGS.get("fault", {})
_now_s = 1000.0
_asked_s: dict[str, float] = defaultdict(float)
_taken: dict[str, int] = defaultdict(int)
float16, bfloat16, float32 = "float16", "bfloat16", "float32"
_SIZES = {float16: 2, bfloat16: 2, float32: 4}


def _clock() -> float:
    return _now_s


time.perf_counter = _clock


def _fail_at(place: str) -> None:
    if _FAULT.get("at") != place:
        return
    match _FAULT["how"]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            sys.stderr.write("Traceback\nthe last words [bold]\n\n")
            os._exit(7)
        case "hang":
            Path(_FAULT["mark"]).write_text(str(os.getpid()))
            time.sleep(600)  # until somebody ends it
        case "not implemented":
            raise NotImplementedError("there is no kernel for it")
        case words:
            raise RuntimeError(words)


if _FAULT.get("at") == "import":
    if _FAULT["how"] in ("exit", "hang"):
        _fail_at("import")
    raise ImportError(_FAULT["how"])
assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
assert "OMP_NUM_THREADS" not in os.environ


def _device(place: str) -> dict[str, Any]:
    found: dict[str, Any] = _SETTINGS["cpu"] if place == "cpu" else _SETTINGS["gpus"][int(place.removeprefix("cuda:"))]
    return found


def _spend(place: str, seconds: float) -> None:
    global _now_s
    if place == "cpu":
        _now_s += seconds
    else:
        _asked_s[place] += seconds


@dataclass
class Tensor:
    """So many bytes on a device; more than the share of the free memory that may be taken is a fault."""

    shape: tuple[int, ...]
    dtype: str
    place: str

    def __post_init__(self) -> None:
        _taken[self.place] += self.size_bytes
        if _taken[self.place] > 0.4 * _device(self.place)["free_bytes"]:
            raise RuntimeError(f"took {_taken[self.place]:,} bytes of {self.place}, more than it may")

    def __del__(self) -> None:
        _taken[self.place] -= self.size_bytes

    @property
    def size_bytes(self) -> int:
        count = _SIZES[self.dtype]
        for side in self.shape:
            count *= side
        return count

    def copy_(self, source: "Tensor") -> None:
        _fail_at("copy")
        assert (source.shape, source.place) == (self.shape, self.place)
        _spend(self.place, 2 * self.size_bytes / _rate(_device(self.place)["copy"], self.size_bytes))

    def zero_(self) -> None:
        pass


def _rate(rates: "float | dict[str, float]", size: int) -> float:
    """A rate, or one for sizes from so many bytes on."""
    if isinstance(rates, int | float):
        return rates
    return next(rate for least, rate in sorted(rates.items(), key=lambda r: -int(r[0])) if size >= int(least))


def ones(*shape: int, dtype: str, device: str) -> Tensor:
    return Tensor(shape, dtype, device)


def mv(matrix: Tensor, vector: Tensor, *, out: Tensor) -> None:
    _fail_at("mv")
    assert matrix.shape == (*out.shape, *vector.shape)
    _spend(matrix.place, matrix.size_bytes / _rate(_device(matrix.place)["read"], matrix.size_bytes))


def mm(left: Tensor, right: Tensor, *, out: Tensor) -> None:
    _fail_at("mm")
    assert left.shape == right.shape == out.shape
    _fail_at(f"mm {left.dtype}")
    _spend(left.place, 2 * left.shape[0] ** 3 / _device(left.place)["flops"][left.dtype])


# ---- torch.cuda and torch.distributed ----------------------------------------------------------------------------


def _get_device_properties(index: int) -> types.SimpleNamespace:
    known = _device(f"cuda:{index}")
    facts = types.SimpleNamespace(name=known["name"], L2_cache_size=known.get("cache_bytes", 0))
    if "uuid" in known:
        facts.uuid = known["uuid"]
    return facts


def _synchronize(place: "str | int") -> None:
    global _now_s
    name = place if isinstance(place, str) else f"cuda:{place}"
    _now_s += _asked_s.pop(name, 0.0)


cuda = types.SimpleNamespace(
    is_available=lambda: bool(_SETTINGS.get("gpus")),
    device_count=lambda: len(_SETTINGS["gpus"]),
    get_device_properties=_get_device_properties,
    mem_get_info=lambda index: (_device(f"cuda:{index}")["free_bytes"], 0),
    synchronize=_synchronize,
    set_device=lambda index: _device(f"cuda:{index}"),
    empty_cache=lambda: None,
)


def _init_process_group(backend: str, *, init_method: str, rank: int, world_size: int) -> None:
    """Wait until all ranks are there, as the real one does."""
    assert backend == "nccl"
    assert os.environ["NCCL_SOCKET_IFNAME"] == "lo"
    _fail_at(f"rank {rank}")
    meeting = Path(init_method.removeprefix("file://"))
    with meeting.open("a") as file:
        file.write(f"{rank}\n")
    while len(set(meeting.read_text().split())) < world_size:
        time.sleep(0.01)


def _all_reduce(tensor: Tensor) -> None:
    known = _SETTINGS["all_reduce"]
    _spend(tensor.place, known["latency_s"] + tensor.size_bytes / known["bytes_per_s"])


distributed = types.SimpleNamespace(init_process_group=_init_process_group, all_reduce=_all_reduce)
