"""Scripts and running engines become profiles: what is kept, what is told, where errors point, and no secret."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backend.errors import UsageError, UserError
from backend.events import Severity
from backend.launch import importers, option_table, profile_toml
from backend.launch.change_list import ChangeKind
from backend.launch.command import build
from backend.launch.import_text import ImportTextError
from tests.backend.launch.import_cases import change, imported, kind, serve
from tests.backend.launch.profile_cases import CUDA, environment

BLOG = (Path(__file__).parents[2] / "data" / "blog_launch.sh").read_text(encoding="utf-8")


# ---- the line of the blog ------------------------------------------------------------------------------------------


def test_the_blogs_line_for_the_newest_release() -> None:
    result = imported(BLOG)
    assert json.loads(result.profile.model_dump_json(exclude_none=True, exclude_defaults=True, exclude={"name"})) == {
        "target": {"model": "meta-llama/Llama-3.3-70B-Instruct", "max_model_len": 16384},
        "speculation": {
            "method": "draft_model",
            "model": "meta-llama/Llama-3.2-1B-Instruct",
            "num_speculative_tokens": 5,
        },
        "parallel": {"tensor_parallel_size": 4},
        "memory": {"gpu_memory_utilization": 0.94, "kv_cache_dtype": "auto"},
        "scheduler": {"max_num_batched_tokens": 8192, "chunked_prefill": True},
        "server": {"host": "0.0.0.0", "api_key": True},
    }
    assert kind(result, "--speculative-model") is kind(result, "--num-speculative") is ChangeKind.TRANSLATED
    assert kind(result, "--speculative-draft-tensor-parallel-size") is ChangeKind.DROPPED
    assert result.profile.name == "llama-3.3-70b-instruct"
    assert not [finding for finding in result.findings if finding.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("version", "refused", "words"),
    [
        ("0.8.5", False, "vLLM 0.8.5 runs draft_model in its old V0 engine only"),
        ("0.10.2", True, "vLLM 0.10.2 cannot speculate with a draft model"),
    ],
)
def test_the_blogs_line_for_older_releases(version: str, refused: bool, words: str) -> None:
    result = imported(BLOG, version)
    assert any(words in finding.what for finding in result.findings)
    assert bool([one for one in result.findings if one.severity is Severity.ERROR]) == refused
    assert (ChangeKind.REFUSED in {one.kind for one in result.changes}) == refused
    assert result.profile.speculation.draft_tensor_parallel_size == 1


def test_the_imported_profile_starts_the_server_that_the_line_meant() -> None:
    launch = build(
        imported(BLOG).profile,
        environment=environment(**CUDA),
        run_id="",
        temp_dir=Path("/tmp/x"),
        models=Path("/m"),
        api_key="k",
        offline=False,
        base_env={},
    )
    words = " ".join(launch.argv[4:])
    assert words.startswith("meta-llama/Llama-3.3-70B-Instruct --served-model-name meta-llama/Llama-3.3-70B-Instruct")
    for part in (
        "--max-model-len 16384",
        "--tensor-parallel-size 4",
        "--gpu-memory-utilization 0.94",
        "--host 0.0.0.0",
        '{"method":"draft_model","model":"meta-llama/Llama-3.2-1B-Instruct","num_speculative_tokens":5}',
    ):
        assert part in words


# ---- shell scripts ---------------------------------------------------------------------------------------------------

SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
# where the model is
source ~/venvs/vllm/bin/activate
MODEL="Qwen/Qwen3-8B"
UNUSED=1
export NCCL_P2P_DISABLE=1 HF_TOKEN=hf_abcdefghijkl
export PORT=9001
EXTRA=(--enable-prefix-caching "--max-num-seqs" 8)
cd /srv/models
mkdir -p logs && echo "starting $MODEL"
CUDA_VISIBLE_DEVICES=2,3 nohup numactl --cpunodebind=0 vllm serve "$MODEL" \\
  -tp 2 \\
  --port "${PORT}" --chat-template ./t.jinja \\
  "${EXTRA[@]}" "$@" > logs/out.log 2>&1 &
wait
"""


