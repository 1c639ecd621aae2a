"""Measures what a machine's memory, cores or GPUs reach; runs in the ENGINE's interpreter, Python 3.9 or newer.

Only the standard library and that interpreter's torch may be imported here, and nothing of Specdeck: a copy of this
file runs in a private folder. It adds lines of JSON to `lines` there: {"step", "fraction"} for each step, at the end
{"result"} or {"problem", "detail"}. What libraries print is nobody's concern. Rates are in bytes/s and FLOP/s.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes of one number
COLUMNS = 8192
MIB = 1024**2
CACHES = 4  # a buffer of so many times the last cache is always read from memory
PLATEAU = 0.05  # sizes whose rates differ by less than this share are on the plateau
MEMORY_SHARE = 0.4  # of what is free
WARM_S = 0.2  # clocks rise, kernels are chosen, pages are touched
LEAST_S = 0.02  # what the clock is read over, so that neither it nor a launch counts
LARGEST_N = 16384
ALL_REDUCE_SIZES = [2**power for power in range(13, 25)]  # 8 KiB to 16 MiB
ALL_REDUCE_LIMIT_S = 180.0


class NoGpu(Exception):
    """There is none that torch can use."""


class Lines:
    """The file that the caller reads."""

    def __init__(self, total: int = 1) -> None:
        self.total, self.done = total, 0

    def add(self, **content: Any) -> None:
        """Add one line."""
        with (FOLDER / "lines").open("a", encoding="utf-8") as file:
            file.write(json.dumps(content) + "\n")

    def step(self, text: str) -> None:
        """Tell what begins now."""
        self.add(step=text, fraction=round(self.done / self.total, 4))
        self.done += 1


class Device:
    """A GPU or the processor, as torch sees it; `memory_bytes` is what may be taken at once."""

    def __init__(self, torch: Any, place: str, *, name: str, id: str, memory_bytes: int, cache_bytes: int) -> None:
        self.torch, self.place, self.name, self.id = torch, place, name, id
        self.memory_bytes, self.cache_bytes = memory_bytes, cache_bytes

    def wait(self) -> None:
        """Wait until the work that was asked for is done."""
        if self.place != "cpu":
            self.torch.cuda.synchronize(self.place)

    def ones(self, *shape: int, dtype: str) -> Any:
        """A tensor here."""
        return self.torch.ones(*shape, dtype=getattr(self.torch, dtype), device=self.place)

    def sizes(self) -> list[int]:
        """Sizes of a buffer that fits twice, in bytes, ascending."""
        first = max(256 * MIB, CACHES * self.cache_bytes)
        first -= first % (COLUMNS * 4)
        fitting = [size for size in (first, 2 * first, 4 * first) if 2 * size <= self.memory_bytes]
        if not fitting:
            needed = 2 * first / MEMORY_SHARE / 1e9
            raise MemoryError(f"{self.name}: {needed:.1f} GB of free memory are needed")
        return fitting


def find_gpus(torch: Any) -> list[Device]:
    """The GPUs that this process may see, in CUDA's order, which is that of CUDA_VISIBLE_DEVICES."""
    named = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    found = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        if index < len(named) and named[index].startswith(("GPU-", "MIG-")):
            uuid = named[index]
        elif hasattr(facts, "uuid"):  # since torch 2.4
            uuid = "GPU-" + str(facts.uuid)
        else:
            raise RuntimeError("this PyTorch does not tell the UUID of a GPU; name the GPUs")
        found.append(
            Device(
                torch,
                f"cuda:{index}",
                name=str(facts.name),
                id=uuid,
                memory_bytes=int(MEMORY_SHARE * torch.cuda.mem_get_info(index)[0]),
                cache_bytes=int(getattr(facts, "L2_cache_size", 0)),
            )
        )
    return found


def processor(torch: Any, free_bytes: int, *, system: str = "/") -> Device:
    """The processor with its memory; `free_bytes` of it are free, `system` is where /proc and /sys are."""
    told = Path(system, "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    names = [line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name")]
    caches = {}
    for place in Path(system, "sys/devices/system/cpu").glob("cpu[0-9]*/cache/index3"):
        with contextlib.suppress(OSError, ValueError):
            cores = (place / "shared_cpu_list").read_text()  # those that share this one cache
            caches[cores] = int((place / "size").read_text().strip().rstrip("K")) * 1024
    return Device(
        torch,
        "cpu",
        name=names[0] if names else "CPU",
        id="cpu",
        memory_bytes=int(MEMORY_SHARE * free_bytes),
        cache_bytes=sum(caches.values()),
    )


