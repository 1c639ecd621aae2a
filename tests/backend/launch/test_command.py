"""Commands by hand: the whole argv and environment of the main presets, on a CPU and on a GPU build."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from backend.errors import EngineEnvironmentError, ProfileError
from backend.launch import profile_toml
from backend.launch.command import Launch, build, check, preview, resolve_model
from backend.launch.environments import EngineEnvironment, EnvironmentState
from backend.launch.profile import Profile
from backend.launch.profile_store import ProfileStore
from tests.backend.launch.profile_cases import CUDA, environment, profiles

CPU_SERVE: dict[str, Any] = {"serve_module": "vllm.entrypoints.cli.main"}
DIRTY = {
    "PATH": "/usr/bin", "HOME": "/home/me", "HF_TOKEN": "hf-token", "PYTHONPATH": "/x", "PYTHONHOME": "/x",
    "VIRTUAL_ENV": "/x", "LD_PRELOAD": "/x.so", "QT_QPA_PLATFORM": "xcb", "VLLM_PORT": "5000",
    "PROMETHEUS_MULTIPROC_DIR": "/x", "SPECDECK_RUN_ID": "old", "SPECDECK_X": "1", "VLLM_API_KEY": "stale",
    "VLLM_TARGET_DEVICE": "tpu", "LD_LIBRARY_PATH": "/cuda",
}  # fmt: skip


def preset(name: str) -> Profile:
    return ProfileStore().get(name)


def profile(text: str) -> Profile:
    return profile_toml.loads(f'target.model = "a/b"\n{text}', name="mine")


def launch(
    wanted: Profile,
    *,
    api_key: str | None = None,
    offline: bool = False,
    base_env: Mapping[str, str] | None = None,
    cores: tuple[int, ...] = (0, 1, 2, 3),
    **probe: Any,
) -> Launch:
    return build(
        wanted,
        environment=environment(**probe),
        run_id="run-1",
        temp_dir=Path("/tmp/run-1"),
        models=Path("/data/models"),
        api_key=api_key,
        offline=offline,
        base_env=base_env or {},
        cores=cores,
    )


def test_the_demo_on_a_cpu() -> None:
    result = launch(preset("demo"), **CPU_SERVE, base_env=DIRTY, offline=True)
    k = result.argv.index("--speculative-config")
    assert json.loads(result.argv[k + 1]) == {
        "method": "draft_model",
        "model": "/data/models/smollm2-135m-draft",
        "num_speculative_tokens": preset("demo").speculation.num_speculative_tokens,
    }
    assert result.argv[:k] == (
        "/opt/engine/bin/python", "-m", "vllm.entrypoints.cli.main", "serve",
        "/data/models/smollm2-135m-instruct",
        "--served-model-name", "smollm2-135m-instruct",
        "--dtype", "bfloat16", "--max-model-len", "2048",
        "--enforce-eager", "--max-num-seqs", "4", "--host", "127.0.0.1", "--port", "8000",
        "--enable-per-request-metrics", "--per-request-spec-decode-metrics", "detailed",
    )  # fmt: skip
    assert result.argv[k + 2 :] == ("--disable-access-log-for-endpoints", "/health,/metrics")
    assert dict(result.env) == {
        "PATH": "/usr/bin", "HOME": "/home/me", "HF_TOKEN": "hf-token", "LD_LIBRARY_PATH": "/cuda",
        "SPT_NOENV": "1", "SPECDECK_RUN_ID": "run-1", "TMPDIR": "/tmp/run-1", "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_HOST_IP": "127.0.0.1",
        "HF_HUB_OFFLINE": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }  # fmt: skip
    assert (result.host, result.port, result.url) == ("127.0.0.1", 8000, "http://127.0.0.1:8000")
    assert result.served_model_name == "smollm2-135m-instruct"
    assert (result.profile_name, result.environment_id) == ("demo", "test")


def test_the_ngram_demo_on_a_gpu() -> None:
    assert launch(preset("demo-ngram"), **CUDA).argv == (
        "/opt/engine/bin/python", "-m", "vllm.entrypoints.cli.main", "serve",
        "/data/models/smollm2-135m-instruct",
        "--served-model-name", "smollm2-135m-instruct",
        "--dtype", "bfloat16", "--max-model-len", "2048",
        "--gpu-memory-utilization", "0.12", "--kv-cache-memory-bytes", "1073741824",
        "--enforce-eager", "--max-num-seqs", "4", "--host", "127.0.0.1", "--port", "8000",
        "--enable-per-request-metrics", "--per-request-spec-decode-metrics", "detailed",
        "--speculative-config",
        '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_min":2,"prompt_lookup_max":4}',
        "--disable-access-log-for-endpoints", "/health,/metrics",
    )  # fmt: skip


def test_the_70b_pair_on_four_gpus() -> None:
    result = launch(preset("llama-3.3-70b-draft-1b"), **CUDA, base_env={"VLLM_HOST_IP": "10.0.0.2"})
    assert result.argv == (
        "/opt/engine/bin/python", "-m", "vllm.entrypoints.cli.main", "serve",
        "meta-llama/Llama-3.3-70B-Instruct",
        "--served-model-name", "meta-llama/Llama-3.3-70B-Instruct",
        "--dtype", "bfloat16", "--max-model-len", "16384", "--tensor-parallel-size", "4",
        "--gpu-memory-utilization", "0.94", "--max-num-batched-tokens", "8192", "--enable-chunked-prefill",
        "--host", "127.0.0.1", "--port", "8000",
        "--enable-per-request-metrics", "--per-request-spec-decode-metrics", "summary",
        "--speculative-config",
        '{"method":"draft_model","model":"meta-llama/Llama-3.2-1B-Instruct","num_speculative_tokens":5}',
        "--disable-access-log-for-endpoints", "/health,/metrics",
    )  # fmt: skip
    assert "VLLM_TARGET_DEVICE" not in result.env
    assert "VLLM_CPU_KVCACHE_SPACE" not in result.env
    assert result.env["VLLM_HOST_IP"] == "10.0.0.2"


def test_a_vllm_without_the_serve_command_gets_the_model_as_an_option() -> None:
    module = "vllm.entrypoints.openai.api_server"
    assert launch(profile(""), serve_module=module).argv[:5] == (
        "/opt/engine/bin/python", "-m", module, "--model", "a/b",
    )  # fmt: skip


def test_what_the_profile_does_not_set_is_not_passed() -> None:
    assert launch(profile("server.quiet_endpoints = []"), **CUDA).argv[3:] == (
        "serve", "a/b", "--served-model-name", "a/b", "--host", "127.0.0.1", "--port", "8000",
    )  # fmt: skip


def test_false_is_passed_as_no() -> None:
    argv = launch(profile("scheduler.prefix_caching = false\nmemory.enforce_eager = false"), **CUDA).argv
    assert "--no-enable-prefix-caching" in argv
    assert "--no-enforce-eager" in argv


def test_figures_about_speculation_are_asked_for_only_with_speculation() -> None:
    assert (
        "--per-request-spec-decode-metrics" not in launch(profile('server.per_request_spec_metrics = "summary"')).argv
    )


@pytest.mark.parametrize(
    ("model", "result"),
    [
        ("specdeck://tiny", "/data/models/tiny"),
        ("/srv/llama", "/srv/llama"),
        ("~/llama", "/home/someone/llama"),
        ("a/b", "a/b"),
    ],
)
def test_models_are_found(model: str, result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve_model(model, models=Path("/data/models")) == result


def test_no_path_is_served_as_a_name() -> None:
    assert launch(profile_toml.loads('target.model = "/srv/me/llama"', name="x")).served_model_name == "llama"


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("", "1"),
        ("memory.kv_cache_bytes = 1073741824", "1"),
        ("memory.kv_cache_bytes = 1073741825", "2"),
        ("memory.kv_cache_bytes = 1\nmemory.cpu_kv_cache_gib = 7", "7"),
    ],
)
def test_a_cpu_engine_gets_whole_gib_of_cache(text: str, space: str) -> None:
    result = launch(profile(text))
    assert result.env["VLLM_CPU_KVCACHE_SPACE"] == space
    assert "--kv-cache-memory-bytes" not in result.argv


@pytest.mark.parametrize(
    ("text", "cores", "binding"),
    [
        ("parallel.tensor_parallel_size = 2", (0, 1), "0|1"),
        ("parallel.tensor_parallel_size = 2", (7, 2, 5, 3, 4), "2,3|4,5"),
        ("parallel.tensor_parallel_size = 2\nparallel.pipeline_parallel_size = 2", (0, 1, 2, 3), "0|1|2|3"),
        ("parallel.tensor_parallel_size = 2", (6,), "6|6"),
        ("parallel.data_parallel_size = 2", (0, 1), "nobind"),
        ("parallel.tensor_parallel_size = 1", (0, 1), None),
    ],
)
def test_each_rank_on_a_cpu_has_cores_of_its_own(text: str, cores: tuple[int, ...], binding: str | None) -> None:
    assert launch(profile(text), cores=cores).env.get("VLLM_CPU_OMP_THREADS_BIND") == binding
    assert "VLLM_CPU_OMP_THREADS_BIND" not in launch(profile(text), cores=cores, **CUDA).env


def test_copies_of_the_model_talk_on_loopback() -> None:
    argv = launch(profile("parallel.data_parallel_size = 2")).argv
    assert argv[argv.index("--data-parallel-address") + 1] == "127.0.0.1"


def test_the_profiles_variables_win_but_not_over_the_marks_of_a_run() -> None:
    text = 'env = { VLLM_HOST_IP = "127.0.0.2", CUDA_DEVICE_ORDER = "FASTEST_FIRST", LD_PRELOAD = "/mine.so" }'
    env = launch(profile(text), base_env=DIRTY).env
    assert (env["VLLM_HOST_IP"], env["CUDA_DEVICE_ORDER"]) == ("127.0.0.2", "FASTEST_FIRST")
    assert env["LD_PRELOAD"] == "/mine.so"
    assert env["SPECDECK_RUN_ID"] == "run-1"


def test_an_api_key_travels_in_the_environment_only() -> None:
    result = launch(profile('server.host = "0.0.0.0"\nserver.api_key = true'), api_key="sk-geheim")
    assert result.env["VLLM_API_KEY"] == "sk-geheim"
    assert "geheim" not in " ".join(result.argv)
    assert "geheim" not in repr(result)
    assert result.url == "http://127.0.0.1:8000"
    assert "VLLM_HOST_IP" not in result.env


@settings(max_examples=60, deadline=None)
@given(profiles)
def test_no_secret_is_ever_in_argv(wanted: Profile) -> None:
    try:
        result = launch(wanted, api_key="sk-geheim-4711", base_env={"HF_TOKEN": "hf-geheim-4711"}, **CUDA)
    except ProfileError:
        return
    assert "geheim-4711" not in " ".join(result.argv) + repr(result)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "my-box"])
def test_other_machines_need_a_key(host: str) -> None:
    with pytest.raises(ProfileError, match=r"server\.host.*no API key"):
        launch(profile(f'server.host = "{host}"'))
    assert any("server.host" in finding.what for finding in check(profile(f'server.host = "{host}"'), environment()))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1"])
def test_this_machine_needs_no_key(host: str) -> None:
    assert launch(profile(f'server.host = "{host}"')).env["VLLM_HOST_IP"] == "127.0.0.1"


def test_a_key_that_is_asked_for_must_be_given() -> None:
    with pytest.raises(ProfileError, match=r"server\.api_key"):
        launch(profile("server.api_key = true"))


def without(*flags: str, **probe: Any) -> EngineEnvironment:
    """An environment whose parser lacks some options."""
    whole = environment(**probe).probe
    assert whole is not None
    kept = tuple(option for option in whole.options if not set(flags) & set(option.flags))
    return environment(options=kept, **probe)


def test_an_option_that_this_vllm_lacks_is_refused_by_field_and_version() -> None:
    wanted = profile("scheduler.async_scheduling = true\nscheduler.max_num_seqs = 4")
    with pytest.raises(ProfileError) as caught:
        build(
            wanted, environment=without("--async-scheduling", "--max-num-seqs"), run_id="", temp_dir=Path(),
            models=Path(), api_key=None, offline=False, base_env={},
        )  # fmt: skip
    assert "scheduler.async_scheduling: vLLM 0.32.0 has no option --async-scheduling." in str(caught.value)
    assert "scheduler.max_num_seqs: vLLM 0.32.0 has no option --max-num-seqs." in str(caught.value)


def test_a_quiet_log_is_no_reason_to_refuse() -> None:
    assert check(profile(""), without("--disable-access-log-for-endpoints")) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('target.dtype = "float8"', "target.dtype: vLLM 0.32.0 does not know 'float8' for --dtype; it knows auto, bf"),
        ('speculation.method = "magic"', "speculation.method: vLLM 0.32.0 has no method 'magic'"),
        (
            'speculation = { method = "ngram", other = { disable_by_batch_size = 4 } }',
            "speculation.other.disable_by_batch_size: vLLM 0.32.0 has no such field",
        ),
        (
            'speculation = { method = "ngram", other = { tensor_parallel_size = 4 } }',
            "speculation.other.tensor_parallel_size: vLLM 0.32.0 has no such field",
        ),
        (
            'speculation = { method = "ngram", other = { target_model_config = 4 } }',
            "speculation.other.target_model_config: vLLM 0.32.0 has no such field",
        ),
        ('speculation = { method = "suffix" }', "needs the package arctic-inference"),
        ('extra_args = ["--turbo-mode"]', "extra_args: vLLM 0.32.0 has no option --turbo-mode"),
        ('extra_args = ["--swap-space", "4"]', "extra_args: vLLM 0.32.0 has no option --swap-space"),
        ('extra_args = ["--hos", "0.0.0.0"]', "has no option --hos (write options out in full)"),
        ('extra_args = ["--host", "0.0.0.0"]', "--host has a field of its own; set server.host instead"),
        ('extra_args = ["--host=0.0.0.0"]', "set server.host instead"),
        ('extra_args = ["-tp", "4"]', "set parallel.tensor_parallel_size instead"),
        ('extra_args = ["--device_memory_utilization", "0.5"]', "set memory.gpu_memory_utilization instead"),
        ('extra_args = ["-sc", "{}"]', "set speculation instead"),
        ('extra_args = ["--speculative-config.method", "ngram"]', "set speculation instead"),
        ('extra_args = ["--no-enable-prefix-caching"]', "set scheduler.prefix_caching instead"),
        ('extra_args = ["--api-key", "sk"]', "--api-key is not allowed"),
        ('extra_args = ["--hf-token=hf"]', "--hf-token is not allowed"),
        ('extra_args = ["--config", "x.yaml"]', "--config is not allowed"),
        ('extra_args = ["--uds", "/tmp/x"]', "--uds is not allowed"),
    ],
)
def test_what_does_not_fit_this_vllm_is_named(text: str, words: str) -> None:
    with pytest.raises(ProfileError) as caught:
        launch(profile(text))
    assert words in caught.value.message
    assert any(words in finding.what for finding in check(profile(text), environment()))


def test_without_a_known_parser_even_the_beginning_of_a_refused_option_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"server\.host instead"):
        launch(profile('extra_args = ["--hos", "0.0.0.0"]'), options=())
    assert "--turbo-mode" in launch(profile('extra_args = ["--turbo-mode"]'), options=()).argv


def test_extra_arguments_come_last_and_whole() -> None:
    text = """extra_args = ["--uvicorn-log-level", "warning", "--hf_overrides", '{"a b": "$(x)"}']"""
    with pytest.raises(ProfileError, match=r"target\.hf_overrides"):
        launch(profile(text))
    text = """extra_args = ["--uvicorn-log-level", "warning", "--override-generation-config", '{"a b": "$(x)"}']"""
    assert launch(profile(text)).argv[-3:] == ("warning", "--override-generation-config", '{"a b": "$(x)"}')


@pytest.mark.parametrize("method", environment().probe.spec_methods)  # type: ignore[union-attr]
def test_every_method_of_this_vllm_is_taken(method: str) -> None:
    wanted = profile(f'speculation = {{ method = "{method}", model = "c/d", num_speculative_tokens = 2 }}')
    argv = launch(wanted, packages={"arctic-inference": "0.1.1"}).argv
    assert json.loads(argv[argv.index("--speculative-config") + 1])["method"] == method


def test_the_whole_speculative_config_is_strict_json() -> None:
    text = """