def test_a_whole_script() -> None:
    result = imported(SCRIPT)
    profile = result.profile
    assert profile.target.model == "Qwen/Qwen3-8B"
    assert profile.parallel.tensor_parallel_size == 2
    assert profile.parallel.device_ids == ("2", "3")
    assert profile.server.port == 9001
    assert profile.server.chat_template == "/srv/models/t.jinja"
    assert (profile.scheduler.prefix_caching, profile.scheduler.max_num_seqs) == (True, 8)
    assert profile.env == {"NCCL_P2P_DISABLE": "1"}
    assert dict(result.secrets) == {"HF_TOKEN": "hf_abcdefghijkl"}
    for given in (
        "set -euo",
        "source ~/venvs",
        "cd /srv",
        "mkdir",
        "echo",
        "nohup numactl",
        "> logs",
        "2>&1",
        "wait",
        "UNUSED=1",
        "PORT=9001",
    ):
        assert kind(result, given) is ChangeKind.DROPPED


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve a/b --port 9",
        "$ vllm serve a/b --port 9",
        "exec vllm serve a/b --port 9",
        "/opt/venv/bin/vllm serve a/b --port 9",
        "vllm serve --port 9 a/b",
        "vllm serve --model a/b --port 9",
        "python -m vllm.entrypoints.openai.api_server --model a/b --port 9",
        "/usr/bin/python3.11 -u -X dev -m vllm.entrypoints.openai.api_server --model=a/b --port=9",
        "python -m vllm.entrypoints.cli.main serve a/b --port 9",
        "python3 -m vllm.entrypoints.api_server --model a/b --port 9",
        "env A=1 vllm serve a/b --port 9",
        "A=1 nohup setsid vllm serve a/b --port 9 &",
        "uv run vllm serve a/b --port 9",
        "conda run -n x vllm serve a/b --port 9",
        "docker exec -it box vllm serve a/b --port 9",
        "bash -c 'vllm serve a/b --port 9'",
        'ssh_like=1; bash -lc "export A=1; vllm serve a/b --port 9"',
        "vllm serve a/b --port 9 | tee x.log",
        "vllm serve a/b --port 9; echo done",
    ],
)
def test_every_way_to_start_the_server(line: str) -> None:
    result = imported(line)
    assert (result.profile.target.model, result.profile.server.port) == ("a/b", 9)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("vllm serve $MODEL", 1, 12, "$MODEL is not set"),
        ("set -e\nvllm serve a/b --port $(free_port)", 2, 23, "never run"),
        ("vllm serve a/b\nThen open http://localhost", 2, 1, "Then is no command that Specdeck knows"),
        ("vllm serve a/b and enjoy", 1, 16, "belongs to no option"),
        ("vllm serve <your-model>", 1, 12, "placeholder"),
        ("HF_TOKEN='<your token>' vllm serve a/b", 1, 10, "placeholder"),
        ("vllm serve a/b --max-model-len \\\n  ...", 2, 3, "placeholder"),
        ("if true; then\nvllm serve a/b\nfi", 1, 1, "not followed"),
        ("for m in a b; do vllm serve $m; done", 1, 1, "not followed"),
        ("vllm serve a/b\nvllm serve c/d --port 1", 2, 1, "second server"),
        ('vllm serve a/b --speculative-config \'{"a": 1}', 1, 37, "does not end"),
        ("vllm serve", 1, 1, "no model is named"),
        ("vllm serve ../models/x --port 1\n", 1, 1, "should be a full path"),
        ("mytool vllm serve a/b", 1, 1, "no command that Specdeck knows"),
        ("vllm serve https://x.y/z", 1, 1, "hub id"),
        ("export A=`id`\nvllm serve a/b", 1, 10, "never run"),
        ("docker run -e", 1, 12, "needs a value"),
        ("docker run --rm", 1, 1, "name of an image"),
        ("docker run nginx --port 1", 1, 12, "no vLLM server"),
        ("docker run -v ./m:/m vllm/vllm-openai --model /m", 1, 15, "relative path"),
    ],
)
def test_errors_point_at_the_word(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(ImportTextError) as caught:
        imported(text)
    assert words in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)
    first, shown, mark = caught.value.message.splitlines()
    assert first.startswith(f"Line {line}, column {column}: ")
    assert mark.index("^") == column + 1
    assert shown.strip()


