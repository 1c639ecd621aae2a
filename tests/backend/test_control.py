"""What a start hands to the engine: kept secrets, and GPUs by number where its vLLM knows no UUIDs."""

from typing import Any

import pytest

from backend.control import Control
from backend.hardware import Gpu, NvidiaDriver
from backend.launch import kept_secrets, profile_toml
from backend.launch.command import Launch
from tests.backend.launch.profile_cases import CUDA, environment


class _Spawned(Exception):
    """Stands for the engine: carries what would have started it."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(folder: object, launch: Launch, **_: Any) -> None:
        raise _Spawned(launch)

    monkeypatch.setattr("backend.control.Supervisor.start", start)


async def _launch(text: str, **probe: Any) -> Launch:
    profile = profile_toml.loads(f'target.model = "/nowhere"\n{text}', name="mine")
    with pytest.raises(_Spawned) as caught:
        await Control().start(profile, environment(**probe), on_change=lambda _: None)
    return caught.value.launch


async def test_kept_secrets_reach_the_engines_variables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "of-the-shell")
    assert (await _launch("")).env["HF_TOKEN"] == "of-the-shell"
    kept_secrets.keep("mine", {"HF_TOKEN": "kept-token", "VLLM_API_KEY": "kept-key"})
    launch = await _launch("server.api_key = true")
    assert (launch.env["HF_TOKEN"], launch.env["VLLM_API_KEY"], launch.api_key) == (
        "kept-token",
        "kept-key",
        "kept-key",
    )
    assert "kept" not in " ".join(launch.argv) + repr(launch)
    without = await _launch("")
    assert "VLLM_API_KEY" not in without.env


async def test_a_key_is_made_where_none_was_kept() -> None:
    first, second = await _launch("server.api_key = true"), await _launch("server.api_key = true")
    assert first.api_key
    assert first.api_key != second.api_key


async def test_uuids_become_numbers_of_this_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask() -> NvidiaDriver:
        asked.append(1)
        gpus = tuple(Gpu(uuid, "GPU", None, None) for uuid in ("GPU-aa", "GPU-bb"))
        return NvidiaDriver("580", (13, 0), gpus)

    monkeypatch.setattr("backend.control.nvml.ask_child", ask)
    text = 'parallel.device_ids = ["GPU-bb"]'
    assert (await _launch(text, **{**CUDA, "gpu_uuids": False})).env["CUDA_VISIBLE_DEVICES"] == "1"
    assert asked == [1]
    assert (await _launch(text, **CUDA)).env["CUDA_VISIBLE_DEVICES"] == "GPU-bb"
    assert asked == [1], "a vLLM that resolves UUIDs needs no look at the driver"