[speculation]
method = "draft_model"
model = "~/draft"
num_speculative_tokens = 3
rejection_sample_method = "synthetic"
synthetic_acceptance_rates = [0.75, 0.5, 0.25]
num_speculative_tokens_per_batch_size = [[1, 4, 3], [5, 64, 1]]
use_heterogeneous_vocab = false
download_bytes = 5
other = { parallel_drafting = true, disable_padded_drafter_batch = false }
"""
    argv = launch(profile(text), **CUDA).argv
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == {
        "method": "draft_model",
        "model": str(Path.home() / "draft"),
        "num_speculative_tokens": 3,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [0.75, 0.5, 0.25],
        "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 64, 1]],
        "use_heterogeneous_vocab": False,
        "parallel_drafting": True,
        "disable_padded_drafter_batch": False,
    }


def test_a_custom_draft_class_is_no_path() -> None:
    wanted = profile('speculation = { method = "custom_class", model = "pkg.Proposer", num_speculative_tokens = 1 }')
    assert '"model":"pkg.Proposer"' in " ".join(launch(wanted).argv)


def test_a_broken_environment_is_said_so() -> None:
    broken = EngineEnvironment(
        "old", Path("/x"), Path("/x/bin/python"), managed=True, state=EnvironmentState.BROKEN, problem="Reinstall it."
    )
    with pytest.raises(EngineEnvironmentError, match="old is broken"):
        preview(profile(""), broken)


def test_check_warns_of_what_vllm_notices_too_late() -> None:
    text = """
