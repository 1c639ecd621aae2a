"""Options of every age in a profile for one release: the public cases A01 to A13, and what guides still show."""

import pytest

from backend.launch import stale_options
from backend.launch.change_list import ChangeKind
from backend.launch.option_table import OptionKind, table
from backend.launch.option_values import whole_number
from tests.backend.launch.import_cases import change, imported, kind, serve

TRANSLATED, KEPT, DROPPED = ChangeKind.TRANSLATED, ChangeKind.KEPT, ChangeKind.DROPPED
REFUSED, UNKNOWN = ChangeKind.REFUSED, ChangeKind.UNKNOWN


# ---- public cases ----------------------------------------------------------------------------------------------------


def test_a01_separate_draft_options_become_the_speculative_settings() -> None:
    result = serve(
        "--speculative-model c/d --num-speculative-tokens 5 --speculative-draft-tensor-parallel-size 1 "
        "--speculative-disable-by-batch-size 4"
    )
    spec = result.profile.speculation
    assert (spec.method, spec.model, spec.num_speculative_tokens) == ("draft_model", "c/d", 5)
    assert kind(result, "--speculative-model") is TRANSLATED
    assert "gone before 0.8.5" in change(result, "--num-speculative-tokens").why
    assert change(result, "--num-speculative-tokens").to == "speculation.num_speculative_tokens = 5"
    batch = change(result, "--speculative-disable-by-batch-size")
    assert batch.kind is DROPPED
    assert "num_speculative_tokens_per_batch_size" in batch.why


@pytest.mark.parametrize(
    "option",
    [
        "--use-v2-block-manager",
        "--num-scheduler-steps 8",
        "--num-lookahead-slots 5",
        "--preemption-mode swap",
        "--worker-use-ray",
    ],
)
def test_a02_options_without_effect_are_dropped_with_the_reason(option: str) -> None:
    result = serve(f"-tp 8 -pp 2 {option}")
    assert kind(result, option) is DROPPED
    assert "gone" in change(result, option).why
    assert result.profile.extra_args == ()
    assert result.profile.parallel.tensor_parallel_size == 8
    assert result.profile.parallel.pipeline_parallel_size == 2


def test_a02_speculation_over_pipeline_groups_is_warned_of() -> None:
    result = serve("-tp 8 -pp 2 --speculative-model c/d --num-speculative-tokens 2 --use-v2-block-manager")
    assert any(finding.field == "parallel.pipeline_parallel_size" for finding in result.findings)


def test_a03_swap_space_is_gone_since_0_18() -> None:
    for version in ("0.18.0", "0.32.0"):
        result = serve("--swap-space 4", version)
        assert change(result, "--swap-space").why.startswith(f"vLLM {version} has no --swap-space (gone since 0.18.0)")
        assert result.profile.extra_args == ()
    assert "never used swap" in change(serve("--swap-space 4"), "--swap-space").why


def test_a04_swap_space_is_taken_without_effect_before() -> None:
    result = serve("--swap-space 4", "0.17.0")
    assert result.profile.extra_args == ("--swap-space", "4")
    assert "without effect" in change(result, "--swap-space").why


def test_a05_reasoning_is_switched_on_by_its_parser_alone() -> None:
    result = serve("--enable-reasoning --reasoning-parser deepseek_r1")
    assert kind(result, "--enable-reasoning") is DROPPED
    assert result.profile.server.reasoning_parser == "deepseek_r1"
    old = serve("--enable-reasoning --reasoning-parser deepseek_r1", "0.9.2")
    assert old.profile.extra_args == ("--enable-reasoning",)


@pytest.mark.parametrize(
    "value",
    [
        r"""'\{\"method\":\"ngram\",\"num_speculative_tokens\":4\}'""",  # A06
        r"""'{\"method\": \"ngram\", \"num_speculative_tokens\": 4}'""",
        """"'{\\"method\\":\\"ngram\\",\\"num_speculative_tokens\\":4}'\"""",  # A07
        '{"method": "ngram", "num_speculative_tokens": 4}',  # A08: a shell takes the quotes and the spaces split it
        "'{method: ngram, num_speculative_tokens: 4}'",
        """"{'method': 'ngram', 'num_speculative_tokens': 4}\"""",  # A09
    ],
)
def test_a06_to_a09_json_with_damaged_quotes_is_mended(value: str) -> None:
    for spelling in ("--speculative-config", "-sc", "--speculative_config"):
        result = serve(f"{spelling} {value}")
        assert (result.profile.speculation.method, result.profile.speculation.num_speculative_tokens) == ("ngram", 4)
        assert kind(result, spelling) is TRANSLATED
        assert "strict JSON" in change(result, spelling).why