@pytest.mark.parametrize("text", ["", "# nothing", "echo vllm serve a/b", "pip install vllm", "vllm bench serve", "ls"])
def test_a_text_without_a_server(text: str) -> None:
    with pytest.raises(ImportTextError, match="no vLLM server"):
        imported(text)


def test_relative_paths_are_those_of_the_folder_that_is_known() -> None:
    assert imported("vllm serve ./m", folder="/srv").profile.target.model == "/srv/m"
    assert imported("cd /x\nvllm serve ./m", folder="/srv").profile.target.model == "/x/m"
    assert imported("cd x\nvllm serve ./m", folder="/srv").profile.target.model == "/srv/x/m"


def test_an_address_for_others_gets_a_key() -> None:
    result = imported("vllm serve a/b --host 0.0.0.0")
    assert (result.profile.server.host, result.profile.server.api_key) == ("0.0.0.0", True)
    assert result.findings[0].fixes[0].changes[0].value == "127.0.0.1"
    silent = imported("vllm serve a/b")
    assert (silent.profile.server.host, silent.profile.server.api_key) == ("127.0.0.1", False)
    assert "every one of this machine" in silent.findings[0].what


# ---- variables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "version", "expected", "env"),
    [
        ("VLLM_LOGGING_LEVEL=DEBUG", "0.32.0", ChangeKind.KEPT, {"VLLM_LOGGING_LEVEL": "DEBUG"}),
        ("CUDA_DEVICE_ORDER=PCI_BUS_ID", "0.32.0", ChangeKind.DROPPED, {}),
        ("CUDA_DEVICE_ORDER=FASTEST_FIRST", "0.32.0", ChangeKind.REFUSED, {}),
        ("VLLM_PORT=5000", "0.32.0", ChangeKind.DROPPED, {}),
        ("PROMETHEUS_MULTIPROC_DIR=/x", "0.32.0", ChangeKind.DROPPED, {}),
        ("VLLM_USE_V1=1", "0.32.0", ChangeKind.DROPPED, {}),
        ("VLLM_USE_V1=0", "0.32.0", ChangeKind.REFUSED, {}),
        ("VLLM_USE_V1=0", "0.9.2", ChangeKind.KEPT, {"VLLM_USE_V1": "0"}),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER", "0.12.0", ChangeKind.KEPT, {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER", "0.32.0", ChangeKind.TRANSLATED, {}),
        ("LD_PRELOAD=/x.so", "0.32.0", ChangeKind.KEPT, {"LD_PRELOAD": "/x.so"}),
        ("PATH=/x:$PATH", "0.32.0", ChangeKind.REFUSED, {}),
        ("CUDA_VISIBLE_DEVICES=all", "0.32.0", ChangeKind.DROPPED, {}),
        ("CUDA_VISIBLE_DEVICES=", "0.32.0", ChangeKind.KEPT, {"CUDA_VISIBLE_DEVICES": ""}),
        ("VLLM_CPU_KVCACHE_SPACE=4", "0.32.0", ChangeKind.TRANSLATED, {}),
    ],
)
def test_variables(given: str, version: str, expected: ChangeKind, env: dict[str, str]) -> None:
    result = imported(f"export {given}\nvllm serve a/b", version)
    assert kind(result, given.split("$")[0].removesuffix("/x:")) is expected
    assert result.profile.env == env


