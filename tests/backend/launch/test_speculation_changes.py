"""What each release can do of a speculation: the version gates among the public cases B01 to B33."""

import pytest

from backend.events import Finding, Severity
from backend.launch import option_table, profile_toml, speculation_changes
from backend.launch.change_list import ChangeKind
from backend.launch.profile import Profile
from tests.backend.launch.import_cases import change, serve
from tests.backend.launch.profile_cases import recorded_probe

DRAFT = '[speculation]\nmethod = "draft_model"\nmodel = "c/d"\nnum_speculative_tokens = 3\n'


def profile(text: str) -> Profile:
    return profile_toml.loads(f'target.model = "a/b"\n{text}', name="mine")


def found(text: str, version: str, *, platform: str = "cuda") -> list[Finding]:
    return list(speculation_changes.can_do(profile(text), option_table.probe_of(version, platform=platform)))


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.8.5", Severity.NOTE),
        ("0.9.2", Severity.NOTE),
        ("0.10.0", Severity.ERROR),
        ("0.10.2", Severity.ERROR),
        ("0.13.0", Severity.ERROR),
        ("0.14.1", Severity.ERROR),
        ("0.15.0", None),
        ("0.15.1", None),
        ("0.32.0", None),
    ],
)
def test_b10_b11_draft_models_were_missing_from_0_10_to_0_14(version: str, severity: Severity | None) -> None:
    findings = found(DRAFT, version)
    assert [finding.severity for finding in findings] == ([] if severity is None else [severity])
    if severity is Severity.ERROR:
        assert "Speculative decoding with draft model is not supported yet" in findings[0].why
        assert findings[0].field == "speculation.method"
        ways = findings[0].fixes
        assert ("speculation.method", "ngram") in {(one.path, one.value) for one in ways[0].changes}
        assert ways[-1].action == "engines"


def test_b11_what_this_release_refuses_is_marked_in_the_changes_too() -> None:
    result = serve('--speculative-config \'{"method":"draft_model","model":"c/d"}\'', "0.13.0")
    told = change(result, "--speculative-config '{")
    assert told.kind is ChangeKind.REFUSED
    assert "vLLM 0.13.0 cannot speculate with a draft model" in told.why
    assert result.profile.speculation.method == "draft_model", "the profile keeps what was asked for"


@pytest.mark.parametrize(
    ("draft", "target", "version", "left"),
    [
        (4, 4, "0.32.0", 4),
        (2, 4, "0.32.0", None),
        (1, 4, "0.32.0", None),
        (1, 4, "0.9.2", 1),
        (3, 4, "0.9.2", None),
    ],
)
def test_b12_b13_a_draft_is_spread_over_one_gpu_or_like_its_target(
    draft: int, target: int, version: str, left: int | None
) -> None:
    config = f'{{"method":"draft_model","model":"c/d","draft_tensor_parallel_size":{draft}}}'
    result = serve(f"-tp {target} -sc '{config}'", version)
    assert result.profile.speculation.draft_tensor_parallel_size == left


def test_b13_heads_may_still_be_spread_otherwise() -> None:
    result = serve('-tp 4 -sc \'{"method":"eagle3","model":"c/d","draft_tensor_parallel_size":1}\'')
    assert result.profile.speculation.draft_tensor_parallel_size == 1


def test_b15_the_targets_key_is_renamed_to_the_drafts() -> None:
    result = serve('-tp 2 -sc \'{"method":"eagle3","model":"c/d","tensor_parallel_size":2}\'')
    assert result.profile.speculation.draft_tensor_parallel_size == 2
    told = change(result, "--speculative-config: tensor_parallel_size")
    assert (told.kind, told.to) == (ChangeKind.TRANSLATED, "speculation.draft_tensor_parallel_size = 2")


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.20.0", Severity.ERROR),
        ("0.28.0", Severity.WARNING),
        ("0.29.0", Severity.WARNING),
        ("0.32.0", Severity.WARNING),
    ],
)
def test_b21_b22_speculation_over_pipeline_groups(version: str, severity: Severity) -> None:
    findings = found(f"parallel.pipeline_parallel_size = 2\n{DRAFT}", version)
    assert [finding.severity for finding in findings] == [severity]
    assert findings[0].field == "parallel.pipeline_parallel_size"
    assert [(one.path, one.value) for one in findings[0].fixes[0].changes] == [
        ("parallel.pipeline_parallel_size", None)
    ]


