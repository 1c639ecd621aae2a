"""Calibration in a fake environment: every figure equals what the fake torch takes, and every failure has its words."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.calibration import AllReducePoint, Calibration, Rate
from backend.errors import UserError
from backend.launch import calibrate, calibration_script
from backend.launch.calibrate import CalibrationCancelled, CalibrationStep
from backend.launch.environments import EngineEnvironment, EnvironmentState
from tests.backend.launch.calibration_cases import (
    ALL_REDUCE,
    CPU,
    FIRST,
    GB,
    MIB,
    SECOND,
    gpu,
    make_torch_environment,
    tell_torch,
)
from tests.backend.launch.runs import wait_for

Tell = Callable[..., None]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Tell:
    monkeypatch.setattr(calibrate, "_free_memory_bytes", lambda: 64 * GB)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the fake torch refuses it
    return lambda **settings: tell_torch(monkeypatch, **settings)


@pytest.fixture
def environment(tmp_path: Path) -> EngineEnvironment:
    folder = make_torch_environment(tmp_path / "engine")
    return EngineEnvironment(
        "engine", folder, folder / "bin/python", managed=False, state=EnvironmentState.OK,
        distribution="vllm", version="0.32.0",
    )  # fmt: skip


def run(environment: EngineEnvironment, **options: Any) -> Calibration:
    return calibrate.run(environment, machine="here", **options)


def assert_rate(found: Rate | None, wanted: float) -> None:
    assert found is not None
    assert [found.best, found.median] == pytest.approx([wanted, wanted], rel=1e-6)


# ---- figures -------------------------------------------------------------------------------------------------------


def test_processor(environment: EngineEnvironment, tell: Tell) -> None:
    tell()
    steps: list[CalibrationStep] = []
    found = run(environment, on_step=steps.append)
    (device,) = found.devices
    assert (device.id, found.machine, found.engine, found.driver) == ("cpu", "here", "vllm 0.32.0", "")
    assert found.torch == "2.99.0+fake"
    assert (found.all_reduce, found.remarks, found.quick) == (None, (), False)
    assert_rate(device.copy_bytes_per_s, 40e9)
    assert_rate(device.read_bytes_per_s, 50e9)
    assert device.attainable_bytes_per_s == device.read_bytes_per_s.best
    assert set(device.flops_per_s) == {"bfloat16", "float16", "float32"}
    for dtype, wanted in CPU["flops"].items():  # type: ignore[attr-defined]
        assert_rate(device.flops_per_s[dtype], wanted)
    assert [step.fraction for step in steps] == [None, 0.0, 0.2, 0.4, 0.6, 0.8]
    assert steps[0].text == "Loading PyTorch"
    assert [step.text.rpartition(": ")[2] for step in steps[1:]] == [
        "copying memory",
        "reading memory",
        "matrix products, bfloat16",
        "matrix products, float16",
        "matrix products, float32",
    ]


def test_two_gpus_and_what_is_between_them(environment: EngineEnvironment, tell: Tell) -> None:
    """The names are those that the caller gave, in its order, whatever torch says of a GPU."""
    slow = gpu("GPU-other", name="NVIDIA Slow", copy=0.6e12, read=0.5e12)
    tell(gpus=[gpu("GPU-other"), slow], all_reduce=ALL_REDUCE)
    steps: list[CalibrationStep] = []
    found = run(environment, gpus=(SECOND, FIRST), driver="580.1", on_step=steps.append)
    first, second = found.devices
    assert [(d.id, d.name) for d in found.devices] == [(SECOND, "NVIDIA Fake"), (FIRST, "NVIDIA Slow")]
    assert found.device(FIRST) is second
    assert found.device("cpu") is None
    assert found.driver == "580.1"
    assert_rate(first.copy_bytes_per_s, 2.5e12)
    assert_rate(first.read_bytes_per_s, 3e12)
    assert_rate(second.copy_bytes_per_s, 0.6e12)
    assert second.attainable_bytes_per_s == second.copy_bytes_per_s.best  # the higher one
    for dtype, wanted in {"bfloat16": 700e12, "float16": 600e12, "float32": 50e12}.items():
        assert_rate(first.flops_per_s[dtype], wanted)
    assert found.all_reduce is not None
    assert found.all_reduce.gpus == (SECOND, FIRST)
    sizes = [point.size_bytes for point in found.all_reduce.points]
    assert sizes == [8192 * 2**power for power in range(12)]
    for point in found.all_reduce.points:
        assert point.time_s == pytest.approx(10e-6 + point.size_bytes / 200e9, rel=1e-6)
    assert [step.text for step in steps[1:]][5] == "NVIDIA Slow, 2 of 2: copying memory"
    assert steps[-1] == CalibrationStep("All-reduce between 2 GPUs", round(10 / 11, 4))


def test_one_gpu_has_nothing_between(environment: EngineEnvironment, tell: Tell) -> None:
    tell(gpus=[gpu()])
    assert run(environment, gpus=(FIRST,)).all_reduce is None


@pytest.mark.parametrize(
    ("quick", "copy", "wanted"),
    [
        # Nothing that the cache could serve is measured: four times 400 MiB is the first size.
        (False, {"0": 9e12, str(1600 * MIB): 2e12}, 2e12),
        # The rate still grows from the first size to the second, and no more at the third.
        (False, {"0": 1e12, str(3200 * MIB): 2e12}, 2e12),
        (False, {"0": 1e12, str(6400 * MIB): 2e12}, 1e12),  # two sizes alike: that is the plateau
        (True, {"0": 1e12, str(3200 * MIB): 2e12}, 1e12),
    ],
)
def test_sizes(environment: EngineEnvironment, tell: Tell, quick: bool, copy: dict[str, float], wanted: float) -> None:
    tell(gpus=[gpu(cache_bytes=400 * MIB, copy=copy)])
    found = run(environment, gpus=(FIRST,), quick=quick)
    assert_rate(found.devices[0].copy_bytes_per_s, wanted)
    assert found.quick is quick


def test_little_free_memory_is_used_only_in_part(environment: EngineEnvironment, tell: Tell) -> None:
    """Two buffers of 256 MiB just fit into 40 %; the fake torch refuses more than that."""
    tell(gpus=[gpu(free_bytes=1343 * MIB)])
    assert_rate(run(environment, gpus=(FIRST,)).devices[0].copy_bytes_per_s, 2.5e12)
    # Three matrices of 16,384 x 16,384 in 16 bits (1.6 GB) fit in, but not with the smaller ones before beside them.
    tell(gpus=[gpu(free_bytes=4_500_000_000)])
    assert run(environment, gpus=(FIRST,)).devices
    tell(gpus=[gpu(free_bytes=1279 * MIB)])
    with pytest.raises(UserError) as caught:
        run(environment, gpus=(FIRST,))
    assert caught.value.message == (
        "There is too little free memory to measure: NVIDIA Fake: 1.3 GB of free memory are needed."
    )


@pytest.mark.parametrize("how", ["not implemented", "\"addmm_impl_cpu_\" not implemented for 'Half'"])
def test_a_dtype_that_torch_cannot_multiply_is_unknown(environment: EngineEnvironment, tell: Tell, how: str) -> None:
    tell(fault={"at": "mm float16", "how": how})
    flops = run(environment, quick=True).devices[0].flops_per_s
    assert flops["float16"] is None
    assert_rate(flops["float32"], 200e9)


# ---- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "how", "message", "what_to_do"),
    [
        ("import", "libcudart.so.12: no such file\nhelp", "no PyTorch that works: libcudart.so.12: no such file.",
         "Install the engine again"),
        ("import", "exit", "ended with code 7 and without figures: the last words [bold]", "before stays"),
        ("copy", "CUDA out of memory. Tried to allocate 2 GiB", "too little free memory to measure: CUDA out of memory",
         "Close other programs"),
        ("copy", "DefaultCPUAllocator: can't allocate memory: you tried", "too little free memory", "Close other"),
        ("mv", "CUDA error: GPU is lost\nCompile with TORCH_X", "failed while it measured a GPU: CUDA error: "
         "GPU is lost.", "Look with `nvidia-smi`"),
        ("mm", "CUDA error: unspecified launch failure", "measured a GPU: CUDA error: unspecified", "nvidia-smi"),
        ("mm", "kill", "was ended by SIGKILL, most likely because memory ran out.", "before stays"),
    ],
)  # fmt: skip
def test_failures(environment: EngineEnvironment, tell: Tell, at: str, how: str, message: str, what_to_do: str) -> None:
    tell(gpus=[gpu()], fault={"at": at, "how": how})
    with pytest.raises(UserError) as caught:
        run(environment, gpus=(FIRST,))
    assert message in caught.value.message
    assert what_to_do in caught.value.what_to_do


def test_no_gpu(environment: EngineEnvironment, tell: Tell) -> None:
    tell(gpus=[])
    with pytest.raises(UserError, match="finds no GPU"):
        run(environment, gpus=(FIRST,))


def test_failure_on_a_processor_says_nothing_of_gpus(environment: EngineEnvironment, tell: Tell) -> None:
    tell(fault={"at": "mv", "how": "bad"})
    with pytest.raises(UserError) as caught:
        run(environment)
    assert str(caught.value) == ("PyTorch failed while it measured the processor: bad. What was measured before stays.")


def test_figures_that_cannot_be_are_refused(environment: EngineEnvironment, tell: Tell) -> None:
    result = {"torch": "2", "devices": [{"id": "cpu", "name": "x", "copy": {"best": 1, "median": 2}}]}
    environment.python.write_text(f"#!/bin/sh\ncat > lines <<'END'\n{json.dumps({'result': result})}\nEND\n")
    tell()
    with pytest.raises(UserError, match="no usable figures"):
        run(environment)


@pytest.mark.parametrize(("median", "remarks"), [(76.0, 0), (74.0, 1)])
def test_unsteady_figures_are_remarked(environment: EngineEnvironment, tell: Tell, median: float, remarks: int) -> None:
    steady, other = {"best": 100.0, "median": 99.0}, {"best": 100.0, "median": median}
    device = {"id": "cpu", "name": "x", "copy": steady, "read": other, "flops": {}}
    result = {"torch": "2", "devices": [device], "all_reduce": None, "remarks": []}
    environment.python.write_text(f"#!/bin/sh\ncat > lines <<'END'\n{json.dumps({'result': result})}\nEND\n")
    tell()
    found = run(environment)
    assert len(found.remarks) == remarks
    assert all("Measure again when it is quiet" in remark for remark in found.remarks)


def test_an_all_reduce_that_fails_leaves_the_other_figures(environment: EngineEnvironment, tell: Tell) -> None:
    """The other process waits for the first one, and is ended."""
    tell(gpus=[gpu(), gpu()], all_reduce=ALL_REDUCE, fault={"at": "rank 1", "how": "NCCL error: no path\nmore"})
    found = run(environment, gpus=(FIRST, SECOND), quick=True)
    assert found.all_reduce is None
    assert found.remarks == ("The all-reduce between the GPUs could not be measured: NCCL error: no path.",)
    assert_rate(found.devices[1].read_bytes_per_s, 3e12)


def test_an_all_reduce_whose_process_is_killed(environment: EngineEnvironment, tell: Tell) -> None:
    tell(gpus=[gpu(), gpu()], all_reduce=ALL_REDUCE, fault={"at": "rank 0", "how": "kill"})
    found = run(environment, gpus=(FIRST, SECOND), quick=True)
    assert found.remarks == ("The all-reduce between the GPUs could not be measured: one of its processes was ended.",)


def test_silence_is_ended(environment: EngineEnvironment, tell: Tell, tmp_path: Path) -> None:
    tell(fault={"at": "mv", "how": "hang", "mark": str(tmp_path / "mark")})
    with pytest.raises(UserError, match="no answer within 3 s"):
        run(environment, limit_s=3)
    if (tmp_path / "mark").exists():  # on a slow machine it had not come so far
        assert_ended(tmp_path / "mark")


@pytest.mark.parametrize("at", ["mv", "rank 1"])
def test_given_up(environment: EngineEnvironment, tell: Tell, tmp_path: Path, at: str) -> None:
    """Also the processes of an all-reduce end."""
    mark = tmp_path / "mark"
    tell(gpus=[gpu(), gpu()], all_reduce=ALL_REDUCE, fault={"at": at, "how": "hang", "mark": str(mark)})
    with pytest.raises(CalibrationCancelled):
        run(environment, gpus=(FIRST, SECOND), cancelled=mark.exists)
    assert_ended(mark)


def test_what_a_listener_raises_ends_it(environment: EngineEnvironment, tell: Tell, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    tell(fault={"at": "copy", "how": "hang", "mark": str(mark)})

    def refuse(step: CalibrationStep) -> None:
        if step.fraction is not None:
            raise UserError("no")

    with pytest.raises(UserError, match="no"):
        run(environment, on_step=refuse)
    if mark.exists():  # it had come so far
        assert_ended(mark)


def assert_ended(mark: Path) -> None:
    wait_for(lambda: not Path(f"/proc/{mark.read_text()}").exists())


def test_lines_are_taken_in_whole(tmp_path: Path) -> None:
    """What is half written is read the next time."""
    file, steps = tmp_path / "lines", list[CalibrationStep]()
    lines = calibrate._Lines(file, steps.append)
    lines.read()
    whole = b'{"step": "Gr\xc3\xbc\xc3\x9fe", "fraction": 0.5}\n{"result": {}}\n'
    for end in range(len(whole) + 1):
        file.write_bytes(whole[:end])
        lines.read()
    assert steps == [CalibrationStep("Grüße", 0.5)]
    assert lines.result == {}


def test_free_memory_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(calibrate, "_CGROUP_LIMIT", limit)
    whole = calibrate._free_memory_bytes()
    assert whole > 100 * MIB
    limit.write_text("max\n")
    assert calibrate._free_memory_bytes() > 100 * MIB
    limit.write_text("1048576\n")
    assert calibrate._free_memory_bytes() == 1048576


# ---- the script's own parts ----------------------------------------------------------------------------------------


def test_the_name_and_caches_of_a_processor(tmp_path: Path) -> None:
    """Two caches of 32 MiB, each shared by two cores: 64 MiB."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name\t: Some CPU @ 3: GHz\n" * 4)
    for core in range(4):
        cache = tmp_path / f"sys/devices/system/cpu/cpu{core}/cache/index3"
        cache.mkdir(parents=True)
        (cache / "shared_cpu_list").write_text("0-1\n" if core < 2 else "2-3\n")
        (cache / "size").write_text("32768K\n")
    (tmp_path / "sys/devices/system/cpu/cpu0/cache/index3/size").write_text("odd")
    device = calibration_script.processor(None, 10 * GB, system=str(tmp_path))
    assert (device.name, device.id) == ("Some CPU @ 3: GHz", "cpu")
    assert device.cache_bytes == 64 * MIB
    assert device.memory_bytes == 4 * GB