[parallel]
tensor_parallel_size = 2
[memory]
gpu_memory_utilization = 0.5
[speculation]
method = "ngram"
draft_tensor_parallel_size = 1
rejection_sample_method = "synthetic"
"""
    found = [(str(finding.severity), finding.what.split(":")[0]) for finding in check(profile(text), environment())]
    assert found == [
        ("note", "memory.gpu_memory_utilization"),
        ("warning", "speculation.rejection_sample_method"),
        ("warning", "speculation.draft_tensor_parallel_size"),
    ]


def test_the_preview_is_a_command_for_a_shell() -> None:
    wanted = profile('server.api_key = true\nserver.chat_template = "it\'s {{ x }}"\nspeculation.method = "ngram"')
    text = preview(wanted, environment())
    words = shlex.split(text.replace("\\\n", " "))
    start = words.index("/opt/engine/bin/python")
    assert dict(word.split("=", 1) for word in words[:start]) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "DO_NOT_TRACK": "1", "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1",
        "VLLM_API_KEY": "YOUR-KEY", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1", "VLLM_TARGET_DEVICE": "cpu",
    }  # fmt: skip
    assert tuple(words[start:]) == launch(wanted, api_key="x").argv
    lines = text.split(" \\\n  ")
    assert lines[start] == "/opt/engine/bin/python -m vllm.entrypoints.openai.api_server"
    assert [line.split()[0] for line in lines[start + 1 :]] == [word for word in words if word.startswith("--")]
    assert '--speculative-config \'{"method":"ngram"}\'' in text.splitlines()[-2]
