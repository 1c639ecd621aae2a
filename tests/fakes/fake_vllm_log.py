"""The fake engine's start-up log: vLLM 0.32's stable lines at their measured times."""

import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple


class Line(NamedTuple):
    """One line: seconds after the spawn as measured, who prints it ("api", "core", "worker", "" or "stderr")."""

    at_s: float
    who: str
    text: str


def lines(args: Any, *, dist_file: str) -> Iterator[Line]:
    """The lines of a start until the server listens; those from 16.4 s on need the children's pids."""
    speculative = args.spec_tokens > 0
    source = args.model
    port = f"'host': '{args.host}', 'port': {args.port}"
    yield Line(0.5, "", "Triton is installed, but doesn't include CPU backend. Disabling Triton.")
    for text in ("", "       █     █     █▄   ▄█", " ▄▄ ▄█ █     █     █ ▀▄▀ █  version " + args.version):
        yield Line(16.0, "api", f"INFO {_clock()} [api_utils.py:347] {text}")
    yield Line(16.0, "api", f"INFO {_clock()} [api_utils.py:347]   █▄█▀ █     █     █     █  model   {source}")
    non_default = f"{{{port}, 'model': '{source}', 'served_model_name': ['{args.served_model_name}']}}"
    yield Line(16.0, "api", f"INFO {_clock()} [api_utils.py:286] non-default args: {non_default}")
    for length in [args.max_model_len, 4096][: 1 + speculative]:
        yield Line(16.3, "api", f"INFO {_clock()} [model.py:733] Resolved architecture: LlamaForCausalLM")
        yield Line(16.3, "api", f"INFO {_clock()} [model.py:2152] Using max model len {length}")
    if speculative:
        text = f"Overriding draft model max model len from 4096 to {args.max_model_len}"
        yield Line(16.4, "api", f"INFO {_clock()} [speculative.py:1669] {text}")
    config = f"SpeculativeConfig(num_spec_tokens={args.spec_tokens})" if speculative else None
    yield Line(
        29.3,
        "core",
        f"INFO {_clock()} [core.py:133] Initializing a V1 LLM engine (v{args.version}) with config: model='{source}', "
        f"speculative_config={config}",
    )
    group = "DP group leader: node_rank=0, node_rank_within_dp=0, master_addr=127.0.0.1, world_size=1"
    yield Line(29.3, "core", f"INFO {_clock()} [multiproc_executor.py:153] {group}, local_world_size=1")
    rank = f"world_size=1 rank=0 local_rank=0 distributed_init_method=file://{dist_file} backend=gloo"
    yield Line(39.0, "worker", f"INFO {_clock()} [parallel_state.py:1906] {rank}")
    for model, loader in [(source, False), ("draft", True)][: 1 + speculative]:
        if loader:
            yield Line(40.3, "worker", f"INFO {_clock()} [cpu_model_runner.py:80] Loading drafter model...")
        yield Line(39.2, "worker", f"INFO {_clock()} [cpu_model_runner.py:68] Starting to load model {model}...")
        text = "Checkpoint size: 0.02 GiB. Available RAM: 21.63 GiB."
        yield Line(39.2, "worker", f"INFO {_clock()} [weight_utils.py:870] {text}")
        for done in (0, 1, 2):
            bar = f"Loading safetensors checkpoint shards: {done * 50:3d}% Completed | {done}/2 [00:00<00:00, 49.1it/s]"
            yield Line(39.3, "stderr", f"\r{bar}" + ("\n" if done == 2 else ""))
        yield Line(39.4, "worker", f"INFO {_clock()} [default_loader.py:501] Loading weights took 0.04 seconds")
    text = "Explicitly set (1.0/12.96) GiB for KV cache on node 0."
    yield Line(41.2, "worker", f"INFO {_clock()} [cpu_worker.py:260] {text}")
    text = f"CPU KV cache size: {args.kv_tokens:,} tokens, Maximum concurrency for {args.max_model_len:,} tokens"
    ratio = args.kv_tokens / args.max_model_len
    yield Line(41.2, "core", f"INFO {_clock()} [kv_cache_utils.py:2100] {text} per request: {ratio:.2f}x")
    text = "init engine (profile, create kv cache, warmup model) took 0.65 s"
    yield Line(41.9, "core", f"INFO {_clock()} [core.py:321] {text}")
    text = f"Starting vLLM server on http://{args.host}:{args.port}"
    yield Line(43.6, "api", f"INFO {_clock()} [api_server.py:580] {text}")
    for route in ("/health", "/metrics", "/v1/models", "/v1/chat/completions", "/v1/completions"):
        yield Line(43.6, "api", f"INFO {_clock()} [launcher.py:47] Route: {route}, Methods: GET")


def _clock() -> str:
    return time.strftime("%m-%d %H:%M:%S")


def emit(text: str, *, pid: int | None = None, who: str = "") -> None:
    """Print one line as vLLM would: prefixed on stdout, or bare on stderr (carriage returns kept)."""
    names = {"api": "APIServer", "core": "EngineCore", "worker": "Worker"}
    if who == "stderr":
        sys.stderr.write(text)
        sys.stderr.flush()
    else:
        prefix = f"({names[who]} pid={pid}) " if who in names else ""
        sys.stdout.write(f"{prefix}{text}\n")
        sys.stdout.flush()