def test_a08_dotted_options_are_the_same() -> None:
    result = serve("--speculative-config.method ngram --speculative-config.num_speculative_tokens 4")
    assert (result.profile.speculation.method, result.profile.speculation.num_speculative_tokens) == ("ngram", 4)


def test_a10_stale_keys_are_renamed_or_named() -> None:
    result = serve(
        """-sc '{"method": "ngram", "num-speculative-tokens": 4, "ngram_prompt_lookup_max": 5, """
        """"ngram_prompt_lookup_min": 2, "disable_by_batch_size": 4, "nonsense": 1, "target_model_config": 2}'"""
    )
    spec = result.profile.speculation
    assert (spec.prompt_lookup_max, spec.prompt_lookup_min, spec.num_speculative_tokens, spec.other) == (5, 2, 4, {})
    assert kind(result, "--speculative-config: ngram_prompt_lookup_max") is TRANSLATED
    assert kind(result, "--speculative-config: disable_by_batch_size") is DROPPED
    assert kind(result, "--speculative-config: nonsense") is UNKNOWN
    assert kind(result, "--speculative-config: target_model_config") is REFUSED


def test_a11_underscores_are_not_stale() -> None:
    result = serve("""--speculative_config '{"method": "ngram", "num_speculative_tokens": 4}' --max_model_len 8""")
    assert result.profile.target.max_model_len == 8
    assert not {REFUSED, UNKNOWN, DROPPED} & {one.kind for one in result.changes}


def test_a12_releases_without_a_usable_speculation_are_refused() -> None:
    from backend.errors import UsageError

    with pytest.raises(UsageError, match="use a newer one"):
        imported("vllm serve a/b --speculative-model c/d", "0.5.5")


def test_a13_a_short_option_keeps_its_json_whole() -> None:
    result = imported("""python3 -m vllm.entrypoints.openai.api_server --model a/b -sc '{"method":"ngram"}' --port 9""")
    assert (result.profile.speculation.method, result.profile.server.port) == ("ngram", 9)


