"""Tables of a launch profile that say how it runs: parallel, memory, scheduler, server and engine."""

from typing import Annotated

from pydantic import Field

from backend.launch.profile_types import Prose, Table, Text, setting


class Parallel(Table):
    """Parallel: how the model is spread over devices."""

    tensor_parallel_size: int | None = setting(
        "Tensor parallel",
        "Devices that share each layer.",
        unit="devices",
        flag="--tensor-parallel-size",
        ge=1,
    )
    pipeline_parallel_size: int | None = setting(
        "Pipeline parallel",
        "Groups of devices that hold layers one after another.",
        unit="groups",
        flag="--pipeline-parallel-size",
        ge=1,
    )
    data_parallel_size: int | None = setting(
        "Data parallel",
        "Whole copies of the model that share the requests.",
        unit="copies",
        flag="--data-parallel-size",
        ge=1,
    )
    device_ids: tuple[Text, ...] | None = setting(
        "GPUs",
        "Which GPUs to use, by UUID, or by number in PCI order.",
        gpu_only=True,
        strict=False,
        min_length=1,
    )
    enable_expert_parallel: bool | None = setting(
        "Expert parallel",
        "Mixture-of-experts models: whole experts on each device.",
        flag="--enable-expert-parallel",
    )
    distributed_executor_backend: Text | None = setting(
        "Executor",
        "What runs the workers: mp (this machine) or ray.",
        flag="--distributed-executor-backend",
    )


class Memory(Table):
    """Memory: what the engine may reserve."""

    gpu_memory_utilization: float | None = setting(
        "Share of GPU memory",
        "Part of each GPU that the engine takes. It must be free at the start.",
        unit="0 to 1",
        flag="--gpu-memory-utilization",
        gpu_only=True,
        gt=0,
        le=1,
    )
    kv_cache_bytes: int | None = setting(
        "KV cache",
        "Exact size of the KV cache of each device, in place of the share.",
        unit="bytes",
        flag="--kv-cache-memory-bytes",
        gpu_only=True,
        ge=1,
    )
    cpu_kv_cache_gib: int | None = setting(
        "KV cache on a CPU",
        "Only for a CPU engine; without it the KV cache above, rounded up.",
        unit="GiB",
        ge=1,
    )
    kv_cache_dtype: Text | None = setting(
        "KV cache format",
        "For example fp8: half the size, slightly less exact.",
        flag="--kv-cache-dtype",
    )
    block_size: int | None = setting(
        "KV block",
        "Tokens in one block of the KV cache.",
        unit="tokens",
        flag="--block-size",
        ge=1,
    )
    enforce_eager: bool | None = setting(
        "No compilation",
        "Starts faster and uses less memory, but answers more slowly.",
        flag="--enforce-eager",
    )
    cpu_offload_gib: float | None = setting(
        "Weights in main memory",
        "Part of the weights kept outside each GPU; slow.",
        unit="GiB",
        flag="--cpu-offload-gb",
        gpu_only=True,
        ge=0,
    )
    offload_backend: Text | None = setting(
        "How weights are offloaded",
        "auto, uva or prefetch.",
        flag="--offload-backend",
        gpu_only=True,
    )
    kv_offloading_gib: float | None = setting(
        "KV cache in main memory",
        "Room for KV blocks that leave the GPUs, over all of them.",
        unit="GiB",
        flag="--kv-offloading-size",
        gpu_only=True,
        gt=0,
    )
    kv_offloading_backend: Text | None = setting(
        "How KV blocks are offloaded",
        "native or lmcache.",
        flag="--kv-offloading-backend",
        gpu_only=True,
    )


class Scheduler(Table):
    """Scheduler: how requests share the engine."""

    max_num_seqs: int | None = setting(
        "Requests at once",
        "More wait in a queue.",
        unit="requests",
        flag="--max-num-seqs",
        ge=1,
    )
    max_num_batched_tokens: int | None = setting(
        "Tokens per step",
        "Most tokens that one step takes in. Speculation likes 8192.",
        unit="tokens",
        flag="--max-num-batched-tokens",
        ge=1,
    )
    chunked_prefill: bool | None = setting(
        "Chunked prefill",
        "Long prompts are read in pieces, so that others keep moving.",
        flag="--enable-chunked-prefill",
    )
    prefix_caching: bool | None = setting(
        "Prefix caching",
        "Prompts that begin alike are read once.",
        flag="--enable-prefix-caching",
    )
    async_scheduling: bool | None = setting(
        "Asynchronous scheduling",
        "Plans the next step while this one runs.",
        flag="--async-scheduling",
    )
    policy: Text | None = setting("Order", "fcfs (first come, first served) or priority.", flag="--scheduling-policy")
    stream_interval: int | None = setting(
        "Stream interval",
        "Tokens per streamed piece. Above 1, pieces are no longer steps.",
        unit="tokens",
        flag="--stream-interval",
        ge=1,
    )


class Server(Table):
    """Server: where the engine listens and how it answers."""

    host: Text = setting(
        "Address",
        "127.0.0.1 is this machine only. Any other address needs an API key.",
        default="127.0.0.1",
        flag="--host",
    )
    port: int = setting("Port", "Port to listen on.", default=8000, flag="--port", ge=1, le=65535)
    api_key: bool = setting(
        "API key", "Ask clients for a key. Specdeck makes it and keeps it elsewhere.", default=False
    )
    reasoning_parser: Text | None = setting(
        "Reasoning parser", "Separates thinking from the answer.", flag="--reasoning-parser"
    )
    auto_tool_choice: bool | None = setting(
        "Tool calls",
        "The model may call tools by itself; needs a tool parser.",
        flag="--enable-auto-tool-choice",
    )
    tool_parser: Text | None = setting(
        "Tool parser", "How tool calls are read from the answer.", flag="--tool-call-parser"
    )
    chat_template: Prose | None = setting(
        "Chat template", "Full path of a template, or the template itself.", min_length=1
    )
    per_request_metrics: bool | None = setting(
        "Figures with each answer",
        "Each answer carries its own times and rates.",
        flag="--enable-per-request-metrics",
    )
    per_request_spec_metrics: Text | None = setting(
        "Speculation in each answer", "none, summary or detailed; used while speculation is on."
    )
    quiet_endpoints: tuple[Text, ...] = setting(
        "Not in the log",
        "Paths whose requests are left out of the engine's log, if this vLLM can do that.",
        default=("/health", "/metrics"),
        strict=False,
    )


class Engine(Table):
    """Engine: which installed vLLM runs the profile."""

    environment: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = setting(
        "Environment", "Id of an engine environment (never a path); empty: the best there is."
    )