def test_variables_that_are_fields() -> None:
    result = imported("VLLM_CPU_KVCACHE_SPACE=4 CUDA_VISIBLE_DEVICES=GPU-1,GPU-2 vllm serve a/b")
    assert result.profile.memory.cpu_kv_cache_gib == 4
    assert result.profile.parallel.device_ids == ("GPU-1", "GPU-2")
    flash = imported("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve a/b")
    assert flash.profile.extra_args == ("--attention-backend", "FLASHINFER")
    back = serve("--attention-backend FLASHINFER", "0.12.0")
    assert back.profile.env == {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}


# ---- secrets and code ------------------------------------------------------------------------------------------------

SECRETS = ["hf_geheimAAAAAAAA", "sk-geheimBBBBBBBB", "geheim-word-CCCC"]


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=hf_geheimAAAAAAAA vllm serve a/b --api-key sk-geheimBBBBBBBB geheim-word-CCCC",
        "export MY_PASSWORD=geheim-word-CCCC\nvllm serve a/b --api-key=sk-geheimBBBBBBBB --hf-token hf_geheimAAAAAAAA",
        "curl -H 'Authorization: Bearer geheim-word-CCCC' x\nVLLM_API_KEY=geheim-word-CCCC vllm serve a/b",
        "docker run -e HF_TOKEN=hf_geheimAAAAAAAA -e 'X=sk-geheimBBBBBBBB' vllm/vllm-openai a/b "
        "--api-key geheim-word-CCCC",
        "services:\n  v:\n    image: vllm/vllm-openai\n    command: --model a/b --api-key geheim-word-CCCC\n"
        "    environment: {HF_TOKEN: hf_geheimAAAAAAAA, Y: sk-geheimBBBBBBBB}\n",
        "services:\n  v:\n    image: vllm/vllm-openai\n    command: --model a/b\n"
        "    environment: [HF_TOKEN=hf_geheimAAAAAAAA, VLLM_API_KEY=geheim-word-CCCC]\n",
        '[Service]\nEnvironment=HF_TOKEN=hf_geheimAAAAAAAA "VLLM_API_KEY=geheim-word-CCCC"\nExecStart=vllm serve a/b\n',
        "vllm serve a/b --otlp-traces-endpoint https://me:geheim-word-CCCC@x/y "
        '--kv-transfer-config \'{"t":"hf_geheimAAAAAAAA"}\'',
        'vllm serve a/b --served-model-name hf_geheimAAAAAAAA -sc \'{"method":"ngram","x":"sk-geheimBBBBBBBB"}\'',
        # the same value in other places
        "export MY_TOKEN=geheim-word-CCCC\nvllm serve a/b --served-model-name $MY_TOKEN --dtype geheim-word-CCCC",
        "export MY_TOKEN=geheim-word-CCCC X=$MY_TOKEN\nvllm serve geheim-word-CCCC --turbo geheim-word-CCCC",
        # errors show the line
        "HF_TOKEN=hf_geheimAAAAAAAA vllm serve $MODEL --api-key geheim-word-CCCC",
        "vllm serve a/b c/d --api-key geheim-word-CCCC",
        "huggingface-cli login --token geheim-word-CCCC\nvllm serve a/b c/d",
        "export MY_PASSWORD=geheim-word-CCCC; oops geheim-word-CCCC\nvllm serve a/b",
    ],
)
def test_secrets_are_shown_nowhere(text: str) -> None:
    try:
        result = imported(text)
        shown = profile_toml.dumps(result.profile) + repr(result) + str([one.as_dict() for one in result.changes])
    except UserError as error:
        shown = f"{error} {error.message!r}"
    assert not [secret for secret in SECRETS if secret in shown]


def test_a_key_and_a_token_are_moved_out_of_the_profile() -> None:
    result = serve("--api-key geheim --hf-token hf_geheimAAAAAAAA")
    assert result.profile.server.api_key is True
    assert dict(result.secrets) == {"VLLM_API_KEY": "geheim", "HF_TOKEN": "hf_geheimAAAAAAAA"}
    assert change(result, "--api-key").to.startswith("moved")
    assert change(result, "--hf-token").to == "moved"


