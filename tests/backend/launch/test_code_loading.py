"""Which settings load code or a path, and must be allowed one by one."""

import pytest

from backend.launch import profile_toml
from backend.launch.code_loading import code_loading


def _found(text: str) -> list[tuple[str, str]]:
    profile = profile_toml.loads(f'target.model = "a/b"\n{text}', name="mine")
    return [(one.field, one.value) for one in code_loading(profile) if one.why]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("target.trust_remote_code = true", "target.trust_remote_code", "true"),
        ('target.load_format = "pt"', "target.load_format", "pt"),
        ('server.chat_template = "/x/template.jinja"', "server.chat_template", "/x/template.jinja"),
        ('speculation = { method = "custom_class", model = "pkg.X" }', "speculation.model", "pkg.X"),
        ('speculation.model = "pkg.X"', "speculation.model", "pkg.X"),
        ('parallel.distributed_executor_backend = "pkg.X"', "parallel.distributed_executor_backend", "pkg.X"),
        ('env.LD_PRELOAD = "/x.so"', "env.LD_PRELOAD", "/x.so"),
        ('env.LD_LIBRARY_PATH = "/x"', "env.LD_LIBRARY_PATH", "/x"),
        ('env.PYTHONPATH = "/x"', "env.PYTHONPATH", "/x"),
        ('env.PATH = "/x"', "env.PATH", "/x"),
        ('env.VLLM_PLUGINS = "x"', "env.VLLM_PLUGINS", "x"),
        ('env.VLLM_ALLOW_INSECURE_SERIALIZATION = "1"', "env.VLLM_ALLOW_INSECURE_SERIALIZATION", "1"),
        ('env.VLLM_NCCL_SO_PATH = "/x.so"', "env.VLLM_NCCL_SO_PATH", "/x.so"),
        ('extra_args = ["--middleware", "pkg.X"]', "extra_args --middleware", "pkg.X"),
        ('extra_args = ["--worker-cls=pkg.X"]', "extra_args --worker-cls", "pkg.X"),
        ('extra_args = ["--worker_extension_cls", "pkg.X"]', "extra_args --worker_extension_cls", "pkg.X"),
        ('extra_args = ["--logits-processors", "pkg.X"]', "extra_args --logits-processors", "pkg.X"),
        ('extra_args = ["--tool-parser-pl", "/x.py"]', "extra_args --tool-parser-pl", "/x.py"),
        ('extra_args = ["--kv-transfer-config.kv_connector_module_path", "x"]',
         "extra_args --kv-transfer-config.kv_connector_module_path", "x"),
    ],
)  # fmt: skip
def test_each_is_listed_with_its_value(text: str, field: str, value: str) -> None:
    assert _found(text) == [(field, value)]


def test_each_is_listed_by_itself() -> None:
    text = 'extra_args = ["--middleware", "a.B", "--middleware", "c.D"]\nenv = { PATH = "/x", LD_X = "/y" }'
    assert [value for _, value in _found(text)] == ["/x", "/y", "a.B", "c.D"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "target.trust_remote_code = false",
        'target.load_format = "safetensors"',
        'server.chat_template = "{{ messages }}"',
        'speculation = { method = "draft_model", model = "org.x/draft" }',
        'parallel.distributed_executor_backend = "ray"',
        'env.CUDA_VISIBLE_DEVICES = "0"',
        'extra_args = ["--uvicorn-log-level", "warning"]',
    ],
)
def test_what_loads_nothing_is_not_listed(text: str) -> None:
    assert _found(text) == []
