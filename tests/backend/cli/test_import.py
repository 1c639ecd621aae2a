"""`specdeck import` and `specdeck export`: what they print, write and keep, and how they end."""

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backend.cli import app, versions
from backend.errors import UsageError, UserError
from backend.launch import environments, kept_secrets
from backend.launch.change_list import ChangeKind
from backend.launch.import_text import ImportTextError
from backend.launch.profile_store import ProfileStore
from tests.backend.launch.profile_cases import environment

BLOG = Path(__file__).parents[2] / "data" / "blog_launch.sh"


def _run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=text)


def _json(*words: str, text: str | None = None) -> dict[str, Any]:
    result = _run("import", *words, "--json", text=text)
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_json_has_the_profile_the_changes_and_the_findings() -> None:
    answer = _json(str(BLOG))
    assert answer["vllm"] == "0.32.0"
    assert answer["profile"]["name"] == "llama-3.3-70b-instruct"
    assert answer["profile"]["speculation"]["method"] == "draft_model"
    assert {tuple(sorted(change)) for change in answer["changes"]} == {("from", "kind", "to", "why")}
    assert {change["kind"] for change in answer["changes"]} <= {kind.value for kind in ChangeKind}
    assert {"severity", "what", "why", "fix", "field", "fixes"} == set(answer["findings"][0])
    assert (answer["moved"], answer["saved"]) == ([], None)
    assert ProfileStore().list()[0].read_only, "nothing was saved"


def test_older_releases_are_asked_for_by_name() -> None:
    answer = _json(str(BLOG), "--for-vllm", "0.10.2")
    assert answer["vllm"] == "0.10.2"
    assert "refused" in {change["kind"] for change in answer["changes"]}
    error = next(finding for finding in answer["findings"] if finding["severity"] == "error")
    assert error["field"] == "speculation.method"
    assert {"path": "speculation.method", "value": "ngram"} in error["fixes"][0]["profile_changes"]


def test_text_for_people_shows_each_change_and_the_profile() -> None:
    words = _run("import", "-", text="vllm serve a/b --swap-space 4 --turbo 1 --host 127.0.0.1").stdout
    assert 'model = "a/b"' in words
    assert "dropped    --swap-space 4" in words
    assert "unknown    --turbo 1" in words
    assert "never used swap" in words
    assert "Nothing was saved" in words


def test_save_keeps_the_profile_and_its_secrets_apart(xdg: Path) -> None:
    text = "HF_TOKEN=hf_geheim1 vllm serve a/b --api-key geheim2"
    answer = _json("-", "--save", "mine", text=text)
    file = xdg / "config" / "specdeck" / "profiles" / "mine.toml"
    assert answer["saved"] == str(file)
    assert tomllib.loads(file.read_text())["target"] == {"model": "a/b"}
    assert kept_secrets.load("mine") == {"HF_TOKEN": "hf_geheim1", "VLLM_API_KEY": "geheim2"}
    assert answer["moved"] == [{"what": name, "to": str(kept_secrets.file())} for name in ("HF_TOKEN", "VLLM_API_KEY")]
    assert "geheim" not in json.dumps(answer) + file.read_text()
    second = _run("import", "-", "--save", "mine", text="vllm serve c/d")
    assert isinstance(second.exception, UsageError)
    assert "already a profile named mine" in str(second.exception)
    assert kept_secrets.load("mine"), "a refused save takes nothing away"


def test_without_save_a_secret_is_kept_nowhere() -> None:
    answer = _json("-", text="vllm serve a/b --api-key geheim")
    assert answer["moved"][0]["what"] == "VLLM_API_KEY"
    assert "left out" in answer["moved"][0]["to"]
    assert not kept_secrets.file().exists()


def test_relative_paths_are_those_of_the_files_folder(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve ./model")
    assert _json(str(script))["profile"]["target"]["model"] == str(tmp_path / "model")


def test_a_running_process() -> None:
    words = [sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()", "vllm", "serve", "a/b"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        answer = _json("--pid", str(process.pid))
        process.communicate()
    assert answer["profile"]["target"]["model"] == "a/b"


@pytest.mark.parametrize(
    ("words", "text", "kind", "message"),
    [
        (["import"], None, UsageError, "Say what to import"),
        (["import", "-", "--pid", "1"], None, UsageError, "Say what to import"),
        (["import", "/nowhere/x"], None, UsageError, "no file /nowhere/x"),
        (["import", "-", "--for-vllm", "0.5.0"], "vllm serve a/b", UsageError, "from 0.8.5 on"),
        (["import", "-", "--for-vllm", "new"], "vllm serve a/b", UsageError, "no version"),
        (["import", "-"], "vllm serve $MODEL", ImportTextError, "Line 1, column 12"),
        (["import", "-", "--save", "no/name"], "vllm serve a/b", UserError, "no good name"),
        (["export", "nobody", "--as", "shell"], None, UsageError, "no profile named nobody"),
        (["export", "demo", "--as", "shell", "--nodes", "2"], None, UsageError, "Only Kubernetes"),
    ],
)
def test_errors_for_people(words: list[str], text: str | None, kind: type[UserError], message: str) -> None:
    error = _run(*words, text=text).exception
    assert isinstance(error, kind)
    assert message in str(error)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00vllm")
    error = _run("import", str(tmp_path / "x")).exception
    assert isinstance(error, UsageError)
    assert "no text in UTF-8" in str(error)


def test_the_installed_vllm_says_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = environment(version="0.31.0+cpu")
    monkeypatch.setattr(environments, "list_environments", lambda: (installed,))
    assert versions.accepted(None) is installed.probe
    assert versions.accepted("0.31.0") is installed.probe
    assert versions.accepted("0.30.0").version == "0.30.0"
    assert versions.accepted(None, environment_id="other") is installed.probe


@pytest.mark.parametrize("kind", ["shell", "docker", "compose", "systemd", "kubernetes"])
def test_an_export_is_printed_or_written(kind: str, tmp_path: Path) -> None:
    printed = _run("export", "llama-3.3-70b-draft-1b", "--as", kind)
    assert printed.exit_code == 0
    assert "meta-llama/Llama-3.3-70B-Instruct" in printed.stdout
    file = tmp_path / "out"
    assert _run("export", "llama-3.3-70b-draft-1b", "--as", kind, "-o", str(file)).exit_code == 0
    assert file.read_text() == printed.stdout
    executable = bool(stat.S_IMODE(file.stat().st_mode) & stat.S_IXUSR)
    assert executable == (kind in {"shell", "docker"})
    again = _json(str(file))
    assert again["profile"]["target"]["model"] == "meta-llama/Llama-3.3-70B-Instruct"


def test_the_command_itself_ends_with_codes() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "backend.cli", "import", "-"], input="vllm serve $M --api-key geheim", text=True,
        capture_output=True, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 1
    assert "Line 1, column 12: $M is not set" in done.stderr
    assert "            ^^" in done.stderr
    assert "geheim" not in done.stderr + done.stdout