@pytest.mark.parametrize(
    ("method", "version", "refused"),
    [
        ("suffix", "0.32.0", True),
        ("medusa", "0.32.0", True),
        ("mlp_speculator", "0.32.0", True),
        ("draft_model", "0.32.0", False),
        ("ngram", "0.32.0", False),
        ("eagle3", "0.32.0", False),
        ("draft_model", "0.24.0", True),
        ("ngram", "0.24.0", True),
        ("eagle3", "0.24.0", False),
    ],
)
def test_b23_the_second_runner_forced_by_a_variable(method: str, version: str, refused: bool) -> None:
    text = f'env = {{ VLLM_USE_V2_MODEL_RUNNER = "1" }}\nspeculation = {{ method = "{method}", model = "c/d" }}'
    fields = [finding.field for finding in found(text, version) if finding.severity is Severity.ERROR]
    assert ("env.VLLM_USE_V2_MODEL_RUNNER" in fields) == refused
    assert not [one for one in found(text.replace('"1"', '"0"'), version) if one.field.startswith("env")]


def test_b26_suffix_needs_its_package() -> None:
    text = 'speculation = { method = "suffix" }'
    assert ["arctic-inference" in finding.what for finding in found(text, "0.32.0")] == [True]
    installed = recorded_probe(packages={"arctic-inference": "0.1.1"})
    assert list(speculation_changes.can_do(profile(text), installed)) == []


@pytest.mark.parametrize(
    ("method", "version", "is_there"),
    [
        ("suffix", "0.11.0", False),
        ("suffix", "0.11.1", True),
        ("mtp", "0.10.2", False),
        ("mtp", "0.11.0", True),
        ("deepseek_mtp", "0.9.0.1", True),
        ("deepseek_mtp", "0.8.5", False),
        ("eagle3", "0.8.5", True),
        ("eagle3", "0.9.2", True),
        ("dflash", "0.19.0", False),
        ("dflash", "0.20.0", True),
        ("dspark", "0.24.0", False),
        ("dspark", "0.25.0", True),
        ("ngram_gpu", "0.17.0", False),
        ("ngram_gpu", "0.18.0", True),
        ("custom_class", "0.21.0", False),
        ("custom_class", "0.22.0", True),
        ("extract_hidden_states", "0.16.0", False),
        ("extract_hidden_states", "0.17.0", True),
        ("nonsense", "0.32.0", False),
        ("ngram", "0.8.5", True),
        ("medusa", "0.32.0", True),
    ],
)
def test_methods_by_release(method: str, version: str, is_there: bool) -> None:
    findings = found(f'speculation = {{ method = "{method}", model = "c/d" }}', version)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    assert bool(errors) != is_there
    if errors:
        assert f"vLLM {version} has no method {method}" in errors[0].what


def test_before_0_11_each_family_had_a_name_of_its_own() -> None:
    (error,) = found('speculation = { method = "mtp" }', "0.10.2")
    assert "came with 0.11.0" in error.what
    assert "deepseek_mtp" in error.fix
    (note,) = found('speculation = { method = "deepseek_mtp" }', "0.32.0")
    assert note.severity is Severity.NOTE
    assert [(one.path, one.value) for one in note.fixes[0].changes] == [("speculation.method", "mtp")]


@pytest.mark.parametrize(
    ("key", "since"),
    [
        ("use_heterogeneous_vocab", "0.25.0"),
        ("parallel_drafting", "0.16.0"),
        ("draft_sample_method", "0.21.0"),
        ("rejection_sample_method", "0.18.0"),
        ("num_speculative_tokens_per_batch_size", "0.24.0"),
        ("kv_cache_dtype", "0.26.0"),
    ],
)
def test_keys_by_release(key: str, since: str) -> None:
    versions = option_table.table().versions
    before = versions[versions.index(since) - 1]
    value = {
        "num_speculative_tokens_per_batch_size": [[1, 4, 3]],
        "draft_sample_method": "greedy",
        "kv_cache_dtype": "fp8",
        "rejection_sample_method": "standard",
    }.get(key, True)
    probe = option_table.probe_of
    assert speculation_changes.change_key(key, value, probe(since)).kind == "kept"
    refused = speculation_changes.change_key(key, value, probe(before))
    assert (refused.kind, refused.key) == ("refused", "")
    assert f"came with {since}" in refused.why


def test_j08_the_cpu_build_did_not_speculate_up_to_0_11() -> None:
    text = 'speculation = { method = "ngram", num_speculative_tokens = 3 }'
    assert [one.severity for one in found(text, "0.11.2", platform="cpu")] == [Severity.ERROR]
    assert found(text, "0.12.0", platform="cpu") == []
    assert found(text, "0.11.2") == []


def test_without_speculation_there_is_nothing_to_say() -> None:
    assert found("parallel.pipeline_parallel_size = 2", "0.8.5", platform="cpu") == []


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3"),
        ("yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle"),
        ("ibm-ai-platform/llama3-8b-accelerator", "mlp_speculator"),
        ("x/vicuna-medusa", "medusa"),
        ("a/b", "draft_model"),
        (None, None),
    ],
)
def test_the_method_that_a_draft_means(model: str | None, method: str | None) -> None:
    assert speculation_changes.method_of({"model": model}) == method
    assert speculation_changes.method_of({"model": model, "method": "mtp"}) == "mtp"