class _Torch:
    """What `find_gpus` asks of torch."""

    def __init__(self, *facts: object) -> None:
        self.cuda = self
        self._facts = facts

    def device_count(self) -> int:
        return len(self._facts)

    def get_device_properties(self, index: int) -> object:
        return self._facts[index]

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return 10 * GB, 24 * GB


class _Facts:
    name = "NVIDIA Fake"


class _NewFacts(_Facts):
    uuid = "3333-cc"  # as torch writes it: without the prefix
    L2_cache_size = 50 * MIB


def test_who_a_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (found,) = calibration_script.find_gpus(_Torch(_NewFacts()))
    assert (found.id, found.place, found.cache_bytes, found.memory_bytes) == (
        "GPU-3333-cc", "cuda:0", 50 * MIB, 4 * GB,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="does not tell the UUID"):
        calibration_script.find_gpus(_Torch(_Facts()))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,MIG-2")
    assert [gpu.id for gpu in calibration_script.find_gpus(_Torch(_Facts(), _Facts()))] == ["GPU-1", "MIG-2"]


def test_a_rank_ends_when_its_parent_is_gone(environment: EngineEnvironment, tell: Tell, tmp_path: Path) -> None:
    tell(gpus=[gpu(), gpu()], all_reduce=ALL_REDUCE)
    script = shutil.copy(str(calibration_script.__file__), tmp_path)
    argv = [str(environment.python), script, "--rank", "0", "--world", "1", "--quick", "--parent"]
    env = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NCCL_SOCKET_IFNAME": "lo"}
    del env["OMP_NUM_THREADS"]
    assert subprocess.run([*argv, str(os.getppid())], env=env, check=False).returncode == 1
    assert not (tmp_path / "rank-0.json").exists()
    assert subprocess.run([*argv, str(os.getpid())], env=env, check=False).returncode == 0
    assert len(json.loads((tmp_path / "rank-0.json").read_text())["points"]) == 12


