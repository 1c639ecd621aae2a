"""The table of options by release: it says what the sources said, and stands for a probe."""

import json
from pathlib import Path
from typing import Any

import pytest

from backend.errors import UsageError
from backend.launch import option_table
from backend.launch.option_table import OptionKind, at_least, history, parse_version, probe_of, release, table
from tests.backend.launch.profile_cases import recorded_probe
from tests.tools import make_option_table

VERSIONS = json.loads((Path(__file__).parents[2] / "data" / "vllm_versions.json").read_text())["versions"]
# The sources of these were read without their front end, so that the table fills in what stood before and after.
HALF_READ = {"0.30.0", "0.31.0"}


def test_the_table_is_the_one_that_its_maker_makes() -> None:
    probe = json.loads((Path(__file__).parents[2] / "data" / "vllm_0.32.0_probe.json").read_text())
    assert make_option_table.TABLE.read_text() == make_option_table.dumps(make_option_table.make(VERSIONS, probe))


@pytest.mark.parametrize("version", VERSIONS)
def test_each_release_has_what_its_sources_said(version: str) -> None:
    read: dict[str, Any] = VERSIONS[version]
    probe = probe_of(version)
    assert set(probe.spec_methods) == set(read["speculative_methods"])
    assert {field.name for field in probe.spec_fields} == set(read["speculative_fields"])
    flags = {flag for option in probe.options for flag in option.flags if flag.startswith("--")}
    said = set(read["serve_flags"]) - {"--help"}
    assert said <= flags
    added = {flag for flag in flags - said if not flag.startswith("--no-")}
    if version not in HALF_READ:
        assert added == set()
    else:
        assert {"--host", "--port", "--api-key"} <= added


def test_the_newest_release_is_as_its_parser_said() -> None:
    probe, real = probe_of("0.32.0"), recorded_probe()

    def flags(options: Any) -> set[str]:
        return {flag for option in options for flag in option.flags}

    assert flags(probe.options) == flags(real.options)
    choices = {option.flags[0]: option.choices for option in real.options if option.flags and option.choices}
    assert {option.flags[0]: option.choices for option in probe.options if option.choices} == choices
    switches = {option.flags[0] for option in real.options if option.type == "bool"}
    assert {option.flags[0] for option in probe.options if option.type == "bool"} == switches


def test_old_switches_had_no_form_that_switches_off() -> None:
    assert not probe_of("0.8.5").accepts("--no-enforce-eager")
    assert probe_of("0.8.5").accepts("--no-enable-prefix-caching")
    assert probe_of("0.32.0").accepts("--no-enforce-eager")


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--swap-space", "gone since 0.18.0"),
        ("--device-ids", "came with 0.24.0"),
        ("--speculative-model", "gone before 0.8.5"),
        ("--cuda-graph-sizes", "came with 0.9.0.1, gone since 0.13.0"),
        ("--model", ""),
        ("--never-heard", ""),
    ],
)
def test_the_history_of_an_option_in_words(flag: str, words: str) -> None:
    assert history(flag) == words


@pytest.mark.parametrize(
    ("version", "stands_for"),
    [
        ("0.8.5", "0.8.5"),
        ("0.8.5.post1", "0.8.5"),
        ("v0.10.2", "0.10.2"),
        ("0.9.0", "0.9.0.1"),
        ("0.9.1", "0.9.0.1"),
        ("0.27.1", "0.26.0"),
        ("0.32.0+cpu", "0.32.0"),
        ("0.32.1", "0.32.0"),
        ("1.0", "0.32.0"),
        ("0.28.1rc2", "0.28.0"),
    ],
)
def test_a_version_is_read_as_the_release_before_it(version: str, stands_for: str) -> None:
    assert release(version) == stands_for


@pytest.mark.parametrize("version", ["0.8.4", "0.5.5", "0.7"])
def test_older_releases_are_not_known(version: str) -> None:
    with pytest.raises(UsageError, match=r"from 0\.8\.5 on"):
        release(version)


@pytest.mark.parametrize("text", ["", "newest", "x0.1", "-1"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(UsageError, match="no version"):
        parse_version(text)


def test_versions_are_compared_as_numbers() -> None:
    assert at_least("0.10.0", "0.9.2")
    assert not at_least("0.9.2", "0.10.0")
    assert at_least("0.8.5.post1", "0.8.5")


def test_every_option_of_the_table_has_a_kind_that_its_parser_agrees_with() -> None:
    kinds = {flag: option.kind for flag, option in table().options.items()}
    assert kinds["--speculative-config"] is OptionKind.JSON
    assert kinds["--served-model-name"] is OptionKind.LIST
    assert kinds["--enforce-eager"] is OptionKind.SWITCH
    assert kinds["--use-v2-block-manager"] is OptionKind.SWITCH
    assert kinds["--swap-space"] is OptionKind.VALUE
    assert kinds["--hf-token"] is OptionKind.OPTIONAL


def test_uuids_of_gpus_are_resolved_from_0_24_on() -> None:
    assert [probe_of(version).gpu_uuids for version in ("0.12.0", "0.17.0", "0.23.0", "0.24.0", "0.32.0")] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert option_table.table().newest == "0.32.0"
