"""Imports of thousands of texts: never a crash, never a process, never an option that goes silently."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.errors import UserError
from backend.launch import importers, option_table, profile_toml
from backend.launch.import_profile import ImportResult
from backend.launch.option_table import OptionKind, table
from tests.backend.launch.test_import_containers import COMPOSE, DOCKER, MANIFEST, UNIT
from tests.backend.launch.test_importers import BLOG, SCRIPT

QUICK, WHOLE = 300, 10_000
_ANY = settings(max_examples=QUICK, deadline=None, suppress_health_check=list(HealthCheck))
_ALL = settings(max_examples=WHOLE, deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = (BLOG, SCRIPT, DOCKER, COMPOSE, MANIFEST, UNIT)
PIECES = (
    '"',
    "'",
    "\\",
    "\n",
    " ",
    "$",
    "${",
    "}",
    "{",
    "[",
    "]",
    "(",
    ")",
    "`",
    "<",
    ">",
    "|",
    "&",
    ";",
    "#",
    "=",
    "--",
    "-",
    ".",
    "+",
    "*",
    "~",
    "\t",
    "\u2026",
    "\u201c",
    "\u00a0",
    "\0",
    "\U0001f600",
    "None",
    "NaN",
    "1e999",
    "9" * 5000,
    "$((",
    "$(",
    "%",
    "%%",
    "$$",
    "!",
    "&a",
    "*a",
    "<<",
    "? ",
    ": ",
    "- ",
    "---\n",
    "services:\n",
    "apiVersion: v1\n",
    "[Service]\n",
    "ExecStart=",
    "vllm serve ",
    "docker run ",
    "sh -c ",
    '"$@"',
    "--api-key ",
    "-e ",
    "-v ",
    "-p ",
    "--gpus ",
    "\r",
    "--speculative-config",
    '{"a":',
    "-O",
    "-O.",
    "--x.",
    "-1",
    "true",
    "EXTRA=(",
    "export ",
    "/models",
    "./",
    "0.0.0.0",
)
VERSIONS = st.sampled_from(["0.32.0", "0.17.0", "0.10.2", "0.8.5"])


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A text that starts a server, cut and mixed in several places."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 0, 1, 3, 25]))
        piece = draw(st.sampled_from(PIECES) | st.just("") | st.text(max_size=8))
        text = text[:start] + piece + text[start + length :]
    return text


@pytest.fixture(scope="module", autouse=True)
def nothing_runs() -> Iterator[None]:
    """Any process that an import would start fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an import started a process")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("Popen", "run", "call", "check_output", "check_call"):
            patch.setattr(subprocess, name, refuse)
        for name in ("system", "popen", "fork", "execv", "execve", "execvp", "execvpe", "posix_spawn", "posix_spawnp"):
            patch.setattr(os, name, refuse)
        yield


def _import(text: str, version: str) -> ImportResult | None:
    """Import a text; only an error for people may come out of it."""
    try:
        return importers.from_text(text, probe=option_table.probe_of(version), folder="/srv")
    except UserError:
        return None


def _damaged_texts(text: str, version: str) -> None:
    result = _import(text, version)
    if result is not None:
        assert profile_toml.loads(profile_toml.dumps(result.profile), name=result.profile.name) == result.profile
        assert all(change.kind and change.why for change in result.changes)


@_ANY
@given(damaged() | st.text(max_size=200), VERSIONS)
def test_damaged_texts_never_crash(text: str, version: str) -> None:
    _damaged_texts(text, version)


@pytest.mark.full
@pytest.mark.timeout(1200)
@_ALL
@given(damaged() | st.text(max_size=200), VERSIONS)
def test_ten_thousand_damaged_texts_never_crash(text: str, version: str) -> None:
    _damaged_texts(text, version)


# ---- no option goes silently -----------------------------------------------------------------------------------------

values = st.sampled_from(
    ["1", "4", "0.5", "32k", "auto", "x", "a/b", "true", "[ngram]", '{"a": 1}', "{a: 1}", "it's", "-1"]
) | (
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
        lambda text: not text.startswith("-") and text.strip() == text
    )
)


@st.composite
def options(draw: st.DrawFn) -> list[str]:
    """The words of one option, of any release or of none, spelled in any way."""
    flag = draw(st.sampled_from(sorted(table().options)) | st.sampled_from(["--never-heard", "--x-y", "-zz"]))
    known = table().options.get(flag)
    spelled = flag
    if flag.startswith("--") and draw(st.booleans()):
        spelled = f"--{flag[2:].replace('-', '_')}"
    if known is not None and known.kind is OptionKind.SWITCH:
        return [draw(st.sampled_from([spelled, f"--no-{flag[2:]}"]))]
    if known is not None and known.kind is OptionKind.JSON and draw(st.booleans()):
        return [f"{spelled}.{draw(st.sampled_from(['method', 'a', 'b.c']))}", draw(values)]
    if draw(st.booleans()):
        return [f"{spelled}={draw(values)}"]
    return [spelled, draw(values)]


def _options_are_told(groups: list[list[str]], version: str) -> None:
    words = [word for group in groups for word in group]
    result = _import(f"vllm serve the/model {shlex.join(words)}", version)
    if result is None:
        return
    told = [change.from_ for change in result.changes]
    for group in groups:
        name = group[0].partition("=")[0]
        place = next(
            (at for at, one in enumerate(told) if one == name or one.startswith((f"{name} ", f"{name}="))), None
        )
        assert place is not None, (name, told)
        told.pop(place)
    in_profile = profile_toml.dumps(result.profile)
    for change in result.changes:
        if change.kind in {"dropped", "unknown"}:
            assert change.to == ""
        if change.kind == "kept" and change.to.startswith("extra_args"):
            assert change.to.split()[1] in in_profile


@_ANY
@given(st.lists(options(), min_size=1, max_size=6), VERSIONS)
def test_no_option_goes_silently(groups: list[list[str]], version: str) -> None:
    _options_are_told(groups, version)


@pytest.mark.full
@pytest.mark.timeout(1200)
@_ALL
@given(st.lists(options(), min_size=1, max_size=6), VERSIONS)
def test_of_ten_thousand_lines_no_option_goes_silently(groups: list[list[str]], version: str) -> None:
    _options_are_told(groups, version)


def test_what_is_planted_in_a_text_is_not_run(tmp_path: Path) -> None:
    """The same texts that a shell would run leave no trace here."""
    trace = tmp_path / "trace"
    for text in (
        f"touch {trace}; vllm serve a/b",
        f"vllm serve a/b --x $(touch {trace})",
        f"vllm serve a/b `touch {trace}`",
        f"services:\n  v: {{image: vllm/x, command: 'a/b $(touch {trace})'}}\n",
        f'services:\n  v: {{image: vllm/x, command: !!python/object/apply:os.system ["touch {trace}"]}}\n',
        f"[Service]\nExecStartPre=/bin/touch {trace}\nExecStart=vllm serve a/b\n",
        f"bash -c 'touch {trace}; vllm serve a/b'",
    ):
        _import(text, "0.32.0")
    assert not trace.exists()
