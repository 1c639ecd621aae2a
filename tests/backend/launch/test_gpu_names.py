"""GPUs by name in the engine's environment: UUIDs where its code resolves them, else numbers of this moment."""

from pathlib import Path
from typing import Any

import pytest

from backend.errors import ProfileError
from backend.launch import profile_toml
from backend.launch.command import build, check, needs_gpu_list, preview
from backend.launch.gpu_names import GpuList
from backend.launch.probe import Probe, parse
from tests.backend.launch.profile_cases import CUDA, environment, recorded_probe

GPUS = (("GPU-aaaa-1111", 0), ("GPU-bbbb-2222", 1), ("GPU-bbcc-3333", 2))
NEW: dict[str, Any] = {**CUDA, "gpu_uuids": True, "mig_uuids": False}
OLD: dict[str, Any] = {**CUDA, "version": "0.17.0", "gpu_uuids": False, "mig_uuids": False}


def visible(
    devices: list[str] | None,
    probe: dict[str, Any],
    *,
    gpus: GpuList | None = GPUS,
    env: dict[str, str] | None = None,
    own: dict[str, str] | None = None,
) -> tuple[str | None, str | None]:
    """(CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER) of the engine."""
    text = 'target.model = "a/b"\n'
    text += f"parallel.device_ids = {devices}\n" if devices else ""
    text += "".join(f'env.{name} = "{value}"\n' for name, value in (own or {}).items())
    launch = build(
        profile_toml.loads(text, name="mine"),
        environment=environment(**probe),
        run_id="r",
        temp_dir=Path("/tmp/r"),
        models=Path("/m"),
        api_key=None,
        offline=False,
        base_env=env or {},
        gpus=gpus,
    )
    assert "--device-ids" not in launch.argv
    return launch.env.get("CUDA_VISIBLE_DEVICES"), launch.env.get("CUDA_DEVICE_ORDER")


@pytest.mark.parametrize(
    ("devices", "probe", "value"),
    [
        (["GPU-bbbb-2222", "GPU-aaaa-1111"], NEW, "GPU-bbbb-2222,GPU-aaaa-1111"),
        (["GPU-bbbb-2222", "GPU-aaaa-1111"], OLD, "1,0"),
        (["1", "0"], NEW, "1,0"),
        (["1", "0"], OLD, "1,0"),
        (["GPU-bbbb-2222", "0"], NEW, "1,0"),  # CUDA takes no mixture
        (["GPU-bbcc"], OLD, "2"),  # CUDA takes the beginning of a UUID
        (["MIG-1234"], NEW, "MIG-1234"),
        (None, NEW, None),
        (["0"], {}, None),  # a CPU engine sees no GPU
    ],
)
def test_names_are_written_as_the_vllm_takes_them(
    devices: list[str] | None, probe: dict[str, Any], value: str | None
) -> None:
    assert visible(devices, probe) == (value, "PCI_BUS_ID")


@pytest.mark.parametrize(
    ("devices", "probe", "gpus", "words"),
    [
        (
            ["MIG-1234"],
            OLD,
            GPUS,
            "vLLM 0.17.0 knows GPUs by number only, and the MIG slice MIG-1234 has none of its own",
        ),
        (["MIG-1234", "MIG-5678"], NEW, GPUS, "takes MIG slices for whole GPUs"),
        (["GPU-zzzz"], OLD, GPUS, "this machine has no GPU GPU-zzzz now"),
        (["GPU-bb"], OLD, GPUS, "beginning of several"),
        (["GPU-aaaa-1111"], OLD, None, "could not be read"),
        (["0", "0"], NEW, GPUS, "named twice"),
        (["MIG-1234", "0"], NEW, GPUS, "MIG slices go by UUID"),
        (["0,1"], NEW, GPUS, "0,1 is no GPU"),
        (["cuda:0"], NEW, GPUS, "cuda:0 is no GPU"),
    ],
)
def test_what_cannot_be_written_stops_the_start(
    devices: list[str], probe: dict[str, Any], gpus: GpuList | None, words: str
) -> None:
    with pytest.raises(ProfileError, match=r"^parallel\.device_ids: ") as caught:
        visible(devices, probe, gpus=gpus)
    assert words in caught.value.message