def test_an_all_reduce_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes are ended: the check for leaked processes sees it otherwise."""
    monkeypatch.setattr(calibration_script, "__file__", shutil.copy(str(calibration_script.__file__), tmp_path))
    monkeypatch.setattr(calibration_script, "FOLDER", tmp_path)
    assert calibration_script.all_reduce(2, quick=True) == (None, "No module named 'torch'")
    monkeypatch.setattr(calibration_script, "ALL_REDUCE_LIMIT_S", 0.0)
    assert calibration_script.all_reduce(2, quick=True)[1] == "no answer within 0 s"


# ---- the real thing ------------------------------------------------------------------------------------------------


@pytest.mark.engine
@pytest.mark.full
def test_real_torch(engine_folder: Path, engine_python: Path) -> None:
    """Starts no engine. Bandwidth is compared with a copy that numpy makes here, in orders of magnitude."""
    environment = EngineEnvironment("real", engine_folder, engine_python, managed=True, state=EnvironmentState.OK)
    found = run(environment, quick=True)
    (device,) = found.devices
    by_numpy = numpy_copy_bytes_per_s()
    assert by_numpy / 10 < device.copy_bytes_per_s.median <= device.copy_bytes_per_s.best < 10 * by_numpy
    assert by_numpy / 10 < device.read_bytes_per_s.best < 10 * by_numpy
    assert all(rate is None or rate.best > 1e8 for rate in device.flops_per_s.values())
    assert device.flops_per_s["float32"] is not None
    assert found.torch.endswith("+cpu")


def numpy_copy_bytes_per_s() -> float:
    source, target = np.ones(32 * MIB), np.zeros(32 * MIB)  # 256 MiB each
    taken = []
    for _ in range(7):
        start = time.perf_counter()
        np.copyto(target, source)
        taken.append(time.perf_counter() - start)
    return 2 * source.nbytes / min(taken)


def test_points_and_rates_that_cannot_be() -> None:
    for best, median in ((1.0, 2.0), (0.0, 0.0), (float("inf"), 1.0), (1.0, float("nan")), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match="best"):
            Rate(best, median)
    for size, seconds in ((0, 1.0), (1, 0.0), (1, float("nan")), (1, float("inf"))):
        with pytest.raises(ValueError, match="bytes in"):
            AllReducePoint(size, seconds)