def test_a_token_of_the_persons_shell_stays_there() -> None:
    result = imported('HF_TOKEN=$HF_TOKEN vllm serve a/b --api-key "$MY_API_KEY"')
    assert dict(result.secrets) == {}
    assert result.profile.server.api_key is True
    assert change(result, "HF_TOKEN").to == "your shell's HF_TOKEN"


def test_what_loads_code_is_asked_for_one_by_one() -> None:
    text = "LD_PRELOAD=/x.so vllm serve a/b --trust-remote-code --middleware a.B --chat-template /t.jinja"
    asked = [one.field for one in imported(text).findings if "You will be asked" in one.fix]
    assert asked == ["target.trust_remote_code", "server.chat_template", "env.LD_PRELOAD", "extra_args --middleware"]


# ---- a running engine ------------------------------------------------------------------------------------------------


def _process(proc: Path, pid: int, words: list[str], env: dict[str, str], parent: int = 1) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (folder / "environ").write_bytes(b"".join(f"{key}={value}".encode() + b"\0" for key, value in env.items()))
    (folder / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    (folder / "cwd").symlink_to("/srv")


def test_a_running_engine(tmp_path: Path) -> None:
    words = [
        "/opt/bin/python",
        "-P",
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        "./m x",
        "--port",
        "8001",
        "--api-key",
        "geheim-1",
        "--chat-template",
        "$(no shell)",
    ]
    env = {"VLLM_LOGGING_LEVEL": "DEBUG", "HOME": "/root", "HF_TOKEN": "hf_geheimAAAAAAAA", "CUDA_VISIBLE_DEVICES": "1"}
    _process(tmp_path, 100, words, env)
    _process(tmp_path, 101, ["VLLM::EngineCore"], {}, parent=100)
    probe = option_table.probe_of("0.32.0")
    for pid in (100, 101):
        result = importers.from_process(pid, probe=probe, proc=tmp_path)
        assert result.profile.target.model == "/srv/m x"
        assert result.profile.server.port == 8001
        assert result.profile.server.chat_template == "$(no shell)"
        assert result.profile.env == {"VLLM_LOGGING_LEVEL": "DEBUG"}
        assert result.profile.parallel.device_ids == ("1",)
        assert "geheim" not in repr(result)


def test_a_process_that_is_no_engine(tmp_path: Path) -> None:
    _process(tmp_path, 5, ["sleep", "9"], {})
    probe = option_table.probe_of("0.32.0")
    with pytest.raises(UsageError, match="no vLLM server"):
        importers.from_process(5, probe=probe, proc=tmp_path)
    with pytest.raises(UsageError, match="no process 6"):
        importers.from_process(6, probe=probe, proc=tmp_path)


def test_a_process_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _process(tmp_path, 5, ["vllm", "serve", "a/b"], {})
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(UsageError, match="somebody else"):
        importers.from_process(5, probe=option_table.probe_of("0.32.0"), proc=tmp_path)


def test_a_real_process_of_ones_own() -> None:
    script = "import sys, time; print('on', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", script, "vllm", "serve", "a/b", "--port", "8765"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        result = importers.from_process(process.pid, probe=option_table.probe_of("0.32.0"))
        process.communicate()
    assert (result.profile.target.model, result.profile.server.port) == ("a/b", 8765)


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_texts_that_are_none() -> None:
    with pytest.raises(UserError, match="too long"):
        imported("vllm serve a/b " + "x" * importers.MAX_CHARACTERS)
    for text in ("vllm serve a/b\0", "vllm serve \ud800"):
        with pytest.raises(ImportTextError, match="no text"):
            imported(text)


def test_the_name_is_made_of_the_models() -> None:
    assert imported("vllm serve '/x/\u00e4\u00f6'").profile.name == "imported"
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", imported("vllm serve a/--B..c_").profile.name)