# ---- every option that guides still show -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "version", "expected", "extra"),
    [
        ("--disable-log-requests", "0.32.0", DROPPED, ()),
        ("--disable-log-requests", "0.10.2", KEPT, ("--disable-log-requests",)),
        ("--enable-log-requests", "0.9.2", DROPPED, ()),
        (
            "--guided-decoding-backend xgrammar",
            "0.32.0",
            TRANSLATED,
            ("--structured-outputs-config", '{"backend":"xgrammar"}'),
        ),
        ("--guided-decoding-backend xgrammar", "0.10.2", KEPT, ("--guided-decoding-backend", "xgrammar")),
        (
            "--structured-outputs-config.backend xgrammar",
            "0.10.2",
            TRANSLATED,
            ("--guided-decoding-backend", "xgrammar"),
        ),
        (
            "--guided-decoding-disable-any-whitespace",
            "0.32.0",
            TRANSLATED,
            ("--structured-outputs-config", '{"disable_any_whitespace":true}'),
        ),
        ("--max-seq-len-to-capture 8192", "0.32.0", DROPPED, ()),
        ("--max-context-len-to-capture 8192", "0.32.0", DROPPED, ()),
        ("--cuda-graph-sizes 1 2 4", "0.32.0", TRANSLATED, ("--cudagraph-capture-sizes", "1", "2", "4")),
        ("--cuda-graph-sizes 512", "0.32.0", TRANSLATED, ("--max-cudagraph-capture-size", "512")),
        ("--cudagraph-capture-sizes 1 2", "0.10.2", TRANSLATED, ("--cuda-graph-sizes", "1", "2")),
        ("--cudagraph-capture-sizes 1 2", "0.8.5", REFUSED, ()),
        ("--device cuda", "0.32.0", DROPPED, ()),
        ("--device cuda", "0.9.2", KEPT, ("--device", "cuda")),
        ("--task generate", "0.32.0", DROPPED, ()),
        ("--task embed", "0.32.0", TRANSLATED, ("--runner", "pooling", "--convert", "embed")),
        ("--task score", "0.32.0", TRANSLATED, ("--runner", "pooling", "--convert", "classify")),
        ("--task draft", "0.32.0", REFUSED, ()),
        ("--task embed", "0.10.2", KEPT, ("--task", "embed")),
        ("--convert embed", "0.9.2", TRANSLATED, ("--task", "embed")),
        ("--scheduler-delay-factor 0.5", "0.32.0", DROPPED, ()),
        ("--multi-step-stream-outputs", "0.32.0", DROPPED, ()),
        ("--enable-prompt-adapter", "0.32.0", REFUSED, ()),
        ("--enable-prompt-adapter", "0.9.2", KEPT, ("--enable-prompt-adapter",)),
        ("--max-prompt-adapters 2", "0.32.0", REFUSED, ()),
        ("--disable-frontend-multiprocessing", "0.32.0", DROPPED, ()),
        ("--disable-mm-preprocessor-cache", "0.32.0", TRANSLATED, ("--mm-processor-cache-gb", "0")),
        ("--override-pooler-config '{\"a\":1}'", "0.32.0", TRANSLATED, ("--pooler-config", '{"a":1}')),
        ("--eplb-window-size 10", "0.32.0", TRANSLATED, ("--eplb-config", '{"window_size":10}')),
        (
            "--num-redundant-experts 2 --eplb-step-interval 3",
            "0.32.0",
            TRANSLATED,
            ("--eplb-config", '{"num_redundant_experts":2,"step_interval":3}'),
        ),
        ("--optimization-level 2", "0.32.0", KEPT, ("--optimization-level", "2")),
        ("-O3", "0.32.0", TRANSLATED, ("--optimization-level", "3")),
        ("-O3", "0.10.2", TRANSLATED, ("--compilation-config", '{"level":3}')),
        ("-O.mode 3", "0.32.0", TRANSLATED, ("--compilation-config", '{"mode":3}')),
        ("--compilation-config 3", "0.32.0", KEPT, ("--compilation-config", "3")),
        ("--calculate-kv-scales", "0.32.0", REFUSED, ()),
        ("--no-calculate-kv-scales", "0.32.0", DROPPED, ()),
        ("--enable-mamba-fine-grained-prefix-cache", "0.32.0", REFUSED, ()),
        ("--watermark 0.01", "0.10.2", REFUSED, ()),
        (
            '--kv-transfer-config \'{"kv_connector": "X"}\'',
            "0.32.0",
            KEPT,
            ("--kv-transfer-config", '{"kv_connector": "X"}'),
        ),
        (
            "--kv-transfer-config '{kv_connector: X}'",
            "0.32.0",
            TRANSLATED,
            ("--kv-transfer-config", '{"kv_connector":"X"}'),
        ),
        ("--kv-transfer-config '{x'", "0.32.0", REFUSED, ()),
        ("--turbo-mode", "0.32.0", UNKNOWN, ()),
        ("--turbo-mode 11", "0.32.0", UNKNOWN, ()),
        ("--kv-cache 4", "0.32.0", REFUSED, ()),
        ("--no-enable-lora", "0.32.0", KEPT, ("--no-enable-lora",)),
        ("--no-disable-cascade-attn", "0.8.5", DROPPED, ()),
        ("--middleware a.B --middleware c.D", "0.32.0", KEPT, ("--middleware", "a.B", "--middleware", "c.D")),
        ("--config x.yaml", "0.32.0", REFUSED, ()),
        ("--disable-log-stats", "0.32.0", REFUSED, ()),
        ("--uds /tmp/x", "0.32.0", REFUSED, ()),
        ("--limit-mm-per-prompt.image 2", "0.32.0", TRANSLATED, ("--limit-mm-per-prompt", '{"image":2}')),
    ],
)
def test_options_that_come_and_go(given: str, version: str, expected: ChangeKind, extra: tuple[str, ...]) -> None:
    result = serve(given, version)
    found = [one for one in result.changes if one.from_.startswith(given.split()[0])]
    assert found
    assert {one.kind for one in found} == {expected}
    assert all(one.why for one in found)
    assert result.profile.extra_args == extra