def test_several_slices_where_the_vllm_tells_them_apart() -> None:
    assert visible(["MIG-1", "MIG-2"], {**NEW, "mig_uuids": True})[0] == "MIG-1,MIG-2"


def test_uuids_of_the_persons_shell_are_turned_into_numbers_too() -> None:
    shell = {"CUDA_VISIBLE_DEVICES": "GPU-bbbb-2222"}
    assert visible(None, OLD, env=shell)[0] == "1"
    assert visible(None, NEW, env=shell)[0] == "GPU-bbbb-2222"
    assert visible(["GPU-aaaa-1111"], OLD, env=shell)[0] == "0"
    assert visible(None, OLD, env={"CUDA_VISIBLE_DEVICES": ""})[0] == ""
    with pytest.raises(ProfileError, match=r"^CUDA_VISIBLE_DEVICES: "):
        visible(None, OLD, env={"CUDA_VISIBLE_DEVICES": "GPU-zzzz"})


def test_the_profiles_gpus_win_over_its_variables() -> None:
    own = {"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert visible(["1"], NEW, own=own) == ("1", "PCI_BUS_ID")
    assert visible(None, NEW, own=own) == ("2", "FASTEST_FIRST")


@pytest.mark.parametrize(
    ("devices", "probe", "needed"),
    [
        ('["GPU-aaaa"]', OLD, True),
        ('["GPU-aaaa"]', NEW, False),
        ('["0"]', OLD, False),
        ('["0", "GPU-aaaa"]', NEW, True),
        ('["GPU-aaaa"]', {"gpu_uuids": False}, False),
        ('["GPU-aaaa"]', {**CUDA, "version": "0.12.0"}, True),
        ('["GPU-aaaa"]', CUDA, False),
    ],
)
def test_the_gpus_are_read_only_when_their_numbers_are_needed(
    devices: str, probe: dict[str, Any], needed: bool
) -> None:
    wanted = profile_toml.loads(f'target.model = "a/b"\nparallel.device_ids = {devices}', name="mine")
    assert needs_gpu_list(wanted, environment(**probe), {}) == needed


def test_a_slice_that_this_vllm_cannot_take_is_found_while_typing() -> None:
    wanted = profile_toml.loads('target.model = "a/b"\nparallel.device_ids = ["MIG-1"]', name="mine")
    (finding,) = check(wanted, environment(**OLD))
    assert (finding.field, finding.severity) == ("parallel.device_ids", "error")
    assert "MIG slice" in finding.what
    assert check(wanted, environment(**NEW)) == ()


def test_the_preview_shows_uuids_while_nobody_knows_the_numbers() -> None:
    wanted = profile_toml.loads('target.model = "a/b"\nparallel.device_ids = ["GPU-bbbb-2222"]', name="mine")
    assert "CUDA_VISIBLE_DEVICES=GPU-bbbb-2222" in preview(wanted, environment(**OLD))
    assert "CUDA_VISIBLE_DEVICES=1 " in preview(wanted, environment(**OLD), gpus=GPUS)


def test_an_older_probe_does_not_know_so_the_version_decides() -> None:
    probe: Probe = recorded_probe()
    assert (probe.gpu_uuids, probe.mig_uuids) == (None, None)
    answer = {
        "schema": 1,
        "dist": "vllm",
        "dist_version": "0.12.0",
        "platform": {},
        "python": "3",
        "tier": 1,
        "flags": [],
        "spec_methods": [],
        "spec_fields": [],
        "packages": {},
        "errors": [],
        "gpu_uuids": False,
        "mig_uuids": False,
    }
    assert parse(answer).gpu_uuids is False
