"""The environment variables of an engine: the user's, cleaned, with what a run needs and the profile adds."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from backend.clean_env import clean_environment
from backend.errors import ProfileError
from backend.launch import gpu_names
from backend.launch.engine_options import is_loopback
from backend.launch.gpu_names import GpuList
from backend.launch.probe import Probe
from backend.launch.processes import RUN_ID_VARIABLE
from backend.launch.profile import Profile
from backend.launch.profile_types import GIB


def build_variables(
    profile: Profile,
    *,
    probe: Probe,
    run_id: str,
    temp_dir: Path,
    api_key: str | None,
    offline: bool,
    base_env: Mapping[str, str],
    cores: Sequence[int] | None = None,
    gpus: GpuList | None = None,
) -> dict[str, str]:
    """Return the whole environment of the engine.

    Args:
        profile: what to run; its own variables win over ours.
        probe: what the installed vLLM is.
        run_id: marks every process of the run.
        temp_dir: private folder for temporary files.
        api_key: key that the server asks for, None for none.
        offline: True keeps vLLM from asking the hub.
        base_env: the user's variables.
        cores: CPU numbers that the engine may use, by default those that we may use.
        gpus: the machine's GPUs, for a vLLM that knows them by number only.

    Raises:
        ProfileError: this vLLM cannot run on the GPUs that are named.
    """
    env = clean_environment(base_env)
    if is_loopback(profile.server.host):
        # Else vLLM opens its inner sockets at the machine's outer address.
        env.setdefault("VLLM_HOST_IP", "127.0.0.1")
    env |= {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if offline:
        env["HF_HUB_OFFLINE"] = "1"
    if probe.platform == "cpu":
        env |= _cpu(profile, cores=cores)
    env |= profile.env
    if probe.platform != "cpu":
        env |= _gpus(profile, env, probe=probe, gpus=gpus)
    env |= {
        "PYTHONSAFEPATH": "1",
        RUN_ID_VARIABLE: run_id,
        # Without it vLLM's process titles overwrite the block that proves whose process it is.
        "SPT_NOENV": "1",
        "TMPDIR": str(temp_dir),
    }
    if api_key is not None:
        env["VLLM_API_KEY"] = api_key
    return env


def _gpus(profile: Profile, env: Mapping[str, str], *, probe: Probe, gpus: GpuList | None) -> dict[str, str]:
    """Name the GPUs as this vLLM takes them; numbers mean the PCI order, whatever else was set."""
    names = gpu_names.wanted(profile, env)
    if not names:
        return {}
    try:
        value = gpu_names.visible(names, probe, gpus)
    except ValueError as error:
        place = "parallel.device_ids" if profile.parallel.device_ids is not None else gpu_names.VARIABLE
        raise ProfileError(f"{place}: {error}.", "Choose other GPUs, or another engine environment.") from error
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if profile.parallel.device_ids is not None else {}
    return {gpu_names.VARIABLE: value, **order}


def _cpu(profile: Profile, *, cores: Sequence[int] | None) -> dict[str, str]:
    env = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": str(_kv_cache_gib(profile))}
    parallel = profile.parallel
    if (parallel.data_parallel_size or 1) > 1:
        env["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        return env
    ranks = (parallel.tensor_parallel_size or 1) * (parallel.pipeline_parallel_size or 1)
    if ranks > 1:  # "auto" would take one NUMA node for each rank, and most machines have one
        env["VLLM_CPU_OMP_THREADS_BIND"] = _binding(sorted(cores or os.sched_getaffinity(0)), ranks)
    return env


def _kv_cache_gib(profile: Profile) -> int:
    """Whole GiB, since the variable takes no fraction and overrules the size in bytes."""
    if profile.memory.cpu_kv_cache_gib is not None:
        return profile.memory.cpu_kv_cache_gib
    if profile.memory.kv_cache_bytes is not None:
        return -(-profile.memory.kv_cache_bytes // GIB)
    return 1


def _binding(cores: Sequence[int], ranks: int) -> str:
    """Return one set of cores for each rank, "0,1|2,3"; with fewer cores than ranks they share."""
    if len(cores) < ranks:
        return "|".join(str(cores[rank % len(cores)]) for rank in range(ranks))
    share = len(cores) // ranks
    return "|".join(",".join(map(str, cores[rank * share : (rank + 1) * share])) for rank in range(ranks))
