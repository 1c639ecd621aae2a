"""The profile's schema: what it takes, what it refuses, and how it goes through TOML."""

import tomllib

import pytest
from hypothesis import given, settings

from backend.errors import ProfileError
from backend.launch import profile_toml
from backend.launch.profile import FIELDS, Profile
from backend.launch.profile_model import Speculation, Target
from tests.backend.launch.profile_cases import profiles

MINIMAL = '[target]\nmodel = "a/b"\n'


def _error(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile_toml.loads(text, name="mine")
    return caught.value.message


@settings(max_examples=60, deadline=None)
@given(profiles)
def test_every_field_goes_through_toml_and_back(profile: Profile) -> None:
    assert profile_toml.loads(profile_toml.dumps(profile), name="mine") == profile


@settings(max_examples=60, deadline=None)
@given(profiles, profiles)
def test_an_edit_says_exactly_what_it_should(before: Profile, after: Profile) -> None:
    text = profile_toml.dumps(before)
    assert profile_toml.loads(profile_toml.edit(text, after), name="mine") == after


@settings(max_examples=25, deadline=None)
@given(profiles)
def test_an_edit_that_changes_nothing_leaves_the_text_alone(profile: Profile) -> None:
    text = profile_toml.dumps(profile)
    assert profile_toml.edit(text, profile) == text


def test_an_edit_keeps_comments_order_and_spelling() -> None:
    text = (
        "# mine\nschema = 1\n\n[server]\nport = 8_000 # the usual one\n\n"
        '[target] # what runs\nmodel = "a/b" # the model\n# a remark\nmax_model_len = 4_096\n'
        "\n[scheduler]\nmax_num_seqs = 4 # few\n# last words\n"
    )
    profile = profile_toml.loads(text, name="mine")
    target = profile.target.model_copy(update={"max_model_len": 2048, "dtype": "bfloat16"})
    scheduler = profile.scheduler.model_copy(update={"max_num_seqs": 8})
    edited = profile_toml.edit(text, profile.model_copy(update={"target": target, "scheduler": scheduler}))
    assert edited == (
        "# mine\nschema = 1\n\n[server]\nport = 8_000 # the usual one\n\n"
        '[target] # what runs\nmodel = "a/b" # the model\n# a remark\nmax_model_len = 2048\n'
        'dtype = "bfloat16"\n'
        "\n[scheduler]\nmax_num_seqs = 8 # few\n# last words\n"
    )


def test_an_edit_reaches_tables_that_are_written_apart() -> None:
    text = '[target]\nmodel = "a/b"\n[memory]\nenforce_eager = true\n[target.hf_overrides]\nx = 1\n'
    profile = profile_toml.loads(text, name="mine")
    target = profile.target.model_copy(update={"hf_overrides": {"x": 2}, "model": "c/d"})
    edited = profile_toml.edit(text, profile.model_copy(update={"target": target}))
    assert tomllib.loads(edited) == {
        "schema": 1,
        "target": {"model": "c/d", "hf_overrides": {"x": 2}},
        "memory": {"enforce_eager": True},
    }


OLD = """# an old file
speculative_model = "d/e" # the draft
num_speculative_tokens = 3
ngram_prompt_lookup_min = 2
ngram_prompt_lookup_max = 5

[target]
model = "a/b"
"""


def test_a_file_of_schema_0_is_read_as_today() -> None:
    profile = profile_toml.loads(OLD, name="mine")
    assert profile.speculation == Speculation(
        model="d/e", num_speculative_tokens=3, prompt_lookup_min=2, prompt_lookup_max=5
    )
    assert profile.schema_version == 1


def test_an_edit_of_a_file_of_schema_0_writes_todays_and_keeps_comments() -> None:
    edited = profile_toml.edit(OLD, profile_toml.loads(OLD, name="mine"))
    assert tomllib.loads(edited) == {
        "schema": 1,
        "target": {"model": "a/b"},
        "speculation": {
            "model": "d/e", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 5,
        },
    }  # fmt: skip
    assert "# an old file" in edited
    assert "# the draft" in edited


def test_a_newer_file_is_refused_in_words() -> None:
    assert _error(f"schema = 2\n{MINIMAL}") == "The file has schema 2; this Specdeck knows up to 1."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[target\n", "line 1"),
        ("", "target is missing"),
        ('[target]\nmodel = "a/b"\nmodle = 1\n', "line 3: target.modle is no field of a profile (did you mean model?)"),
        (f'name = "x"\n{MINIMAL}', "line 1: name should not stand in the file"),
        (f'{MINIMAL}[server]\nport = "80"\n', "line 4: server.port should be a whole number (it is '80')"),
        (f"{MINIMAL}[server]\nport = true\n", "line 4: server.port should be a whole number (it is True)"),
        (f"{MINIMAL}server.port = 0\n", "target.server is no field"),
        (f"server.port = 0\n{MINIMAL}", "line 1: server.port should be greater than or equal to 1 (it is 0)"),
        (f"{MINIMAL}[memory]\ngpu_memory_utilization = nan\n", "line 4: memory.gpu_memory_utilization"),
        (f"{MINIMAL}[memory]\ngpu_memory_utilization = 90\n", "should be less than or equal to 1 (it is 90)"),
        ('[target]\nmodel = "-rf"\n', "line 2: target.model should not start with a dash"),
        ('[target]\nmodel = "./here"\n', "line 2: target.model should be a full path"),
        ('[target]\nmodel = "https://x/y"\n', "line 2: target.model should be a hub id"),
        ('[target]\nmodel = "specdeck://../x"\n', "line 2: target.model should be a hub id"),
        (
            f"{MINIMAL}[speculation]\nprompt_lookup_min = 5\nprompt_lookup_max = 2\n",
            "line 3: speculation: the shortest",
        ),
        (f'{MINIMAL}[speculation]\nmethod = "draft_model"\n', "needs a draft model"),
        (f"{MINIMAL}[speculation]\nsynthetic_acceptance_length = 2.0\n", 'need rejection_sample_method = "synthetic"'),
        (f"{MINIMAL}[speculation.other]\nmodel = 1\n", "model has a field of its own"),
        (f"{MINIMAL}[speculation.other]\nx = inf\n", "line 4: speculation.other"),
        (f"{MINIMAL}[speculation.other]\nx = 2026-01-01\n", "speculation.other"),
        (f'{MINIMAL}[env]\nHF_TOKEN = "geheim"\n', "line 4: env.HF_TOKEN looks like a secret"),
        (f'{MINIMAL}[env]\nVLLM_API_KEY = "geheim"\n', "line 4: env.VLLM_API_KEY looks like a secret"),
        (f'{MINIMAL}[env]\nSPECDECK_RUN_ID = "x"\n', "line 4: env.SPECDECK_RUN_ID is set by Specdeck itself"),
        (f'{MINIMAL}[env]\nVLLM_PORT = "1"\n', "line 4: env.VLLM_PORT is set by Specdeck itself"),
        (f'{MINIMAL}[env]\n"A B" = "1"\n', "is no name of an environment variable"),
        (f'{MINIMAL}[engine]\nenvironment = "/opt/x"\n', "line 4: engine.environment"),
        (f'extra_args = ["--"]\n{MINIMAL}', "line 1: extra_args.0 should not be a lone --"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_field(text: str, words: str) -> None:
    message = _error(text)
    assert words in message
    assert "geheim" not in message


def test_a_tokenizer_setting_is_no_secret() -> None:
    text = f'{MINIMAL}[env]\nTOKENIZERS_PARALLELISM = "false"\n'
    assert profile_toml.loads(text, name="mine").env == {"TOKENIZERS_PARALLELISM": "false"}


def test_every_problem_is_named_at_once() -> None:
    message = _error(f'{MINIMAL}[server]\nport = 0\nhost = ""\n')
    assert "server.port" in message
    assert "server.host" in message


def test_every_field_is_documented_for_a_form() -> None:
    for field in FIELDS:
        assert field.title, field.path
        assert field.description.endswith("."), field.path
        assert field.group, field.path
    sizes = [field for field in FIELDS if field.path.endswith(("_bytes", "_gib"))]
    assert {field.unit for field in sizes} == {"bytes", "GiB"}
    assert len({field.path for field in FIELDS}) == len(FIELDS)


def test_a_profile_cannot_be_changed() -> None:
    profile = Profile(name="mine", target=Target(model="a/b"))
    with pytest.raises(ValueError, match="frozen"):
        profile.target.model = "c/d"  # type: ignore[misc]