def rate(amount: float, work: Callable[[], Any], wait: Callable[[], Any], budget_s: float) -> dict[str, float]:
    """How much of `amount` a second `work` does: best and median of at least three repeats over `budget_s`."""
    deadline = time.perf_counter() + WARM_S
    while time.perf_counter() < deadline:
        work()
        wait()
    start = time.perf_counter()
    work()
    wait()
    times = max(1, math.ceil(LEAST_S / max(time.perf_counter() - start, 1e-6)))
    deadline = time.perf_counter() + budget_s
    taken: list[float] = []
    while len(taken) < 3 or time.perf_counter() < deadline:
        start = time.perf_counter()
        for _ in range(times):
            work()
        wait()
        taken.append((time.perf_counter() - start) / times)
    return {"best": amount / min(taken), "median": amount / statistics.median(taken)}


def plateau(device: Device, at: Callable[[int], dict[str, float]], *, quick: bool) -> dict[str, float]:
    """The rate at growing sizes, until one is like that before; `at` measures one size."""
    sizes = device.sizes()
    found = at(sizes[0])
    for size in [] if quick else sizes[1:]:
        before, found = found, at(size)
        if abs(found["median"] / before["median"] - 1) < PLATEAU:
            break
    return found


def copy(device: Device, budget_s: float, *, quick: bool) -> dict[str, float]:
    """Bytes/s of a copy inside the device's memory, each byte counted twice: it is read and written."""

    def at(size: int) -> dict[str, float]:
        source, target = (device.ones(size // 4, dtype="float32") for _ in range(2))
        return rate(2 * size, lambda: target.copy_(source), device.wait, budget_s)

    return plateau(device, at, quick=quick)


def read(device: Device, budget_s: float, *, quick: bool) -> dict[str, float]:
    """Bytes/s of a matrix that is multiplied by a vector: every byte is read once, as in decoding."""
    dtype = "float32" if device.place == "cpu" else "float16"

    def at(size: int) -> dict[str, float]:
        rows = size // (COLUMNS * DTYPES[dtype])
        matrix, vector, out = (device.ones(*shape, dtype=dtype) for shape in ((rows, COLUMNS), (COLUMNS,), (rows,)))
        return rate(size, lambda: device.torch.mv(matrix, vector, out=out), device.wait, budget_s)

    return plateau(device, at, quick=quick)


def multiply(device: Device, dtype: str, budget_s: float) -> dict[str, float] | None:
    """FLOP/s of a product of two square matrices, large enough to take a while; None where it is not supported."""

    def product(n: int) -> Callable[[], Any]:
        left, right, out = (device.ones(n, n, dtype=dtype) for _ in range(3))
        return lambda: device.torch.mm(left, right, out=out)

    n = 256
    while True:
        work = product(n)
        try:
            work()  # the first one is slow
        except RuntimeError as error:  # NotImplementedError is one too
            if "not implemented" in str(error) or isinstance(error, NotImplementedError):
                return None
            raise
        device.wait()
        start = time.perf_counter()
        work()
        device.wait()
        is_long = time.perf_counter() - start >= LEAST_S
        if is_long or n == LARGEST_N or 3 * (2 * n) ** 2 * DTYPES[dtype] > device.memory_bytes:
            return rate(2.0 * n**3, work, device.wait, budget_s)
        del work  # else two sizes would be there at once
        n *= 2


def measure(device: Device, lines: Lines, budget_s: float, *, quick: bool, which: str) -> dict[str, Any]:
    """Everything about one device; `which` says which of several it is."""
    lines.step(f"{which}copying memory")
    copied = copy(device, budget_s, quick=quick)
    lines.step(f"{which}reading memory")
    found = read(device, budget_s, quick=quick)
    flops = {}
    for dtype in DTYPES:
        lines.step(f"{which}matrix products, {dtype}")
        flops[dtype] = multiply(device, dtype, budget_s)
    if device.place != "cpu":
        device.torch.cuda.empty_cache()
    return {"id": device.id, "name": device.name, "copy": copied, "read": found, "flops": flops}


# ---- all-reduce: one process for each GPU, as vLLM has it --------------------------------------------------------


def all_reduce(world: int, *, quick: bool) -> tuple[list[list[float]] | None, str]:
    """Seconds of an all-reduce between all GPUs by size in bytes, or None and what went wrong."""
    argv = [sys.executable, __file__, "--world", str(world), "--parent", str(os.getpid())]
    argv += ["--quick"] if quick else []
    workers = [subprocess.Popen([*argv, "--rank", str(rank)]) for rank in range(world)]
    deadline = time.monotonic() + ALL_REDUCE_LIMIT_S
    try:
        while any(worker.poll() is None for worker in workers) and not any(worker.poll() for worker in workers):
            if time.monotonic() > deadline:
                return None, f"no answer within {ALL_REDUCE_LIMIT_S:.0f} s"
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    said = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("rank-*.json"))]
    problems = [entry["problem"] for entry in said if "problem" in entry]
    if problems or any(worker.returncode for worker in workers):
        return None, problems[0] if problems else "one of its processes was ended"
    return next(entry["points"] for entry in said if "points" in entry), ""


