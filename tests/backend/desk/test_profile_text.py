"""Fields as text: every value goes through the form and back, and what cannot be read is said in words."""

import pytest
from hypothesis import given, settings

from backend.desk import profile_text
from backend.launch.profile import FIELDS, Profile
from backend.launch.profile_model import Speculation, Target
from backend.launch.profile_store import ProfileStore
from tests.backend.launch.profile_cases import profiles


def _text(profile: Profile) -> dict[str, str]:
    return {field.path: profile_text.to_text(field.path, field.value(profile)) for field in profile_text.EDITABLE}


def _problems(**values: str) -> dict[str, str]:
    typed = {"target.model": "a/b"} | {name.replace("__", "."): text for name, text in values.items()}
    return profile_text.read(None, "mine", typed)[1]


@settings(max_examples=150, deadline=None)
@given(profiles)
def test_every_field_goes_through_the_form_and_back(profile: Profile) -> None:
    assert profile_text.read(profile, "mine", _text(profile)) == (profile, {})


def test_the_form_leaves_out_only_what_a_demo_measured() -> None:
    left_out = {field.path for field in FIELDS} - {field.path for field in profile_text.EDITABLE}
    assert {path.split(".")[0] for path in left_out} == {"measured", "demo"}


def test_presets_go_through_the_form_and_back() -> None:
    for stored in ProfileStore().list():
        assert stored.profile is not None
        assert profile_text.read(stored.profile, stored.name, _text(stored.profile)) == (stored.profile, {})


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("memory.kv_cache_bytes", 2**30, "1 GiB"),
        ("memory.kv_cache_bytes", 1536 * 2**20, "1536 MiB"),
        ("target.download_bytes", 16_100_000_000, "16.1 GB"),
        ("target.download_bytes", 1234, "1,234"),
        ("target.max_model_len", 16384, "16,384"),
        ("server.port", 18000, "18000"),
        ("server.port", 8000, ""),
        ("memory.gpu_memory_utilization", 0.92, "0.92"),
        ("memory.cpu_offload_gib", 4.0, "4"),
        ("server.api_key", True, "true"),
        ("memory.enforce_eager", False, "false"),
        ("server.quiet_endpoints", (), "[]"),
        ("server.quiet_endpoints", ("/a", "/b"), "/a\n/b"),
        ("speculation.num_speculative_tokens_per_batch_size", ((1, 4, 5), (5, 9, 0)), "1, 4, 5\n5, 9, 0"),
        ("speculation.synthetic_acceptance_rates", (0.5, 1.0), "0.5\n1"),
        ("env", {"A": "b c", "B": " x"}, 'A=b c\nB=" x"'),
        ("extra_args", ("--a", "1"), "--a\n1"),
        ("extra_args", ("--a", ""), '[\n  "--a",\n  ""\n]'),
        ("target.hf_overrides", {"a": {"b": 1}}, '{\n  "a": {\n    "b": 1\n  }\n}'),
    ],
)
def test_values_are_shown_as_people_write_them(path: str, value: object, text: str) -> None:
    assert profile_text.to_text(path, value) == text


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("target.max_model_len", " 16 384 ", 16384),
        ("target.max_model_len", "16_384", 16384),
        ("memory.kv_cache_bytes", "1.5gib", 3 * 2**29),
        ("memory.kv_cache_bytes", "1,000 MB", 10**9),
        ("memory.kv_cache_bytes", "1073741824", 2**30),
        ("target.model", "  a/b  ", "a/b"),
        ("target.model", "   ", None),
        ("title", " a ", " a "),
        ("env", "A = b\n\n B=", {"A": "b", "B": ""}),
        ("parallel.device_ids", "0\n\n 1 ", ["0", "1"]),
        ("speculation.num_speculative_tokens_per_batch_size", "1 4,5", [[1, 4, 5]]),
    ],
)
def test_what_people_type_is_understood(path: str, text: str, value: object) -> None:
    assert profile_text.from_text(path, text) == value


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("target.model", "", "is needed: name a model of the hub, or the full path of a folder"),
        ("target.model", "./x", "should be a full path: a relative one means another folder each time"),
        ("target.max_model_len", "many", "should be a whole number"),
        ("target.max_model_len", "1.5", "should be a whole number"),
        ("target.max_model_len", "16,38", "should be a whole number"),
        ("target.max_model_len", "0", "should be at least 1"),
        ("server.port", "70000", "should be at most 65,535"),
        ("memory.gpu_memory_utilization", "0", "should be above 0"),
        ("memory.gpu_memory_utilization", "1.5", "should be at most 1"),
        ("memory.gpu_memory_utilization", "much", "should be a number"),
        ("memory.gpu_memory_utilization", "nan", "should be a finite number"),
        ("memory.kv_cache_bytes", "8 gigs", "should be a size, for example 8 GiB, or a whole number of bytes"),
        ("memory.kv_cache_bytes", "0.3 KiB", "should come to a whole number of bytes"),
        ("memory.enforce_eager", "maybe", "should be yes or no"),
        ("target.hf_overrides", "{", 'should be JSON like {"name": 1} (line 1, column 2'),
        ("target.hf_overrides", "[1]", 'should be names with values: {"name": 1}'),
        ("target.hf_overrides", '{"a": NaN}', "a should be a finite number"),
        ("env", "A", "line 1 should be NAME=VALUE"),
        ("env", "A=1\nA=2", "line 2 sets A a second time"),
        ("env", "A=1\nHF_TOKEN=x", "HF_TOKEN looks like a secret"),
        ("env", 'A="\\"', "line 1 has a quoted value"),
        ("extra_args", "a\n--", "item 2 should not be a lone --"),
        ("parallel.device_ids", "[]", "should have at least 1 item"),
        ("speculation.synthetic_acceptance_rates", "0.5\nx", "line 2 should be a number"),
        ("speculation.synthetic_acceptance_rates", "0.5\n2", "item 2 should be at most 1"),
        ("speculation.num_speculative_tokens_per_batch_size", "1 2", "item 1"),
        ("speculation.num_speculative_tokens_per_batch_size", "a", "line 1 should be three whole numbers"),
        ("engine.environment", "/opt/x", "should be letters, digits, dots, dashes and underscores"),
        ("speculation.other", '{"model": 1}', "model has a field of its own"),
        ("speculation.method", "a\x07", "should be one line without control characters"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(path: str, text: str, words: str) -> None:
    problems = _problems(**{path.replace(".", "__"): text})
    assert list(problems) == [path]
    assert problems[path].startswith(words)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"speculation.prompt_lookup_min": "5", "speculation.prompt_lookup_max": "2"}, "speculation.prompt_lookup_min"),
        ({"speculation.synthetic_acceptance_length": "2"}, "speculation.rejection_sample_method"),
        ({"speculation.method": "draft_model"}, "speculation.model"),
    ],
)
def test_what_concerns_several_fields_stands_at_one_that_mends_it(values: dict[str, str], path: str) -> None:
    assert list(profile_text.read(None, "mine", {"target.model": "a/b"} | values)[1]) == [path]


def test_every_problem_is_told_at_once() -> None:
    assert set(_problems(server__port="x", server__host="-x", target__seed="?")) == {
        "server.port", "server.host", "target.seed",
    }  # fmt: skip


def test_what_a_form_does_not_show_stays() -> None:
    stored = next(one.profile for one in ProfileStore().list() if one.name == "demo")
    assert stored is not None
    assert stored.demo is not None
    profile, _ = profile_text.read(stored, "demo", {"target.model": "a/b"})
    assert profile is not None
    assert (profile.demo, profile.measured) == (stored.demo, stored.measured)
    assert (profile.target, profile.speculation) == (Target(model="a/b"), Speculation())
