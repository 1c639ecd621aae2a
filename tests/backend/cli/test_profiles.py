"""`specdeck profiles`: what it prints and how it exits."""

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backend.cli.profiles import app
from backend.errors import EngineEnvironmentError, ProfileError, UsageError
from backend.launch import environments
from tests.backend.launch.profile_cases import environment

TARGET = '[target]\nmodel = "a/b"\n'


def _run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def own(xdg: Path) -> Path:
    folder = xdg / "config" / "specdeck" / "profiles"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Stand for an installed vLLM 0.32.0; the list holds the environments that were asked for."""
    asked: list[str | None] = []

    def choose(wanted: str | None = None, *, on_wait: object = None) -> environments.EngineEnvironment:
        asked.append(wanted)
        return environment()

    monkeypatch.setattr(environments, "choose", choose)
    return asked


def test_list_shows_presets_own_and_damaged_ones(own: Path) -> None:
    (own / "mine.toml").write_text(TARGET)
    (own / "bad.toml").write_text("[target]\nmodel = 1\n")
    text = _run("list").stdout
    for words in ("demo-ngram", "mine", "damaged", "line 2: target.model should be text in quotes"):
        assert words in text
    entries = {entry["name"]: entry for entry in json.loads(_run("list", "--json").stdout)}
    assert entries["mine"]["profile"]["target"] == {"model": "a/b"}
    assert entries["mine"]["problem"] is None
    assert entries["mine"]["read_only"] is False
    assert entries["demo"]["read_only"] is True
    assert entries["bad"]["profile"] is None
    assert "line 2" in entries["bad"]["problem"]


def test_show_prints_the_file_itself(own: Path) -> None:
    text = f"# a remark\n{TARGET}"
    (own / "mine.toml").write_text(text)
    assert _run("show", "mine").stdout == text


def test_show_command_prints_what_would_run(own: Path, engine: list[str | None]) -> None:
    (own / "mine.toml").write_text(f'{TARGET}[engine]\nenvironment = "work"\n')
    lines = _run("show", "mine", "--command").stdout.splitlines()
    assert "  --served-model-name a/b \\" in lines
    assert engine == ["work"]
    _run("show", "mine", "--command", "--engine", "other")
    assert engine == ["work", "other"]


def test_copy_makes_a_profile_of_ones_own(xdg: Path) -> None:
    result = _run("copy", "demo", "mine")
    path = xdg / "config" / "specdeck" / "profiles" / "mine.toml"
    assert str(path) in result.stdout
    assert tomllib.loads(path.read_text())["target"]["model"] == "specdeck://smollm2-135m-instruct"
    with pytest.raises(ProfileError, match="already"):
        CliRunner().invoke(app, ["copy", "demo", "mine"], catch_exceptions=False)


def test_check_of_a_sound_profile(own: Path, engine: list[str | None]) -> None:
    (own / "mine.toml").write_text(TARGET)
    result = _run("check", "mine")
    assert (result.exit_code, result.stdout) == (0, "mine: fine for vLLM 0.32.0 (test)\n")


def test_check_of_all_presets_finds_no_error(engine: list[str | None]) -> None:
    result = _run("check")
    assert result.exit_code == 0, result.stdout
    assert "demo: note: memory.gpu_memory_utilization: a cpu engine does not use it." in result.stdout


def test_check_tells_every_finding_and_fails(own: Path, engine: list[str | None], tmp_path: Path) -> None:
    (own / "bad.toml").write_text("[target]\nmodel = 1\n")
    file = tmp_path / "given.toml"
    file.write_text(f'{TARGET}dtype = "float8"\n[env]\nLD_PRELOAD = "/x.so"\n[server]\nhost = "0.0.0.0"\n')
    result = _run("check", str(file))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == (
        "given: note: env.LD_PRELOAD changes which system libraries are loaded; you will be asked before a start."
    )
    assert "given: error: target.dtype: vLLM 0.32.0 does not know 'float8'" in result.stdout
    assert "given: error: server.host: 0.0.0.0 can be reached by other machines" in result.stdout
    assert _run("check", "bad").exit_code == 1
    assert _run("check").exit_code == 1


def test_check_without_an_engine_checks_the_file(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise EngineEnvironmentError("No vLLM is installed.", "Install one.")

    monkeypatch.setattr(environments, "choose", none)
    (own / "mine.toml").write_text(TARGET)
    result = _run("check", "mine")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "mine: fine",
        "Options were not checked against a vLLM: No vLLM is installed. Install one.",
    ]


def test_a_profile_for_an_environment_that_is_gone_hinders_no_other(own: Path) -> None:
    (own / "mine.toml").write_text(f'{TARGET}[engine]\nenvironment = "gone"\n')
    result = _run("check")
    assert result.exit_code == 0
    assert "demo: fine" in result.stdout
    assert "There is no engine environment named 'gone'." in result.stdout
    with pytest.raises(UsageError, match="named 'lost'"):
        CliRunner().invoke(app, ["check", "mine", "--engine", "lost"], catch_exceptions=False)


def test_an_unknown_profile_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="Did you mean demo"):
        CliRunner().invoke(app, ["check", "dem"], catch_exceptions=False)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    result = _run("check", str(tmp_path / "gone.toml"))
    assert result.exit_code == 1
    assert "The file cannot be read: No such file or directory." in result.stdout