@pytest.mark.parametrize(
    ("given", "version", "field", "value", "expected"),
    [
        ("--max-model-len 16384", "0.32.0", "target.max_model_len", 16384, KEPT),
        ("--max-model-len 32k", "0.32.0", "target.max_model_len", 32000, TRANSLATED),
        ("--max-model-len 32K", "0.32.0", "target.max_model_len", 32768, TRANSLATED),
        ("--max-model-len 25.6k", "0.32.0", "target.max_model_len", 25600, TRANSLATED),
        ("--max-model-len 1.5K", "0.32.0", "target.max_model_len", None, REFUSED),
        ("--max-model-len auto", "0.32.0", "target.max_model_len", None, REFUSED),
        ("--max-model-len -1", "0.32.0", "target.max_model_len", None, REFUSED),
        ("--gpu-memory-utilization 0.94", "0.32.0", "memory.gpu_memory_utilization", 0.94, KEPT),
        ("--gpu-memory-utilization 90", "0.32.0", "memory.gpu_memory_utilization", None, REFUSED),
        ("--device-memory-utilization 0.5", "0.32.0", "memory.gpu_memory_utilization", 0.5, TRANSLATED),
        ("--device-memory-utilization 0.5", "0.10.2", "memory.gpu_memory_utilization", 0.5, TRANSLATED),
        ("--device-ids 0,GPU-1", "0.10.2", "parallel.device_ids", ("0", "GPU-1"), KEPT),
        ("--kv-cache-memory-bytes 1073741824", "0.32.0", "memory.kv_cache_bytes", 1073741824, KEPT),
        ("--kv-cache-memory-bytes 1073741824", "0.8.5", "memory.kv_cache_bytes", None, REFUSED),
        ("--no-enable-prefix-caching", "0.32.0", "scheduler.prefix_caching", False, KEPT),
        ("--trust-remote-code", "0.32.0", "target.trust_remote_code", True, KEPT),
        ("--rope-theta 1e6", "0.32.0", "target.hf_overrides", {"rope_parameters": {"rope_theta": 1e6}}, TRANSLATED),
        (
            '--rope-scaling \'{"rope_type":"yarn","factor":4.0}\'',
            "0.32.0",
            "target.hf_overrides",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
            TRANSLATED,
        ),
        ("--rope-theta 1e6", "0.11.2", "target.hf_overrides", {"rope_theta": 1e6}, TRANSLATED),
        ("--hf-overrides.a.b 3", "0.32.0", "target.hf_overrides", {"a": {"b": 3}}, TRANSLATED),
        ("--hf-overrides '{a: 1}'", "0.32.0", "target.hf_overrides", {"a": 1}, TRANSLATED),
        ("--port 80000", "0.32.0", "server.port", 8000, REFUSED),
        ("--port http", "0.32.0", "server.port", 8000, REFUSED),
        ("--seed 0", "0.32.0", "target.seed", 0, KEPT),
        ("--served-model-name x y", "0.32.0", "target.served_model_name", "x", TRANSLATED),
        ("--disable-access-log-for-endpoints /a,/b", "0.32.0", "server.quiet_endpoints", ("/a", "/b"), KEPT),
        ("--spec-method ngram --spec-tokens 3", "0.32.0", "speculation.method", "ngram", TRANSLATED),
        ("--spec-method ngram --spec-tokens 3", "0.10.2", "speculation.num_speculative_tokens", 3, TRANSLATED),
        (
            "--speculative-model '[ngram]' --num-speculative-tokens 3",
            "0.32.0",
            "speculation.method",
            "ngram",
            TRANSLATED,
        ),
        (
            "--ngram-prompt-lookup-max 4 --speculative-model '[ngram]'",
            "0.32.0",
            "speculation.prompt_lookup_max",
            4,
            TRANSLATED,
        ),
        ("--speculative-max-model-len 2048", "0.32.0", "speculation.max_model_len", 2048, TRANSLATED),
        ("--speculative-model-quantization awq", "0.32.0", "speculation.quantization", "awq", TRANSLATED),
        ("--spec-decoding-acceptance-method rejection_sampler", "0.32.0", "speculation.method", None, DROPPED),
        ("--spec-decoding-acceptance-method typical_acceptance_sampler", "0.32.0", "speculation.method", None, REFUSED),
        ("--disable-logprobs-during-spec-decoding", "0.32.0", "speculation.method", None, DROPPED),
        (
            '-sc \'{"method":"ngram","draft_sample_method":"greedy"}\'',
            "0.20.0",
            "speculation.draft_sample_method",
            None,
            KEPT,
        ),
        (
            '-sc \'{"method":"mtp","num_speculative_tokens":0}\'',
            "0.32.0",
            "speculation.num_speculative_tokens",
            None,
            KEPT,
        ),
    ],
)
def test_options_that_are_fields(given: str, version: str, field: str, value: object, expected: ChangeKind) -> None:
    result = serve(given, version)
    found: object = result.profile
    for part in field.split("."):
        found = getattr(found, part)
    assert found == value
    own = [one.kind for one in result.changes if one.from_.startswith(given.split()[0])]
    assert own[0] is expected


