"""Every preset, a profile with every field set, and imported commands through a real vLLM's parser; nothing starts."""

import json
import subprocess
from pathlib import Path

import pytest

from backend.launch import profile_toml
from backend.launch.command import build
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import FIELDS, Profile
from backend.launch.profile_store import ProfileStore
from tests.backend.launch.import_cases import imported
from tests.backend.launch.profile_cases import CUDA, environment

# Runs in the engine's interpreter: argv lists on stdin, {name: [model, speculative config, left over]} on stdout.
SCRIPT = """
import dataclasses, json, os, sys
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from vllm.config.speculative import SpeculativeConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
fields = {field.name for field in dataclasses.fields(SpeculativeConfig)}
result = {}
for name, argv in json.load(sys.stdin).items():
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(argv)
    config = args.speculative_config
    result[name] = [args.model_tag, config, sorted(set(config or ()) - fields)]
json.dump(result, answer)
"""


EVERYTHING = """
extra_args = ["--uvicorn-log-level", "warning", "--override-generation-config", '{"temperature": 0.0}']

[target]
model = "a/b"
revision = "main"
code_revision = "main"
tokenizer = "c/d"
tokenizer_revision = "main"
tokenizer_mode = "auto"
dtype = "float16"
quantization = "fp8"
max_model_len = 4096
trust_remote_code = false
served_model_name = "mine"
load_format = "safetensors"
seed = 7
hf_overrides = { rope_theta = 1.5, nested = { deep = [1, 2] } }

[speculation]
method = "draft_model"
model = "e/f"
num_speculative_tokens = 3
prompt_lookup_min = 1
prompt_lookup_max = 2
draft_tensor_parallel_size = 2
rejection_sample_method = "synthetic"
synthetic_acceptance_length = 2.5
synthetic_acceptance_rates = [0.75, 0.5, 0.25]
num_speculative_tokens_per_batch_size = [[1, 4, 3], [5, 64, 1]]
use_heterogeneous_vocab = true
draft_sample_method = "greedy"
quantization = "fp8"
max_model_len = 2048
revision = "main"
other = { parallel_drafting = true }

[parallel]
tensor_parallel_size = 2
pipeline_parallel_size = 2
data_parallel_size = 2
device_ids = ["0", "1"]
enable_expert_parallel = true
distributed_executor_backend = "mp"

[memory]
gpu_memory_utilization = 0.5
kv_cache_bytes = 1_000_000_000
kv_cache_dtype = "fp8"
block_size = 16
enforce_eager = false
cpu_offload_gib = 1.5
offload_backend = "uva"
kv_offloading_gib = 2.5
kv_offloading_backend = "native"

[scheduler]
max_num_seqs = 8
max_num_batched_tokens = 2048
chunked_prefill = true
prefix_caching = false
async_scheduling = true
policy = "priority"
stream_interval = 2

[server]
host = "localhost"
port = 8001
reasoning_parser = "qwen3"
auto_tool_choice = true
tool_parser = "hermes"
chat_template = "{{ messages }}"
per_request_metrics = true
per_request_spec_metrics = "detailed"
"""


# Old spellings, each of which the import turns into something that this vLLM takes.
OLD = (
    "--guided-decoding-backend xgrammar --guided-decoding-disable-any-whitespace",
    "--cuda-graph-sizes 512",
    "--cuda-graph-sizes 1 2 4",
    "--task embed",
    "--disable-mm-preprocessor-cache --enable-multimodal-encoder-data-parallel",
    '--override-pooler-config \'{"pooling_type": "MEAN"}\'',
    "--eplb-window-size 10 --eplb-step-interval 3 --num-redundant-experts 2 --eplb-log-balancedness",
    "-O3",
    "-O.mode 3 --limit-mm-per-prompt.image 2 --hf-overrides.rope_theta 1e6",
    '--rope-scaling \'{"rope_type":"yarn","factor":4.0}\' --rope-theta 1e6',
    "-sc {method: ngram, num_speculative_tokens: 4, ngram_prompt_lookup_max: 4}",
    "--spec-method ngram --spec-tokens 3 --max-model-len 32k --kv-cache-dt fp8 --kv-cache-dtype fp8",
    "--use-v2-block-manager --swap-space 4 --num-scheduler-steps 8 --disable-log-requests --device cuda",
    "--no-enable-prefix-caching --enable-chunked-prefill true --trust_remote_code -tp 2 -q fp8",
)
BLOG = Path(__file__).parents[2] / "data" / "blog_launch.sh"


def _imported() -> dict[str, Profile]:
    texts = {line: f"VLLM_ATTENTION_BACKEND=FLASH_ATTN vllm serve a/b {line}" for line in OLD}
    texts["blog"] = BLOG.read_text(encoding="utf-8")
    return {name: imported(text).profile for name, text in texts.items()}


def _profiles() -> list[Profile]:
    everything = profile_toml.loads(EVERYTHING, name="everything")
    unset = [field.path for field in FIELDS if field.flag and field.value(everything) is None]
    assert unset == [], "this test's own profile should set every field that becomes an option"
    presets = [stored.profile for stored in ProfileStore().list() if stored.profile is not None]
    assert len(presets) == 7
    return [everything, *presets]


def _environment(platform: str) -> EngineEnvironment:
    return environment(**CUDA) if platform == "cuda" else environment(serve_module="vllm.entrypoints.cli.main")


@pytest.mark.engine
def test_the_real_parser_accepts_every_preset(engine_python: Path, tmp_path: Path) -> None:
    """Starts: 0 (one import of vLLM, about 16 s)."""
    commands: dict[str, list[str]] = {}
    for profile in _profiles():
        for platform in ("cpu", "cuda"):
            launch = build(
                profile, environment=_environment(platform), run_id="r", temp_dir=tmp_path,
                models=tmp_path, api_key=None, offline=True, base_env={},
            )  # fmt: skip
            assert launch.argv[1:4] == ("-m", "vllm.entrypoints.cli.main", "serve")
            commands[f"{profile.name} {platform}"] = list(launch.argv[4:])
    for name, profile in _imported().items():
        launch = build(
            profile, environment=_environment("cuda"), run_id="r", temp_dir=tmp_path, models=tmp_path, api_key="k",
            offline=True, base_env={},
        )  # fmt: skip
        commands[name] = list(launch.argv[4:])
    done = subprocess.run(
        [engine_python, "-P", "-c", SCRIPT],
        input=json.dumps(commands), cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False,
        env={"VLLM_TARGET_DEVICE": "cpu", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "VLLM_NO_USAGE_STATS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result.keys() == commands.keys()
    for name, (model, config, unknown) in result.items():
        assert model == commands[name][0]
        assert unknown == [], name
        if name not in OLD:
            assert config["num_speculative_tokens"] >= 1
    assert result["blog"][1]["method"] == "draft_model"