def reduce_here(torch: Any, rank: int, world: int, *, quick: bool) -> list[list[float]]:
    """What one process of an all-reduce does; all of them do the same, so the figures of one are enough."""
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=f"file://{FOLDER}/rendezvous", rank=rank, world_size=world)
    points = []
    for size in ALL_REDUCE_SIZES:
        tensor = torch.ones(size // 2, dtype=torch.float16, device=f"cuda:{rank}")
        tensor.zero_()  # sums of ones would not stay finite
        taken = []
        for repeat in range(4 if quick else 8):
            torch.cuda.synchronize(rank)
            start = time.perf_counter()
            for _ in range(20):
                torch.distributed.all_reduce(tensor)
            torch.cuda.synchronize(rank)
            if repeat:  # the first warms up
                taken.append((time.perf_counter() - start) / 20)
        points.append([size, statistics.median(taken)])
    return points


def work_as_rank(options: argparse.Namespace) -> int:
    """Be one process of an all-reduce, which ends when its parent does; returns the exit code."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != options.parent:
        return 1
    file = FOLDER / f"rank-{options.rank}.json"
    try:
        torch = importlib.import_module("torch")
        points = reduce_here(torch, options.rank, options.world, quick=options.quick)
    except Exception as error:
        file.write_text(json.dumps({"problem": first_line(error)}))
        return 1
    if options.rank == 0:
        file.write_text(json.dumps({"points": points}))
    return 0


# ---- the whole -----------------------------------------------------------------------------------------------------


def first_line(error: BaseException) -> str:
    """What an error says, without the advice that torch adds."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def calibrate(torch: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Measure all devices, then what is between them; raises what torch raises."""
    if options.device == "cpu":
        devices = [processor(torch, options.free_bytes)]
    else:
        devices = find_gpus(torch) if torch.cuda.is_available() else []
    if not devices:
        raise NoGpu("PyTorch finds no GPU")
    several = len(devices) > 1
    lines = Lines(len(devices) * (2 + len(DTYPES)) + several)
    budget_s = 0.3 if options.quick else 1.5
    found = [
        measure(
            device,
            lines,
            budget_s,
            quick=options.quick,
            which=f"{device.name}, {number} of {len(devices)}: " if several else f"{device.name}: ",
        )
        for number, device in enumerate(devices, 1)
    ]
    result: dict[str, Any] = {"torch": str(torch.__version__), "devices": found, "all_reduce": None, "remarks": []}
    if several:
        lines.step(f"All-reduce between {len(devices)} GPUs")
        result["all_reduce"], problem = all_reduce(len(devices), quick=options.quick)
        if problem:
            result["remarks"] = [f"The all-reduce between the GPUs could not be measured: {problem}."]
    return result


def main() -> int:
    """Measure and write down what was found, or why nothing was; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--free-bytes", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world", type=int, default=0)
    parser.add_argument("--parent", type=int, default=0)
    options = parser.parse_args()
    if options.rank is not None:
        return work_as_rank(options)
    lines = Lines()
    lines.add(step="Loading PyTorch", fraction=None)
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        lines.add(problem="torch", detail=first_line(error))
        return 0
    try:
        lines.add(result=calibrate(torch, options))
    except NoGpu as error:
        lines.add(problem="no gpu", detail=first_line(error))
    except Exception as error:
        words = first_line(error)
        is_memory = isinstance(error, MemoryError) or "out of memory" in words or "allocate memory" in words
        lines.add(problem="memory" if is_memory else "error", detail=words)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a driver that hangs while it is let go must not keep the answer waiting