def test_acceptance_methods_are_kept_where_the_v0_engine_is() -> None:
    result = serve("--speculative-model c/d --spec-decoding-acceptance-method typical_acceptance_sampler", "0.8.5")
    assert result.profile.speculation.other == {"acceptance_method": "typical_acceptance_sampler"}


def test_a_key_that_this_release_lacks_is_named() -> None:
    result = serve('-sc \'{"method":"ngram","draft_sample_method":"greedy"}\'', "0.20.0")
    assert change(result, "--speculative-config: draft_sample_method").why == (
        "vLLM 0.20.0 has no such field (came with 0.21.0)."
    )


def test_of_options_given_twice_the_last_counts() -> None:
    result = serve("--max-model-len 1 --max_model_len 2 --speculative-model c/d --spec-model e/f")
    assert result.profile.target.max_model_len == 2
    assert result.profile.speculation.model == "e/f"
    dropped = [one.from_ for one in result.changes if one.kind is DROPPED]
    assert dropped == ["--max-model-len 1", "--speculative-model c/d"]


def test_dotted_keys_replace_json_as_in_vllm() -> None:
    result = serve('-sc \'{"method":"ngram"}\' -sc.method suffix')
    assert result.profile.speculation.method == "suffix"
    assert kind(result, "-sc '{") is DROPPED


def test_a_draft_that_would_fail_while_loading_is_spread_like_its_target() -> None:
    options = "-tp 4 --speculative-model c/d --speculative-draft-tensor-parallel-size"
    for size, version, left in (
        ("1", "0.32.0", None),
        ("4", "0.32.0", 4),
        ("2", "0.32.0", None),
        ("1", "0.8.5", 1),
        ("2", "0.8.5", None),
    ):
        result = serve(f"{options} {size}", version)
        assert result.profile.speculation.draft_tensor_parallel_size == left, (size, version)
        if left is None:
            assert kind(result, "--speculative-draft") is DROPPED
    config = """-tp 4 -sc '{"method":"draft_model","model":"c/d","draft_tensor_parallel_size":1}'"""
    assert kind(serve(config), "--speculative-config: draft_tensor_parallel_size") is DROPPED


def test_numbers_with_a_suffix() -> None:
    assert whole_number("1k") == (1000, "1k means 1,000; 1K would be 1,024")
    assert whole_number("2G")[0] == 2 * 1024**3
    assert whole_number(" 7 ") == (7, "")


def test_every_stale_option_has_an_answer() -> None:
    """Every option that the newest release lost, alone: told with a reason, and never left in the profile."""
    probe_flags = {
        flag for flag, option in table().options.items() if option.spans and option.spans[-1][1] == table().newest
    }
    gone = {flag: option for flag, option in table().options.items() if flag not in probe_flags}
    assert len(gone) > 60
    for flag, option in gone.items():
        value = {OptionKind.SWITCH: "", OptionKind.JSON: " '{\"a\": 1}'"}.get(option.kind, " 1")
        result = serve(f"{flag}{value}")
        told = change(result, flag)
        assert told.kind in {TRANSLATED, DROPPED, REFUSED}
        assert told.why
        assert flag not in result.profile.extra_args


def test_each_rule_names_options_that_there_were() -> None:
    for rule in stale_options.rules():
        assert set(rule["flags"]) <= table().options.keys()
        assert rule["do"] in {"drop", "refuse", "rename", "key", "env"}
        assert not rule["why"].endswith(".")
        if rule.get("to", "").startswith("--"):
            assert rule["to"] in table().options
